//go:build cuda

package driver

import (
	"errors"
	"fmt"
	"sync"

	"gorgonia.org/cu"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// openings are the devices of this process that have a context, by GPU. A fault of a kernel breaks
// every context that the process has on the GPU, not only the one that it ran in, and a broken
// context may keep a new one from being made.
var openings struct {
	sync.Mutex
	by map[int]map[*Device]struct{}
}

// join makes the device's context and enters it among the openings. The contexts that a fault has
// broken are destroyed first.
func (d *Device) join(chip cu.Device) error {
	openings.Lock()
	var broken []*Device
	for o := range openings.by[d.index] {
		if o.broken.Load() != nil {
			broken = append(broken, o)
		}
	}
	openings.Unlock()
	for _, o := range broken {
		o.life.Lock() // the calls under way end, and none begins
		if err := o.bury(); err != nil {
			d.log.Warn("a broken context is not destroyed", "device", o.props.Name, "generation", o.props.Generation,
				"err", err)
		}
		o.life.Unlock()
	}
	if err := d.makeContext(chip); err != nil {
		if errors.Is(err, device.ErrSticky) { // a context that does not exist yet cannot be broken by itself
			return fmt.Errorf("%w: %w", err, device.ErrRestart)
		}
		return err
	}
	openings.Lock()
	defer openings.Unlock()
	if openings.by == nil {
		openings.by = map[int]map[*Device]struct{}{}
	}
	if openings.by[d.index] == nil {
		openings.by[d.index] = map[*Device]struct{}{}
	}
	openings.by[d.index][d] = struct{}{}
	return nil
}

// bury destroys the context, once. d.life is held for writing.
func (d *Device) bury() error {
	if d.buried {
		return nil
	}
	d.buried = true
	openings.Lock()
	delete(openings.by[d.index], d)
	openings.Unlock()
	if err := d.ctx.Destroy(); err != nil && d.broken.Load() == nil {
		return callError("cuCtxDestroy of "+d.props.Name, codeOf(err))
	}
	return nil
}

// fall breaks the device, and with it every opening of the same GPU.
func (d *Device) fall(err error) {
	if !d.broken.CompareAndSwap(nil, &err) {
		return
	}
	d.log.Error("device is broken", "device", d.props.Name, "generation", d.props.Generation, "err", err)
	openings.Lock()
	defer openings.Unlock()
	for o := range openings.by[d.index] {
		if o != d {
			o.broken.CompareAndSwap(nil, &err)
		}
	}
}
