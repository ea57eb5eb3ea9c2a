package pager

// This file stops calls to a medium that fails, and lets one call at a time find out whether it is
// back.
//
// A Breaker is closed at first: calls pass, and their outcomes are reported. After Failures failed
// calls in a row, or after one that stalled, it opens: calls are refused for Pause. Then one caller
// is let through as a probe. If the probe succeeds, the breaker closes; if it fails, the breaker
// stays open for twice as long as before, up to MaxPause.

import (
	"sync"
	"time"
)

// BreakerOptions say when a Breaker opens and for how long. The zero Options have the defaults.
type BreakerOptions struct {
	// Failures is the number of failures in a row that open it; 0 means 3.
	Failures int
	// Pause is the time for which it stays open at first. Each failed probe doubles it, up to
	// MaxPause; 0 means 5 s and 300 s.
	Pause, MaxPause time.Duration
	// Stall is the most time of one call. A call that takes longer opens the breaker at once, and
	// its caller abandons it; 0 means 10 s: no working disk takes that long for a page, and a
	// caller can still wait for it.
	Stall time.Duration
}

// WithDefaults returns a copy with every unset field filled in.
func (o BreakerOptions) WithDefaults() BreakerOptions {
	if o.Failures == 0 {
		o.Failures = 3
	}
	if o.Pause == 0 {
		o.Pause = 5 * time.Second
	}
	if o.MaxPause == 0 {
		o.MaxPause = max(300*time.Second, o.Pause)
	}
	if o.Stall == 0 {
		o.Stall = 10 * time.Second
	}
	return o
}

// Valid reports whether a Breaker can work with the options, defaults included.
func (o BreakerOptions) Valid() bool {
	return o.Failures >= 1 && o.Pause > 0 && o.MaxPause >= o.Pause && o.Stall > 0
}

// breaker is the breaker of one medium. All methods may be called from several goroutines at once;
// none blocks. A Breaker takes no other lock while it holds its own.
type breaker struct {
	opts     BreakerOptions
	mu       sync.Mutex
	failures int
	pause    time.Duration
	until    time.Time // open until then; then one call probes
	probing  bool
	trips    uint64
}

// newBreaker returns a closed Breaker. The options have their defaults and are valid.
func newBreaker(opts BreakerOptions) *breaker { return &breaker{opts: opts} }

// Allow reports whether the caller may make a call now. After the pause it returns true to one
// caller, whose call is the probe. A caller that was let through must call Report, Withdraw or
// Trip.
func (b *breaker) Allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.failures < b.opts.Failures:
		return true
	case now.Before(b.until) || b.probing:
		return false
	}
	b.probing = true
	return true
}

// Report records the outcome of a call that Allow let through.
func (b *breaker) Report(ok bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case ok && b.failures >= b.opts.Failures && !b.probing:
		// A call that began before it opened: only a probe shows that the medium is back.
		return
	case ok:
		b.probing = false
		b.failures, b.pause = 0, 0
		return
	}
	b.probing = false
	b.failures++
	if b.failures >= b.opts.Failures {
		b.openUntil(now)
	}
}

// Withdraw ends a call that Allow let through and that says nothing about the medium, for example
// because its caller gave up. The next call may be the probe.
func (b *breaker) Withdraw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// Trip opens the breaker at once, because a call stalled.
func (b *breaker) Trip(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
	b.failures = max(b.failures+1, b.opts.Failures)
	b.openUntil(now)
}

// openUntil starts a pause, twice as long as the last one. Failures during a pause do not prolong
// it. The caller holds mu.
func (b *breaker) openUntil(now time.Time) {
	if now.Before(b.until) {
		return
	}
	b.trips++
	b.pause = min(max(b.pause*2, b.opts.Pause), b.opts.MaxPause)
	b.until = now.Add(b.pause)
}

// Open reports whether calls are refused now. It does not let a probe through.
func (b *breaker) Open(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= b.opts.Failures && (now.Before(b.until) || b.probing)
}

// Tripped reports whether the breaker has opened and no call has succeeded since. Unlike Open it
// stays true after the pause, until a call is made as the probe.
func (b *breaker) Tripped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= b.opts.Failures
}

func (b *breaker) Trips() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trips
}
