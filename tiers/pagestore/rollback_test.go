package pagestore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

// TestDeleteDuringACommit: a page that goes while its content is being committed is gone, and its
// slots are free with the next commit.
func TestDeleteDuringACommit(t *testing.T) {
	mem, during := tierstest.NewMem(0), &moment{}
	s := mustOpen(t, memOptions(during.over(mem)))
	if err := errors.Join(put(s, 0, 1, 3), put(s, 0, 2, 3), put(s, 1, 3, 3)); err != nil {
		t.Fatal(err)
	}
	during.next(superblock, func() error {
		err := errors.Join(s.Delete(context.Background(), 1), put(s, 1, 2, 6))
		if got := s.Pages(); !slices.Equal(got, []uint64{2, 3}) {
			t.Errorf("pages %v", got)
		}
		return err
	})
	if _, err := s.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Pages != 3 || st.Pending != 2 {
		t.Errorf("%d pages and %d changes after the commit, want 3 and 2", st.Pages, st.Pending)
	}
	left := mem.Crash(0, anyRand())
	if err := (world{pages: map[uint64]uint64{1: 3, 2: 3, 3: 3}}).compare(mustOpen(t, memOptions(left))); err != nil {
		t.Errorf("what was committed: %v", err)
	}
	settled(t, s, mem, world{pages: map[uint64]uint64{2: 6, 3: 3}})
}

// TestRollback drops every kind of change: pages are what and where they were, and a record that
// was dropped does not come back with a rebuild.
func TestRollback(t *testing.T) {
	mem := tierstest.NewMem(0)
	s := mustOpen(t, memOptions(mem))
	for page := range uint64(5) {
		if err := put(s, 0, page, 3); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(t.Context(), []byte("one")); err != nil {
		t.Fatal(err)
	}
	w := world{pages: map[uint64]uint64{0: 3, 1: 3, 2: 3, 3: 3, 4: 3}, note: "one"}
	for round := range 3 {
		if err := errors.Join(put(s, 0, 0, 6), put(s, 1, 0, 9), s.Delete(t.Context(), 1), s.Move(t.Context(), 2, 2),
			put(s, 1, 3, 6), s.Delete(t.Context(), 3), put(s, 1, 7, 6)); err != nil {
			t.Fatal(err)
		}
		if err := s.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.compare(s); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if st := s.Stats(); slots(s) != 5 || st.Tiers[0].Used != 5 || st.Pending != 0 || st.Epoch != 1 {
			t.Errorf("round %d: %+v", round, st)
		}
	}
	if err := put(s, 1, 4, 9); err != nil {
		t.Fatal(err)
	}
	w.pages[4] = 9
	settled(t, s, mem, w)
}

// TestSettle: moves become durable without an epoch or another note, their old slots come free, and
// what was put or deleted stays pending.
func TestSettle(t *testing.T) {
	mem := tierstest.NewMem(0)
	s := mustOpen(t, memOptions(mem))
	for page := range uint64(4) {
		if err := put(s, 0, page, 3); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(t.Context(), []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Move(t.Context(), 0, 2), s.Move(t.Context(), 1, 2), put(s, 1, 2, 6), s.Delete(t.Context(),
		3), put(s, 1, 8, 6)); err != nil {
		t.Fatal(err)
	}
	if n := slots(s); n != 8 {
		t.Errorf("%d slots before, want 4 committed, 2 moved and 2 put", n)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	st := s.Stats()
	if slots(s) != 6 || st.Tiers[0].Used != 2 || st.Tiers[2].Used != 2 || st.Tiers[2].Pages != 2 || st.Pending != 3 ||
		st.Epoch != 1 || s.Epoch() != 1 || string(s.Note()) != "one" {
		t.Errorf("after: %+v", st)
	}
	w := world{pages: map[uint64]uint64{0: 3, 1: 3, 2: 6, 8: 6}, note: "one"}
	if err := w.compare(s); err != nil {
		t.Error(err)
	}
	old := mustOpen(t, memOptions(mem.Crash(0, anyRand())))
	if err := (world{pages: map[uint64]uint64{0: 3, 1: 3, 2: 3, 3: 3}, note: "one"}).compare(old); err != nil {
		t.Errorf("after a power cut: %v", err)
	}
	if tier, err := old.Where(0); err != nil || tier != 2 {
		t.Errorf("after a power cut the page is in tier %d: %v", tier, err)
	}
	settled(t, s, mem, w)
}
