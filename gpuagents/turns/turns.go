// Package turns double-buffers the pages of a shard: each step reads one generation of its agents and
// writes the next one, and then the two change places. Packages grid and lattice make the steps.
package turns

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// Options are the sizes of the pages.
type Options struct {
	// What names the agents in errors, as in "a grid of 3 x 3 cells".
	What      string
	Groups    int
	Pages     int
	PageBytes int
	// OtherBytes is the size of the second generation, 0: that of the pages.
	OtherBytes int64
	// Beside is what the owner allocates further, in bytes.
	Beside int64
}

// Bytes returns what Open allocates beside the pages, and the owner, in bytes.
func (o Options) Bytes() int64 { return o.other() + 8*int64(o.Pages) + o.Beside }

// other returns the size of the second generation.
func (o Options) other() int64 { return max(o.OtherBytes, int64(o.Pages)*int64(o.PageBytes)) }

// Turns is the pages on a device, all of them, and the second generation. Between two calls the state is in
// the pages. The fields do not change, and belong to the Turns.
//
// One goroutine uses a Turns at a time; its owner closes it before the device. After an error of the
// device, a fault.ErrDevice, and after the end of a context, the state is undefined.
type Turns struct {
	Device device.Device
	Stream device.Stream
	Memory *pages.Memory
	// Frames is the copy of the table of frames, and Places that of the other generation, whose frames
	// are in the order of the pages.
	Frames, Places, Other device.Buffer

	o     Options
	close []func() error // in this order
}

// Open allocates pages that take the budget b, which must have room for all of them on the device, and what is
// beside them. The pages are not open: the caller opens Memory.
func Open(d device.Device, b *pages.Budget, o Options) (t *Turns, err error) {
	t = &Turns{Device: d, o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
			t = nil
		}
	}()
	if t.Stream, err = d.NewStream(); err != nil {
		return t, err
	}
	t.close = append(t.close, t.Stream.Close) // first: it waits for the work that uses the memory
	whole := b.AllOnDevice().WithBeside(o.Bytes())
	if t.Memory, err = pages.NewMemory(d, whole, o.Groups, o.PageBytes, o.Pages); err != nil {
		return t, err
	}
	t.close = append(t.close, t.Memory.Close)
	if !t.Memory.Resident() { // other processes have taken memory that the budget counts
		return t, fault.Mark(fmt.Errorf("%s: its pages are not all on the device: %w", o.What,
			device.ErrOutOfMemory))
	}
	places := make([]uint32, o.Pages)
	for i := range places {
		places[i] = uint32(i)
	}
	for _, m := range []struct {
		to    *device.Buffer
		bytes int64
	}{{&t.Frames, 4 * int64(o.Pages)}, {&t.Places, 4 * int64(o.Pages)}, {&t.Other, o.other()}} {
		if *m.to, err = t.Alloc(m.bytes, "grid"); err != nil {
			return t, err
		}
	}
	return t, t.Places.Write(0, device.Bytes(places))
}

// Alloc allocates memory that Close releases.
func (t *Turns) Alloc(bytes int64, purpose string) (device.Buffer, error) {
	m, err := t.Device.Alloc(bytes, purpose)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.o.What, err)
	}
	t.close = append(t.close, m.Close)
	return m, nil
}

// Sync waits for all work of the stream.
func (t *Turns) Sync(ctx context.Context) error { return fault.Mark(t.Stream.Sync(ctx)) }

// Steps puts n steps into the stream and waits for them. step launches one, from the pages to the other
// generation if away, and else back. Steps looks at the end of ctx after each most steps, and waits for those
// with the context wait. All pages exist, and Frames is up to date.
func (t *Turns) Steps(ctx, wait context.Context, n, most int, step func(i int, away bool) error) error {
	for i := range n {
		if i%most == 0 {
			if err := t.Sync(wait); err != nil {
				return err
			}
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		if err := step(i, i%2 == 0); err != nil {
			return fault.Mark(errors.Join(err, t.Stream.Sync(wait)))
		}
	}
	if n%2 == 1 {
		if err := t.back(); err != nil {
			return fault.Mark(errors.Join(err, t.Stream.Sync(wait)))
		}
	}
	return t.Sync(wait)
}

// Generation is the arguments of a step for one of the two generations.
type Generation struct{ Pages, Frames device.Arg }

// Generations returns the generation that a step reads, and the one that it writes.
func (t *Turns) Generations(away bool) (from, to Generation) {
	from = Generation{device.Ptr(t.Memory.Arena()), device.Ptr(t.Frames)}
	to = Generation{device.Ptr(t.Other), device.Ptr(t.Places)}
	if !away {
		from, to = to, from
	}
	return from, to
}

// back copies the other generation into the pages, after an odd number of steps.
func (t *Turns) back() error {
	size := int64(t.o.PageBytes)
	for page := range t.Memory.Count() {
		frame := int64(t.Memory.Frame(page))
		if err := t.Stream.Copy(t.Memory.Arena(), frame*size, t.Other, int64(page)*size, size); err != nil {
			return err
		}
	}
	return nil
}

// Before makes Close begin with a function.
func (t *Turns) Before(release func() error) { t.close = append([]func() error{release}, t.close...) }

// After makes Close end with a function.
func (t *Turns) After(release func() error) { t.close = append(t.close, release) }

// Close releases everything on the device. A second call does nothing.
func (t *Turns) Close() error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, release := range t.close {
		errs = append(errs, release())
	}
	t.close = nil
	return errors.Join(errs...)
}
