package pager

import (
	"testing"
	"time"
)

// TestBreakerStates follows a breaker through its states.
func TestBreakerStates(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newBreaker(BreakerOptions{}.WithDefaults())
	allow := func(want bool) {
		t.Helper()
		if got := b.Allow(now); got != want {
			t.Fatalf("allow at %v: %v, want %v", now.Unix(), got, want)
		}
	}
	for range 2 {
		allow(true)
		b.Report(false, now)
	}
	allow(true)
	b.Report(true, now) // A success in between: they are to be in a row.
	for range 3 {
		allow(true)
		b.Report(false, now)
	}
	allow(false)
	b.Report(true, now) // Begun before: no proof that it is back.
	allow(false)
	for _, pause := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		now = now.Add(pause*time.Second - time.Millisecond)
		allow(false)
		now = now.Add(time.Millisecond)
		if b.Open(now) || !b.Tripped() { // the pause is over, and nothing shows that the medium is back
			t.Fatalf("after a pause: open %v, tripped %v", b.Open(now), b.Tripped())
		}
		allow(true)
		allow(false) // One probe at a time.
		b.Report(false, now)
	}
	now = now.Add(300 * time.Second)
	allow(true)
	b.Withdraw() // The probe's caller gave up: the next one probes.
	allow(true)
	b.Report(true, now)
	allow(true)
	b.Report(true, now)
	b.Trip(now) // A stall opens it at once.
	allow(false)
	now = now.Add(5 * time.Second)
	allow(true)
	b.Report(true, now)
	allow(true)
	if b.Trips() != 10 || b.Open(now) || b.Tripped() {
		t.Errorf("%d trips, open %v, tripped %v", b.Trips(), b.Open(now), b.Tripped())
	}
}

// TestValid: the zero options have valid defaults, and options without sense are not valid.
func TestValid(t *testing.T) {
	if !(BreakerOptions{}).WithDefaults().Valid() {
		t.Error("the defaults are not valid")
	}
	for _, o := range []BreakerOptions{
		{Failures: -1},
		{Pause: -1},
		{Pause: 2, MaxPause: 1},
		{Stall: -1},
	} {
		if o.WithDefaults().Valid() {
			t.Errorf("%+v is valid", o)
		}
	}
}
