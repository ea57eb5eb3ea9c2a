package pager_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

// TestPlaces: a look finds each page in its tier with its age, and changes neither the ages nor the
// order of eviction.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, tierstest.NewMem(0), named("gpu", 4), named("cpu", 4))
		defer p.close(t)
		if names := p.Tiers(); !slices.Equal(names, []string{"gpu", "cpu", "store0", "store1"}) {
			t.Fatalf("tiers %q", names)
		}
		for page := range uint64(6) {
			level := 0
			if page > 1 {
				level = 1
			}
			if page == 5 {
				continue
			}
			if err := p.Create(t.Context(), page, level); err != nil {
				t.Fatal(err)
			}
		}
		touch := func(page uint64, level int) {
			h, err := p.Pin(t.Context(), page, level, pager.ForReading)
			if err != nil {
				t.Fatal(err)
			}
			h.Unpin()
		}
		touch(0, 0)
		pass(time.Second)
		touch(1, 0)
		pass(100 * time.Millisecond)
		hits := p.Stats().Memory[0].Hits
		for range 2 {
			places := make([]pager.Place, 6)
			p.Places(0, places)
			for page, want := range []int{0, 0, 1, 1, 1, pager.NoTier} {
				if places[page].Tier != want {
					t.Errorf("page %d is in tier %d, want %d", page, places[page].Tier, want)
				}
			}
			if a, b := places[0].Idle, places[1].Idle; a < time.Second || a > 1200*time.Millisecond ||
				b < 90*time.Millisecond || b > 200*time.Millisecond {
				t.Errorf("pages are idle for %v and %v, want 1.1 s and 100 ms", a, b)
			}
			var held []uint64
			var pins []pager.Pin
			if err := p.PinPresent(0, 0, 6, func(h pager.Pin) {
				held, pins = append(held, h.Page()), append(pins, h)
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(held, []uint64{0, 1}) {
				t.Errorf("held %v, want the pages 0 and 1", held)
			}
			if err := p.Delete(t.Context(), 0); err == nil {
				t.Error("a page that is held was removed")
			}
			pager.UnpinAll(pins)
		}
		if after := p.Stats().Memory[0].Hits; after != hits {
			t.Errorf("looks counted as %d accesses", after-hits)
		}
	})
}

// TestPlacesInStore: pages that left memory are found in their tier of the store.
func TestPlacesInStore(t *testing.T) {
	p := open(t, tierstest.NewMem(0), named("cpu", 2))
	defer p.close(t)
	for page := range uint64(6) {
		if err := p.Create(t.Context(), page, 0); err != nil {
			t.Fatal(err)
		}
	}
	places, stored := make([]pager.Place, 6), 0
	p.Places(0, places)
	for _, at := range places {
		if at.Tier == 1 {
			stored++
		}
	}
	if stored < 4 {
		t.Errorf("%v: %d pages are in the store, want 4 or more", places, stored)
	}
}

func named(name string, n int) pager.Memory {
	m := frames(n)
	m.Name = name
	return m
}
