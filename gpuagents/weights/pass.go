package weights

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// mover has the buffers through which layers pass. One pass uses it at a time.
type mover struct {
	of      *Holder
	buffers [2]*passing
	busy    chan struct{} // has an element during a pass
	loader  *loader       // nil before the first pass
}

// passing is a buffer of a mover.
type passing struct {
	part              // its memory
	came device.Event // a layer has come
	read device.Event // the work of the layer has read it
}

// newMover allocates the buffers, of a number of bytes each. It returns nil without room.
func newMover(ctx context.Context, h *Holder, bytes int64) (*mover, error) {
	m := &mover{of: h, busy: make(chan struct{}, 1)}
	for i := range m.buffers {
		b := &passing{part: part{bytes: bytes, pass: -1}}
		m.buffers[i] = b
		has, err := h.take(ctx, &b.part)
		if err != nil || !has {
			return nil, errors.Join(err, m.close())
		}
		if b.came, err = h.dev.NewEvent(); err == nil {
			b.read, err = h.dev.NewEvent()
		}
		if err != nil {
			return nil, errors.Join(gpubatch.Mark(err), m.close())
		}
	}
	return m, nil
}

func (m *mover) bytes() (n int64) {
	for _, b := range m.buffers {
		n += b.bytes
	}
	return n
}

// close frees the buffers. No pass is under way.
func (m *mover) close() (err error) {
	if m.loader != nil {
		err = gpubatch.Mark(m.loader.close())
	}
	for _, b := range m.buffers {
		if b == nil {
			continue
		}
		for _, e := range []device.Event{b.came, b.read} {
			if e != nil {
				err = errors.Join(err, gpubatch.Mark(e.Close()))
			}
		}
		err = errors.Join(err, m.of.freePart(&b.part))
	}
	return err
}

// Pass is a walk over the layers of a model in their order, for one step on one stream. One
// goroutine uses it, and ends it.
type Pass struct {
	m       *Model
	ctx     context.Context //nolint:containedctx // of the step, which the calls are parts of
	stream  device.Stream
	passing []int      // the layers that pass and have not begun to come, in order
	coming  chan error // has the result when the layer that comes is queued; nil: none comes
	layer   int        // which comes, or has come last; -1: none
	held    int        // the buffer that the last layer was in; -1: it was in none
}

// Pass begins a step whose work goes to a stream. If layers pass, it waits until no other step uses
// their buffers, and the first of them begins to come. The caller ends it.
func (m *Model) Pass(ctx context.Context, s device.Stream) (*Pass, error) {
	p := &Pass{m: m, ctx: ctx, stream: s, layer: -1, held: -1}
	if m.mover == nil {
		return p, nil
	}
	select {
	case m.mover.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for i, of := range m.parts[:len(m.parts)-1] {
		if of.pass >= 0 {
			p.passing = append(p.passing, i)
		}
	}
	if m.mover.loader == nil {
		var err error
		if m.mover.loader, err = newLoader(m.of.dev); err != nil {
			return nil, errors.Join(gpubatch.Mark(err), p.End())
		}
	}
	p.begin()
	return p, nil
}

// Layer has the layer on the device for the work that is queued next on the stream, until the next
// call of Layer or End. The next layer that passes begins to come meanwhile. Layers are asked for in
// their order, each once. After an error only End may be called.
func (p *Pass) Layer(i int) error {
	if p.m.mover == nil {
		return nil
	}
	if err := p.leave(); err != nil {
		return err
	}
	of := p.m.parts[i]
	if of.pass < 0 {
		return nil
	}
	if i != p.layer || p.coming == nil {
		return fmt.Errorf("model %s: layer %d is asked for out of order: %w", p.m.ref.Name, i,
			device.ErrInvalidArgument)
	}
	err := <-p.coming // its reads end with ctx
	p.coming = nil
	if err != nil {
		return fmt.Errorf("model %s: %s: %w", p.m.ref.Name, of.name, err)
	}
	b := p.m.mover.buffers[of.pass]
	p.held = of.pass
	if err := p.stream.Wait(b.came); err != nil {
		return gpubatch.Mark(err)
	}
	p.begin()
	return nil
}

// leave marks the end of the work that reads the buffer of the last layer.
func (p *Pass) leave() error {
	if p.held < 0 {
		return nil
	}
	b := p.m.mover.buffers[p.held]
	p.held = -1
	return gpubatch.Mark(p.stream.Record(b.read))
}

// begin has the next layer that passes come, into the buffer that the layer in use has not.
func (p *Pass) begin() {
	if len(p.passing) == 0 {
		return
	}
	p.layer, p.passing = p.passing[0], p.passing[1:]
	coming := make(chan error, 1)
	p.coming = coming
	m, of := p.m, p.m.parts[p.layer]
	go func() { coming <- m.bring(p.ctx, of) }()
}

// bring queues the copy of a layer behind the work that reads its buffer.
func (m *held) bring(ctx context.Context, p *part) error {
	l, b := m.mover.loader, m.mover.buffers[p.pass]
	if err := l.stream.Wait(b.read); err != nil {
		return gpubatch.Mark(err)
	}
	if p.pinned != nil {
		if err := l.stream.Upload(p.buffer, 0, p.pinned, 0, p.bytes); err != nil {
			return gpubatch.Mark(err)
		}
	} else if err := l.upload(ctx, m, p); err != nil {
		return err
	}
	return gpubatch.Mark(l.stream.Record(b.came))
}

// End ends the pass. The work of the last layer may still run. A second call does nothing.
func (p *Pass) End() error {
	if p.m.mover == nil || p.ctx == nil {
		return nil
	}
	err := p.leave()
	if p.coming != nil {
		<-p.coming // an error of a layer that nobody asked for
		p.coming = nil
	}
	p.ctx = nil
	<-p.m.mover.busy
	return err
}
