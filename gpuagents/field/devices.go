package field

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// MaxDevices is the most devices of a shard.
const MaxDevices = 8

// Peer is a further device for a shard. It is of the same kind as the first one and belongs to the
// caller, who closes it after the Field.
type Peer struct {
	Device device.Device
	// Budget is the memory for pages on the device; nil: all of it.
	Budget *pages.Budget
}

// PeerError is an error of a peer device. It wraps the error of the device.
type PeerError struct {
	Device device.Device
	Err    error
}

// Error implements error.
func (e *PeerError) Error() string {
	return fmt.Sprintf("%s, which shares the ticks: %v", e.Device.Properties().Name, e.Err)
}

// Unwrap returns the error of the device.
func (e *PeerError) Unwrap() error { return e.Err }

// Device is a stream and scratch memory on one device of a shard. One goroutine uses it.
type Device struct {
	Device device.Device
	Stream device.Stream
	Memory device.Buffer

	peer       bool
	reached    device.Event // the point of the stream that a barrier waits for
	allocation *pages.Allocation
	close      []func() error // in this order
}

// openPeers opens peers. bytes returns the scratch memory of each for a number of devices, the
// first one included. A peer without room is left out, and fewer devices need more bytes each. Any
// other error of a peer is a *PeerError, and no device is open then.
func openPeers(peers []Peer, bytes func(devices int) int64) (all []*Device, err error) {
	for n := min(len(peers)+1, MaxDevices); n > 1; n-- {
		for _, p := range peers {
			d, err := openPeer(p, bytes(n))
			if errors.Is(err, device.ErrOutOfMemory) {
				continue
			}
			if err != nil {
				return nil, errors.Join(err, closeDevices(all))
			}
			if all = append(all, d); len(all) == n-1 {
				return all, nil
			}
		}
		err := closeDevices(all)
		if all = nil; err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func openPeer(p Peer, bytes int64) (d *Device, err error) {
	d = &Device{Device: p.Device, peer: true}
	defer func() {
		if err != nil {
			err = d.Fail(errors.Join(err, d.Close()))
			d = nil
		}
	}()
	if d.allocation, err = p.Budget.Take(bytes); err != nil {
		return d, err
	}
	if d.Memory, err = p.Device.Alloc(bytes, "team"); err != nil {
		return d, err
	}
	d.close = append(d.close, d.Memory.Close)
	if d.Stream, err = p.Device.NewStream(); err != nil {
		return d, err
	}
	d.close = append([]func() error{d.Stream.Close}, d.close...) // it waits for the work that uses the memory
	if d.reached, err = p.Device.NewEvent(); err != nil {
		return d, err
	}
	d.close = append(d.close, d.reached.Close)
	return d, nil
}

// Fail marks an error of the device, and says which device it is.
func (d *Device) Fail(err error) error {
	if err == nil {
		return nil
	}
	if err = gpubatch.Mark(err); d.peer {
		err = &PeerError{d.Device, err}
	}
	return err
}

// Range returns a part of the memory as an argument of kernels.
func (d *Device) Range(off, bytes int64) device.Arg { return device.Range(d.Memory, off, bytes) }

// Close releases what the shard has on the device, after the work of its stream. A second call does
// nothing.
func (d *Device) Close() error {
	err := closeAll(d.close)
	d.close = nil
	d.allocation.Release()
	return err
}

func closeDevices(all []*Device) error {
	var errs []error
	for _, d := range all {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// Devices are the devices of a shard that make its ticks together. The first one has the pages.
type Devices struct {
	All   []*Device
	marks [2]device.Event // of the stream of the first device, after alternate batches of ticks
}

// OpenDevices opens at most most devices. bytes returns the scratch memory of each peer for a
// number of devices; 0: they are too many. memory is the scratch memory of the first device. A nil
// result means that one device makes all ticks. Closing the field closes the result, and not the
// peers.
func (f *Field) OpenDevices(peers []Peer, most int, memory device.Buffer, bytes func(devices int) int64) (*Devices,
	error,
) {
	peers = peers[:min(len(peers), max(0, most-1))]
	for len(peers) > 0 && bytes(len(peers)+1) == 0 {
		peers = peers[:len(peers)-1]
	}
	if len(peers) == 0 {
		return nil, nil
	}
	further, err := openPeers(peers, bytes)
	if err != nil || len(further) == 0 {
		return nil, err
	}
	// All streams end before memory is released that one of them uses.
	f.close = append([]func() error{func() error { return stop(further) }}, f.close...)
	f.AddClose(func() error { return closeDevices(further) })
	first := &Device{Device: f.dev, Stream: f.Stream, Memory: memory}
	d := &Devices{All: append([]*Device{first}, further...)}
	for _, to := range []*device.Event{&first.reached, &d.marks[0], &d.marks[1]} {
		if *to, err = f.dev.NewEvent(); err != nil {
			return nil, gpubatch.Mark(err)
		}
		f.AddClose((*to).Close)
	}
	return d, f.Sync(context.Background()) // peers read what the stream has made so far
}

// stop waits for the work of the streams of devices and closes the streams.
func stop(all []*Device) error {
	var errs []error
	for _, d := range all {
		errs = append(errs, d.Stream.Close())
	}
	return errors.Join(errs...)
}

// List returns the devices.
func (d *Devices) List() (all []device.Device) {
	for _, one := range d.All {
		all = append(all, one.Device)
	}
	return all
}

// Barrier makes each stream wait for the work already queued in the streams of of(i).
func (d *Devices) Barrier(of func(i int) []*Device) error {
	for _, one := range d.All {
		if err := one.Stream.Record(one.reached); err != nil {
			return one.Fail(err)
		}
	}
	for i, one := range d.All {
		for _, other := range of(i) {
			if other == one {
				continue
			}
			if err := one.Stream.Wait(other.reached); err != nil {
				return one.Fail(err)
			}
		}
	}
	return nil
}

// Everyone returns all devices, for a Barrier between all of them.
func (d *Devices) Everyone(int) []*Device { return d.All }

// Sync waits for all work of the streams.
func (d *Devices) Sync(ctx context.Context) error {
	var errs []error
	for _, one := range d.All {
		errs = append(errs, one.Fail(one.Stream.Sync(ctx)))
	}
	return errors.Join(errs...)
}

// Run puts work into the streams and waits for it, also if put fails.
func (d *Devices) Run(wait context.Context, put func() error) error {
	if err := put(); err != nil {
		return errors.Join(err, d.Sync(wait))
	}
	return d.Sync(wait)
}

// Steps puts n ticks into the streams: exchange gives each device what it needs from the others for
// tick number k, and launch puts the tick on device number i. Two batches of ticks are in the
// streams at a time. Before each batch, Steps checks ctx.
func (d *Devices) Steps(ctx, wait context.Context, n, batch int, exchange func(k int) error,
	launch func(i, k int) error,
) error {
	for k := range n {
		if k%batch == 0 {
			if err := d.pace(ctx, wait, k/batch); err != nil {
				return err
			}
		}
		if err := exchange(k); err != nil {
			return err
		}
		for i := range d.All {
			if err := launch(i, k); err != nil {
				return err
			}
		}
		if k%batch == batch-1 {
			if err := d.All[0].Stream.Record(d.marks[k/batch%len(d.marks)]); err != nil {
				return gpubatch.Mark(err)
			}
		}
	}
	return nil
}

// pace waits before a batch until the first device has made the last batch but one, so that the
// streams do not run empty, and checks ctx.
func (d *Devices) pace(ctx, wait context.Context, batch int) error {
	if batch >= len(d.marks) {
		if err := d.marks[batch%len(d.marks)].Sync(wait); err != nil {
			return gpubatch.Mark(err)
		}
	}
	return context.Cause(ctx)
}

// align is a multiple of device.RangeAlign, and of the lines of caches.
const align = 256

// Aligned rounds bytes up to an offset at which an argument of a kernel can start.
func Aligned(bytes int64) int64 { return (bytes + align - 1) / align * align }
