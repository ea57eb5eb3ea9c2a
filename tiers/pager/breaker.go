package pager

import (
	"sync"
	"time"
)

// Breaker says when a tier is left alone after failures. The zero Breaker has the defaults.
type Breaker struct {
	// Failures in a row open it; 0 means 3.
	Failures int
	// Pause is how long it stays open the first time, doubled with each failed probe up to
	// MaxPause; 0 means 5 s and 300 s.
	Pause, MaxPause time.Duration
	// Stall is how long one call may take. One that takes longer opens the breaker at once, and its
	// caller goes on without it; 0 means 10 s, which no disk that works takes for a page, and a
	// caller can still wait for.
	Stall time.Duration
}

// withDefaults returns a copy with every unset field filled in.
func (b Breaker) withDefaults() Breaker {
	if b.Failures == 0 {
		b.Failures = 3
	}
	if b.Pause == 0 {
		b.Pause = 5 * time.Second
	}
	if b.MaxPause == 0 {
		b.MaxPause = max(300*time.Second, b.Pause)
	}
	if b.Stall == 0 {
		b.Stall = 10 * time.Second
	}
	return b
}

// breaker is the breaker of one tier.
type breaker struct {
	Breaker
	mu       sync.Mutex
	failures int
	pause    time.Duration
	until    time.Time // open until then; then one call probes
	probing  bool
	trips    uint64
}

// allow says whether a call may be made now. After the pause one caller is let through to probe.
func (b *breaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.failures < b.Failures:
		return true
	case now.Before(b.until) || b.probing:
		return false
	}
	b.probing = true
	return true
}

// report records the outcome of a call that allow let through.
func (b *breaker) report(ok bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case ok && b.failures >= b.Failures && !b.probing:
		// A call that began before it opened: only a probe shows that the tier is back.
		return
	case ok:
		b.probing = false
		b.failures, b.pause = 0, 0
		return
	}
	b.probing = false
	b.failures++
	if b.failures >= b.Failures {
		b.openUntil(now)
	}
}

// withdraw takes back a call that allow let through and that told nothing.
func (b *breaker) withdraw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// trip opens it at once: a call stalled.
func (b *breaker) trip(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
	b.failures = max(b.failures+1, b.Failures)
	b.openUntil(now)
}

// openUntil starts a pause, twice as long as the last one; failures that come while one runs do not
// add to it. The caller holds mu.
func (b *breaker) openUntil(now time.Time) {
	if now.Before(b.until) {
		return
	}
	b.trips++
	b.pause = min(max(b.pause*2, b.Pause), b.MaxPause)
	b.until = now.Add(b.pause)
}

// open says whether calls are refused now.
func (b *breaker) open(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= b.Failures && (now.Before(b.until) || b.probing)
}
