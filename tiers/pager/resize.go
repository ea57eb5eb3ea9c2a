package pager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/policy"
)

// Size is the size of a tier of memory.
type Size struct {
	// Frames is the number of frames; 0 in any tier but the first, while there is a store.
	Frames int
	// Low and High are the watermarks, see Memory.
	Low, High int
	// Used orders the pages of the tier: the least go first when there are fewer frames. nil: the
	// time of the last pin.
	Used func(page uint64) int64
}

// Resize changes the number of frames of a tier, which are a tiers.Resizer. The coldest pages move
// down until the others have room; they keep their marks and move to the new frames. No page of the
// tier is pinned, and the caller calls no other method but Stats meanwhile. It waits for the
// checkpoint that runs. After an error the tier has its old frames.
func (p *Pager) Resize(ctx context.Context, tier int, to Size) error {
	m, err := p.tier(tier)
	if err != nil {
		return err
	}
	frames, ok := m.Frames.(tiers.Resizer)
	switch least := min(1, max(0, 1-tier)); {
	case !ok:
		return fmt.Errorf("resize %s, whose frames are a %T: %w", m.Name, m.Frames, tiers.ErrInvalid)
	case to.Frames < least, to.Frames == 0 && p.store == nil, to.Low < 0, to.High < to.Low,
		to.High > 0 && to.High >= to.Frames:
		return fmt.Errorf("resize %s to %d frames with watermarks %d and %d: %w", m.Name, to.Frames, to.Low, to.High,
			tiers.ErrInvalid)
	}
	p.checkpoints.running.Lock() // it puts pages from their frames
	defer p.checkpoints.running.Unlock()
	p.still.Lock() // the background work takes frames
	defer p.still.Unlock()
	if to.Used == nil {
		to.Used = func(page uint64) int64 { return p.table.frameOf(page).touched.Load() }
	}
	if err := p.shed(ctx, m, to); err != nil {
		return fmt.Errorf("resize %s: %w", m.Name, err)
	}
	if err := p.refit(m, frames, to); err != nil {
		return fmt.Errorf("resize %s: %w", m.Name, err)
	}
	return nil
}

// residents returns the pages of a tier, and an error if one of its frames is neither free nor has
// a page at rest.
func (p *Pager) residents(m *memory) ([]uint64, error) {
	var pages []uint64
	for i := range m.frames {
		if page, here := p.table.pageOf(&m.frames[i]); here {
			if m.frames[i].pins.Load() > 0 {
				return nil, fmt.Errorf("page %d is pinned: %w", page, tiers.ErrUnavailable)
			}
			pages = append(pages, page)
		}
	}
	if free := m.freeFrames(); free+len(pages) != len(m.frames) {
		return nil, fmt.Errorf("a copy of %d pages has not ended: %w", len(m.frames)-free-len(pages),
			tiers.ErrUnavailable)
	}
	return pages, nil
}

// shed moves the coldest pages of a tier down until the remaining pages fit the new size.
func (p *Pager) shed(ctx context.Context, m *memory, to Size) error {
	pages, err := p.residents(m)
	if err != nil {
		return err
	}
	excess := len(pages) - (to.Frames - to.High)
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(pages, func(a, b uint64) int { return cmp.Compare(to.Used(a), to.Used(b)) })
	for group := range slices.Chunk(pages[:excess], p.opts.Batch) {
		g := p.groups.take()
		for _, page := range group {
			if f := p.table.claimFrom(m, page); f != nil {
				g.add(page, f, ByShare)
			}
		}
		p.move.lowerAndRelease(ctx, g)
		err := errors.Join(g.errs...)
		p.groups.put(g)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// refit gives a tier its new frames, and its pages their places there. The policy learns the pages
// anew, in the order of their last use.
func (p *Pager) refit(m *memory, frames tiers.Resizer, to Size) error {
	pages, err := p.residents(m)
	if err != nil {
		return err
	}
	moves := make([]tiers.Move, len(pages))
	for i, page := range pages { // in the order of the frames
		moves[i] = tiers.Move{From: p.table.frameOf(page).number, To: i}
	}
	if err := frames.Resize(to.Frames, moves); err != nil {
		return err
	}
	m.mu.Lock()
	before := m.frames
	m.Low, m.High = to.Low, to.High
	m.setFrames(to.Frames)
	m.free = m.free[:to.Frames-len(pages)] // the first frames hold the pages
	m.mu.Unlock()
	for i, page := range pages {
		f, old := &m.frames[i], &before[moves[i].From]
		f.touched.Store(old.touched.Load())
		f.heat.Store(old.heat.Load())
		f.fetched.Store(old.fetched.Load())
		p.table.settle(page, old, f)
	}
	slices.SortFunc(pages, func(a, b uint64) int { return cmp.Compare(to.Used(a), to.Used(b)) })
	m.policyMu.Lock()
	defer m.policyMu.Unlock()
	m.policy = policy.NewAdaptive(to.Frames-to.High, m.Policy)
	for _, page := range pages {
		m.policy.Access(page)
		m.policy.Added(page)
	}
	return nil
}

func lowest(all []*memory) *memory {
	for i := len(all) - 1; i > 0; i-- {
		if len(all[i].frames) > 0 {
			return all[i]
		}
	}
	return all[0]
}
