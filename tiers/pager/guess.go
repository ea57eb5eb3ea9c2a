package pager

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/tiers/policy"
)

// guesser is the queue of wanted pages: hints, warm pages and guesses of the predictors. A page is
// dropped and counted if the queue is full. All methods may be called from several goroutines at
// once.
type guesser struct {
	table     *table
	wanted    chan want
	queued    func() // begins a round of the fetcher
	forgotten atomic.Uint64
	off       atomic.Bool // see Pager.Guess
}

// want is a page to be fetched into a tier.
type want struct {
	page uint64
	m    *memory
	why  Reason
}

// wantQueue is the most wanted pages that wait; further ones are dropped. With pages of 2 MiB and a
// disk of 2 GB/s it is a second.
const wantQueue = 1024

// want queues a page, without waiting, and reports whether there was room.
func (gu *guesser) want(w want) bool {
	select {
	case gu.wanted <- w:
		gu.queued()
		return true
	default:
		gu.forgotten.Add(1)
		return false
	}
}

// guess asks the predictor of a tier which pages come after one that was pinned, and queues them.
func (gu *guesser) guess(m *memory, page uint64) {
	if m.predictor == nil || gu.off.Load() {
		return
	}
	m.predictMu.Lock()
	defer m.predictMu.Unlock()
	m.guesses = m.predictor.Demand(page, m.guesses[:0])
	for _, g := range m.guesses {
		if f := gu.table.frameOf(g.Page); f != nil && f.memory.level <= m.level {
			continue
		}
		why := ByRun
		if g.Source == policy.Correlation {
			why = ByCorrelation
		}
		if !gu.want(want{g.Page, m, why}) {
			return
		}
	}
}

// guessAll is guess for pages that were pinned together. It is called when all of them are
// resident, so that none of them is queued.
func (gu *guesser) guessAll(m *memory, pages []uint64) {
	for _, page := range pages {
		gu.guess(m, page)
	}
}
