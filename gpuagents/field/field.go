// Package field is the base of swarms whose agents have neighbours: pages that are all on one
// device, columns of variables that are gathered and scattered, the links of a graph, the loop of
// ticks, the double buffer of the pages, and the further devices that share the ticks of a shard.
package field

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// Options are the sizes of a Field.
type Options struct {
	// What names the agents in errors, as in "a grid of 3 x 3 cells", and Purpose their memory on the
	// device.
	What, Purpose string
	// Links names the links of a graph in a RoomError, as in " and 10 links".
	Links string
	// Fewer is the cure in a RoomError. Without it, an allocation returns the error of the device.
	Fewer  string
	Agents int64
	Layout kernels.Layout
	// States is the number of states of an agent, which are bytes at the start of a page.
	States int
	// Beside is what the owner allocates beside the pages, in bytes.
	Beside int64
	// Second is the size of the second generation of the pages; 0: there is none. See Double.
	Second int64
	// Invalid is wrapped by errors about mistakes of the caller.
	Invalid error
}

// Double gives the field a second generation of its pages, of at least least bytes.
func (o Options) Double(least int64) Options {
	o.Second = max(least, int64(o.pages())*int64(o.Layout.PageBytes))
	return o
}

// Bytes returns what the field and its owner allocate beside the pages, in bytes.
func (o Options) Bytes() int64 {
	bytes := o.Beside + 4*int64(o.pages())
	if o.Second > 0 {
		bytes += o.Second + 4*int64(o.pages())
	}
	return bytes
}

func (o Options) pages() int {
	per := int64(o.Layout.Slots * o.Layout.Agents)
	return int((o.Agents + per - 1) / per)
}

// Field is agents with ids from 0 on, whose pages are all on a device. Between two calls the state
// is in the pages. Its methods that say sizes work before Open. The fields do not change after
// Open.
//
// One goroutine uses a Field at a time. Its owner closes it before the device. After an error of
// the device, a gpubatch.ErrDevice, and after the end of a context, the state is undefined.
type Field struct {
	Stream  device.Stream
	Frames  device.Buffer // a copy of the table of frames
	Columns Columns       // the states of agents

	dev    device.Device
	memory *pages.Memory
	o      Options
	close  []func() error // in this order
}

// New returns a field with nothing on a device.
func New(o Options) *Field { return &Field{o: o} }

// Reserve adds to the bytes that the owner allocates beside the pages. It is called before Open.
func (f *Field) Reserve(bytes int64) { f.o.Beside += bytes }

// Bytes returns Options.Bytes.
func (f *Field) Bytes() int64 { return f.o.Bytes() }

// Open allocates pages that take the budget b, which must have room for all of them on the device.
// The pages are not open: the caller opens Memory, empty or with a checkpoint, before the first
// call. The caller closes the Field also after an error.
func (f *Field) Open(d device.Device, b *pages.Budget) (err error) {
	f.dev = d
	o := &f.o
	if f.Stream, err = d.NewStream(); err != nil {
		return err
	}
	f.close = append(f.close, f.Stream.Close) // first: it waits for the work that uses the memory
	whole := b.AllOnDevice().WithBeside(o.Bytes())
	if f.memory, err = pages.NewMemory(d, whole, f.Groups(), o.Layout.PageBytes, f.Pages()); err != nil {
		return err
	}
	f.close = append(f.close, f.memory.Close)
	if !f.memory.Resident() { // other processes have taken memory that the budget counts
		return gpubatch.Mark(fmt.Errorf("%s: its pages are not all on the device: %w", o.What, device.ErrOutOfMemory))
	}
	if f.Frames, err = f.Alloc(4 * int64(f.Pages())); err != nil {
		return err
	}
	f.Columns = Columns{
		Device: d, Stream: f.Stream, Memory: f.memory, Frames: f.Frames, Count: o.Agents, Per: f.PerPage(),
		PageBytes: o.Layout.PageBytes, States: o.States, Invalid: o.Invalid,
	}
	f.close = append(f.close, func() error { return f.Columns.Close() })
	return f.Columns.Open()
}

// Len returns the number of agents.
func (f *Field) Len() int64 { return f.o.Agents }

// Groups returns the number of groups.
func (f *Field) Groups() int { return int(f.o.Agents / int64(f.o.Layout.Agents)) }

// Pages returns the number of pages.
func (f *Field) Pages() int { return f.o.pages() }

// PerPage returns the number of agents of a page.
func (f *Field) PerPage() int { return f.o.Layout.Slots * f.o.Layout.Agents }

// Layout returns the layout of a page.
func (f *Field) Layout() kernels.Layout { return f.o.Layout }

// Memory returns the pages, which belong to the Field.
func (f *Field) Memory() *pages.Memory { return f.memory }

// Device returns the device of the pages.
func (f *Field) Device() device.Device { return f.dev }

// Alloc allocates memory that Close releases.
func (f *Field) Alloc(bytes int64) (device.Buffer, error) { return f.AllocFor(f.o.Purpose, bytes) }

// AllocFor is Alloc for another purpose in the accounting of the device.
func (f *Field) AllocFor(purpose string, bytes int64) (device.Buffer, error) {
	m, err := f.dev.Alloc(bytes, purpose)
	if err == nil {
		f.close = append(f.close, m.Close)
		return m, nil
	}
	if f.o.Fewer == "" {
		return nil, fmt.Errorf("%s: %w", f.o.What, err)
	}
	return nil, &RoomError{What: f.o.What + f.o.Links, Fewer: f.o.Fewer, Bytes: f.o.Bytes(), Err: err}
}

// Reset makes all variables 0.
func (f *Field) Reset(ctx context.Context) error {
	if err := f.Stream.Sync(ctx); err != nil {
		return gpubatch.Mark(err)
	}
	return f.memory.Reset(ctx)
}

// Sync waits for all work of the stream.
func (f *Field) Sync(ctx context.Context) error { return gpubatch.Mark(f.Stream.Sync(ctx)) }

// Drain waits for the stream after an error of a launch, and returns all errors as errors of the
// device.
func (f *Field) Drain(ctx context.Context, err error) error {
	return gpubatch.Mark(errors.Join(err, f.Stream.Sync(ctx)))
}

// Clear fills buffers with zeros.
func (f *Field) Clear(all ...device.Buffer) error {
	for _, m := range all {
		if err := m.Fill(0, m.Size(), 0); err != nil {
			return gpubatch.Mark(err)
		}
	}
	return nil
}

// AddClose makes Close call release after all that is opened before.
func (f *Field) AddClose(release func() error) { f.close = append(f.close, release) }

// Close releases everything on the device. A second call does nothing.
func (f *Field) Close() error {
	if f == nil {
		return nil
	}
	err := closeAll(f.close)
	f.close = nil
	return err
}

func closeAll(all []func() error) error {
	var errs []error
	for _, release := range all {
		errs = append(errs, release())
	}
	return errors.Join(errs...)
}

// RoomError says that a device has too little memory for agents with neighbours. It wraps the error
// of the device.
type RoomError struct {
	What, Fewer string
	Bytes       int64 // beside the pages
	Err         error
}

// Error implements error.
func (e *RoomError) Error() string {
	return fmt.Sprintf("neighbours: %s takes %d bytes of the device beside their pages, which are not free there: use "+
		"fewer %s, or an agent process with more device memory: %v", e.What, e.Bytes, e.Fewer, e.Err)
}

// Unwrap returns the error of the device.
func (e *RoomError) Unwrap() error { return e.Err }
