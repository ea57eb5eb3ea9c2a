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

// CreateAll makes pages of zeros in a memory tier. It stops at the first one that cannot be made,
// whose error it returns with the number of those that were.
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

// WriteAll is Write of many parts, likewise. Parts of one page are written in order.
func (p *Pager) WriteAll(ctx context.Context, parts []Part) error {
	return p.eachPart(ctx, parts, ForWriting, func(h Pin, part Part) error {
		m := h.f.memory
		return m.outcomeOfAccess(m.Frames.Write(h.f.number, part.Off, part.Bytes))
	})
}

// eachPart pins the pages of parts where they are, or in the last memory tier a batch at a time,
// and calls f for each.
func (p *Pager) eachPart(ctx context.Context, parts []Part, access Access, f func(Pin, Part) error) error {
	last := p.memory[len(p.memory)-1]
	for len(parts) > 0 {
		n := min(len(parts), p.opts.Batch, max(len(last.frames)/2, 1))
		g := p.newGroup()
		for _, part := range parts[:n] { // What is in no frame and at rest comes in one batch.
			w := want{part.Page, last, ByDemand}
			if p.frameOf(part.Page) == nil && !slices.Contains(g.pages, part.Page) {
				if from, claimed := p.claimWanted(w); claimed {
					if from != nil { // It came meanwhile.
						p.settle(part.Page, from, from)
						continue
					}
					last.misses.Add(1)
					last.note(part.Page)
					g.add(part.Page, nil, ByDemand)
				}
			}
		}
		p.demand.Add(1)
		p.bring(ctx, g, last, true)
		p.demand.Add(-1)
		err := errors.Join(g.errs...)
		p.freeGroup(g)
		if err != nil {
			return err
		}
		for _, part := range parts[:n] {
			h, err := p.pinAnywhere(ctx, part.Page, access)
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
	return p.pinAll(ctx, pages, m, m, access, pins)
}

// PinInPlace is PinAll that moves no page which is in memory: each is held in the tier where it is,
// see Pin.Tier, and those that are in none come into the last one. There are at least as many
// frames in that as pages, or it fails with tiers.ErrInvalid.
func (p *Pager) PinInPlace(ctx context.Context, pages []uint64, access Access, pins []Pin) ([]Pin, error) {
	m, err := p.tier(len(p.memory) - 1)
	if err != nil {
		return pins, err
	}
	return p.pinAll(ctx, pages, nil, m, access, pins)
}

// pinAll pins pages in a tier, nil for any; those that are not there come into tier m.
func (p *Pager) pinAll(ctx context.Context, pages []uint64, in, m *memory, access Access, pins []Pin) ([]Pin, error) {
	if len(pages) > len(m.frames) {
		return pins, fmt.Errorf("pin %d pages in the %d frames of %s: %w", len(pages), len(m.frames), m.Name,
			tiers.ErrInvalid)
	}
	from := len(pins)
	missing := 0
	for _, page := range pages {
		f := p.tryPin(page, in, access)
		if f == nil {
			missing++
		}
		pins = append(pins, Pin{p, f, access})
	}
	if missing == 0 {
		return pins, nil
	}
	if err := p.pinMissing(ctx, pages, in, m, access, pins[from:]); err != nil {
		for _, h := range pins[from:] {
			if h.f != nil {
				h.Unpin()
			}
		}
		return pins[:from], err
	}
	return pins, nil
}

// pinMissing pins the pages whose pin is empty yet, as pinAll does. What it has when it fails is in
// pins.
func (p *Pager) pinMissing(ctx context.Context, pages []uint64, in, m *memory, access Access, pins []Pin) error {
	select {
	case m.bulk <- struct{}{}:
		defer func() { <-m.bulk }()
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ended:
		return tiers.ErrClosed
	}
	p.demand.Add(1)
	defer p.demand.Add(-1)
	at, pinned := 0, 0 // pages[:at] were looked at
	var missed []uint64
	err := p.inPairs(func(g *group, most int) bool {
		for ; at < len(pages) && len(g.pages) < most; at++ {
			if page := pages[at]; pins[at].f == nil {
				if f, claimed := p.claimWanted(want{page, m, ByDemand}); claimed {
					m.misses.Add(1)
					m.note(page)
					g.add(page, f, ByDemand)
					if m.predictor != nil {
						missed = append(missed, page)
					}
				}
			}
		}
		return at < len(pages)
	}, func(g *group) {
		p.bring(ctx, g, m, true)
	}, func(g *group) error {
		// Pinned at once, before the frames of the batch after next are wanted: those of the next
		// may take them away again, and they are pinned below then.
		for _, page := range g.pages {
			for ; pinned < at && pages[pinned] != page; pinned++ {
			}
			if pinned < at && pins[pinned].f == nil {
				pins[pinned].f = p.tryPin(page, in, access)
			}
		}
		if err := errors.Join(g.errs...); err != nil {
			return fmt.Errorf("pin in %s: %w", m.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Those that were on their way, came back, or are to be saved first.
	for i, page := range pages {
		if pins[i].f != nil {
			continue
		}
		if in == nil {
			h, err := p.pinAnywhere(ctx, page, access)
			if err != nil {
				return err
			}
			pins[i].f = h.f
			continue
		}
		f, err := p.pinSlow(ctx, page, m, access)
		if err != nil {
			return fmt.Errorf("pin page %d in %s: %w", page, m.Name, err)
		}
		pins[i].f = f
	}
	p.guessAll(m, missed)
	return nil
}

// inPairs moves many pages in groups, with two under way at a time, so that the bus does not wait
// while the pages of one are claimed and settled: that takes 2 us a page, which 38 us of copying
// hide. fill claims pages for a group and says whether there are more; move moves them, in a
// goroutine that has ended when inPairs returns; done is called for every group that was filled, in
// their order, and an error of it is the last thing that happens.
//
// fill is told how many pages to claim at most. The first group is half as large: copies of the
// same urgency share the bus, and two that began together would end together.
func (p *Pager) inPairs(fill func(g *group, most int) bool, move func(*group), done func(*group) error) error {
	var under [2]*group
	var ended [2]chan struct{}
	var first error
	finish := func(i int) {
		if g := under[i]; g != nil {
			<-ended[i]
			if err := done(g); first == nil {
				first = err
			}
			p.freeGroup(g)
			under[i] = nil
		}
	}
	turn, most := 0, max(p.opts.Batch/2, 1)
	for more := true; more && first == nil; {
		g := p.newGroup()
		if more = fill(g, most); len(g.pages) == 0 {
			p.freeGroup(g)
			continue
		}
		most = p.opts.Batch
		if !more && under[turn^1] == nil { // a goroutine for the only group would be a detour
			move(g)
			first = done(g)
			p.freeGroup(g)
			return first
		}
		over := make(chan struct{})
		under[turn], ended[turn] = g, over
		go func() {
			defer close(over)
			move(g)
		}()
		turn ^= 1
		finish(turn)
	}
	finish(turn ^ 1)
	return first
}

// UnpinAll gives pages back.
func UnpinAll(pins []Pin) {
	for _, h := range pins {
		h.Unpin()
	}
}

// DeleteAll removes pages. It stops at the first error, which it returns with the number of those
// that are removed.
func (p *Pager) DeleteAll(ctx context.Context, pages ...uint64) (removed int, err error) {
	for i, page := range pages {
		if err := p.Delete(ctx, page); err != nil {
			return i, err
		}
	}
	return len(pages), nil
}

// Scan calls f for the pages first..last, both included, that are there, in order, with their
// content as it is then, which is f's until it returns; it ends with the first error of f or of a
// read. It brings nothing into a tier: what is in no frame is read past them. Pages that are made
// or deleted meanwhile may be seen or not.
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

// between yields the pages of a range in order.
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

// peek reads a page where it is.
func (p *Pager) peek(ctx context.Context, page uint64, buf []byte) error {
	for {
		if p.closed.Load() {
			return tiers.ErrClosed
		}
		if p.frameOf(page) != nil || p.opts.Store == nil {
			return p.Read(ctx, page, 0, buf)
		}
		tier, err := p.opts.Store.Where(page)
		if err != nil {
			// On its way out of a frame that it was in just now, perhaps.
			if p.resident(page) {
				continue
			}
			return err
		}
		b, err := p.stage(ctx)
		if err != nil {
			return err
		}
		c, err := p.begin(ctx, callGet, p.disks[tier], page, b)
		if err != nil {
			p.putStage(b)
			return err
		}
		c.stage = b
		abandoned, err := p.end(c)
		if abandoned {
			p.replaceStage()
			return err
		}
		copy(buf, b)
		p.putStage(b)
		// Written and not yet evicted again, what was read may be old: a page in no frame is in the
		// store as it is.
		if p.resident(page) {
			continue
		}
		return err
	}
}
