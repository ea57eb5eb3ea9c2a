package pager

import (
	"context"
	"time"

	"github.com/exoswarm/exoswarm/tiers/prefetch"
)

// want is a page to be fetched into a tier.
type want struct {
	page uint64
	m    *memory
	why  Reason
}

// wantQueue is how many wanted pages wait at most; more are forgotten. At 2 MiB and a disk of 2
// GB/s it is a second.
const wantQueue = 1024

// want queues a page. It says whether there was room.
func (p *Pager) want(w want) bool {
	select {
	case p.wanted <- w:
		return true
	default:
		p.forgotten.Add(1)
		return false
	}
}

// fetch is the goroutine that brings wanted pages up, behind misses and in batches.
func (p *Pager) fetch(ctx context.Context) {
	ahead := time.NewTicker(tick)
	defer ahead.Stop()
	batch := make([]want, 0, p.opts.Batch)
	for {
		batch = batch[:0]
		select {
		case w := <-p.wanted:
			batch = append(batch, w)
		case <-p.sweeping:
			p.fetchSweeps(ctx)
			continue
		case <-ahead.C:
			p.fetchSweeps(ctx)
			continue
		case <-ctx.Done():
			return
		}
		for more := true; more && len(batch) < p.opts.Batch; {
			select {
			case w := <-p.wanted:
				batch = append(batch, w)
			default:
				more = false
			}
		}
		for rest := batch; len(rest) > 0 && p.giveWay(ctx); {
			n := 1
			for n < len(rest) && rest[n].m == rest[0].m {
				n++
			}
			p.fetchBatch(ctx, rest[:n])
			rest = rest[n:]
		}
	}
}

// fetchBatch brings pages into one tier that are not there, not pinned elsewhere and not moving. It
// says whether every page that it tried found a frame.
func (p *Pager) fetchBatch(ctx context.Context, wants []want) bool {
	m := wants[0].m
	if m.down() {
		return false
	}
	g := p.newGroup()
	defer p.freeGroup(g)
	all := true
	for _, w := range wants {
		f, claimed := p.claimWanted(w)
		if !claimed {
			continue
		}
		to := p.spareFrame(ctx, w)
		if to == nil {
			p.settle(w.page, f, f)
			all = false
			break
		}
		g.add(w.page, f, w.why)
		g.to[len(g.to)-1] = to
	}
	if len(g.pages) == 0 {
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Breaker.Stall)
	defer cancel()
	p.bring(ctx, g, m, false)
	for _, err := range g.errs {
		if err == nil {
			m.prefetched.Add(1)
		}
	}
	return all
}

// claimWanted claims a page that is to be fetched.
func (p *Pager) claimWanted(w want) (f *frame, claimed bool) {
	s := p.shard(w.page)
	s.mu.Lock()
	defer s.mu.Unlock()
	f = s.pages[w.page]
	_, moving := s.moving[w.page]
	if moving || f != nil && (f.memory.level <= w.m.level || f.pins.Load() > 0) {
		return nil, false
	}
	if f == nil && (p.opts.Store == nil || !p.opts.Store.Has(w.page)) {
		return nil, false
	}
	if f != nil {
		f.moving = true
	}
	s.moving[w.page] = struct{}{}
	return f, true
}

// recently is how long a page that was asked for is safe from making room for one that is only
// guessed. It is a few ticks of a swarm and the time in which a bus of 55 GB/s fetches 2,700 pages
// of 2 MiB: what is older than that and given up by the policy would go for the next miss anyhow.
const recently = 100 * time.Millisecond

// spareFrame is a frame for a page that nobody has asked for yet, or nil: one of those that are
// free above the low watermark, or that of a page that was not in use recently, or that an
// announced sweep has passed. So a guess never pushes out what is pinned or was recently asked for.
func (p *Pager) spareFrame(ctx context.Context, w want) *frame {
	if f := w.m.takeFree(w.m.Low); f != nil {
		return f
	}
	if w.m.Low == 0 && w.m.High == 0 && w.why == ByHint { // A small tier without watermarks.
		if f := w.m.takeFree(0); f != nil {
			return f
		}
	}
	if now := p.clock.Load(); now < w.m.barren.Load() {
		return nil
	}
	old := p.clock.Load() - int64(recently/tick)
	first, next, sweeping := w.m.sweepState()
	f, err := p.evict(ctx, w.m, w.why, func(v *frame) bool {
		if v.fetched.Load() != 0 && v.touched.Load() > old {
			return false // Another guess, not yet tried.
		}
		page := v.page.Load()
		return v.touched.Load() <= old || w.why == BySweep && sweeping && page >= first && page < next
	})
	if err != nil || f == nil {
		w.m.barren.Store(p.clock.Load() + 4) // A look through the whole tier: not again for 20 ms.
		return nil
	}
	return f
}

// sweepState is the policy's sweep: its first page, and the next one to come.
func (m *memory) sweepState() (first, next uint64, on bool) {
	m.policyMu.Lock()
	defer m.policyMu.Unlock()
	first, next, _, on = m.policy.Sweeping()
	return first, next, on
}

// fetchSweeps fetches the next pages of the sweeps that are announced, a batch or two ahead of the
// pins.
func (p *Pager) fetchSweeps(ctx context.Context) {
	for _, m := range p.memory {
		p.drain(m)
		m.policyMu.Lock()
		_, next, last, on := m.policy.Sweeping()
		m.policyMu.Unlock()
		if !on {
			continue
		}
		end := min(last-next, uint64(2*p.opts.Batch)-1)
		wants := make([]want, 0, p.opts.Batch)
		for i := uint64(0); i <= end; i++ {
			if f := p.frameOf(next + i); f == nil || f.memory.level > m.level {
				wants = append(wants, want{next + i, m, BySweep})
			}
			if len(wants) == p.opts.Batch || i == end && len(wants) > 0 {
				if !p.giveWay(ctx) || !p.fetchBatch(ctx, wants) {
					break
				}
				wants = wants[:0]
			}
		}
	}
}

// frameOf is where a page is, or nil.
func (p *Pager) frameOf(page uint64) *frame {
	s := p.shard(page)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pages[page]
}

// guess asks the predictor of a tier what comes after a page that was asked for, and queues that.
func (p *Pager) guess(m *memory, page uint64) {
	if m.predictor == nil || p.guessless.Load() {
		return
	}
	m.predictMu.Lock()
	defer m.predictMu.Unlock()
	m.guesses = m.predictor.Demand(page, m.guesses[:0])
	for _, g := range m.guesses {
		if f := p.frameOf(g.Page); f != nil && f.memory.level <= m.level {
			continue
		}
		why := ByRun
		if g.Source == prefetch.Correlation {
			why = ByCorrelation
		}
		if !p.want(want{g.Page, m, why}) {
			return
		}
	}
}

// guessAll is guess of pages that were asked for together, once all of them are there: none of them
// is queued.
func (p *Pager) guessAll(m *memory, pages []uint64) {
	for _, page := range pages {
		p.guess(m, page)
	}
}

// outcomeOf tells the predictor whether a page that was guessed was asked for.
func (m *memory) outcomeOf(why Reason, used bool) {
	if used {
		m.used.Add(1)
	} else {
		m.wasted.Add(1)
	}
	if m.predictor == nil || why != ByRun && why != ByCorrelation {
		return
	}
	source := prefetch.Run
	if why == ByCorrelation {
		source = prefetch.Correlation
	}
	m.predictMu.Lock()
	defer m.predictMu.Unlock()
	m.predictor.Outcome(source, used)
}
