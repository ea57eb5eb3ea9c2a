package pager

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
)

// Part is a range of a page and the memory to copy it into or from.
type Part struct {
	Page  uint64
	Off   int64
	Bytes []byte
}

// CreateAll makes pages of zeros in a memory tier. It stops at the first error, which it returns
// with the number of pages that were made.
func (p *Pager) CreateAll(ctx context.Context, tier int, pages ...uint64) (made int, err error) {
	for i, page := range pages {
		if err := p.Create(ctx, page, tier); err != nil {
			return i, err
		}
	}
	return len(pages), nil
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
					last.note(part.Page)
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

// DeleteAll removes pages. It stops at the first error, which it returns with the number of pages
// that were removed.
func (p *Pager) DeleteAll(ctx context.Context, pages ...uint64) (removed int, err error) {
	for i, page := range pages {
		if err := p.Delete(ctx, page); err != nil {
			return i, err
		}
	}
	return len(pages), nil
}

// Scan calls f for the existing pages first..last, both included, in ascending order, with the
// content at that moment. content is valid until f returns. Scan ends with the first error of f or
// of a read. It brings no page into a tier: a page that is in no frame is read from the store.
// Pages that are created or deleted meanwhile may be seen or not.
func (p *Pager) Scan(ctx context.Context, first, last uint64, f func(page uint64, content []byte) error) error {
	if last < first {
		return fmt.Errorf("scan from page %d to %d: %w", first, last, tiers.ErrInvalid)
	}
	buf := make([]byte, p.opts.PageSize)
	for page := range p.between(first, last) {
		err := p.peek(ctx, page, buf)
		if errors.Is(err, tiers.ErrNotFound) {
			continue // Deleted meanwhile.
		}
		if err == nil {
			err = f(page, buf)
		}
		if err != nil {
			return fmt.Errorf("scan page %d: %w", page, err)
		}
	}
	return nil
}

// between yields the existing pages of a range in ascending order.
func (p *Pager) between(first, last uint64) iter.Seq[uint64] {
	pages := p.Pages()
	from, _ := slices.BinarySearch(pages, first)
	return func(yield func(uint64) bool) {
		for _, page := range pages[from:] {
			if page > last || !yield(page) {
				return
			}
		}
	}
}

// peek reads a page where it is, in a frame or in the store, into buf.
func (p *Pager) peek(ctx context.Context, page uint64, buf []byte) error {
	for {
		if p.closed.Load() {
			return tiers.ErrClosed
		}
		if p.table.frameOf(page) != nil || p.store == nil {
			return p.Read(ctx, page, 0, buf)
		}
		tier, err := p.store.Where(page)
		if err != nil {
			// On its way out of a frame that it was in just now, perhaps.
			if p.table.resident(page) {
				continue
			}
			return err
		}
		b, err := p.staging.Take(ctx)
		if err != nil {
			return err
		}
		c, err := p.calls.Begin(ctx, opGet, p.calls.Disks[tier], page, b)
		if err != nil {
			p.staging.Put(b)
			return err
		}
		c.Stage = b
		abandoned, err := p.calls.End(ctx, c)
		if abandoned {
			p.staging.Replace()
			return err
		}
		copy(buf, b)
		p.staging.Put(b)
		// Written and not yet evicted again, what was read may be old: a page in no frame is in the
		// store as it is.
		if p.table.resident(page) {
			continue
		}
		return err
	}
}

// PinAll brings pages into a memory tier, those that are not there together, and holds all of them
// until UnpinAll: all of pages, in their order, or with an error none. pins is appended to. A page
// that occurs twice is pinned twice. There are at least as many frames as pages, or it fails with
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
