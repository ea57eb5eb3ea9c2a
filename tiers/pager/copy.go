package pager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

// group is pages that move together, in slices that are used again.
type group struct {
	pages    []uint64
	from, to []*frame // nil: the store, or none
	errs     []error
	calls    []*call
	reasons  []Reason
	disks    []*disk // of the store, where a page came from or went
	clean    []bool  // the store holds what is in from
	moves    []tiers.Move
	index    []int
}

// newGroup is an empty one.
func (p *Pager) newGroup() *group {
	g, _ := p.groups.Get().(*group)
	if g == nil {
		g = &group{}
	}
	return g
}

// freeGroup gives a group back.
func (p *Pager) freeGroup(g *group) {
	g.pages = g.pages[:0]
	clear(g.from)
	clear(g.to)
	clear(g.errs)
	clear(g.calls)
	g.from, g.to, g.errs, g.calls, g.reasons = g.from[:0], g.to[:0], g.errs[:0], g.calls[:0], g.reasons[:0]
	g.disks, g.clean = g.disks[:0], g.clean[:0]
	p.groups.Put(g)
}

// add takes in a page that its caller has claimed.
func (g *group) add(page uint64, from *frame, why Reason) {
	g.pages = append(g.pages, page)
	g.from = append(g.from, from)
	g.to = append(g.to, nil)
	g.errs = append(g.errs, nil)
	g.calls = append(g.calls, nil)
	g.reasons = append(g.reasons, why)
	g.disks = append(g.disks, nil)
	g.clean = append(g.clean, from != nil && !from.dirty.Load() && !from.saving.Load())
}

// copyFrames copies the pages of a group that have both frames and no error, those between the same
// two tiers together.
func (p *Pager) copyFrames(ctx context.Context, g *group, u tiers.Urgency) {
	for lower := range p.memory {
		for upper := range p.memory {
			src, dst := p.memory[lower], p.memory[upper]
			g.moves, g.index = g.moves[:0], g.index[:0]
			for i, f := range g.from {
				if f != nil && g.to[i] != nil && g.errs[i] == nil && f.memory == src && g.to[i].memory == dst {
					g.moves = append(g.moves, tiers.Move{From: f.number, To: g.to[i].number})
					g.index = append(g.index, i)
				}
			}
			if len(g.moves) == 0 {
				continue
			}
			start := nanotime()
			if err := p.copyMoves(ctx, src, dst, g.moves, u); err != nil {
				for _, i := range g.index {
					g.errs[i] = err
				}
			}
			dst.copies.add((nanotime() - start) / int64(len(g.moves)))
		}
	}
}

// copyMoves copies frames of one tier into frames of another, by whoever can do it best.
func (p *Pager) copyMoves(ctx context.Context, src, dst *memory, moves []tiers.Move, u tiers.Urgency) error {
	if c := dst.copier; c != nil && c.Reaches(src.Frames) {
		return dst.outcome(ctx, c.CopyIn(ctx, src.Frames, moves, u))
	}
	if c := src.copier; c != nil && c.Reaches(dst.Frames) {
		return src.outcome(ctx, c.CopyOut(ctx, dst.Frames, moves, u))
	}
	for _, mv := range moves {
		var err error
		switch {
		case src.mapped != nil:
			err = dst.outcome(ctx, dst.Frames.Write(mv.To, 0, src.mapped.Frame(mv.From)))
		case dst.mapped != nil:
			err = src.outcome(ctx, src.Frames.Read(mv.From, 0, dst.mapped.Frame(mv.To)))
		default:
			var b []byte
			if b, err = p.stage(ctx); err != nil {
				return err
			}
			if err = src.outcome(ctx, src.Frames.Read(mv.From, 0, b)); err == nil {
				err = dst.outcome(ctx, dst.Frames.Write(mv.To, 0, b))
			}
			p.putStage(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readFrame copies a frame's page into a buffer.
func (p *Pager) readFrame(f *frame, b []byte) error {
	return f.memory.outcome(context.Background(), f.memory.Frames.Read(f.number, 0, b))
}

// outcome counts a copy of a tier against its breaker.
func (m *memory) outcome(ctx context.Context, err error) error {
	if err == nil {
		if m.failing.Load() { // Mutex and clock only where there is something to tell.
			m.breaker.report(true, time.Now())
			m.failing.Store(m.breaker.open(time.Now()))
		}
		return nil
	}
	if ctx.Err() == nil {
		m.failed.Add(1)
		m.failing.Store(true)
		m.breaker.report(false, time.Now())
	}
	return fmt.Errorf("%s: %w", m.Name, err)
}

// outcomeOfAccess is outcome for a part of a page, where a range that does not fit is the caller's
// mistake.
func (m *memory) outcomeOfAccess(err error) error {
	if errors.Is(err, tiers.ErrInvalid) {
		return err
	}
	return m.outcome(context.Background(), err)
}

// down says whether a tier of frames is left alone at the moment.
func (m *memory) down() bool { return m.failing.Load() && m.breaker.open(time.Now()) }

// readStore reads the pages of a group that have a frame to go to, no error, and no frame to come
// from, from the store, as many at once as its tiers take.
func (p *Pager) readStore(ctx context.Context, g *group) {
	for i, page := range g.pages {
		if g.from[i] == nil && g.to[i] != nil && g.errs[i] == nil {
			g.calls[i], g.errs[i] = p.beginGet(ctx, page, g.to[i])
			g.disks[i] = nil
			if g.calls[i] != nil {
				g.disks[i] = g.calls[i].disk
			}
			if g.calls[i] != nil && g.calls[i].stage != nil { // Buffers are few: one at a time.
				p.finishGet(ctx, g, i)
			}
		}
	}
	for i := range g.pages {
		if g.calls[i] != nil {
			p.finishGet(ctx, g, i)
		}
	}
}

// beginGet reads a page into a frame, or into a buffer where the processor does not reach the
// frame.
func (p *Pager) beginGet(ctx context.Context, page uint64, to *frame) (*call, error) {
	tier, err := p.opts.Store.Where(page)
	if err != nil {
		return nil, err
	}
	d := p.disks[tier]
	if m := to.memory; m.mapped != nil {
		c, err := p.begin(ctx, callGet, d, page, m.mapped.Frame(to.number))
		if err == nil {
			c.frame = to
		}
		return c, err
	}
	b, err := p.stage(ctx)
	if err != nil {
		return nil, err
	}
	c, err := p.begin(ctx, callGet, d, page, b)
	if err != nil {
		p.putStage(b)
		return nil, err
	}
	c.stage = b
	return c, nil
}

// finishGet waits for the read of page i of a group. An abandoned read keeps the frame or the
// buffer that it fills.
func (p *Pager) finishGet(ctx context.Context, g *group, i int) {
	c := g.calls[i]
	g.calls[i] = nil
	b := c.stage
	abandoned, err := p.end(c)
	switch {
	case abandoned && b != nil:
		p.replaceStage()
	case abandoned:
		g.to[i] = nil
	case b != nil:
		if err == nil {
			m := g.to[i].memory
			err = m.outcome(ctx, m.Frames.Write(g.to[i].number, 0, b))
		}
		p.putStage(b)
	}
	g.errs[i] = err
}

// errGone says that a page's only content is in a frame that cannot be read.
func errGone(m *memory, err error) error {
	return fmt.Errorf("its newest content is in %s, which fails: %w", m.Name, errors.Join(tiers.ErrLost, err))
}
