package pager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

// bring moves the claimed pages of a group into a tier, and ends their claims. Those without an
// error are in frames g.to then; the others are where they were. wait says that it waits for
// frames, as a demand does; else each page has its frame already.
func (p *Pager) bring(ctx context.Context, g *group, m *memory, wait bool) {
	u := tiers.Background
	if wait {
		u = tiers.Demand
	}
	for i, page := range g.pages {
		switch {
		case g.from[i] == nil && (p.opts.Store == nil || !p.opts.Store.Has(page)):
			g.errs[i] = tiers.ErrNotFound
		case g.from[i] == nil && p.unreadable(page) != nil:
			g.errs[i] = p.unreadable(page)
		case wait:
			g.to[i], g.errs[i] = p.take(ctx, m, g)
		}
	}
	p.copyFrames(ctx, g, u)
	for i, f := range g.from { // A frame that cannot be read: the store may have the same content.
		if f != nil && g.errs[i] != nil && g.to[i] != nil && f.memory.down() {
			if !g.clean[i] || p.opts.Store == nil {
				g.errs[i] = errGone(f.memory, g.errs[i])
				continue
			}
			g.calls[i], g.errs[i] = p.beginGet(ctx, g.pages[i], g.to[i])
			if g.calls[i] != nil {
				p.finishGet(ctx, g, i)
			}
		}
	}
	if p.opts.Store != nil {
		p.readStore(ctx, g)
	}
	for i := range g.pages {
		p.arrive(g, i, m)
	}
}

// unreadable says that a page's tier of the store is left alone at the moment, before a frame is
// emptied for it.
func (p *Pager) unreadable(page uint64) error {
	tier, err := p.opts.Store.Where(page)
	if err == nil && p.disks[tier].breaker.open(time.Now()) {
		return p.disks[tier].leftAlone()
	}
	return err
}

// arrive ends the claim of page i of a group that was copied, or was not.
func (p *Pager) arrive(g *group, i int, m *memory) {
	page, from, to := g.pages[i], g.from[i], g.to[i]
	if g.errs[i] != nil {
		if to != nil {
			m.release(to)
			g.to[i] = nil
		}
		p.settle(page, from, from)
		return
	}
	// The policies hear of it while the page is still claimed, so in the order in which it moves.
	to.touched.Store(p.clock.Load())
	to.heat.Store(0)
	to.fetched.Store(0)
	if g.reasons[i].guessed() {
		to.fetched.Store(uint32(g.reasons[i]) + 1)
	}
	m.added(page)
	m.in.Add(1)
	place := 0
	if from != nil {
		from.memory.evicted(page)
		from.memory.out.Add(1)
		place = from.memory.level
	} else if g.disks[i] != nil {
		place = len(p.memory) + g.disks[i].level
		p.recent.read(page, g.disks[i].level, p.stamp(), p.window(g.disks[i].level))
	}
	p.count(place, m.level, g.reasons[i])
	p.settle(page, from, to)
	if from != nil {
		p.discard(from)
		from.memory.release(from)
	}
}

// discard tells who guessed a page that it leaves its frame without having been asked for.
func (p *Pager) discard(f *frame) {
	if why := f.fetched.Swap(0); why != 0 {
		f.memory.outcomeOf(Reason(why-1), false)
	}
}

// take returns a free frame of a tier, for which it evicts a page if need be, and waits when all
// are pinned. g is what the caller has claimed, or nil.
func (p *Pager) take(ctx context.Context, m *memory, g *group) (*frame, error) {
	for {
		f, err := p.takeNow(ctx, m)
		if f != nil || err != nil {
			return f, err
		}
		if g != nil {
			if err := p.saveClaimed(ctx, g); err != nil {
				return nil, err
			}
		}
		m.waiters.Add(1)
		timer := time.NewTimer(10 * time.Millisecond) // A hint may go to another waiter, or a checkpoint may end.
		select {
		case <-m.freed:
		case <-timer.C:
		case <-p.ended:
			err = tiers.ErrClosed
		case <-ctx.Done():
			err = fmt.Errorf("every frame of %s is in use: %w: %w", m.Name, tiers.ErrFull, ctx.Err())
		}
		timer.Stop()
		m.waiters.Add(-1)
		if err != nil {
			return nil, err
		}
	}
}

// takeNow returns a free frame of a tier, evicting a page if need be, or nil when no page may go
// now.
func (p *Pager) takeNow(ctx context.Context, m *memory) (*frame, error) {
	if m.down() {
		return nil, fmt.Errorf("%s: %w", m.Name, tiers.ErrUnavailable)
	}
	if f := m.takeFree(0); f != nil {
		return f, nil
	}
	m.kickKeeper()
	return p.evict(ctx, m, ByRoom, nil)
}

// takeFree returns a free frame when more than keep are free, or nil.
func (m *memory) takeFree(keep int) *frame {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.free)
	if n <= keep {
		return nil
	}
	f := m.free[n-1]
	m.free = m.free[:n-1]
	if n-1 < m.Low {
		m.kickKeeper()
	}
	return f
}

// release gives a frame back that is in no table.
func (m *memory) release(f *frame) {
	f.dirty.Store(false)
	f.saving.Store(false)
	f.fetched.Store(0)
	m.mu.Lock()
	m.free = append(m.free, f)
	m.mu.Unlock()
	if m.waiters.Load() > 0 {
		m.hint()
	}
}

// hint wakes one waiter.
func (m *memory) hint() {
	select {
	case m.freed <- struct{}{}:
	default:
	}
}

// kickKeeper wakes the goroutine that keeps frames free.
func (m *memory) kickKeeper() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// evict moves one page of a tier down that the policy gives up and that may, when not nil, lets go,
// and returns its frame, which is the caller's. It returns nil when none may go now, and an error
// when the medium below fails.
func (p *Pager) evict(ctx context.Context, m *memory, why Reason, may func(*frame) bool) (*frame, error) {
	g := p.newGroup()
	defer p.freeGroup(g)
	if p.claimVictims(g, m, 1, why, may) == 0 {
		return nil, nil //nolint:nilnil // No page may go, which is no error.
	}
	p.lower(ctx, g)
	if err := g.errs[0]; err != nil {
		if errors.Is(err, errMarking) {
			return nil, nil //nolint:nilnil // It may go when the checkpoint is done.
		}
		return nil, err
	}
	return g.from[0], nil
}

// claimVictims claims up to n pages that a tier's policy gives up.
func (p *Pager) claimVictims(g *group, m *memory, n int, why Reason, may func(*frame) bool) int {
	p.drain(m)
	m.policyMu.Lock()
	defer m.policyMu.Unlock()
	// The policy has not seen guesses in use, so it would give them up first: they get some time to
	// prove right.
	fresh := p.clock.Load() - int64(untried/tick)
	spare := func(f *frame) bool { return f.fetched.Load() == 0 || f.touched.Load() <= fresh }
	for len(g.pages) < n {
		page, ok := m.policy.Victim(func(page uint64) bool {
			return p.mayEvict(m, page, func(f *frame) bool {
				return (spare == nil || spare(f)) &&
					(may == nil || may(f))
			})
		})
		if !ok && spare != nil {
			spare = nil
			continue
		}
		if !ok {
			break
		}
		if f := p.claimFrom(m, page); f != nil {
			g.add(page, f, why)
		}
	}
	return len(g.pages)
}

// untried is how long a page that was only guessed is kept before others for its first use: the
// design's first threshold.
const untried = time.Second

// mayEvict says whether a page is at rest, not pinned, and let go by may.
func (p *Pager) mayEvict(m *memory, page uint64, may func(*frame) bool) bool {
	s := p.shard(page)
	s.mu.RLock()
	defer s.mu.RUnlock()
	f := s.pages[page]
	return f != nil && f.memory == m && !f.moving && f.pins.Load() == 0 && (may == nil || may(f))
}

// claimFrom claims a page of a tier that is at rest and not pinned, or returns nil.
func (p *Pager) claimFrom(m *memory, page uint64) *frame {
	s := p.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.pages[page]
	if f == nil || f.memory != m || f.moving || f.pins.Load() > 0 {
		return nil
	}
	if _, moving := s.moving[page]; moving {
		return nil
	}
	f.moving = true
	s.moving[page] = struct{}{}
	return f
}

// lower moves the claimed pages of a group down and ends their claims: into frames of the next tier
// where it has some, else into the store, where one that the store holds already is just let go.
// Frames g.from of pages without an error are the caller's then.
func (p *Pager) lower(ctx context.Context, g *group) {
	for i, f := range g.from {
		g.to[i] = p.frameBelow(ctx, f)
	}
	u := tiers.Background
	if len(g.reasons) > 0 && g.reasons[0] == ByRoom { // A pin waits for it.
		u = tiers.Demand
	}
	p.copyFrames(ctx, g, u)
	for i, f := range g.to {
		if f != nil && g.errs[i] != nil { // The store takes the page instead.
			f.memory.release(f)
			g.to[i], g.errs[i] = nil, nil
		}
	}
	p.puts.RLock()
	p.lowerToStore(ctx, g)
	p.puts.RUnlock()
	for i := range g.pages {
		p.leave(g, i)
	}
}

// frameBelow is a frame of the next tier for a page that leaves its own, or nil. A page that was in
// use less recently than what would have to make room there goes past it.
func (p *Pager) frameBelow(ctx context.Context, f *frame) *frame {
	if f.memory.level+1 >= len(p.memory) {
		return nil
	}
	next := p.memory[f.memory.level+1]
	if next.down() {
		return nil
	}
	if to := next.takeFree(0); to != nil {
		return to
	}
	next.kickKeeper()
	touched := f.touched.Load()
	if p.opts.Store == nil {
		touched = p.clock.Load()
	}
	to, err := p.evict(ctx, next, ByRoom, func(v *frame) bool { return v.touched.Load() <= touched })
	if err != nil {
		return nil // It has no room or fails: the store takes the page.
	}
	return to
}

// putsAtOnce is how many puts of one group are under way together: each holds a staging buffer.
const putsAtOnce = 4

// lowerToStore puts the pages of a group that go to no frame. The caller holds puts.
func (p *Pager) lowerToStore(ctx context.Context, g *group) {
	started := g.index[:0]
	finish := func(i int) {
		g.disks[i], g.errs[i] = p.endPut(ctx, g.from[i], g.calls[i], g.errs[i])
		g.calls[i] = nil
	}
	for i, f := range g.from {
		switch {
		case g.to[i] != nil, !f.dirty.Load() && !f.saving.Load():
		case p.opts.Store == nil:
			g.errs[i] = fmt.Errorf("%s is full and nothing is below it: %w", f.memory.Name, tiers.ErrFull)
		case p.marking && !f.saving.Load():
			g.errs[i] = errMarking
		default:
			if len(started) == putsAtOnce {
				finish(started[0])
				copy(started, started[1:])
				started = started[:putsAtOnce-1]
			}
			g.calls[i], g.errs[i] = p.beginPut(ctx, f, 0)
			started = append(started, i)
		}
	}
	for _, i := range started {
		finish(i)
	}
	g.index = started[:0]
}

// errMarking says that a dirty page cannot be put while a checkpoint runs that it does not belong
// to.
var errMarking = errors.New("a checkpoint is running")

// leave ends the claim of page i of a group that was moved down, or was not.
func (p *Pager) leave(g *group, i int) {
	page, f, to := g.pages[i], g.from[i], g.to[i]
	if g.errs[i] != nil {
		p.settle(page, f, f)
		return
	}
	m := f.memory
	p.discard(f)
	m.evicted(page)
	m.out.Add(1)
	if to != nil {
		to.touched.Store(f.touched.Load())
		to.heat.Store(0)
		to.fetched.Store(0)
		to.memory.added(page)
		to.memory.in.Add(1)
		p.count(m.level, to.memory.level, g.reasons[i])
	} else {
		p.sink(page, g.disks[i], m, g.reasons[i])
	}
	p.settle(page, f, to)
	f.dirty.Store(false)
	f.saving.Store(false)
}

// sink notes that a page is in the store only from now on, in the tier d, or nil where it was
// before.
func (p *Pager) sink(page uint64, d *disk, m *memory, why Reason) {
	level := 0
	if d != nil {
		level = d.level
	} else if tier, err := p.opts.Store.Where(page); err == nil {
		level = tier
	}
	p.count(m.level, len(p.memory)+level, why)
	p.recent.sink(page, level, p.stamp())
}
