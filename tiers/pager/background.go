package pager

import (
	"context"
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

// keepTime moves the clock on.
func (p *Pager) keepTime(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	start := time.Now()
	for {
		select {
		case now := <-t.C:
			p.clock.Store(int64(now.Sub(start) / tick)) // A ticker drops ticks on a busy machine.
		case <-ctx.Done():
			return
		}
	}
}

// idleEvery is how many rounds of a keeper pass between two looks for idle pages: 80 ms, a twelfth
// of the shortest threshold of the design.
const idleEvery = 16

// keepFree keeps a tier between its watermarks, hands the recorded pins to its policy, and moves
// idle pages down and warm ones up.
func (p *Pager) keepFree(ctx context.Context, m *memory) {
	t := time.NewTimer(tick)
	defer t.Stop()
	for round := 0; ; round++ {
		select {
		case <-t.C:
		case <-m.kick:
		case <-ctx.Done():
			return
		}
		start := time.Now()
		p.drain(m)
		if m.freeFrames() < m.Low && !m.down() {
			p.makeRoom(ctx, m)
		}
		if round%idleEvery == 0 {
			if m.MaxIdle > 0 {
				p.demoteIdle(ctx, m)
			}
			if m.level > 0 && p.memory[m.level-1].Promote {
				p.promoteWarm(m)
			}
		}
		// The policies' books may take a tenth of a core at most: pins that are not recorded
		// meanwhile are a sample.
		t.Reset(max(tick, 10*time.Since(start)))
	}
}

// freeFrames counts them.
func (m *memory) freeFrames() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.free)
}

// makeRoom evicts pages in batches until the high watermark is free. It does not give way to
// misses: it makes the room that they need.
func (p *Pager) makeRoom(ctx context.Context, m *memory) {
	for ctx.Err() == nil {
		n := m.High - m.freeFrames()
		if n <= 0 || p.evictBatch(ctx, m, min(n, p.opts.Batch), ByWatermark) == 0 {
			return // Enough, or nothing may go, or the medium below fails: the next round tries again.
		}
	}
}

// evictBatch moves up to n pages that the policy gives up down together, and says how many frames
// that freed.
func (p *Pager) evictBatch(ctx context.Context, m *memory, n int, why Reason) (freed int) {
	g := p.newGroup()
	defer p.freeGroup(g)
	p.claimVictims(g, m, n, why, nil)
	return p.lowerAndRelease(ctx, g)
}

// lowerAndRelease moves claimed pages down and gives their frames back.
func (p *Pager) lowerAndRelease(ctx context.Context, g *group) (freed int) {
	if len(g.pages) == 0 {
		return 0
	}
	p.lower(ctx, g)
	for i, f := range g.from {
		if g.errs[i] == nil {
			f.memory.release(f)
			freed++
		}
	}
	return freed
}

// giveWay waits while misses are being served, and says whether the Pager is still open.
func (p *Pager) giveWay(ctx context.Context) bool {
	if p.demand.Load() == 0 {
		return ctx.Err() == nil
	}
	pause := 200 * time.Microsecond // A miss from memory takes a fraction of that, one from a disk some of it.
	t := time.NewTimer(pause)
	defer t.Stop()
	for p.demand.Load() > 0 && ctx.Err() == nil {
		select {
		case <-t.C:
			pause = min(2*pause, tick)
			t.Reset(pause)
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// demoteIdle moves the pages of a tier down that were not pinned for MaxIdle.
func (p *Pager) demoteIdle(ctx context.Context, m *memory) {
	if m.level == len(p.memory)-1 && p.opts.Store == nil {
		return
	}
	oldest := p.clock.Load() - int64(m.MaxIdle/tick)
	g := p.newGroup()
	defer func() { p.freeGroup(g) }()
	for i := range m.frames {
		f := &m.frames[i]
		if f.touched.Load() <= oldest {
			if page, here := p.pageOf(f); here {
				if c := p.claimFrom(m, page); c != nil {
					g.add(page, c, ByAge)
				}
			}
		}
		if len(g.pages) == p.opts.Batch || i == len(m.frames)-1 && len(g.pages) > 0 {
			// Claimed already, so that it is short: misses go first between two batches.
			m.idle.Add(uint64(p.lowerAndRelease(ctx, g)))
			p.freeGroup(g)
			g = p.newGroup()
			if !p.giveWay(ctx) {
				return
			}
		}
	}
}

// warm is in how many ticks a page was in use, since it came, to be moved up by itself.
const warm = 3

// promoteWarm asks for the pages of a tier that were in use again and again, where the tier above
// has room to spare.
func (p *Pager) promoteWarm(m *memory) {
	above := p.memory[m.level-1]
	room := above.freeFrames() - above.High
	since := p.clock.Load() - int64(time.Second/tick)
	for i := range m.frames {
		if room <= 0 {
			return
		}
		f := &m.frames[i]
		if f.heat.Load() < warm || f.touched.Load() < since {
			continue
		}
		if page, here := p.pageOf(f); here && p.want(want{page, above, ByHeat}) {
			room--
		}
	}
}

// pageOf finds the page in a frame.
func (p *Pager) pageOf(f *frame) (page uint64, resident bool) {
	page = f.page.Load()
	s := p.shard(page)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return page, s.pages[page] == f
}

// drain gives the recorded pins of pages in a tier to its policy.
func (p *Pager) drain(m *memory) {
	m.policyMu.Lock()
	defer m.policyMu.Unlock()
	for i := range p.table {
		s := &p.table[i]
		n := min(s.logged.Load(), uint32(len(s.log)))
		if n == 0 {
			continue
		}
		left := uint32(0)
		for j := range n {
			page := s.log[j].Swap(0)
			if page == 0 {
				continue
			}
			s.mu.RLock()
			f := s.pages[page-1]
			s.mu.RUnlock()
			switch {
			case f == nil:
			case f.memory == m:
				m.policy.Access(page - 1)
			default: // Another tier's; its own drain takes it.
				s.log[left].Store(page)
				left++
			}
		}
		s.logged.Store(left)
	}
}

// note tells the policy of a miss, and added, evicted and removed what became of pages.
func (m *memory) note(page uint64) {
	m.policyMu.Lock()
	defer m.policyMu.Unlock()
	m.policy.Access(page)
}

func (m *memory) added(page uint64) {
	m.policyMu.Lock()
	defer m.policyMu.Unlock()
	m.policy.Added(page)
}

func (m *memory) evicted(page uint64) {
	m.policyMu.Lock()
	defer m.policyMu.Unlock()
	m.policy.Evicted(page)
}

func (m *memory) removed(page uint64) {
	m.policyMu.Lock()
	defer m.policyMu.Unlock()
	m.policy.Removed(page)
}

// bounded runs something that may wait for a medium, and stops waiting when ctx ends; it then goes
// on by itself.
func (p *Pager) bounded(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }() // Its owner is the medium, once nobody waits for it any more.
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		select {
		case err := <-done: // It was cut short in order.
			return err
		default:
		}
		return errors.Join(tiers.ErrUnavailable, ctx.Err())
	}
}
