package pager

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRecent compares the table of ages with a map.
func TestRecent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r recent
		want := map[uint64]mark{}
		pages := rapid.OneOf(rapid.Uint64Range(0, 40), rapid.Uint64Max(noPage-1))
		now := uint32(1)
		for range rapid.IntRange(0, 400).Draw(t, "calls") {
			page, tier := pages.Draw(t, "page"), rapid.IntRange(0, 15).Draw(t, "tier")
			now += uint32(rapid.IntRange(0, 3).Draw(t, "later"))
			old, here := want[page]
			switch rapid.IntRange(0, 4).Draw(t, "call") {
			case 0:
				r.sink(page, tier, now)
				want[page] = newMark(tier, old.hot(), now)
			case 1:
				r.read(page, tier, now, 5)
				want[page] = newMark(tier, here && now-old.at() <= 5, now)
			case 2:
				r.seed(page, tier, now)
				if !here {
					want[page] = newMark(tier, false, now)
				}
			case 3:
				r.moved(page, tier)
				if here {
					want[page] = newMark(tier, false, old.at())
				}
			default:
				r.drop(page)
				delete(want, page)
			}
		}
		n := 0
		for shard := 0; ; shard++ {
			if !r.each(shard, func(page uint64, m mark) {
				n++
				if w, here := want[page]; !here || w != m {
					t.Fatalf("page %d: %x, want %x, %v", page, m, w, here)
				}
			}) {
				break
			}
		}
		if pages, _ := r.size(); n != len(want) || pages != n {
			t.Fatalf("%d pages, %d counted, want %d", n, pages, len(want))
		}
	})
}

// TestRecentMemory holds the ages to 20 bytes a page.
func TestRecentMemory(t *testing.T) {
	var r recent
	const n = 300_000
	for page := range uint64(n) {
		r.sink(page*7, 1, 9)
	}
	if _, bytes := r.size(); bytes > 20*n {
		t.Errorf("%.1f bytes a page", float64(bytes)/n)
	}
}

// TestBreakerStates follows a breaker through its states.
func TestBreakerStates(t *testing.T) {
	now := time.Unix(1000, 0)
	b := &breaker{Breaker: Breaker{}.withDefaults()}
	allow := func(want bool) {
		t.Helper()
		if got := b.allow(now); got != want {
			t.Fatalf("allow at %v: %v, want %v", now.Unix(), got, want)
		}
	}
	for range 2 {
		allow(true)
		b.report(false, now)
	}
	allow(true)
	b.report(true, now) // A success in between: they are to be in a row.
	for range 3 {
		allow(true)
		b.report(false, now)
	}
	allow(false)
	b.report(true, now) // Begun before: no proof that it is back.
	allow(false)
	for _, pause := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		now = now.Add(pause*time.Second - time.Millisecond)
		allow(false)
		now = now.Add(time.Millisecond)
		allow(true)
		allow(false) // One probe at a time.
		b.report(false, now)
	}
	now = now.Add(300 * time.Second)
	allow(true)
	b.withdraw() // The probe's caller gave up: the next one probes.
	allow(true)
	b.report(true, now)
	allow(true)
	b.report(true, now)
	b.trip(now) // A stall opens it at once.
	allow(false)
	now = now.Add(5 * time.Second)
	allow(true)
	b.report(true, now)
	allow(true)
}
