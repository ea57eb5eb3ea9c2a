package field

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// Generations is a double buffer of the pages of a Field: each tick reads one generation and writes
// the other. Between two calls the state is in the pages.
type Generations struct {
	*Field
	// Second is the second generation. Its pages are in the order of their numbers, and SecondFrames
	// is its table of frames.
	Second, SecondFrames device.Buffer
}

// OpenGenerations makes and opens a field for options with a second generation. See Options.Double.
// The caller closes it also after an error.
func OpenGenerations(d device.Device, b *pages.Budget, o Options) (*Generations, error) {
	f := New(o)
	g := &Generations{Field: f}
	err := f.Open(d, b)
	if err != nil {
		return g, err
	}
	frames := make([]uint32, f.Pages())
	for i := range frames {
		frames[i] = uint32(i)
	}
	if g.SecondFrames, err = f.Alloc(4 * int64(len(frames))); err != nil {
		return g, err
	}
	if g.Second, err = f.Alloc(o.Second); err != nil {
		return g, err
	}
	return g, g.SecondFrames.Write(0, device.Bytes(frames))
}

// Generation is the arguments of a tick for one generation.
type Generation struct{ Pages, Frames device.Arg }

// Pair returns the generation that tick number i reads, and the one that it writes.
func (g *Generations) Pair(i int) (from, to Generation) {
	from = Generation{device.Ptr(g.memory.Arena()), device.Ptr(g.Frames)}
	to = Generation{device.Ptr(g.Second), device.Ptr(g.SecondFrames)}
	if i%2 == 1 {
		from, to = to, from
	}
	return from, to
}

// Steps puts n ticks into the stream and waits for them. step launches tick number i, which reads
// one generation and writes the other. All pages exist, and Frames is up to date. See Field.Steps.
func (g *Generations) Steps(ctx, wait context.Context, n, most int, step func(i int, from, to Generation) error) error {
	err := g.Field.Steps(ctx, wait, n, most, func(i int) error {
		from, to := g.Pair(i)
		return step(i, from, to)
	})
	if err != nil {
		return err
	}
	if n%2 == 1 {
		if err := g.copyBack(); err != nil {
			return g.Drain(wait, err)
		}
	}
	return g.Sync(wait)
}

// copyBack copies the second generation into the pages, after an odd number of ticks.
func (g *Generations) copyBack() error {
	size := int64(g.o.Layout.PageBytes)
	for page := range g.memory.Count() {
		frame := int64(g.memory.Frame(page))
		if err := g.Stream.Copy(g.memory.Arena(), frame*size, g.Second, int64(page)*size, size); err != nil {
			return err
		}
	}
	return nil
}
