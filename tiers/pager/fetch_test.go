package pager_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

func stored(t *testing.T, s stack, pages uint64) {
	t.Helper()
	ctx := t.Context()
	var all []uint64
	for page := range pages {
		if err := s.Create(ctx, page, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(ctx, page, 0, stamp(page, page)); err != nil {
			t.Fatal(err)
		}
		all = append(all, page)
	}
	for tier := range s.Stats().Memory {
		if err := s.DoneWith(ctx, tier, all...); err != nil {
			t.Fatal(err)
		}
	}
	pass(2 * time.Second) // Nothing is recent any more.
}

// pin pins a page in the first tier and gives it back a little later.
func (s stack) pin(t *testing.T, page uint64) {
	t.Helper()
	h, err := s.Pin(t.Context(), page, 0, pager.ForReading)
	if err != nil {
		t.Fatal(err)
	}
	pass(10 * time.Millisecond)
	h.Unpin()
}

// TestPrefetchRuns pins pages in order without a word: the most of them are there before they are
// asked for.
func TestPrefetchRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, tierstest.NewMem(0), frames(64), frames(64))
		defer s.close(t)
		stored(t, s, 400)
		before := s.Stats().Memory[0]
		for page := range uint64(400) {
			s.pin(t, page)
		}
		m := s.Stats().Memory[0]
		if misses := m.Misses - before.Misses; misses > 40 {
			t.Errorf("%d of 400 pins missed", misses)
		}
		if g := m.Guesses["run"]; g.Used < 350 || g.Accuracy < 0.9 {
			t.Errorf("guesses: %+v", g)
		}
	})
}

func runs(s stack) int {
	g := s.Stats().Memory[0].Guesses["run"]
	return int(g.Used + g.Wasted)
}

// TestPrefetchThrottle pins pages in short runs that break off: guesses stop costing transfers.
func TestPrefetchThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, tierstest.NewMem(0), frames(32))
		defer s.close(t)
		stored(t, s, 1500)
		rng := rand.New(rand.NewPCG(1, 1))
		half := 0
		for i := range 1000 {
			at := rng.Uint64N(490) * 3
			for page := range uint64(3) {
				s.pin(t, at+page)
			}
			if i == 500 {
				half = runs(s)
			}
		}
		m := s.Stats().Memory[0]
		// 4 to 55 in 800 runs, by the schedule; 1,600 without a throttle.
		if n := runs(s) - half; n > 400 {
			t.Errorf("%d pages fetched in the second half, %d in the first: %+v", n, half, m.Guesses)
		}
		if g := m.Guesses["run"]; g.Wasted == 0 || g.Accuracy > 0.5 {
			t.Errorf("guesses: %+v", g)
		}
	})
}

// TestGuessesEvictNothingRecent fills a tier with pages that were just asked for, one of them
// pinned, and hints at others: nothing leaves until they are old, and the pinned one not even then.
func TestGuessesEvictNothingRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := open(t, tierstest.NewMem(0), frames(7), frames(16))
		defer s.close(t)
		stored(t, s, 20)
		pinned, err := s.Pin(ctx, 0, 0, pager.ForReading)
		if err != nil {
			t.Fatal(err)
		}
		defer pinned.Unpin()
		for range 2 {
			for page := uint64(1); page < 7; page++ {
				s.pin(t, page)
			}
		}
		hint := func() {
			if err := s.WillNeed(0, 12, 13, 14, 15, 16, 17, 18, 19); err != nil {
				t.Fatal(err)
			}
			pass(20 * time.Millisecond)
		}
		before := s.Stats().Memory[0]
		hint()
		if m := s.Stats().Memory[0]; m.Out != before.Out || m.Prefetched != before.Prefetched {
			t.Errorf("%d pages left and %d came for a hint", m.Out-before.Out, m.Prefetched-before.Prefetched)
		}
		pass(2 * time.Second)
		hint()
		hint()
		m := s.Stats().Memory[0]
		if n := m.Prefetched - before.Prefetched; n != 6 {
			t.Errorf("%d pages came once the others were old, want 6", n)
		}
		if n := s.moves("memory0", "memory1", pager.ByHint); n < 6 {
			t.Errorf("moves: %+v", s.Stats().Migrations)
		}
		if again, err := s.Pin(ctx, 0, 0, pager.ForReading); err != nil || again.Frame() != pinned.Frame() {
			t.Errorf("the pinned page moved: %v", err)
		} else {
			again.Unpin()
		}
	})
}
