package pager

import (
	"context"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/policy"
)

// mover moves groups of claimed pages: up with bring, down with lower. It counts the moves and
// tells the policies, the predictors and the ages of them. All methods may be called from several
// goroutines at once, each with a group of its own.
type mover struct {
	table       *table
	memory      []*memory
	store       tiers.Store // nil without one
	calls       *storeCaller
	staging     *stagingBuffers
	puts        *putter
	checkpoints *checkpoints
	ages        *ageTable
	clock       *clock
	moved       migrations
	groups      *groups
	disks       []Disk
	ended       <-chan struct{}
}

// bring moves the claimed pages of a group into a tier and ends their claims. Pages without an
// error are in frames g.to then; pages with one are where they were. With wait, bring takes the
// frames and waits for them, as a page fault does; else the caller has set g.to.
func (mo *mover) bring(ctx context.Context, g *group, m *memory, wait bool) {
	u := tiers.Background
	if wait {
		u = tiers.Demand
	}
	for i, page := range g.pages {
		switch {
		case g.from[i] == nil && (mo.store == nil || !mo.store.Has(page)):
			g.errs[i] = tiers.ErrNotFound
		case g.from[i] == nil && mo.unreadable(page) != nil:
			g.errs[i] = mo.unreadable(page)
		case wait:
			g.to[i], g.errs[i] = mo.take(ctx, m, g)
		}
	}
	mo.copyFrames(ctx, g, u)
	for i, f := range g.from { // A frame that cannot be read: the store may have the same content.
		if f != nil && g.errs[i] != nil && g.to[i] != nil && f.memory.down() {
			if !g.clean[i] || mo.store == nil {
				g.errs[i] = errGone(f.memory, g.errs[i])
				continue
			}
			g.calls[i], g.errs[i] = mo.beginGet(ctx, g.pages[i], g.to[i])
			if g.calls[i] != nil {
				mo.finishGet(ctx, g, i)
			}
		}
	}
	if mo.store != nil {
		mo.readStore(ctx, g)
	}
	for i := range g.pages {
		mo.arrive(g, i, m)
	}
}

// unreadable returns an error if the circuit of a page's tier of the store is open. It is asked
// before a frame is emptied for the page.
func (mo *mover) unreadable(page uint64) error {
	tier, err := mo.store.Where(page)
	if err == nil && mo.calls.Disks[tier].Breaker.Open(time.Now()) {
		return mo.calls.Disks[tier].CircuitOpen()
	}
	return err
}

// arrive ends the claim of page i of a group, whether its copy succeeded or failed.
func (mo *mover) arrive(g *group, i int, m *memory) {
	page, from, to := g.pages[i], g.from[i], g.to[i]
	if g.errs[i] != nil {
		if to != nil {
			m.release(to)
			g.to[i] = nil
		}
		mo.table.settle(page, from, from)
		return
	}
	// The policies hear of it while the page is still claimed, so in the order in which it moves.
	to.touched.Store(mo.clock.now())
	to.heat.Store(0)
	to.fetched.Store(0)
	if g.reasons[i].guessed() {
		to.fetched.Store(uint32(g.reasons[i]) + 1)
	}
	m.tell((*policy.Adaptive).Added, page)
	m.in.Add(1)
	place := 0
	if from != nil {
		from.memory.tell((*policy.Adaptive).Evicted, page)
		from.memory.out.Add(1)
		place = from.memory.level
	} else if g.disks[i] != nil {
		place = len(mo.memory) + g.disks[i].Level
		mo.ages.Read(page, g.disks[i].Level, mo.clock.stamp(), window(mo.disks, g.disks[i].Level))
	}
	mo.moved.count(place, m.level, g.reasons[i])
	if from == nil {
		mo.table.settle(page, from, to)
		return
	}
	from.memory.leaving.Add(1)
	mo.table.settle(page, from, to)
	mo.discard(from)
	from.memory.release(from)
	from.memory.leaving.Add(-1)
}

// discard tells the predictor of a page that was fetched and leaves its frame without a pin.
func (mo *mover) discard(f *frame) {
	if why := f.fetched.Swap(0); why != 0 {
		f.memory.outcomeOf(Reason(why-1), false)
	}
}

// take returns a free frame of a tier. It evicts a page if none is free, and waits if all are
// pinned. g has all pages that the caller has claimed; it is nil if there are none.
func (mo *mover) take(ctx context.Context, m *memory, g *group) (*frame, error) {
	for {
		f, err := mo.takeNow(ctx, m)
		if f != nil || err != nil {
			return f, err
		}
		if g != nil {
			if err := mo.checkpoints.saveClaimed(ctx, g); err != nil {
				return nil, err
			}
		}
		m.waiters.Add(1)
		timer := time.NewTimer(10 * time.Millisecond) // A hint may go to another waiter, or a checkpoint may end.
		select {
		case <-m.freed:
		case <-timer.C:
		case <-mo.ended:
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

// takeNow returns a free frame of a tier. It evicts a page if none is free, and returns nil if no
// page may be evicted now.
func (mo *mover) takeNow(ctx context.Context, m *memory) (*frame, error) {
	if len(m.frames) == 0 {
		return nil, fmt.Errorf("%s has no frames: %w", m.Name, tiers.ErrInvalid)
	}
	if m.down() {
		return nil, fmt.Errorf("%s: %w", m.Name, tiers.ErrUnavailable)
	}
	if f := m.takeFree(0); f != nil {
		return f, nil
	}
	m.kickKeeper()
	return mo.evict(ctx, m, ByRoom, nil)
}
