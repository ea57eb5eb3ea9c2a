package pager

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/policy"
)

// pinner pins pages and serves page faults. Locks: try takes a shard shared for a few instructions;
// a page fault holds a claim while its page moves.
type pinner struct {
	table       *table
	memory      []*memory
	guesses     *guesser
	move        *mover
	checkpoints *checkpoints
	groups      *groups
	clock       *clock
	demand      *demand
	closed      *atomic.Bool
	ended       <-chan struct{}
}

// pin brings a page into a tier and holds it there, see Pager.Pin.
func (pn *pinner) pin(ctx context.Context, page uint64, m *memory, access Access) (Pin, error) {
	if f := pn.try(page, m, access); f != nil {
		return Pin{f, access}, nil
	}
	f, err := pn.slow(ctx, page, m, access)
	if err != nil {
		return Pin{}, fmt.Errorf("pin page %d in %s: %w", page, m.Name, err)
	}
	return Pin{f, access}, nil
}

// try pins a page that is in tier m, or in any if m is nil, and that is not claimed. It returns nil
// if the page cannot be pinned at once. It takes 40 ns and does not allocate.
func (pn *pinner) try(page uint64, m *memory, access Access) *frame {
	s := pn.table.shard(page)
	s.mu.RLock()
	f := s.pages[page]
	if f == nil || f.moving || (m != nil && f.memory != m) || (access == ForWriting && f.saving.Load()) {
		s.mu.RUnlock()
		return nil
	}
	f.pins.Add(1)
	if access == ForWriting {
		f.writes.Add(1)
		if !f.dirty.Load() {
			f.dirty.Store(true)
		}
	}
	s.mu.RUnlock()
	s.hits[f.memory.level].Add(1)
	if f.fetched.Load() != 0 {
		pn.asked(page, f)
	}
	if now := pn.clock.now(); f.touched.Load() != now {
		f.touched.Store(now)
		f.heat.Add(1)
		if i := s.logged.Add(1); i <= uint32(len(s.log)) {
			s.log[i-1].Store(page + 1)
		}
	}
	return f
}

// asked handles the first pin of a fetched page: it tells the predictor, which may guess the next.
func (pn *pinner) asked(page uint64, f *frame) {
	if why := f.fetched.Swap(0); why != 0 {
		f.memory.outcomeOf(Reason(why-1), true)
		pn.guesses.guess(f.memory, page)
	}
}

// slow serves a page fault: it claims the page, moves it into tier m, and pins it.
func (pn *pinner) slow(ctx context.Context, page uint64, m *memory, access Access) (*frame, error) {
	pn.demand.begin()
	defer pn.demand.end()
	start := nanotime()
	for missed := false; ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f := pn.try(page, m, access); f != nil {
			m.wait.Add(nanotime() - start)
			if missed {
				pn.guesses.guess(m, page)
			}
			return f, nil
		}
		f, err := pn.table.claim(ctx, page, m)
		switch {
		case errors.Is(err, errSettle):
			if err := pn.checkpoints.save(ctx, page); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		default:
			if !missed {
				missed = true
				m.misses.Add(1)
				m.tell((*policy.Adaptive).Access, page)
			}
			g := pn.groups.take()
			g.add(page, f, ByDemand)
			pn.move.bring(ctx, g, m, true)
			err := g.errs[0]
			pn.groups.put(g)
			if err != nil {
				return nil, err
			}
		}
	}
}

// anywhere pins a page where it is, or in the last memory tier.
func (pn *pinner) anywhere(ctx context.Context, page uint64, access Access) (Pin, error) {
	for {
		if f := pn.try(page, nil, access); f != nil {
			return Pin{f, access}, nil
		}
		level := lowest(pn.memory).level
		s := pn.table.shard(page)
		s.mu.Lock()
		err := s.rest(ctx, page) // what is on its way is pinned where it arrives: it would be brought back otherwise
		if f := s.pages[page]; f != nil {
			level = f.memory.level
		}
		s.mu.Unlock()
		if err != nil {
			return Pin{}, fmt.Errorf("pin page %d: %w", page, err)
		}
		if pn.closed.Load() {
			return Pin{}, tiers.ErrClosed
		}
		h, err := pn.pin(ctx, page, pn.memory[level], access)
		if !errors.Is(err, errPinned) {
			return h, err
		}
		// It was pinned elsewhere between the look and the pin.
	}
}

// all pins pages in a tier, nil for any; absent pages come into tier m.
func (pn *pinner) all(ctx context.Context, pages []uint64, in, m *memory, access Access, pins []Pin) ([]Pin, error) {
	if len(pages) > len(m.frames) {
		return pins, fmt.Errorf("pin %d pages in the %d frames of %s: %w", len(pages), len(m.frames), m.Name,
			tiers.ErrInvalid)
	}
	from := len(pins)
	missing := 0
	for _, page := range pages {
		f := pn.try(page, in, access)
		if f == nil {
			missing++
		}
		pins = append(pins, Pin{f, access})
	}
	if missing == 0 {
		return pins, nil
	}
	if err := pn.missing(ctx, pages, in, m, access, pins[from:]); err != nil {
		for _, h := range pins[from:] {
			if h.f != nil {
				h.Unpin()
			}
		}
		return pins[:from], err
	}
	return pins, nil
}

// missing pins the pages whose pin is empty yet, as pinAll does. What it has when it fails is in
// pins.
func (pn *pinner) missing(ctx context.Context, pages []uint64, in, m *memory, access Access, pins []Pin) error {
	select {
	case m.bulk <- struct{}{}:
		defer func() { <-m.bulk }()
	case <-ctx.Done():
		return ctx.Err()
	case <-pn.ended:
		return tiers.ErrClosed
	}
	pn.demand.begin()
	defer pn.demand.end()
	at, pinned := 0, 0 // pages[:at] were looked at
	var missed []uint64
	err := pn.groups.inPairs(func(g *group, most int) bool {
		for ; at < len(pages) && len(g.pages) < most; at++ {
			if page := pages[at]; pins[at].f == nil {
				if f, claimed := pn.table.claimAbove(page, m); claimed {
					m.misses.Add(1)
					m.tell((*policy.Adaptive).Access, page)
					g.add(page, f, ByDemand)
					if m.predictor != nil {
						missed = append(missed, page)
					}
				}
			}
		}
		return at < len(pages)
	}, func(g *group) {
		pn.move.bring(ctx, g, m, true)
	}, func(g *group) error {
		// Pinned at once, before the batch after next wants frames: the next batch may take these
		// away again, and they are pinned below then.
		for _, page := range g.pages {
			for ; pinned < at && pages[pinned] != page; pinned++ {
			}
			if pinned < at && pins[pinned].f == nil {
				pins[pinned].f = pn.try(page, in, access)
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
	// Pages that were on their way, came back, or must be saved first.
	for i, page := range pages {
		if pins[i].f != nil {
			continue
		}
		if in == nil {
			h, err := pn.anywhere(ctx, page, access)
			if err != nil {
				return err
			}
			pins[i].f = h.f
			continue
		}
		f, err := pn.slow(ctx, page, m, access)
		if err != nil {
			return fmt.Errorf("pin page %d in %s: %w", page, m.Name, err)
		}
		pins[i].f = f
	}
	pn.guesses.guessAll(m, missed)
	return nil
}

// Access is what a pin is for.
type Access uint8

// The kinds of access. Pins for writing may be held by several at once: the Pager keeps the page in
// place, and who writes what is between them.
const (
	ForReading Access = iota
	ForWriting
)

// Pin holds a page in its frame. It is a small value; its zero holds nothing.
type Pin struct {
	f      *frame
	access Access
}

// Page is the page that is held.
func (h Pin) Page() uint64 { return h.f.page.Load() }

// Frame is the number of the frame in its tier's Frames.
func (h Pin) Frame() int { return h.f.number }

// Tier is the number of the memory tier.
func (h Pin) Tier() int { return h.f.memory.level }

// Unpin gives the page back. It is called once.
func (h Pin) Unpin() {
	if h.access == ForWriting {
		h.f.writes.Add(-1)
	}
	m := h.f.memory
	if n := h.f.pins.Add(-1); n == 0 && m.waiters.Load() > 0 {
		m.hint()
	} else if n < 0 {
		panic("pager: page is unpinned twice")
	}
}

// UnpinAll gives pages back.
func UnpinAll(pins []Pin) {
	for _, h := range pins {
		h.Unpin()
	}
}
