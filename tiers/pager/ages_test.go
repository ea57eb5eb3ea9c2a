package pager

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestTable compares the table of ages with a map.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r ageTable
		want := map[uint64]ageMark{}
		pages := rapid.OneOf(rapid.Uint64Range(0, 40), rapid.Uint64Max(math.MaxUint64-1))
		now := uint32(1)
		for range rapid.IntRange(0, 400).Draw(t, "calls") {
			page, tier := pages.Draw(t, "page"), rapid.IntRange(0, 15).Draw(t, "tier")
			now += uint32(rapid.IntRange(0, 3).Draw(t, "later"))
			old, here := want[page]
			switch rapid.IntRange(0, 4).Draw(t, "call") {
			case 0:
				r.Sink(page, tier, now)
				want[page] = newMark(tier, old.Hot(), now)
			case 1:
				r.Read(page, tier, now, 5)
				want[page] = newMark(tier, here && now-old.At() <= 5, now)
			case 2:
				r.Seed(page, tier, now)
				if !here {
					want[page] = newMark(tier, false, now)
				}
			case 3:
				r.Moved(page, tier)
				if here {
					want[page] = newMark(tier, false, old.At())
				}
			default:
				r.Forget(page)
				delete(want, page)
			}
		}
		n := 0
		for shard := 0; ; shard++ {
			if !r.Each(shard, func(page uint64, m ageMark) {
				n++
				if w, here := want[page]; !here || w != m {
					t.Fatalf("page %d: %x, want %x, %v", page, m, w, here)
				}
			}) {
				break
			}
		}
		if pages, _ := r.Size(); n != len(want) || pages != n {
			t.Fatalf("%d pages, %d counted, want %d", n, pages, len(want))
		}
	})
}

// TestMemory holds the ages to 20 bytes a page.
func TestMemory(t *testing.T) {
	var r ageTable
	const n = 300_000
	for page := range uint64(n) {
		r.Sink(page*7, 1, 9)
	}
	if _, bytes := r.Size(); bytes > 20*n {
		t.Errorf("%.1f bytes a page", float64(bytes)/n)
	}
}
