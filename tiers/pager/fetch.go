package pager

import (
	"context"
	"sync"
	"time"
)

// fetcher brings wanted pages up in the background, from the queue of the guesser. It waits during
// page faults.
type fetcher struct {
	table   *table
	memory  []*memory
	guesses *guesser
	move    *mover
	groups  *groups
	clock   *clock
	demand  *demand
	rounds  rounds
	batch   int
	stall   time.Duration
	still   *sync.RWMutex // Pager.still
}

// round brings the wanted pages up in batches.
func (ft *fetcher) round(ctx context.Context) {
	batch := make([]want, 0, ft.batch)
	for more := true; more; {
		batch = batch[:0]
		for more && len(batch) < ft.batch {
			select {
			case w := <-ft.guesses.wanted:
				batch = append(batch, w)
			default:
				more = false
			}
		}
		for rest := batch; len(rest) > 0 && ft.demand.giveWay(ctx); {
			n := 1
			for n < len(rest) && rest[n].m == rest[0].m {
				n++
			}
			ft.bring(ctx, rest[:n])
			rest = rest[n:]
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// bring brings pages into one tier, which all wants name. It skips pages that are there, pinned
// elsewhere or claimed, and stops at the first page without a frame.
func (ft *fetcher) bring(ctx context.Context, wants []want) {
	m := wants[0].m
	if m.down() {
		return
	}
	ft.still.RLock()
	defer ft.still.RUnlock()
	g := ft.groups.take()
	defer ft.groups.put(g)
	for _, w := range wants {
		f, claimed := ft.table.claimAbove(w.page, w.m)
		if !claimed {
			continue
		}
		to := ft.spareFrame(ctx, w)
		if to == nil {
			ft.table.settle(w.page, f, f)
			break
		}
		g.add(w.page, f, w.why)
		g.to[len(g.to)-1] = to
	}
	if len(g.pages) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ft.stall)
	defer cancel()
	ft.move.bring(ctx, g, m, false)
	for _, err := range g.errs {
		if err == nil {
			m.prefetched.Add(1)
		}
	}
}

// recently is the time after its last pin in which a page is not evicted for a guess. It is a few
// ticks of a swarm and the time in which a bus of 55 GB/s fetches 2,700 pages of 2 MiB: an older
// page that the policy chooses would be evicted by the next page fault anyhow.
const recently = 100 * time.Millisecond

// spareFrame returns a frame for a page that was not pinned yet, or nil. It takes a free frame
// above the low watermark, or evicts a page that was neither in use nor fetched recently.
func (ft *fetcher) spareFrame(ctx context.Context, w want) *frame {
	if f := w.m.takeFree(w.m.Low); f != nil {
		return f
	}
	if w.m.Low == 0 && w.m.High == 0 && w.why == ByHint { // A small tier without watermarks.
		if f := w.m.takeFree(0); f != nil {
			return f
		}
	}
	if now := ft.clock.now(); now < w.m.noGuessUntil.Load() {
		return nil
	}
	old := ft.clock.now() - int64(recently/tick)
	f, err := ft.move.evict(ctx, w.m, w.why, func(v *frame) bool {
		return v.touched.Load() <= old
	})
	if err != nil || f == nil {
		w.m.noGuessUntil.Store(ft.clock.now() + 4) // It looked through the whole tier: not again for 20 ms.
		return nil
	}
	return f
}
