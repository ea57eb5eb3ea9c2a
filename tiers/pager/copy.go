package pager

import (
	"context"

	"github.com/exoswarm/exoswarm/tiers"
)

// copyFrames copies the pages of a group that have both frames and no error. Pages between the same
// two tiers are copied together, and share the error if that fails.
func (mo *mover) copyFrames(ctx context.Context, g *group, u tiers.Urgency) {
	for lower := range mo.memory {
		for upper := range mo.memory {
			src, dst := mo.memory[lower], mo.memory[upper]
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
			if err := mo.copyMoves(ctx, src, dst, g.moves, u); err != nil {
				for _, i := range g.index {
					g.errs[i] = err
				}
			}
			dst.copies.Add((nanotime() - start) / int64(len(g.moves)))
		}
	}
}

// copyMoves copies frames of one tier into frames of another: by a Copier that reaches the other
// medium, by the processor if it addresses one of them, or through a staging buffer.
func (mo *mover) copyMoves(ctx context.Context, src, dst *memory, moves []tiers.Move, u tiers.Urgency) error {
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
			if b, err = mo.staging.Take(ctx); err != nil {
				return err
			}
			if err = src.outcome(ctx, src.Frames.Read(mv.From, 0, b)); err == nil {
				err = dst.outcome(ctx, dst.Frames.Write(mv.To, 0, b))
			}
			mo.staging.Put(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readStore reads pages of a group from the store: those without a source frame that have a
// destination and no error. It reads as many at once as the tiers of the store take.
func (mo *mover) readStore(ctx context.Context, g *group) {
	for i, page := range g.pages {
		if g.from[i] == nil && g.to[i] != nil && g.errs[i] == nil {
			g.calls[i], g.errs[i] = mo.beginGet(ctx, page, g.to[i])
			g.disks[i] = nil
			if g.calls[i] != nil {
				g.disks[i] = g.calls[i].Disk
			}
			if g.calls[i] != nil && g.calls[i].Stage != nil { // Buffers are few: one at a time.
				mo.finishGet(ctx, g, i)
			}
		}
	}
	for i := range g.pages {
		if g.calls[i] != nil {
			mo.finishGet(ctx, g, i)
		}
	}
}

// beginGet starts the read of a page into a frame, or into a staging buffer if the processor cannot
// address the frame. finishGet ends it.
func (mo *mover) beginGet(ctx context.Context, page uint64, to *frame) (*storeCall, error) {
	tier, err := mo.store.Where(page)
	if err != nil {
		return nil, err
	}
	d := mo.calls.Disks[tier]
	if m := to.memory; m.mapped != nil {
		c, err := mo.calls.Begin(ctx, opGet, d, page, m.mapped.Frame(to.number))
		if err == nil {
			c.Frame = to
		}
		return c, err
	}
	b, err := mo.staging.Take(ctx)
	if err != nil {
		return nil, err
	}
	c, err := mo.calls.Begin(ctx, opGet, d, page, b)
	if err != nil {
		mo.staging.Put(b)
		return nil, err
	}
	c.Stage = b
	return c, nil
}

// finishGet waits for the read of page i of a group and sets its error. An abandoned read keeps the
// frame or the buffer that it fills.
func (mo *mover) finishGet(ctx context.Context, g *group, i int) {
	c := g.calls[i]
	g.calls[i] = nil
	b := c.Stage
	abandoned, err := mo.calls.End(ctx, c)
	switch {
	case abandoned && b != nil:
		mo.staging.Replace()
	case abandoned:
		g.to[i] = nil
	case b != nil:
		if err == nil {
			m := g.to[i].memory
			err = m.outcome(ctx, m.Frames.Write(g.to[i].number, 0, b))
		}
		mo.staging.Put(b)
	}
	g.errs[i] = err
}
