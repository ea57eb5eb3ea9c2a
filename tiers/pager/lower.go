package pager

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/policy"
)

// evict moves one page of a tier down and returns its frame, which the caller then owns. The policy
// chooses among the pages that may allows; a nil may allows all. evict returns nil if no page may
// be evicted now, and an error if the medium below fails.
func (mo *mover) evict(ctx context.Context, m *memory, why Reason, may func(*frame) bool) (*frame, error) {
	g := mo.groups.take()
	defer mo.groups.put(g)
	if mo.claimVictims(g, m, 1, why, may) == 0 {
		return nil, nil //nolint:nilnil // No page may be evicted, which is no error.
	}
	mo.lower(ctx, g)
	if err := g.errs[0]; err != nil {
		if errors.Is(err, errMarking) {
			return nil, nil //nolint:nilnil // It may be evicted after the checkpoint.
		}
		return nil, err
	}
	return g.from[0], nil
}

// claimVictims claims up to n pages of a tier that its policy chooses for eviction, adds them to g,
// and returns their number.
func (mo *mover) claimVictims(g *group, m *memory, n int, why Reason, may func(*frame) bool) int {
	mo.table.drain(m)
	m.policyMu.Lock()
	defer m.policyMu.Unlock()
	// The policy has seen no use of pages that were fetched on a guess, and would choose them first.
	// So they are spared for some time.
	fresh := mo.clock.now() - int64(untried/tick)
	spare := func(f *frame) bool { return f.fetched.Load() == 0 || f.touched.Load() <= fresh }
	for len(g.pages) < n {
		page, ok := m.policy.Victim(func(page uint64) bool {
			return mo.table.mayEvict(m, page, func(f *frame) bool {
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
		if f := mo.table.claimFrom(m, page); f != nil {
			g.add(page, f, why)
		}
	}
	return len(g.pages)
}

// untried is the time for which a page that was fetched on a guess and not used yet is spared while
// other pages can be evicted.
const untried = time.Second

// lower moves the claimed pages of a group down and ends their claims. A page moves into a frame of
// the next tier if there is one, else into the store. A page that the store already holds is not
// written. Afterwards the caller owns the frames g.from of the pages without an error.
func (mo *mover) lower(ctx context.Context, g *group) {
	for i, f := range g.from {
		g.to[i] = mo.frameBelow(ctx, f)
	}
	u := tiers.Background
	if len(g.reasons) > 0 && g.reasons[0] == ByRoom { // A pin waits for it.
		u = tiers.Demand
	}
	mo.copyFrames(ctx, g, u)
	for i, f := range g.to {
		if f != nil && g.errs[i] != nil { // The store takes the page instead.
			f.memory.release(f)
			g.to[i], g.errs[i] = nil, nil
		}
	}
	mo.checkpoints.gate.RLock()
	mo.lowerToStore(ctx, g)
	mo.checkpoints.gate.RUnlock()
	for i := range g.pages {
		mo.leave(g, i)
	}
}

// frameBelow returns a frame of the next tier for the page that leaves frame f, or nil. It returns
// nil if the pages that could be evicted there were all in use more recently.
func (mo *mover) frameBelow(ctx context.Context, f *frame) *frame {
	if f.memory.level+1 >= len(mo.memory) {
		return nil
	}
	next := mo.memory[f.memory.level+1]
	if next.down() {
		return nil
	}
	for {
		leaving := next.leaving.Load()
		if to := next.takeFree(0); to != nil {
			return to
		}
		if mo.store != nil || leaving == 0 && next.leaving.Load() == 0 {
			break
		}
		// The page has no other place, and a goroutine that moves another page is about to free a frame.
		runtime.Gosched()
	}
	next.kickKeeper()
	touched := f.touched.Load()
	if mo.store == nil {
		touched = mo.clock.now()
	}
	to, err := mo.evict(ctx, next, ByRoom, func(v *frame) bool { return v.touched.Load() <= touched })
	if err != nil {
		return nil // The store takes the page.
	}
	return to
}

// lowerToStore puts the pages of a group that have no frame to go to. The caller holds
// checkpoints.gate, shared.
func (mo *mover) lowerToStore(ctx context.Context, g *group) {
	started := g.index[:0]
	finish := func(i int) {
		g.disks[i], g.errs[i] = mo.puts.end(ctx, g.from[i], g.calls[i], g.errs[i])
		g.calls[i] = nil
	}
	for i, f := range g.from {
		switch {
		case g.to[i] != nil, !f.dirty.Load() && !f.saving.Load():
		case mo.store == nil:
			g.errs[i] = fmt.Errorf("%s is full and nothing is below it: %w", f.memory.Name, tiers.ErrFull)
		case mo.checkpoints.marking && !f.saving.Load():
			g.errs[i] = errMarking
		default:
			if len(started) == putsAtOnce {
				finish(started[0])
				copy(started, started[1:])
				started = started[:putsAtOnce-1]
			}
			g.calls[i], g.errs[i] = mo.puts.begin(ctx, f, 0)
			started = append(started, i)
		}
	}
	for _, i := range started {
		finish(i)
	}
	g.index = started[:0]
}

// leave ends the claim of page i of a group, whether its move down succeeded or failed.
func (mo *mover) leave(g *group, i int) {
	page, f, to := g.pages[i], g.from[i], g.to[i]
	if g.errs[i] != nil {
		mo.table.settle(page, f, f)
		return
	}
	m := f.memory
	mo.discard(f)
	m.tell((*policy.Adaptive).Evicted, page)
	m.out.Add(1)
	if to != nil {
		to.touched.Store(f.touched.Load())
		to.heat.Store(0)
		to.fetched.Store(0)
		to.memory.tell((*policy.Adaptive).Added, page)
		to.memory.in.Add(1)
		mo.moved.count(m.level, to.memory.level, g.reasons[i])
	} else {
		mo.sink(page, g.disks[i], m, g.reasons[i])
	}
	mo.table.settle(page, f, to)
	f.dirty.Store(false)
	f.saving.Store(false)
}

// sink records that a page is only in the store: in tier d, or in its former tier if d is nil.
func (mo *mover) sink(page uint64, d *storeQueue, m *memory, why Reason) {
	level := 0
	if d != nil {
		level = d.Level
	} else if tier, err := mo.store.Where(page); err == nil {
		level = tier
	}
	mo.moved.count(m.level, len(mo.memory)+level, why)
	mo.ages.Sink(page, level, mo.clock.stamp())
}

// evictBatch moves up to n pages down together that the policy of a tier chooses, and returns the
// number of frames that came free.
func (mo *mover) evictBatch(ctx context.Context, m *memory, n int, why Reason) (freed int) {
	g := mo.groups.take()
	defer mo.groups.put(g)
	mo.claimVictims(g, m, n, why, nil)
	return mo.lowerAndRelease(ctx, g)
}

// lowerAndRelease moves the claimed pages of a group down, gives their frames back, and returns the
// number of these frames.
func (mo *mover) lowerAndRelease(ctx context.Context, g *group) (freed int) {
	if len(g.pages) == 0 {
		return 0
	}
	mo.lower(ctx, g)
	for i, f := range g.from {
		if g.errs[i] == nil {
			f.memory.release(f)
			freed++
		}
	}
	return freed
}
