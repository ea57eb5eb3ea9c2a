package pager_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// five opens the design's five tiers: two of memory over three of a store. Capacity is in bytes a
// tier of the store.
func five(t *testing.T, fs vfs.FS, capacity int64, opts pager.Options) stack {
	t.Helper()
	so := pagestore.Options{FS: fs, Tables: tierstest.Backend{FS: fs}, PageSize: pageSize}
	for _, dir := range []string{"/nvme", "/ssd", "/hdd"} {
		so.Tiers = append(so.Tiers, pagestore.Tier{Dir: dir, Capacity: capacity, SegmentBytes: 128 << 10})
	}
	s, err := pagestore.Open(so)
	if err != nil {
		t.Fatal(err)
	}
	opts.Store = s
	if opts.Memory == nil {
		opts.Memory = []pager.Memory{frames(32), frames(64)}
	}
	p, err := pager.Open(opts)
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	return stack{p, s}
}

func (s stack) census() (n [5]int) {
	st := s.Stats()
	for i, m := range st.Memory {
		n[i] = m.Frames - m.Free
	}
	for _, page := range s.store.Pages() {
		if tier, err := s.store.Where(page); err == nil {
			n[2+tier]++
		}
	}
	return n
}

func (s stack) moves(from, to string, why pager.Reason) (n uint64) {
	for _, m := range s.Stats().Migrations {
		if m.From == from && m.To == to && m.Reason == why.String() {
			n += m.Pages
		}
	}
	return n
}

// TestAging leaves pages alone and finds them one tier lower after each of the design's thresholds,
// and not before.
func TestAging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := five(t, tierstest.NewMem(0), 8<<20, pager.Options{Aging: true})
		defer s.close(t)
		const pages = 20
		s.create(t, pages, 0, 5)
		idle := time.Duration(0)
		at := func(age time.Duration, want [5]int) {
			t.Helper()
			pass(age - idle)
			idle = age
			synctest.Wait()
			if got := s.census(); got != want {
				t.Errorf("idle for %v: pages by tier %v, want %v", age, got, want)
			}
		}
		at(950*time.Millisecond, [5]int{pages})
		at(1200*time.Millisecond, [5]int{0, pages})
		at(9900*time.Millisecond, [5]int{0, pages})
		at(10200*time.Millisecond, [5]int{0, 0, pages})
		// A tier of the store checks its pages every eighth of its threshold, 5 s at most.
		at(59*time.Second, [5]int{0, 0, pages})
		at(76*time.Second, [5]int{0, 0, 0, pages})
		at(299*time.Second, [5]int{0, 0, 0, pages})
		at(316*time.Second, [5]int{0, 0, 0, 0, pages})
		for i, name := range []string{"memory1", "store0", "store1", "store2"} {
			from := []string{"memory0", "memory1", "store0", "store1"}[i]
			if n := s.moves(from, name, pager.ByAge); n != pages {
				t.Errorf("%d moves from %s to %s by age, want %d", n, from, name, pages)
			}
		}
		s.holds(t, pages, 5)
	})
}

// TestHeat reads some pages of the lowest tier again soon after they left memory: they climb, and
// the others do not.
func TestHeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := five(t, tierstest.NewMem(0), 8<<20, pager.Options{Aging: true, NoPrefetch: true})
		defer s.close(t)
		for page := range uint64(20) {
			if err := s.Create(ctx, page, 1); err != nil {
				t.Fatal(err)
			}
		}
		pass(400 * time.Second)
		if got := s.census(); got != [5]int{0, 0, 0, 0, 20} {
			t.Fatalf("pages by tier %v, want all in the last", got)
		}
		for range 6 { // 12 s in memory and on the way, so each read comes back within a threshold.
			for page := range uint64(4) {
				h, err := s.Pin(ctx, page, 1, pager.ForReading)
				if err != nil {
					t.Fatal(err)
				}
				h.Unpin()
			}
			pass(20 * time.Second)
		}
		n := s.census()
		if n[2] != 4 || n[4] != 16 {
			t.Errorf("pages by tier %v, want the 4 that are in use in the first of the store and 16 in the last", n)
		}
		if s.moves("store2", "store1", pager.ByHeat) < 4 {
			t.Errorf("moves: %+v", s.Stats().Migrations)
		}
	})
}

// TestPromotion uses pages of the second tier again and again: with Promote they move to the first
// one, where there is room, without being pinned there.
func TestPromotion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		top := frames(16)
		top.Promote = true
		s := five(t, tierstest.NewMem(0), 8<<20, pager.Options{Memory: []pager.Memory{top, frames(64)}})
		defer s.close(t)
		for page := range uint64(40) {
			if err := s.Create(ctx, page, 1); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			for page := range uint64(6) {
				if err := s.Read(ctx, page, 0, make([]byte, 8)); err != nil {
					t.Fatal(err)
				}
			}
			pass(20 * time.Millisecond)
		}
		if n := s.moves("memory1", "memory0", pager.ByHeat); n != 6 {
			t.Errorf("%d pages moved up, want 6", n)
		}
	})
}

// TestRoomInTheStore fills the first directory: its oldest pages move down before it refuses pages.
func TestRoomInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := five(t, tierstest.NewMem(0), 8<<20, pager.Options{Memory: []pager.Memory{frames(16)}})
		defer s.close(t)
		for page := range uint64(900) {
			if err := s.Create(ctx, page, 0); err != nil {
				t.Fatal(err)
			}
			if err := s.Write(ctx, page, 0, stamp(page, page)); err != nil {
				t.Fatal(err)
			}
			pass(200 * time.Millisecond)
			if page%50 == 49 {
				if _, err := s.Checkpoint(ctx, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if fill := s.store.Fill(0); fill < 0.5 || fill > 0.95 {
			t.Errorf("the first directory is filled to %.2f", fill)
		}
		if n := s.moves("store0", "store1", pager.ByWatermark); n < 20 {
			t.Errorf("%d pages made room: %+v", n, s.Stats().Migrations)
		}
		if tier, err := s.store.Where(0); err != nil || tier == 0 {
			t.Errorf("the oldest page is in directory %d, %v", tier, err)
		}
		b := make([]byte, pageSize)
		for page := range uint64(900) {
			if err := s.Read(ctx, page, 0, b); err != nil {
				t.Fatal(err)
			}
			if v, err := versionOf(page, b); err != nil || v != page {
				t.Fatalf("page %d: version %d, %v", page, v, err)
			}
		}
	})
}

// TestStall lets the first directory hang in the middle of a write: the pin that needs the frame
// goes on with the second one after the time of a stall, the directory is left alone, and it is
// taken back when it answers again. What the call that hung wrote in the end is never seen.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var stall atomic.Pointer[chan struct{}]
		fs := &tierstest.Inject{FS: tierstest.NewMem(0), Before: func(op tierstest.Op) error {
			if c := stall.Load(); c != nil && op.Kind == tierstest.OpWrite && op.Len == 2*vfs.BlockSize &&
				filepath.Dir(op.Name) == "/nvme" {
				<-*c
			}
			return nil
		}}
		s := five(t, fs, 8<<20, pager.Options{Memory: []pager.Memory{frames(4)}, NoPrefetch: true})
		defer s.close(t)
		write := func(from, to, version uint64) {
			t.Helper()
			for page := from; page < to; page++ {
				if err := s.Create(ctx, page, 0); err != nil && !errors.Is(err, tiers.ErrExist) {
					t.Fatal(err)
				}
				if err := s.Write(ctx, page, 0, stamp(page, version)); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(0, 12, 1)
		hang := make(chan struct{})
		release := sync.OnceFunc(func() { close(hang) })
		defer release()
		stall.Store(&hang)
		start := time.Now()
		write(12, 30, 1)
		if took := time.Since(start); took < 10*time.Second || took > 30*time.Second {
			t.Errorf("18 pages took %v, want the one stall of 10 s, or few", took)
		}
		st := s.Stats().Store[0]
		if st.Errors == 0 || st.Trips == 0 {
			t.Errorf("the stalled tier: %+v", st)
		}
		// Newer than what hangs. What only the first directory has cannot be had now, and says so.
		want := map[uint64]uint64{}
		newer := 0
		for page := range uint64(30) {
			switch err := s.Write(ctx, page, 0, stamp(page, 2)); {
			case err == nil:
				want[page] = 2
				newer++
			case errors.Is(err, tiers.ErrUnavailable):
				want[page] = 1
			default:
				t.Error(err)
			}
		}
		if newer < 18 {
			t.Errorf("only %d of 30 pages could be written", newer)
		}
		stall.Store(nil)
		release()
		synctest.Wait()
		pass(5 * time.Minute)
		write(30, 40, 2)
		if st := s.Stats().Store[0]; st.Open || st.Queue != 0 {
			t.Errorf("the tier that answers again: %+v", st)
		}
		if _, err := s.Checkpoint(ctx, nil); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, pageSize)
		for page := range uint64(40) {
			if err := s.Read(ctx, page, 0, b); err != nil {
				t.Fatal(err)
			}
			if page >= 30 {
				want[page] = 2
			}
			if v, err := versionOf(page, b); err != nil || v != want[page] {
				t.Errorf("page %d: version %d, want %d, %v", page, v, want[page], err)
			}
		}
	})
}

// TestStallOfReads hangs the directory that has the only copy: the pin ends with ErrUnavailable
// after the time of a stall or with its context, later ones fail at once, and the page is served
// when the directory answers again.
func TestStallOfReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var stall atomic.Pointer[chan struct{}]
		fs := &tierstest.Inject{FS: tierstest.NewMem(0), Before: func(op tierstest.Op) error {
			if c := stall.Load(); c != nil && op.Kind == tierstest.OpRead {
				<-*c
			}
			return nil
		}}
		s := five(t, fs, 8<<20, pager.Options{Memory: []pager.Memory{frames(4)}, NoPrefetch: true})
		defer s.close(t)
		s.create(t, 8, 0, 1)
		if err := s.DoneWith(ctx, 0, 0, 1, 2, 3, 4, 5, 6, 7); err != nil {
			t.Fatal(err)
		}
		hang := make(chan struct{})
		release := sync.OnceFunc(func() { close(hang) })
		defer release()
		stall.Store(&hang)
		b := make([]byte, pageSize)
		short, cancel := context.WithTimeout(ctx, time.Second)
		start := time.Now()
		if err := s.Read(short, 0, 0, b); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(start) > 2*time.Second {
			t.Errorf("read with a deadline of 1 s: %v after %v", err, time.Since(start))
		}
		cancel()
		if err := s.Read(ctx, 1, 0, b); !errors.Is(err, tiers.ErrUnavailable) {
			t.Errorf("read of a tier that hangs: %v, want ErrUnavailable", err)
		}
		start = time.Now()
		if err := s.Read(ctx, 2, 0, b); !errors.Is(err, tiers.ErrUnavailable) || time.Since(start) > 0 {
			t.Errorf("read of a tier that is left alone: %v after %v", err, time.Since(start))
		}
		stall.Store(nil)
		release()
		pass(time.Minute)
		s.holds(t, 8, 1)
	})
}

type brokenFrames struct {
	*tierstest.HostFrames
	broken atomic.Bool
}

// Frame hides HostFrames': a device's memory is not the processor's.
func (*brokenFrames) Frame(int, int) {}

func (b *brokenFrames) Read(frame int, off int64, dst []byte) error {
	if b.broken.Load() {
		return fmt.Errorf("frame %d: %w", frame, syscall.EIO)
	}
	return b.HostFrames.Read(frame, off, dst)
}

func (b *brokenFrames) Write(frame int, off int64, src []byte) error {
	if b.broken.Load() {
		return fmt.Errorf("frame %d: %w", frame, syscall.EIO)
	}
	return b.HostFrames.Write(frame, off, src)
}

// TestBrokenFrames breaks the device under the first tier: what the store has is served from there,
// what only the device had is reported lost by its number, nothing is invented, and the tier comes
// back.
func TestBrokenFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		dev := &brokenFrames{HostFrames: tierstest.NewHostFrames(8, pageSize)}
		s := five(
			t,
			tierstest.NewMem(0),
			8<<20,
			pager.Options{Memory: []pager.Memory{{Name: "gpu", Frames: dev}, frames(8)}},
		)
		defer s.close(t)
		s.create(t, 6, 0, 1)
		if _, err := s.Checkpoint(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(ctx, 5, 0, stamp(5, 2)); err != nil {
			t.Fatal(err)
		}
		dev.broken.Store(true)
		for range 3 {
			h, err := s.Pin(ctx, 0, 1, pager.ForReading)
			if err == nil {
				h.Unpin()
				break
			}
		}
		b := make([]byte, pageSize)
		check := func(page, want uint64) {
			t.Helper()
			h, err := s.Pin(ctx, page, 1, pager.ForReading)
			if err != nil {
				t.Errorf("page %d: %v", page, err)
				return
			}
			defer h.Unpin()
			err = s.Read(ctx, page, 0, b)
			if v, verr := versionOf(page, b); err != nil || verr != nil || v != want {
				t.Errorf("page %d: version %d, want %d: %v, %v", page, v, want, err, verr)
			}
		}
		for page := uint64(1); page < 5; page++ {
			check(page, 1)
		}
		if _, err := s.Pin(ctx, 5, 1, pager.ForReading); !errors.Is(err, tiers.ErrLost) {
			t.Errorf("a page that only the broken device has: %v, want ErrLost", err)
		}
		if lost := s.Lost(); len(lost) != 1 || lost[0] != 5 {
			t.Errorf("lost: %v, want page 5", lost)
		}
		if !s.Stats().Memory[0].Open {
			t.Error("the breaker of the device is closed")
		}
		dev.broken.Store(false)
		pass(time.Minute)
		check(5, 2)
		if s.Stats().Memory[0].Open || len(s.Lost()) != 0 {
			t.Errorf("the device is back: %+v", s.Stats().Memory[0])
		}
		if h, err := s.Pin(ctx, 3, 0, pager.ForReading); err != nil {
			t.Error(err)
		} else {
			h.Unpin()
		}
	})
}

// overtaken is a store in which a commit overtakes the first move of every page: the move succeeds,
// and the page is where it was.
type overtaken struct {
	*pagestore.Store
	mu   sync.Mutex
	seen map[uint64]bool
}

func (s *overtaken) Move(ctx context.Context, page uint64, tier int) error {
	s.mu.Lock()
	seen := s.seen[page]
	s.seen[page] = true
	s.mu.Unlock()
	if !seen {
		return nil
	}
	return s.Store.Move(ctx, page, tier)
}

// TestMoveOvertaken: a page that a move has left where it was goes with the next one.
func TestMoveOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := tierstest.NewMem(0)
		s := five(t, fs, 8<<20, pager.Options{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		p, err := pager.Open(pager.Options{
			Memory: []pager.Memory{{Frames: tierstest.NewHostFrames(8, pageSize), MaxIdle: time.Second}},
			Store:  &overtaken{Store: s.store, seen: map[uint64]bool{}},
			Disks:  []pager.Disk{{MaxIdle: 10 * time.Second}, {MaxIdle: 10 * time.Second}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Pager = p
		defer s.close(t)
		for page := range uint64(4) {
			if err := p.Create(t.Context(), page, 0); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		st := p.Stats()
		for page := range uint64(4) {
			if tier, err := s.store.Where(page); tier != 2 {
				t.Errorf("page %d is in tier %d: %v", page, tier, err)
			}
		}
		if n := s.moves("store0", "store2", pager.ByAge) + s.moves("store1", "store2", pager.ByAge); n != 4 {
			t.Errorf("%d moves into the last tier, want 4: %+v", n, st.Migrations)
		}
	})
}
