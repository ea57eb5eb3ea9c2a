package pager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/tiers/policy"
)

// Part is a range of a page and the memory to copy it into or from.
type Part struct {
	Page  uint64
	Off   int64
	Bytes []byte
}

// ReadAll is Read of many parts. The pages that are in no frame come into the last memory tier
// together, as many at once as it has room for. It stops at the first error.
func (p *Pager) ReadAll(ctx context.Context, parts []Part) error {
	return p.eachPart(ctx, parts, ForReading, func(h Pin, part Part) error {
		m := h.f.memory
		return m.outcomeOfAccess(m.Frames.Read(h.f.number, part.Off, part.Bytes))
	})
}

// WriteAll is Write of many parts, as ReadAll is Read. Parts of one page are written in order.
func (p *Pager) WriteAll(ctx context.Context, parts []Part) error {
	return p.eachPart(ctx, parts, ForWriting, func(h Pin, part Part) error {
		m := h.f.memory
		return m.outcomeOfAccess(m.Frames.Write(h.f.number, part.Off, part.Bytes))
	})
}

// eachPart calls f for each part, with its page pinned where it is. Pages that are in no frame come
// into the last memory tier first, in batches.
func (p *Pager) eachPart(ctx context.Context, parts []Part, access Access, f func(Pin, Part) error) error {
	last := lowest(p.memory)
	for len(parts) > 0 {
		n := min(len(parts), p.opts.Batch, max(len(last.frames)/2, 1))
		g := p.groups.take()
		for _, part := range parts[:n] { // What is in no frame and at rest comes in one batch.
			w := want{part.Page, last, ByDemand}
			if p.table.frameOf(part.Page) == nil && !slices.Contains(g.pages, part.Page) {
				if from, claimed := p.table.claimAbove(w.page, w.m); claimed {
					if from != nil { // It came meanwhile.
						p.table.settle(part.Page, from, from)
						continue
					}
					last.misses.Add(1)
					last.tell((*policy.Adaptive).Access, part.Page)
					g.add(part.Page, nil, ByDemand)
				}
			}
		}
		p.demand.begin()
		p.move.bring(ctx, g, last, true)
		p.demand.end()
		err := errors.Join(g.errs...)
		p.groups.put(g)
		if err != nil {
			return err
		}
		for _, part := range parts[:n] {
			h, err := p.pins.anywhere(ctx, part.Page, access)
			if err == nil {
				err = f(h, part)
				h.Unpin()
			}
			if err != nil {
				return fmt.Errorf("page %d: %w", part.Page, err)
			}
		}
		parts = parts[n:]
	}
	return nil
}

// PinAll brings pages into a memory tier and holds them until UnpinAll: all of pages, in their
// order, or with an error none. Absent pages come together. pins is appended to. A page that occurs
// twice is pinned twice. There are at least as many frames as pages, or it fails with
// tiers.ErrInvalid; one PinAll of a tier runs at a time, so that two never wait for each other's
// frames.
func (p *Pager) PinAll(ctx context.Context, pages []uint64, tier int, access Access, pins []Pin) ([]Pin, error) {
	m, err := p.tier(tier)
	if err != nil {
		return pins, err
	}
	return p.pins.all(ctx, pages, m, m, access, pins)
}

// PinInPlace is PinAll that moves no page which is in memory: each is held in the tier where it is,
// see Pin.Tier, and pages that are in none come into the last one with frames. There are at least
// as many frames in that as pages, or it fails with tiers.ErrInvalid.
func (p *Pager) PinInPlace(ctx context.Context, pages []uint64, access Access, pins []Pin) ([]Pin, error) {
	m, err := p.tier(lowest(p.memory).level)
	if err != nil {
		return pins, err
	}
	return p.pins.all(ctx, pages, nil, m, access, pins)
}
