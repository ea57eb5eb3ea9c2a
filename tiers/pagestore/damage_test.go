package pagestore_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

func record(t *testing.T, fs vfs.FS, s *pagestore.Store, page uint64) (in pagestore.Info, rec []byte) {
	t.Helper()
	in, err := s.Stat(page)
	if err != nil {
		t.Fatal(err)
	}
	return in, slurp(t, fs, in.File)[in.Offset : in.Offset+in.Bytes]
}

func overwrite(t *testing.T, fs vfs.FS, in pagestore.Info, rec []byte) {
	t.Helper()
	f, err := fs.Open(in.File, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(rec, in.Offset); err != nil {
		t.Fatal(err)
	}
}

// TestMisplacedWrites puts intact records where they do not belong, as a disk does that writes to
// the wrong place or forgets a write: each is refused, though every checksum in it is right.
func TestMisplacedWrites(t *testing.T) {
	ctx := context.Background()
	fs := tierstest.NewMem(0)
	opts := memOptions(fs)
	opts.Tiers = opts.Tiers[2:]
	opts.Tiers[0].SegmentBytes = 8 << 20
	opts.Tiers[0].Capacity = 16 << 20
	s := mustOpen(t, opts)
	commit := func() {
		t.Helper()
		if _, err := s.Commit(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string, page uint64) {
		t.Helper()
		if err := s.Get(ctx, page, make([]byte, pageSize)); !errors.Is(err, tiers.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", what, err)
		}
	}
	for page := range uint64(2) {
		if err := put(s, 0, page, 0); err != nil {
			t.Fatal(err)
		}
	}
	commit()
	_, zero := record(t, fs, s, 0)
	one, _ := record(t, fs, s, 1)
	overwrite(t, fs, one, zero)
	refused("another page's record", 1)

	// Page 2 is written again and again until it is back in its first slot; the last write is then
	// forgotten.
	if err := put(s, 0, 2, 0); err != nil {
		t.Fatal(err)
	}
	commit()
	first, old := record(t, fs, s, 2)
	for version := uint64(1); ; version++ {
		if err := put(s, 0, 2, version); err != nil {
			t.Fatal(err)
		}
		commit()
		if in, err := s.Stat(2); err != nil {
			t.Fatal(err)
		} else if in.File == first.File && in.Offset == first.Offset {
			break
		}
	}
	overwrite(t, fs, first, old)
	refused("an older record of the same page", 2)
}

// TestSlotsOfAFailedCommitRest makes a commit fail after its index batch may have become durable,
// goes on working until the tier is full, and cuts the power: the epoch that failed may be back,
// and then it must be whole.
func TestSlotsOfAFailedCommitRest(t *testing.T) {
	ctx := context.Background()
	mem := tierstest.NewMem(0)
	failing := false
	opts := memOptions(&tierstest.Inject{FS: mem, Before: func(op tierstest.Op) error {
		if failing && op.Kind == tierstest.OpSync && strings.HasPrefix(filepath.Ext(op.Name), ".super") {
			return syscall.EIO
		}
		return nil
	}})
	opts.Tiers = opts.Tiers[2:]
	opts.Tiers[0].Capacity = 3 << 20
	s := mustOpen(t, opts)
	if err := put(s, 0, 1, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := put(s, 0, 1, 3); err != nil {
		t.Fatal(err)
	}
	failing = true
	if _, err := s.Commit(ctx, []byte("new")); !errors.Is(err, syscall.EIO) {
		t.Fatalf("commit on a failing index: %v, want EIO", err)
	}
	for page := uint64(1); ; page++ {
		if err := put(s, 0, page, 6); errors.Is(err, tiers.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	left := mem.Crash(1, anyRand())
	opts.FS, opts.Tables = left, tierstest.Backend{FS: left}
	again := mustOpen(t, opts)
	if string(again.Note()) != "new" {
		t.Fatalf("note %q: the failed commit did not reach the medium, so the test shows nothing", again.Note())
	}
	if err := (world{pages: map[uint64]uint64{1: 3}, note: "new"}).compare(again); err != nil {
		t.Error(err)
	}
	// The store that lived on renews its index when it can.
	failing = false
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Error(err)
	}
}

// TestLostSegment deletes a segment file: its pages are reported by id, and nothing else suffers.
func TestLostSegment(t *testing.T) {
	ctx := context.Background()
	fs := tierstest.NewMem(0)
	s := mustOpen(t, memOptions(fs))
	for page := range uint64(6) {
		if err := put(s, int(page%2), page, page); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	victim, err := s.Stat(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fs.Remove(victim.File); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, memOptions(fs))
	lost := s.Lost()
	if len(lost) == 0 {
		t.Fatal("no page is reported lost")
	}
	for _, page := range lost {
		if err := s.Get(ctx, page, make([]byte, pageSize)); !errors.Is(err, tiers.ErrLost) {
			t.Errorf("lost page %d: %v, want ErrLost", page, err)
		}
		if err := put(s, 2, page, page); err != nil { // Writing it again heals it.
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	w := world{pages: map[uint64]uint64{0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5}}
	if err := w.compare(s); err != nil {
		t.Error(err)
	}
	if n := len(s.Lost()); n != 0 {
		t.Errorf("%d pages are still lost", n)
	}
}

// TestCompact empties sparse segments and loses nothing.
func TestCompact(t *testing.T) {
	ctx := context.Background()
	fs := tierstest.NewMem(0)
	s := mustOpen(t, memOptions(fs))
	w := world{pages: map[uint64]uint64{}, note: "n"}
	for page := range uint64(200) {
		if err := put(s, 2, page, page); err != nil {
			t.Fatal(err)
		}
		w.pages[page] = page
	}
	for page := range uint64(200) {
		if page%5 != 0 {
			if err := s.Delete(ctx, page); err != nil {
				t.Fatal(err)
			}
			delete(w.pages, page)
		}
	}
	if _, err := s.Commit(ctx, []byte("n")); err != nil {
		t.Fatal(err)
	}
	before := s.Stats().Tiers[2].FileBytes
	if err := put(s, 2, 5, 77); err != nil { // Not committed: it stays that way.
		t.Fatal(err)
	}
	freed, err := s.Compact(ctx)
	if err != nil {
		t.Fatal(err)
	}
	after := s.Stats().Tiers[2].FileBytes
	if before-after != freed || after > before/2 {
		t.Errorf("compaction went from %d to %d bytes and says that it freed %d", before, after, freed)
	}
	if err := checkAccounting(s, fs); err != nil {
		t.Error(err)
	}
	if s.Epoch() != 1 {
		t.Errorf("compaction made epoch %d", s.Epoch())
	}
	if err := w.compare(mustOpen(t, memOptions(fs.Crash(0, anyRand())))); err != nil {
		t.Error(err)
	}
}

// TestSweep deletes pages until Compact sweeps the stale records away, works on, loses the index,
// and finds every page that is there and none that is not.
func TestSweep(t *testing.T) {
	ctx := context.Background()
	fs := tierstest.NewMem(0)
	opts := memOptions(fs)
	opts.Tiers[2].Capacity = 32 << 20
	s := mustOpen(t, opts)
	w := newWorld()
	commit := func(note string) {
		t.Helper()
		if _, err := s.Commit(ctx, []byte(note)); err != nil {
			t.Fatal(err)
		}
		w.note = note
	}
	for page := range uint64(300) {
		for version := page; version < page+3; version += 2 {
			if err := put(s, 2, page, version); err != nil {
				t.Fatal(err)
			}
		}
		w.pages[page] = page + 2
		if page%100 == 99 {
			commit("filling")
		}
	}
	for page := range uint64(299) {
		if err := s.Delete(ctx, page); err != nil {
			t.Fatal(err)
		}
		delete(w.pages, page)
	}
	commit("deleted")
	if err := put(s, 2, 1000, 1); err != nil { // It is pending while the sweep runs.
		t.Fatal(err)
	}
	if _, err := s.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/nvme", "/ssd", "/hdd"} {
		names, err := fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if b := slurp(t, fs, filepath.Join(dir, name)); filepath.Ext(name) == ".seg" &&
				bytes.Count(b, []byte("EXPG")) > 2 {
				t.Errorf("%s/%s still holds %d records", dir, name, bytes.Count(b, []byte("EXPG")))
			}
		}
	}
	w.pages[1000] = 1
	commit("swept")
	if err := put(s, 2, 5, 5); err != nil {
		t.Fatal(err)
	}
	w.pages[5] = 5
	commit("on")
	left := fs.Crash(0, anyRand())
	if err := dropTables(left); err != nil {
		t.Fatal(err)
	}
	opts.FS, opts.Tables = left, tierstest.Backend{FS: left}
	s = mustOpen(t, opts)
	if err := w.compare(s); err != nil {
		t.Error(err)
	}
	if !s.Stats().Healed {
		t.Error("the lost index was not noticed")
	}
}

// TestNewestOfEpochLost: a page is written twice before a commit, and then the index and the newer
// record are lost. The older record is intact and of the same epoch, and must not take the place of
// the newer one.
func TestNewestOfEpochLost(t *testing.T) {
	ctx := context.Background()
	fs := tierstest.NewMem(0)
	s, err := pagestore.Open(memOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range [][2]uint64{{1, 0}, {7, 1}, {7, 2}, {2, 0}} {
		if err := put(s, 0, w[0], w[1]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	newest, rec := record(t, fs, s, 7)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	overwrite(t, fs, newest, make([]byte, len(rec)))
	if err := dropTables(fs); err != nil {
		t.Fatal(err)
	}
	s, err = pagestore.Open(memOptions(fs))
	if err != nil {
		if !errors.Is(err, tiers.ErrCorrupt) {
			t.Errorf("open: %v, want ErrCorrupt", err)
		}
		return
	}
	defer func() { _ = s.Close() }()
	got := make([]byte, pageSize)
	if err := s.Get(ctx, 7, got); err == nil && !bytes.Equal(got, content(7, 2)) {
		t.Errorf("page 7 is its version before the last write: equal to version 1: %v", bytes.Equal(got, content(7, 1)))
	}
}
