package pager

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/tiers"
)

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
	p      *Pager
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

// Pin brings a page into a memory tier and holds it there until Unpin. A page that is pinned in
// another tier fails with tiers.ErrUnavailable, since it may not move. When every frame of the tier
// is pinned, Pin waits for one, or for the end of ctx. A pin for writing marks the page dirty.
func (p *Pager) Pin(ctx context.Context, page uint64, tier int, access Access) (Pin, error) {
	m, err := p.tier(tier)
	if err != nil {
		return Pin{}, err
	}
	if f := p.tryPin(page, m, access); f != nil {
		return Pin{p, f, access}, nil
	}
	f, err := p.pinSlow(ctx, page, m, access)
	if err != nil {
		return Pin{}, fmt.Errorf("pin page %d in %s: %w", page, m.Name, err)
	}
	return Pin{p, f, access}, nil
}

// tryPin pins a page that is in the tier and at rest; a nil m stands for any tier.
func (p *Pager) tryPin(page uint64, m *memory, access Access) *frame {
	s := p.shard(page)
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
		p.asked(page, f)
	}
	if now := p.clock.Load(); f.touched.Load() != now {
		f.touched.Store(now)
		f.heat.Add(1)
		if i := s.logged.Add(1); i <= uint32(len(s.log)) {
			s.log[i-1].Store(page + 1)
		}
	}
	return f
}

// asked notes the first pin of a page that had been guessed, and what may come after it.
func (p *Pager) asked(page uint64, f *frame) {
	if why := f.fetched.Swap(0); why != 0 {
		f.memory.outcomeOf(Reason(why-1), true)
		p.guess(f.memory, page)
	}
}

// pinSlow serves a miss.
func (p *Pager) pinSlow(ctx context.Context, page uint64, m *memory, access Access) (*frame, error) {
	p.demand.Add(1)
	defer p.demand.Add(-1)
	start := nanotime()
	for missed := false; ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f := p.tryPin(page, m, access); f != nil {
			m.wait.add(nanotime() - start)
			if missed {
				p.guess(m, page)
			}
			return f, nil
		}
		f, err := p.claim(ctx, page, m)
		switch {
		case errors.Is(err, errSettle):
			if err := p.save(ctx, page); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		default:
			if !missed {
				missed = true
				m.misses.Add(1)
				m.note(page)
			}
			g := p.newGroup()
			g.add(page, f, ByDemand)
			p.bring(ctx, g, m, true)
			err := g.errs[0]
			p.freeGroup(g)
			if err != nil {
				return nil, err
			}
		}
	}
}

// errPinned says that a page may not move now.
var errPinned = fmt.Errorf("pinned: %w", tiers.ErrUnavailable)

// errSettle says that a page is where it should be and has to be saved before it is written.
var errSettle = errors.New("page is being saved")

// claim waits until a page is at rest and marks it as moving, for bring. It returns the frame where
// it is now, nil when it is in none. A page that is in the tier already is not claimed: errSettle
// when it is to be saved, and otherwise the caller just tries again.
func (p *Pager) claim(ctx context.Context, page uint64, m *memory) (*frame, error) {
	s := p.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.rest(ctx, page); err != nil {
		return nil, err
	}
	f := s.pages[page]
	switch {
	case f == nil:
	case f.memory == m:
		return f, errSettle
	case f.pins.Load() > 0:
		return nil, fmt.Errorf("it is %w in %s", errPinned, f.memory.Name)
	default:
		f.moving = true
	}
	s.moving[page] = struct{}{}
	return f, nil
}

// rest waits until a page is not moving. The caller holds mu.
func (s *shard) rest(ctx context.Context, page uint64) error {
	return s.await(ctx, page, func() bool { return false })
}

// await is rest that ends too when done says so, which is asked under mu after every change of the
// shard.
func (s *shard) await(ctx context.Context, page uint64, done func() bool) error {
	if _, moving := s.moving[page]; !moving || done() {
		return nil
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		})()
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, moving := s.moving[page]; !moving || done() {
			return nil
		}
		s.changed.Wait()
	}
}

// settle ends the move of a page from a frame, or from nowhere: it is in frame f now, or in none.
// The marks go along, under the lock, since a checkpoint may have set them meanwhile. The caller
// holds no lock.
func (p *Pager) settle(page uint64, from, f *frame) {
	s := p.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	if from != nil && f != nil && from != f {
		f.dirty.Store(from.dirty.Load())
		f.saving.Store(from.saving.Load())
	}
	if from != nil {
		from.moving = false
	}
	if f != nil {
		f.page.Store(page)
		f.moving = false
		s.pages[page] = f
	} else {
		delete(s.pages, page)
	}
	delete(s.moving, page)
	s.changed.Broadcast()
}
