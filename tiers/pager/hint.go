package pager

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/tiers"
)

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

// WillSweep announces that the pages first..last, both included, will be pinned in a tier once
// each, in order. Pages ahead of the sweep stay or are fetched, and pages that it has passed are
// evicted first. The announcement holds until the last page is pinned or another sweep is
// announced.
func (p *Pager) WillSweep(tier int, first, last uint64) error {
	m, err := p.tier(tier)
	if err != nil {
		return err
	}
	if last < first {
		return fmt.Errorf("sweep from page %d to %d: %w", first, last, tiers.ErrInvalid)
	}
	m.policyMu.Lock()
	m.policy.Sweep(first, last)
	m.policyMu.Unlock()
	p.fetches.sweeping.Store(true)
	p.fetches.rounds.kick()
	return nil
}

// Guess turns guessing on or off for the pins from now on; it is on at first, unless NoPrefetch. It
// is off while the caller pins pages ahead of their use by itself, as a sweep does: guesses would
// only compete with its pins for frames.
func (p *Pager) Guess(on bool) { p.guesses.off.Store(!on) }

// DoneWith announces that pages will not be needed soon. Pages that are in a tier and not pinned
// move down now, in batches. The error joins those of the pages that no medium takes, which stay.
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
