package pagestore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// TestParallel runs writers, readers, movers, commits, compaction and verification at once: every
// reader sees a version that its writer wrote, not older than the last it had seen.
func TestParallel(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(testkit.Of(2000, 700))*time.Millisecond)
	defer cancel()
	opts := memOptions(tierstest.NewMem(0))
	s := mustOpen(t, opts)
	const pages = 30
	for page := range uint64(pages) {
		if err := put(s, int(page%3), page, 0); err != nil {
			t.Fatal(err)
		}
	}
	ended := func(err error) bool {
		return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	}
	var wg sync.WaitGroup
	loop := func(name string, pause time.Duration, step func(rng *rand.Rand) error) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(len(name)), 3))
			for ctx.Err() == nil {
				if err := step(rng); err != nil && !ended(err) {
					t.Errorf("%s: %v", name, err)
					cancel()
				}
				if pause > 0 {
					<-time.After(pause)
				}
			}
		})
	}
	for w := range uint64(2) {
		version := uint64(0)
		loop("write", 0, func(rng *rand.Rand) error {
			version++
			page := rng.Uint64N(pages/2)*2 + w // Each page has one writer.
			return s.Put(ctx, rng.IntN(3), page, content(page, version), pagestore.Kind{Elem: 4})
		})
		seen := map[uint64]uint64{}
		got := make([]byte, pageSize)
		loop("read", 0, func(rng *rand.Rand) error {
			page := rng.Uint64N(pages)
			if err := s.Get(ctx, page, got); err != nil {
				return err
			}
			version := uint64(0)
			for i := range 8 {
				version |= uint64(got[8+i]) << (8 * i)
			}
			if string(got) != string(content(page, version)) || version < seen[page] {
				return tiers.ErrCorrupt
			}
			seen[page] = version
			return nil
		})
	}
	loop("move", time.Millisecond, func(rng *rand.Rand) error { return s.Move(ctx, rng.Uint64N(pages), rng.IntN(3)) })
	loop("commit", time.Millisecond, func(*rand.Rand) error { _, err := s.Commit(ctx, nil); return err })
	loop("settle", 3*time.Millisecond, func(*rand.Rand) error { return s.Settle(ctx) })
	loop("compact", 20*time.Millisecond, func(*rand.Rand) error { _, err := s.Compact(ctx); return err })
	loop("verify", 20*time.Millisecond, func(*rand.Rand) error {
		r, err := s.Verify(ctx, 0)
		return errors.Join(append(r.Problems, err)...)
	})
	wg.Wait()
	if err := checkAccounting(s, opts.FS); err != nil {
		t.Error(err)
	}
}

// TestPutsThatWereGivenUp hangs writes in the middle, ends their context, puts something else, and
// lets the writes go on: what was given up is never seen, neither at once nor after a commit nor
// once the index is rebuilt from the records.
func TestPutsThatWereGivenUp(t *testing.T) {
	for _, c := range []struct{ commitBetween, another bool }{
		{false, true},
		{true, true},
		{false, false},
		{true, false},
	} {
		mem := tierstest.NewMem(0)
		var armed atomic.Bool
		entered, leave := make(chan struct{}), make(chan struct{})
		fs := &tierstest.Inject{FS: mem, Before: func(op tierstest.Op) error {
			if op.Kind == tierstest.OpWrite && filepath.Ext(op.Name) == ".seg" && op.Len > 2*vfs.BlockSize &&
				armed.CompareAndSwap(true, false) {
				close(entered)
				<-leave
			}
			return nil
		}}
		s := mustOpen(t, memOptions(fs))
		if err := put(s, 2, 7, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		armed.Store(true)
		done := make(chan error)
		go func() { done <- s.Put(ctx, 2, 7, content(7, 2), pagestore.Kind{}) }()
		<-entered
		cancel()
		w := newWorld()
		w.pages[7] = 1
		if c.another { // Newer than what hangs.
			if err := put(s, 1, 7, 3); err != nil {
				t.Fatal(err)
			}
			w.pages[7] = 3
		}
		if c.commitBetween {
			w.note = "between"
			if _, err := s.Commit(t.Context(), []byte(w.note)); err != nil {
				t.Fatal(err)
			}
		}
		close(leave)
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("a put that was given up: %v, want Canceled", err)
		}
		if err := w.compare(s); err != nil {
			t.Error(err)
		}
		w.note = "after"
		if _, err := s.Commit(t.Context(), []byte(w.note)); err != nil {
			t.Fatal(err)
		}
		if err := w.compare(s); err != nil {
			t.Error(err)
		}
		if err := checkAccounting(s, mem); err != nil {
			t.Error(err)
		}
		left := mem.Crash(0, anyRand())
		names, err := left.List("/nvme")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names { // The index is lost: the records say what counts.
			if strings.Contains(name, ".table") {
				if err := left.Remove("/nvme/" + name); err != nil {
					t.Fatal(err)
				}
			}
		}
		again := mustOpen(t, memOptions(left))
		if err := w.compare(again); err != nil || !again.Stats().Healed {
			t.Errorf("rebuilt: %v, %v", again.Stats().Healed, err)
		}
	}
}
