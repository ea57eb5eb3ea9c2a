package pagestore_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

// TestPutDuringAFailedCommit: content that was put while a commit was under way is the page's,
// whether the commit succeeds or fails, and so is the deletion of a page.
func TestPutDuringAFailedCommit(t *testing.T) {
	ctx := context.Background()
	for name, fails := range map[string]bool{"succeeds": false, "fails": true} {
		t.Run(name, func(t *testing.T) {
			var s *pagestore.Store
			var armed, failing atomic.Bool
			fs := tierstest.NewMem(0)
			opts := memOptions(&tierstest.Inject{FS: fs, Before: func(op tierstest.Op) error {
				if op.Kind != tierstest.OpSync || !strings.HasPrefix(filepath.Ext(op.Name), ".super") {
					return nil
				}
				if armed.CompareAndSwap(true, false) {
					if err := errors.Join(put(s, 0, 1, 9), s.Delete(ctx, 2)); err != nil {
						t.Error(err)
					}
				}
				if failing.Load() {
					return syscall.EIO
				}
				return nil
			}})
			s = mustOpen(t, opts)
			for page := range uint64(4) {
				if err := put(s, 0, page, 1); err != nil {
					t.Fatal(err)
				}
			}
			armed.Store(true)
			failing.Store(fails)
			if _, err := s.Commit(ctx, []byte("first")); (err != nil) != fails || fails &&
				!errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
			if armed.Load() {
				t.Fatal("nothing happened during the commit")
			}
			failing.Store(false)
			want := world{pages: map[uint64]uint64{0: 1, 1: 9, 3: 1}, note: "first"}
			if fails {
				want.note = ""
			}
			if err := want.compare(s); err != nil {
				t.Error(err)
			}
			if _, err := s.Commit(ctx, []byte("second")); err != nil {
				t.Fatal(err)
			}
			want.note = "second"
			if err := want.compare(s); err != nil {
				t.Error(err)
			}
			opts.FS = fs.Crash(0, anyRand())
			opts.Tables = memOptions(opts.FS).Tables
			if err := want.compare(mustOpen(t, opts)); err != nil {
				t.Errorf("after a crash: %v", err)
			}
		})
	}
}

// TestFailuresAreCounted: a read of a damaged record counts against its tier, once a call, and a
// sync that fails loses what it was to make durable.
func TestFailuresAreCounted(t *testing.T) {
	ctx := context.Background()
	var broken atomic.Bool
	fs := tierstest.NewMem(0)
	s := mustOpen(t, memOptions(&tierstest.Inject{FS: fs, Before: func(op tierstest.Op) error {
		if broken.Load() && filepath.Ext(op.Name) == ".seg" && strings.HasPrefix(op.Name, "/ssd") &&
			(op.Kind == tierstest.OpRead || op.Kind == tierstest.OpSync) {
			return syscall.EIO
		}
		return nil
	}}))
	for page := range uint64(3) {
		if err := put(s, int(page), page, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	failures := func() (all [3]uint64) {
		for i, tier := range s.Stats().Tiers {
			all[i] = tier.Failures
		}
		return all
	}
	if got := failures(); got != [3]uint64{} {
		t.Fatalf("failures %v before anything failed", got)
	}
	broken.Store(true)
	for n := range uint64(2) {
		if err := s.Get(ctx, 1, make([]byte, pageSize)); !errors.Is(err, syscall.EIO) {
			t.Fatalf("a read of a broken tier: %v", err)
		}
		if got := failures(); got != [3]uint64{0, n + 1, 0} {
			t.Errorf("failures %v after %d reads", got, n+1)
		}
	}
	before := failures()
	if err := put(s, 1, 7, 1); err != nil {
		t.Fatal(err)
	}
	var lost *tiers.LostError
	if err := s.Sync(ctx); !errors.As(err, &lost) || len(lost.Pages) != 1 || lost.Pages[0] != 7 {
		t.Fatalf("a sync that failed: %v", err)
	}
	if got := failures(); got[1] <= before[1] || got[0] != 0 || got[2] != 0 {
		t.Errorf("failures %v after a sync that failed, %v before", got, before)
	}
	if got := s.Lost(); len(got) != 1 || got[0] != 7 {
		t.Errorf("lost pages %v", got)
	}
	broken.Store(false)
	if _, err := s.Commit(ctx, nil); !errors.As(err, &lost) || len(lost.Pages) != 1 {
		t.Errorf("a commit of a lost page: %v", err)
	}
	if err := put(s, 0, 7, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := (world{pages: map[uint64]uint64{0: 1, 1: 1, 2: 1, 7: 2}}).compare(s); err != nil {
		t.Error(err)
	}
}
