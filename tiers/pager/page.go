package pager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
)

// noPage is the one number that no page has: tables hold numbers plus one.
const noPage = math.MaxUint64

// Create makes a page of zeros in a memory tier. It fails with tiers.ErrExist when there is one.
func (p *Pager) Create(ctx context.Context, page uint64, tier int) error {
	m, err := p.tier(tier)
	if err != nil {
		return err
	}
	if page == noPage {
		return fmt.Errorf("create page %d: the number stands for no page: %w", page, tiers.ErrInvalid)
	}
	s := p.shard(page)
	s.mu.Lock()
	err = s.rest(ctx, page)
	if err == nil && (s.pages[page] != nil || (p.opts.Store != nil && p.opts.Store.Has(page))) {
		err = tiers.ErrExist
	}
	if err != nil {
		s.mu.Unlock()
		return fmt.Errorf("create page %d: %w", page, err)
	}
	s.moving[page] = struct{}{}
	s.mu.Unlock()
	f, err := p.take(ctx, m, nil)
	if err == nil {
		if err = m.outcome(ctx, p.clear(f)); err != nil {
			m.release(f)
		}
	}
	if err != nil {
		p.settle(page, nil, nil)
		return fmt.Errorf("create page %d in %s: %w", page, m.Name, err)
	}
	f.dirty.Store(true)
	f.touched.Store(p.clock.Load())
	f.heat.Store(0)
	m.note(page)
	m.added(page)
	p.settle(page, nil, f)
	return nil
}

// clear makes a frame zeros.
func (p *Pager) clear(f *frame) error {
	if z, ok := f.memory.Frames.(tiers.Zeroer); ok {
		return z.Zero(f.number)
	}
	return f.memory.Frames.Write(f.number, 0, p.zero)
}

// Read copies from a page at off into dst, from the frame where it is; a page that is in none is
// brought into the last memory tier.
func (p *Pager) Read(ctx context.Context, page uint64, off int64, dst []byte) error {
	h, err := p.pinAnywhere(ctx, page, ForReading)
	if err != nil {
		return err
	}
	defer h.Unpin()
	return h.f.memory.outcomeOfAccess(h.f.memory.Frames.Read(h.f.number, off, dst))
}

// Write copies src into a page at off, likewise.
func (p *Pager) Write(ctx context.Context, page uint64, off int64, src []byte) error {
	h, err := p.pinAnywhere(ctx, page, ForWriting)
	if err != nil {
		return err
	}
	defer h.Unpin()
	return h.f.memory.outcomeOfAccess(h.f.memory.Frames.Write(h.f.number, off, src))
}

// pinAnywhere pins a page where it is, or in the last memory tier.
func (p *Pager) pinAnywhere(ctx context.Context, page uint64, access Access) (Pin, error) {
	for {
		if f := p.tryPin(page, nil, access); f != nil {
			return Pin{p, f, access}, nil
		}
		level := len(p.memory) - 1
		s := p.shard(page)
		s.mu.Lock()
		err := s.rest(ctx, page) // what is on its way is pinned where it arrives: it would be brought back otherwise
		if f := s.pages[page]; f != nil {
			level = f.memory.level
		}
		s.mu.Unlock()
		if err != nil {
			return Pin{}, fmt.Errorf("pin page %d: %w", page, err)
		}
		h, err := p.Pin(ctx, page, level, access)
		if !errors.Is(err, errPinned) {
			return h, err
		}
		// It was pinned elsewhere between the look and the pin.
	}
}

// Delete removes a page; it is gone for good with the next Checkpoint. It fails with
// tiers.ErrUnavailable while the page is pinned.
func (p *Pager) Delete(ctx context.Context, page uint64) error {
	if p.closed.Load() {
		return tiers.ErrClosed
	}
	p.checkpoint.Lock()
	defer p.checkpoint.Unlock()
	s := p.shard(page)
	s.mu.Lock()
	err := s.rest(ctx, page)
	f := s.pages[page]
	switch {
	case err != nil:
	case f != nil && f.pins.Load() > 0:
		err = fmt.Errorf("it is pinned: %w", tiers.ErrUnavailable)
	case f == nil && (p.opts.Store == nil || !p.opts.Store.Has(page)):
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
	if p.opts.Store != nil {
		if err := p.opts.Store.Delete(ctx, page); err != nil && !errors.Is(err, tiers.ErrNotFound) {
			p.settle(page, f, f)
			return err
		}
	}
	if f != nil {
		f.memory.removed(page)
		f.fetched.Store(0)
	}
	p.recent.drop(page)
	p.settle(page, f, nil)
	if f != nil {
		f.memory.release(f)
	}
	return nil
}

// Lost returns the pages that cannot be served at the moment, in ascending order: those whose only
// content is in a tier of frames that fails, and those that the store reports.
func (p *Pager) Lost() []uint64 {
	var ids []uint64
	if s, ok := p.opts.Store.(interface{ Lost() []uint64 }); ok {
		for _, page := range s.Lost() {
			if p.frameOf(page) == nil {
				ids = append(ids, page)
			}
		}
	}
	for i := range p.table {
		s := &p.table[i]
		s.mu.RLock()
		for page, f := range s.pages {
			if f.memory.down() && (f.dirty.Load() || f.saving.Load() || p.opts.Store == nil) {
				ids = append(ids, page)
			}
		}
		s.mu.RUnlock()
	}
	slices.Sort(ids)
	return ids
}
