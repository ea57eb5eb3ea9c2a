package pager

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/tiers"
)

// WillNeed says that pages will be pinned in a tier soon: they are brought there in the background,
// behind misses, as far as there is room that nobody uses. It does not wait; what there is no room
// for in the queue of 1,024 is forgotten.
func (p *Pager) WillNeed(tier int, pages ...uint64) error {
	m, err := p.tier(tier)
	if err != nil {
		return err
	}
	for _, page := range pages {
		if !p.want(want{page, m, ByHint}) {
			return nil
		}
	}
	return nil
}

// WillSweep says that the pages first..last, both included, will be pinned in a tier once each, in
// order: those ahead stay or are fetched, and those passed make room. It holds until the last one
// is pinned or another sweep is announced.
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
	select {
	case p.sweeping <- struct{}{}:
	default:
	}
	return nil
}

// Guess turns guessing on or off for the pins from now on; it is on at first, unless NoPrefetch. It
// is off while the caller pins pages ahead of their use by itself, as a sweep does: guesses would
// only compete with its pins for frames.
func (p *Pager) Guess(on bool) { p.guessless.Store(!on) }

// DoneWith says that pages will not be needed soon: those that are in a tier and not pinned are
// moved down now, in batches. An error joins those of the pages that stay for want of a medium that
// takes them.
func (p *Pager) DoneWith(ctx context.Context, tier int, pages ...uint64) error {
	m, err := p.tier(tier)
	if err != nil {
		return err
	}
	var errs []error
	at := 0
	_ = p.inPairs(func(g *group, most int) bool {
		for ; at < len(pages) && len(g.pages) < most && ctx.Err() == nil; at++ {
			if f := p.claimFrom(m, pages[at]); f != nil {
				g.add(pages[at], f, ByHint)
			}
		}
		return at < len(pages) && ctx.Err() == nil
	}, func(g *group) {
		p.lowerAndRelease(ctx, g)
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
