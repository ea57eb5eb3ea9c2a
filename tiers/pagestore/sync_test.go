package pagestore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

func lostBy(err error) []uint64 {
	var lost *tiers.LostError
	if !errors.As(err, &lost) {
		return nil
	}
	return lost.Pages
}

// halfSynced is a store of four committed pages of version 3, the first three in the first tier and
// the last in the second, whose next syncs may fail.
func halfSynced(t *testing.T) (*pagestore.Store, *tierstest.Mem, *moment) {
	t.Helper()
	mem, sync := tierstest.NewMem(0), &moment{}
	s := mustOpen(t, memOptions(sync.over(mem)))
	if err := errors.Join(put(s, 0, 0, 3), put(s, 0, 1, 3), put(s, 0, 2, 3), put(s, 1, 3, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), []byte("one")); err != nil {
		t.Fatal(err)
	}
	return s, mem, sync
}

func broken() error { return syscall.EIO }

// TestSyncFailsOfACommit: a sync of one tier fails. The new content in that tier is lost and listed
// in order, a copy there is forgotten, everything else stays pending, nothing is committed, and no
// commit succeeds until the lost pages were put or deleted.
func TestSyncFailsOfACommit(t *testing.T) {
	s, mem, sync := halfSynced(t)
	for _, page := range []uint64{19, 12, 11, 15} { // With the page that is there and a copy, a segment is full.
		if err := put(s, 1, page, 6); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Move(t.Context(), 0, 1), s.Move(t.Context(), 1, 2), s.Delete(t.Context(), 2), put(s, 0, 20,
		6)); err != nil {
		t.Fatal(err)
	}
	sync.next(segmentSync("/ssd"), broken)
	gone := []uint64{11, 12, 15, 19}
	epoch, err := s.Commit(t.Context(), []byte("two"))
	if epoch != 0 || !slices.Equal(lostBy(err), gone) || !errors.Is(err, syscall.EIO) ||
		!errors.Is(err, tiers.ErrSync) || !strings.HasPrefix(err.Error(), "commit epoch 2: ") {
		t.Fatalf("epoch %d, lost %v: %v", epoch, lostBy(err), err)
	}
	if got := s.Lost(); !slices.Equal(got, gone) {
		t.Errorf("lost pages %v, want %v", got, gone)
	}
	if st := s.Stats(); st.Tiers[1].Failures != 1 || st.Tiers[0].Failures+st.Tiers[2].Failures != 0 || st.Lost != 4 ||
		st.Epoch != 1 || string(s.Note()) != "one" {
		t.Errorf("stats %+v, note %q", st, s.Note())
	}
	for _, page := range gone {
		if err := s.Get(t.Context(), page, make([]byte, pageSize)); !errors.Is(err, tiers.ErrLost) || !s.Has(page) {
			t.Errorf("page %d: %v", page, err)
		}
		if _, err := s.Where(page); !errors.Is(err, tiers.ErrLost) {
			t.Errorf("page %d: %v", page, err)
		}
	}
	for page, want := range map[uint64]int{0: 0, 1: 2, 20: 0, 3: 1} {
		if tier, err := s.Where(page); err != nil || tier != want {
			t.Errorf("page %d is in tier %d, want %d: %v", page, tier, want, err)
		}
	}
	if s.Has(2) {
		t.Error("the deleted page is back")
	}
	if err := (world{pages: map[uint64]uint64{0: 3, 1: 3, 2: 3, 3: 3}, note: "one"}).compare(mustOpen(t,
		memOptions(mem.Crash(0, anyRand())))); err != nil {
		t.Errorf("after a power cut: %v", err)
	}
	for n := len(gone); n > 0; n-- { // Half of them are put, the others deleted.
		if epoch, err := s.Commit(t.Context(), nil); epoch != 0 || !slices.Equal(lostBy(err), gone[:n]) {
			t.Fatalf("a commit of lost pages: epoch %d, lost %v: %v", epoch, lostBy(err), err)
		}
		page := gone[n-1]
		if n%2 == 0 {
			err = s.Delete(t.Context(), page)
		} else {
			err = put(s, 1, page, 9)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w := world{pages: map[uint64]uint64{0: 3, 1: 3, 3: 3, 20: 6, 11: 9, 15: 9}, note: "three"}
	if epoch, err := s.Commit(t.Context(), []byte("three")); err != nil || epoch <= 1 || epoch != s.Epoch() {
		t.Fatalf("epoch %d: %v", epoch, err)
	}
	if err := w.compare(s); err != nil {
		t.Error(err)
	}
	if err := w.compare(mustOpen(t, memOptions(mem.Crash(0, anyRand())))); err != nil {
		t.Errorf("after a power cut: %v", err)
	}
}

// TestSyncFailsOfACopy: a copy whose sync fails costs nothing. The commit goes on with the old
// place.
func TestSyncFailsOfACopy(t *testing.T) {
	for name, settle := range map[string]bool{"commit": false, "settle": true} {
		t.Run(name, func(t *testing.T) {
			s, mem, sync := halfSynced(t)
			if err := errors.Join(s.Move(t.Context(), 0, 1), s.Move(t.Context(), 1, 2), s.Move(t.Context(), 3,
				0)); err != nil {
				t.Fatal(err)
			}
			sync.next(segmentSync("/ssd"), broken)
			w := world{pages: map[uint64]uint64{0: 3, 1: 3, 2: 3, 3: 3}, note: "one"}
			if settle {
				if err := s.Settle(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				w.note = "two"
				if epoch, err := s.Commit(t.Context(), []byte(w.note)); err != nil || epoch != 2 {
					t.Fatalf("epoch %d: %v", epoch, err)
				}
			}
			for _, st := range []*pagestore.Store{s, mustOpen(t, memOptions(mem.Crash(0, anyRand())))} {
				if err := w.compare(st); err != nil {
					t.Error(err)
				}
				for page, want := range map[uint64]int{0: 0, 1: 2, 2: 0, 3: 0} {
					if tier, err := st.Where(page); err != nil || tier != want {
						t.Errorf("page %d is in tier %d, want %d: %v", page, tier, want, err)
					}
				}
			}
			if st := s.Stats(); st.Pending != 0 || st.Lost != 0 || st.Tiers[1].Failures != 1 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

// TestSyncFailsOfASettle: content that waits for the next commit and lies in a segment whose sync
// fails is lost and listed, and the moves are settled all the same.
func TestSyncFailsOfASettle(t *testing.T) {
	s, mem, sync := halfSynced(t)
	if err := errors.Join(s.Move(t.Context(), 0, 2), put(s, 1, 12, 6), put(s, 1, 11, 6), put(s, 0, 13, 6),
		s.Delete(t.Context(), 2)); err != nil {
		t.Fatal(err)
	}
	sync.next(segmentSync("/ssd"), broken)
	if err := s.Settle(t.Context()); !slices.Equal(lostBy(err), []uint64{11, 12}) {
		t.Fatalf("settle: lost %v: %v", lostBy(err), err)
	}
	if got := s.Lost(); !slices.Equal(got, []uint64{11, 12}) {
		t.Errorf("lost pages %v", got)
	}
	again := mustOpen(t, memOptions(mem.Crash(0, anyRand())))
	if err := (world{pages: map[uint64]uint64{0: 3, 1: 3, 2: 3, 3: 3}, note: "one"}).compare(again); err != nil {
		t.Errorf("after a power cut: %v", err)
	}
	if tier, err := again.Where(0); err != nil || tier != 2 {
		t.Errorf("after a power cut the page is in tier %d: %v", tier, err)
	}
	if err := s.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := (world{pages: map[uint64]uint64{0: 3, 1: 3, 2: 3, 3: 3}, note: "one"}).compare(s); err != nil ||
		len(s.Lost()) > 0 {
		t.Errorf("after a rollback: %v are lost, %v", s.Lost(), err)
	}
}

// TestSyncFails: Sync fails for what was put before it into the tier that fails, and neither for
// what was put elsewhere nor for what took its place meanwhile.
func TestSyncFails(t *testing.T) {
	s, _, sync := halfSynced(t)
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(put(s, 1, 13, 6), put(s, 1, 12, 6), put(s, 1, 11, 6), put(s, 1, 10, 6), put(s, 0, 14, 6),
		s.Move(t.Context(), 0, 1), s.Delete(t.Context(), 2)); err != nil {
		t.Fatal(err)
	}
	sync.next(segmentSync("/ssd"), func() error {
		return errors.Join(syscall.EIO, put(s, 0, 11, 9), s.Delete(context.Background(), 10))
	})
	err := s.Sync(t.Context())
	if !slices.Equal(lostBy(err), []uint64{12, 13}) || !errors.Is(err, syscall.EIO) ||
		!strings.HasPrefix(err.Error(), "sync: ") || !strings.Contains(err.Error(), "tier ssd") {
		t.Fatalf("lost %v: %v", lostBy(err), err)
	}
	if got := s.Lost(); !slices.Equal(got, []uint64{12, 13}) {
		t.Errorf("lost pages %v", got)
	}
	if tier, err := s.Where(0); err != nil || tier != 0 {
		t.Errorf("the page whose copy failed is in tier %d: %v", tier, err)
	}
	if got := s.Pages(); !slices.Equal(got, []uint64{0, 1, 3, 11, 12, 13, 14}) {
		t.Errorf("pages %v", got)
	}
	if err := errors.Join(put(s, 1, 12, 9), put(s, 1, 13, 9)); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Errorf("a sync of what was put again: %v", err)
	}
	if _, err := s.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := (world{pages: map[uint64]uint64{0: 3, 1: 3, 3: 3, 11: 9, 12: 9, 13: 9, 14: 6}}).compare(s); err != nil {
		t.Error(err)
	}
}

// TestSyncFailsOfACopyAlone: a sync that fails and costs no content is no error of Sync.
func TestSyncFailsOfACopyAlone(t *testing.T) {
	s, _, sync := halfSynced(t)
	if err := s.Move(t.Context(), 0, 1); err != nil {
		t.Fatal(err)
	}
	sync.next(segmentSync("/ssd"), broken)
	if err := s.Sync(t.Context()); err != nil || !sync.came() {
		t.Errorf("sync: %v", err)
	}
	if tier, err := s.Where(0); err != nil || tier != 0 || s.Stats().Tiers[1].Failures != 1 {
		t.Errorf("the page is in tier %d: %v", tier, err)
	}
}

// TestPutDuringASyncThatFails: content that was put into the failing tier while a commit synced it
// may be in the same segment, and is lost too.
func TestPutDuringASyncThatFails(t *testing.T) {
	s, _, sync := halfSynced(t)
	if err := put(s, 1, 11, 6); err != nil {
		t.Fatal(err)
	}
	sync.next(segmentSync("/ssd"), func() error { return errors.Join(syscall.EIO, put(s, 1, 12, 6), put(s, 0, 13, 6)) })
	if _, err := s.Commit(t.Context(), nil); !slices.Equal(lostBy(err), []uint64{11}) {
		t.Fatalf("lost %v: %v", lostBy(err), err)
	}
	if got := s.Lost(); !slices.Contains(got, 11) || slices.Contains(got, 13) {
		t.Errorf("lost pages %v", got)
	}
	b := make([]byte, pageSize)
	if err := s.Get(t.Context(), 12, b); err == nil && string(b) != string(content(12, 6)) {
		t.Error("other bytes are read")
	} else if err != nil && !errors.Is(err, tiers.ErrLost) {
		t.Error(err)
	}
}

// TestCommitIsGivenUp: a commit whose caller gave up while it synced has committed nothing and lost
// nothing.
func TestCommitIsGivenUp(t *testing.T) {
	s, mem, sync := halfSynced(t)
	if err := errors.Join(put(s, 1, 11, 6), s.Delete(t.Context(), 2), s.Move(t.Context(), 0, 2)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	sync.next(segmentSync("/ssd"), func() error { cancel(); return nil })
	epoch, err := s.Commit(ctx, []byte("two"))
	if epoch != 0 || !errors.Is(err, context.Canceled) || string(s.Note()) != "one" || s.Epoch() != 1 {
		t.Fatalf("epoch %d, note %q: %v", epoch, s.Note(), err)
	}
	if err := (world{pages: map[uint64]uint64{0: 3, 1: 3, 2: 3, 3: 3}, note: "one"}).compare(mustOpen(t,
		memOptions(mem.Crash(0, anyRand())))); err != nil {
		t.Errorf("after a power cut: %v", err)
	}
	settled(t, s, mem, world{pages: map[uint64]uint64{0: 3, 1: 3, 3: 3, 11: 6}})
}

// TestFailedCommitThenNewer: a commit fails at the index, and pages of it are put, deleted and
// moved again before one succeeds. The newest counts, and every slot of the failed commit is free
// afterwards.
func TestFailedCommitThenNewer(t *testing.T) {
	s, mem, sync := halfSynced(t)
	if err := errors.Join(put(s, 0, 0, 6), put(s, 0, 1, 6), put(s, 1, 11, 6), put(s, 1, 12, 6), s.Move(t.Context(), 3,
		2)); err != nil {
		t.Fatal(err)
	}
	sync.failing(superblock)
	if epoch, err := s.Commit(t.Context(), []byte("two")); epoch != 0 || !errors.Is(err, syscall.EIO) {
		t.Fatalf("epoch %d: %v", epoch, err)
	}
	sync.mend()
	w := world{pages: map[uint64]uint64{0: 6, 1: 6, 2: 3, 3: 3, 11: 6, 12: 6}, note: "one"}
	if err := w.compare(s); err != nil {
		t.Error(err)
	}
	before := slots(s)
	if err := errors.Join(put(s, 0, 0, 9), s.Delete(t.Context(), 11)); err != nil {
		t.Fatal(err)
	}
	if n := slots(s); n != before+1 {
		t.Errorf("%d slots in use, want %d: the slot of the failed commit may be durable", n, before+1)
	}
	w.pages[0] = 9
	delete(w.pages, 11)
	settled(t, s, mem, w)
}

// TestSyncFailsOfLater: content that an earlier Sync made durable is not lost with what was put
// behind it into the same segment.
func TestSyncFailsOfLater(t *testing.T) {
	for name, call := range map[string]func(s *pagestore.Store) error{
		"commit": func(s *pagestore.Store) error { _, err := s.Commit(context.Background(), nil); return err },
		"settle": func(s *pagestore.Store) error { return s.Settle(context.Background()) },
		"sync":   func(s *pagestore.Store) error { return s.Sync(context.Background()) },
	} {
		s, mem, sync := halfSynced(t)
		if err := errors.Join(put(s, 1, 11, 6), s.Sync(t.Context()), put(s, 1, 12, 6)); err != nil {
			t.Fatal(err)
		}
		sync.next(segmentSync("/ssd"), broken)
		if err := call(s); !slices.Equal(lostBy(err), []uint64{12}) {
			t.Errorf("%s: lost %v: %v", name, lostBy(err), err)
		}
		if got := s.Lost(); !slices.Equal(got, []uint64{12}) {
			t.Errorf("%s: lost pages %v", name, got)
		}
		if err := s.Delete(t.Context(), 12); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), []byte("two")); err != nil {
			t.Fatal(err)
		}
		w := world{pages: map[uint64]uint64{0: 3, 1: 3, 2: 3, 3: 3, 11: 6}, note: "two"}
		if err := w.compare(mustOpen(t, memOptions(mem.Crash(0, anyRand())))); err != nil {
			t.Errorf("%s: after a power cut: %v", name, err)
		}
	}
}
