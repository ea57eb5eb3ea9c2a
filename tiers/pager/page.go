package pager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/policy"
)

// noPage is the one number that no page may have, since the tables store numbers plus one.
const noPage = math.MaxUint64

// Create makes a page of zeros in a memory tier. It fails with tiers.ErrExist if the page exists,
// and waits for a frame as Pin does.
func (p *Pager) Create(ctx context.Context, page uint64, tier int) error {
	m, err := p.tier(tier)
	if err != nil {
		return err
	}
	if page == noPage {
		return fmt.Errorf("create page %d: the number stands for no page: %w", page, tiers.ErrInvalid)
	}
	s := p.table.shard(page)
	s.mu.Lock()
	err = s.rest(ctx, page)
	if err == nil && (s.pages[page] != nil || (p.store != nil && p.store.Has(page))) {
		err = tiers.ErrExist
	}
	if err != nil {
		s.mu.Unlock()
		return fmt.Errorf("create page %d: %w", page, err)
	}
	s.moving[page] = struct{}{}
	s.mu.Unlock()
	f, err := p.move.take(ctx, m, nil)
	if err == nil {
		if err = m.outcome(ctx, p.clear(f)); err != nil {
			m.release(f)
		}
	}
	if err != nil {
		p.table.settle(page, nil, nil)
		return fmt.Errorf("create page %d in %s: %w", page, m.Name, err)
	}
	f.dirty.Store(true)
	f.touched.Store(p.clock.now())
	f.heat.Store(0)
	m.tell((*policy.Adaptive).Access, page)
	m.tell((*policy.Adaptive).Added, page)
	p.table.settle(page, nil, f)
	return nil
}

func (p *Pager) clear(f *frame) error {
	if z, ok := f.memory.Frames.(tiers.Zeroer); ok {
		return z.Zero(f.number)
	}
	return f.memory.Frames.Write(f.number, 0, p.zero)
}

// Read copies len(dst) bytes of a page from byte off on into dst. It reads from the frame where the
// page is; a page that is in none is brought into the last memory tier first.
func (p *Pager) Read(ctx context.Context, page uint64, off int64, dst []byte) error {
	h, err := p.pins.anywhere(ctx, page, ForReading)
	if err != nil {
		return err
	}
	defer h.Unpin()
	return h.f.memory.outcomeOfAccess(h.f.memory.Frames.Read(h.f.number, off, dst))
}

// Write copies src into a page from byte off on, in the frame that Read would use.
func (p *Pager) Write(ctx context.Context, page uint64, off int64, src []byte) error {
	h, err := p.pins.anywhere(ctx, page, ForWriting)
	if err != nil {
		return err
	}
	defer h.Unpin()
	return h.f.memory.outcomeOfAccess(h.f.memory.Frames.Write(h.f.number, off, src))
}

// Delete removes a page; it is gone for good with the next Checkpoint. It fails with
// tiers.ErrUnavailable while the page is pinned.
func (p *Pager) Delete(ctx context.Context, page uint64) error {
	if p.closed.Load() {
		return tiers.ErrClosed
	}
	p.checkpoints.running.Lock()
	defer p.checkpoints.running.Unlock()
	s := p.table.shard(page)
	s.mu.Lock()
	err := s.rest(ctx, page)
	f := s.pages[page]
	switch {
	case err != nil:
	case f != nil && f.pins.Load() > 0:
		err = fmt.Errorf("it is pinned: %w", tiers.ErrUnavailable)
	case f == nil && (p.store == nil || !p.store.Has(page)):
		err = tiers.ErrNotFound
	}
	if err != nil {
		s.mu.Unlock()
		return fmt.Errorf("delete page %d: %w", page, err)
	}
	s.moving[page] = struct{}{}
	if f != nil {
		f.moving = true
	}
	s.mu.Unlock()
	if p.store != nil {
		if err := p.store.Delete(ctx, page); err != nil && !errors.Is(err, tiers.ErrNotFound) {
			p.table.settle(page, f, f)
			return err
		}
	}
	if f != nil {
		f.memory.tell((*policy.Adaptive).Removed, page)
		f.fetched.Store(0)
	}
	p.ages.Forget(page)
	p.table.settle(page, f, nil)
	if f != nil {
		f.memory.release(f)
	}
	return nil
}

// Lost returns the pages that cannot be served at the moment, in ascending order: pages whose only
// content is in a tier of frames that fails, and the lost pages of the store.
func (p *Pager) Lost() []uint64 {
	var ids []uint64
	if s, ok := p.store.(interface{ Lost() []uint64 }); ok {
		for _, page := range s.Lost() {
			if p.table.frameOf(page) == nil {
				ids = append(ids, page)
			}
		}
	}
	for i := range p.table.shards {
		s := &p.table.shards[i]
		s.mu.RLock()
		for page, f := range s.pages {
			if f.memory.down() && (f.dirty.Load() || f.saving.Load() || p.store == nil) {
				ids = append(ids, page)
			}
		}
		s.mu.RUnlock()
	}
	slices.Sort(ids)
	return ids
}

// Pages returns the ids of all pages, in ascending order.
func (p *Pager) Pages() []uint64 {
	var ids []uint64
	if p.store != nil {
		ids = p.store.Pages()
	}
	for i := range p.table.shards {
		s := &p.table.shards[i]
		s.mu.RLock()
		for page := range s.pages {
			ids = append(ids, page)
		}
		s.mu.RUnlock()
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Pin brings a page into a memory tier and holds it there until Unpin. A page that is pinned in
// another tier fails with tiers.ErrUnavailable, since it may not move. When every frame of the tier
// is pinned, Pin waits for one, or for the end of ctx. A pin for writing marks the page dirty.
func (p *Pager) Pin(ctx context.Context, page uint64, tier int, access Access) (Pin, error) {
	m, err := p.tier(tier)
	if err != nil {
		return Pin{}, err
	}
	return p.pins.pin(ctx, page, m, access)
}
