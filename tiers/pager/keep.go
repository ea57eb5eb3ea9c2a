package pager

import (
	"context"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

// keeper is the background work of the memory tiers: it keeps frames free, moves idle pages down
// and asks for warm ones to move up.
type keeper struct {
	table   *table
	memory  []*memory
	store   tiers.Store // nil without one
	guesses *guesser
	move    *mover
	groups  *groups
	clock   *clock
	demand  *demand
	batch   int
	still   *sync.RWMutex // Pager.still
}

// The times between two rounds of a keeper, in ticks: lookEvery, 80 ms, is a twelfth of the
// shortest threshold of the design.
const (
	lookEvery  = 16
	mostPause  = 200
	slowdown   = 10 // a round takes at most a tenth of a core
	roundsFast = 1
)

// round keeps a tier between its watermarks, hands the recorded pins to its policy, and moves idle
// pages down and warm ones up. The next round comes soon after one that had something to do.
func (k *keeper) round(ctx context.Context, m *memory) {
	k.still.RLock()
	defer k.still.RUnlock()
	start := time.Now()
	busy := k.table.drain(m) > 0
	frames, free := m.size()
	if free < m.Low && !m.down() {
		busy = true
		k.makeRoom(ctx, m)
	}
	now, most := k.clock.now(), int64(mostPause)
	if m.MaxIdle > 0 && free < frames || m.level > 0 && k.memory[m.level-1].Promote {
		most = lookEvery
	}
	if now >= m.looked+lookEvery {
		m.looked = now
		if m.MaxIdle > 0 {
			k.demoteIdle(ctx, m)
		}
		if m.level > 0 && k.memory[m.level-1].Promote {
			k.promoteWarm(m)
		}
	}
	if m.pause = min(2*max(m.pause, roundsFast), most); busy {
		m.pause = roundsFast
	}
	// Pins that find the log full meanwhile are not recorded, so the policy sees a sample.
	m.keeps.next.Store(k.clock.now() + max(m.pause, int64(slowdown*time.Since(start)/tick)))
}

// makeRoom evicts pages in batches until as many frames are free as the high watermark says. It
// goes on during page faults, because they need the frames.
func (k *keeper) makeRoom(ctx context.Context, m *memory) {
	for ctx.Err() == nil {
		n := m.High - m.freeFrames()
		if n <= 0 || k.move.evictBatch(ctx, m, min(n, k.batch), ByWatermark) == 0 {
			return // Otherwise no page may be evicted, or the medium below fails: the next round tries again.
		}
	}
}

// demoteIdle moves the pages of a tier down that were not pinned for MaxIdle. A page for which the
// tier below has no frame free stays, unless it is old enough to leave that one too: it would pass
// it by and come back from the store. A last tier without a store below keeps its pages.
func (k *keeper) demoteIdle(ctx context.Context, m *memory) {
	if m.level == len(k.memory)-1 && k.store == nil {
		return
	}
	oldest := k.clock.now() - int64(m.MaxIdle/tick)
	room, passes := len(m.frames), oldest
	if m.level+1 < len(k.memory) && k.memory[m.level+1].MaxIdle > 0 {
		below := k.memory[m.level+1]
		room, passes = below.freeFrames()-below.Low, k.clock.now()-int64(max(m.MaxIdle, below.MaxIdle)/tick)
	}
	g := k.groups.take()
	defer func() { k.groups.put(g) }()
	for i := range m.frames {
		f := &m.frames[i]
		if at := f.touched.Load(); at <= oldest && (room > 0 || at <= passes) {
			if page, here := k.table.pageOf(f); here {
				if c := k.table.claimFrom(m, page); c != nil {
					g.add(page, c, ByAge)
					room--
				}
			}
		}
		if len(g.pages) == k.batch || i == len(m.frames)-1 && len(g.pages) > 0 {
			// The pages are claimed, so this batch moves at once; page faults go first after it.
			m.idle.Add(uint64(k.move.lowerAndRelease(ctx, g)))
			k.groups.put(g)
			g = k.groups.take()
			if !k.demand.giveWay(ctx) {
				return
			}
		}
	}
}

// warm is the number of ticks with pins after which a page moves up.
const warm = 3

// promoteWarm queues the warm pages of a tier for the tier above, as many as that has frames free
// above its high watermark.
func (k *keeper) promoteWarm(m *memory) {
	above := k.memory[m.level-1]
	room := above.freeFrames() - above.High
	since := k.clock.now() - int64(time.Second/tick)
	for i := range m.frames {
		if room <= 0 {
			return
		}
		f := &m.frames[i]
		if f.heat.Load() < warm || f.touched.Load() < since {
			continue
		}
		if page, here := k.table.pageOf(f); here && k.guesses.want(want{page, above, ByHeat}) {
			room--
		}
	}
}
