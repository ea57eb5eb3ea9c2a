package pager

import (
	"context"
	"errors"
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

// WillNeed announces that pages will be pinned in a tier soon. They are brought there in the
// background, after page faults, as far as frames can be spared. It does not wait. Pages that find
// the queue of 1,024 full are dropped.
func (p *Pager) WillNeed(tier int, pages ...uint64) error {
	m, err := p.tier(tier)
	if err != nil {
		return err
	}
	for _, page := range pages {
		if !p.guesses.want(want{page, m, ByHint}) {
			return nil
		}
	}
	return nil
}

// Guess turns guessing on or off for the pins from now on; it is on at first, unless NoPrefetch. It
// is off while the caller pins pages ahead of their use by itself, as a sweep does: guesses would
// only compete with its pins for frames.
func (p *Pager) Guess(on bool) { p.guesses.off.Store(!on) }

// DoneWith announces that pages will not be needed soon. Pages that are in a tier and not pinned
// move down now, in batches. Pages that no medium takes stay, and the error joins one for each.
func (p *Pager) DoneWith(ctx context.Context, tier int, pages ...uint64) error {
	m, err := p.tier(tier)
	if err != nil {
		return err
	}
	var errs []error
	at := 0
	_ = p.groups.inPairs(func(g *group, most int) bool {
		for ; at < len(pages) && len(g.pages) < most && ctx.Err() == nil; at++ {
			if f := p.table.claimFrom(m, pages[at]); f != nil {
				g.add(pages[at], f, ByHint)
			}
		}
		return at < len(pages) && ctx.Err() == nil
	}, func(g *group) {
		p.move.lowerAndRelease(ctx, g)
	}, func(g *group) error {
		for _, err := range g.errs {
			if err != nil && !errors.Is(err, errMarking) {
				errs = append(errs, err)
			}
		}
		return nil // the others go on
	})
	if at < len(pages) {
		errs = append(errs, ctx.Err())
	}
	return errors.Join(errs...)
}
