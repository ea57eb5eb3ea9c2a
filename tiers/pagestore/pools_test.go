package pagestore

import (
	"errors"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// TestSweepOfACommit: a commit sweeps stale records away when the index remembers more of them than
// its limit and than there are pages, and not before.
func TestSweepOfACommit(t *testing.T) {
	ctx, mem := t.Context(), tierstest.NewMem(0)
	s := smallStore(t, mem, nil)
	page := filled(vfs.BlockSize, 9)
	const limit = 6
	next, marks := uint64(0), 0
	put := func() {
		t.Helper()
		if err := s.Put(ctx, 0, next, page, Kind{}); err != nil {
			t.Fatal(err)
		}
		next++
	}
	commit := func() {
		t.Helper()
		if _, err := s.Commit(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if now := s.index.Marks(); int64(now) != s.marks.Load() {
			t.Errorf("the index has %d marks, the store counts %d", now, s.marks.Load())
		}
	}
	for range 12 {
		put()
	}
	commit()
	for gone, swept := uint64(0), 0; swept < 2 && gone < 12; gone++ {
		s.sweepAt.Store(limit)
		if err := s.Delete(ctx, gone); err != nil {
			t.Fatal(err)
		}
		commit()
		now := s.index.Marks()
		if bound := max(limit, s.table.committed.len()); now > bound {
			t.Errorf("%d marks after a commit, at most %d", now, bound)
		}
		switch {
		case now == 0:
			if least := max(limit, s.table.committed.len()); marks+2 <= least { // a page, and the life that it is of
				t.Errorf("swept at %d marks, want more than %d", marks+2, least)
			}
			swept++
		case now <= marks:
			t.Errorf("%d marks after %d and a deletion", now, marks)
		}
		marks = now
	}
	if next == 0 || marks > limit {
		t.Errorf("%d marks are left", marks)
	}
}

// TestTrimFails: a file that cannot be removed after a commit is a failure of its tier, and none of
// the commit.
func TestTrimFails(t *testing.T) {
	ctx, mem := t.Context(), tierstest.NewMem(0)
	var failing atomic.Bool
	quota := NewQuota(2 << 20)
	s := smallStore(t, &tierstest.Inject{FS: mem, Before: func(op tierstest.Op) error {
		if failing.Load() && op.Kind == tierstest.OpRemove && filepath.Ext(op.Name) == ".seg" {
			return syscall.EIO
		}
		return nil
	}}, func(o *Options) { o.Tiers[0].Quota = quota })
	page, n := filled(vfs.BlockSize, 9), uint64(0)
	for ; ; n++ {
		if err := s.Put(ctx, 0, n, page, Kind{}); errors.Is(err, tiers.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if s.records.failures[0].Load() != 0 {
		t.Error("a full tier counts as a failure")
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for p := range n {
		if err := s.Delete(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	failing.Store(true)
	if _, err := s.Commit(ctx, []byte("n")); err != nil || s.records.failures[0].Load() != 1 ||
		string(s.Note()) != "n" {
		t.Errorf("%d failures, note %q: %v", s.records.failures[0].Load(), s.Note(), err)
	}
	failing.Store(false)
	if _, err := s.Commit(ctx, nil); err != nil || s.records.failures[0].Load() != 1 || s.Usage(0).FileBytes != 0 {
		t.Errorf("%d failures, %d bytes of files: %v", s.records.failures[0].Load(), s.Usage(0).FileBytes, err)
	}
}

// TestBuffersComeBack: every call gives back the memory that it took: many calls need few buffers
// and one coder.
func TestBuffersComeBack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // A collection empties the pool.
	ctx := t.Context()
	fs := tierstest.NewMem(0)
	s := smallStore(t, fs, func(o *Options) {
		second := o.Tiers[0]
		second.Dir, second.Codec.ID = "/two", LZ4
		o.PageSize, o.Tiers = 4*vfs.BlockSize, append(o.Tiers, second)
	})
	var made atomic.Int64
	s.records.bufs.New = func() any { made.Add(1); return newBuffer() }
	page, got := filled(4*vfs.BlockSize, 9), make([]byte, 4*vfs.BlockSize)
	const n = 64
	for range n { // The race detector has a pool drop a part of what it is given.
		s.records.freeBuffer(s.records.takeBuffer())
	}
	dropped := made.Load()
	for what, call := range map[string]func(i int) error{
		"put":  func(i int) error { return s.Put(ctx, 1, uint64(i), page, Kind{Elem: 1}) },
		"get":  func(int) error { return s.Get(ctx, 0, got) },
		"move": func(i int) error { return s.Move(ctx, 0, i%2) },
		"compact": func(int) error {
			s.table.mu.RLock()
			e := s.table.pending[0].entry
			s.table.mu.RUnlock()
			return s.rewrite(ctx, 0, e.tier())
		},
	} {
		for page := range uint64(2) {
			if err := s.Put(ctx, 1, page, filled(4*vfs.BlockSize, 9), Kind{Elem: 1}); err != nil {
				t.Fatal(err)
			}
		}
		made.Store(0)
		for i := range n {
			if err := call(i); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if got := made.Load(); got > n/2+6*dropped {
			t.Errorf("%s: %d calls needed %d buffers", what, n, got)
		}
	}
	if err := s.Put(ctx, 1, 0, page, Kind{Elem: 1}); err != nil {
		t.Fatal(err)
	}
	coders := s.records.dirs[1].coders
	first := coders.Get()
	coders.Put(first)
	for what, err := range map[string]error{"put": s.Put(ctx, 1, 1, page, Kind{Elem: 1}), "get": s.Get(ctx, 0, got)} {
		now := coders.Get()
		coders.Put(now)
		if err != nil || now != first {
			t.Errorf("%s: another coder comes from the pool than before: %v", what, err)
		}
	}
}

// TestSweepFails: a sweep that fails is a failure of its tier and none of the commit, and is tried
// again after the next one.
func TestSweepFails(t *testing.T) {
	ctx, mem := t.Context(), tierstest.NewMem(0)
	var failing atomic.Bool
	s := smallStore(t, &tierstest.Inject{FS: mem, Before: func(op tierstest.Op) error {
		if failing.Load() && filepath.Ext(op.Name) == ".seg" && op.Kind != tierstest.OpSync {
			return syscall.EIO
		}
		return nil
	}}, nil)
	for page := range uint64(3) {
		if err := s.Put(ctx, 0, page, filled(vfs.BlockSize, 9), Kind{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	s.sweepAt.Store(0)
	for page := range uint64(2) {
		if err := s.Delete(ctx, page); err != nil {
			t.Fatal(err)
		}
	}
	failing.Store(true)
	if _, err := s.Commit(ctx, []byte("n")); err != nil || s.records.failures[0].Load() != 1 || s.marks.Load() == 0 {
		t.Errorf("%d failures, %d marks: %v", s.records.failures[0].Load(), s.marks.Load(), err)
	}
	failing.Store(false)
	if _, err := s.Commit(ctx, nil); err != nil || s.records.failures[0].Load() != 1 || s.marks.Load() != 0 {
		t.Errorf("%d failures, %d marks: %v", s.records.failures[0].Load(), s.marks.Load(), err)
	}
}

// TestSlotsAfterOpen: a store that is opened again writes into the free slots of its segments
// before it makes another.
func TestSlotsAfterOpen(t *testing.T) {
	ctx, mem := t.Context(), tierstest.NewMem(0)
	put := func(s *Store, from, to uint64) {
		t.Helper()
		for page := from; page < to; page++ {
			if err := s.Put(ctx, 0, page, filled(vfs.BlockSize, 9), Kind{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Commit(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	s := smallStore(t, mem, nil)
	put(s, 0, 10)
	for page := range uint64(4) {
		if err := s.Delete(ctx, page); err != nil {
			t.Fatal(err)
		}
	}
	put(s, 10, 12)
	before := s.Usage(0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = smallStore(t, mem, nil)
	if now := s.Usage(0); now != before || now.Used != 8 {
		t.Errorf("%+v before, and %+v after", before, now)
	}
	put(s, 12, 12+uint64(before.Slots-before.Used))
	if now := s.Usage(0); now.Segments != before.Segments || now.Used != before.Slots {
		t.Errorf("%+v before, and %+v when every slot is taken", before, now)
	}
}

// TestSweepNeedsEveryTier: while a directory cannot be read the index remembers every stale record,
// also over an open, since records there would count in a rebuild.
func TestSweepNeedsEveryTier(t *testing.T) {
	ctx, mem := t.Context(), tierstest.NewMem(0)
	two := func(o *Options) {
		second := o.Tiers[0]
		second.Name, second.Dir = "two", "/two"
		o.Tiers = append(o.Tiers, second)
	}
	s := smallStore(t, mem, two)
	for page := range uint64(4) {
		if err := s.Put(ctx, int(page%2), page, filled(vfs.BlockSize, 9), Kind{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Delete(ctx, 0), s.Delete(ctx, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	marks := s.marks.Load()
	for _, whole := range []bool{false, true} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = smallStore(t, &tierstest.Inject{FS: mem, Before: func(op tierstest.Op) error {
			if !whole && strings.HasPrefix(op.Name, "/two") {
				return syscall.EIO
			}
			return nil
		}}, two)
		if got := s.marks.Load(); got < marks || got == 0 || got != int64(s.index.Marks()) ||
			s.sweepAt.Load() != minMarks || s.table.pages.Load() != 2 {
			t.Errorf("%d marks and %d pages after an open, %d marks before", got, s.table.pages.Load(), marks)
		}
		s.sweepAt.Store(0)
		if _, err := s.Commit(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if got := s.marks.Load(); (got < marks) != whole || int64(s.index.Marks()) != got {
			t.Errorf("every directory is there: %v; %d marks of %d are left", whole, got, marks)
		}
	}
}
