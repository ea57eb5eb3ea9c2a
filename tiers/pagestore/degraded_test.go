package pagestore_test

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

func unreadable(fs vfs.FS, dir string) vfs.FS {
	return &tierstest.Inject{FS: fs, Before: func(op tierstest.Op) error {
		if op.Name == dir || filepath.Dir(op.Name) == dir {
			return syscall.EIO
		}
		return nil
	}}
}

// TestOpenDegraded opens a store with an unreadable directory: its pages are reported by id, other
// pages are served and written, and a later opening with the directory in order has everything
// again.
func TestOpenDegraded(t *testing.T) {
	ctx := context.Background()
	for _, dir := range []string{"/ssd", "/hdd"} {
		fs := tierstest.NewMem(0)
		s := mustOpen(t, memOptions(fs))
		w := newWorld()
		for page := range uint64(30) {
			if err := put(s, int(page%3), page, page); err != nil {
				t.Fatal(err)
			}
			w.pages[page] = page
		}
		w.note = "one"
		if _, err := s.Commit(ctx, []byte(w.note)); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		gone := uint64(1)
		if dir == "/hdd" {
			gone = 2
		}
		opts := memOptions(fs)
		opts.FS = unreadable(fs, dir)
		s, err := pagestore.Open(opts)
		if err != nil {
			t.Fatalf("%s cannot be read: %v", dir, err)
		}
		lost := s.Lost()
		if len(lost) != 10 || lost[0] != gone || lost[9] != 27+gone {
			t.Errorf("%s cannot be read: pages %v are lost", dir, lost)
		}
		if s.Stats().Tiers[gone].Unavailable == "" || s.Stats().Tiers[0].Unavailable != "" {
			t.Errorf("stats: %+v", s.Stats())
		}
		b := make([]byte, pageSize)
		for page, version := range w.pages {
			err := s.Get(ctx, page, b)
			if page%3 == gone {
				if !errors.Is(err, tiers.ErrLost) {
					t.Errorf("page %d: %v, want ErrLost", page, err)
				}
			} else if err != nil || string(b) != string(content(page, version)) {
				t.Errorf("page %d has other bytes: %v", page, err)
			}
		}
		if err := put(s, int(gone), 0, 50); !errors.Is(err, tiers.ErrUnavailable) {
			t.Errorf("put where nothing can be written: %v, want ErrUnavailable", err)
		}
		if r, err := s.Verify(ctx, 0); err != nil || len(r.Bad) != 10 || len(r.Problems) < 11 {
			t.Errorf("verify: %+v, %v", r, err)
		}
		for _, page := range []uint64{0, gone, 6 + gone} { // One that was there, and two that were lost.
			if err := put(s, 0, page, 60); err != nil {
				t.Fatal(err)
			}
			w.pages[page] = 60
		}
		if _, err := s.Compact(ctx); err != nil {
			t.Error(err)
		}
		w.note = "two"
		if _, err := s.Commit(ctx, []byte(w.note)); err != nil {
			t.Fatal(err)
		}
		if n := len(s.Lost()); n != 8 {
			t.Errorf("%d pages are lost after two were written again, want 8", n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		whole := mustOpen(t, memOptions(fs))
		if err := w.compare(whole); err != nil {
			t.Error(err)
		}
		if n := len(whole.Lost()); n != 0 {
			t.Errorf("%d pages are lost with every directory in order", n)
		}
	}
}

// TestOpenWithoutIndex cannot read the directory of the index: the store is not opened, and nothing
// is made in its place.
func TestOpenWithoutIndex(t *testing.T) {
	fs := tierstest.NewMem(0)
	s := mustOpen(t, memOptions(fs))
	w := newWorld()
	if err := put(s, 1, 5, 5); err != nil {
		t.Fatal(err)
	}
	w.pages[5], w.note = 5, "n"
	if _, err := s.Commit(context.Background(), []byte(w.note)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	opts := memOptions(fs)
	opts.FS = unreadable(fs, "/nvme")
	if s, err := pagestore.Open(opts); !errors.Is(err, syscall.EIO) {
		t.Errorf("open without the index: %v", errors.Join(err, s.Close()))
	}
	if err := w.compare(mustOpen(t, memOptions(fs))); err != nil {
		t.Error(err)
	}
}

// TestEmptyDirectory opens a store with an empty directory, as a disk that is not mounted leaves
// it, writes there, and opens it again: new pages are not taken for missing ones, nor the other way
// round.
func TestEmptyDirectory(t *testing.T) {
	ctx := context.Background()
	fs := tierstest.NewMem(0)
	s := mustOpen(t, memOptions(fs))
	for page := range uint64(20) {
		if err := put(s, int(page%2), page, page); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("/ssd")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := fs.Remove("/ssd/" + name); err != nil {
			t.Fatal(err)
		}
	}
	for round := range uint64(2) {
		s := mustOpen(t, memOptions(fs))
		if n := len(s.Lost()); n != 10 {
			t.Errorf("%d pages are lost, want the 10 that are missing", n)
		}
		for page := range uint64(30) {
			if err := put(s, 1, 100+100*round+page, page); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Commit(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s = mustOpen(t, memOptions(fs))
	b := make([]byte, pageSize)
	for _, page := range s.Pages() {
		switch err := s.Get(ctx, page, b); {
		case page < 20 && page%2 == 1:
			if !errors.Is(err, tiers.ErrLost) {
				t.Errorf("page %d, which is missing: %v, want ErrLost", page, err)
			}
		case err != nil || string(b) != string(content(page, page%100)):
			t.Errorf("page %d has other bytes: %v", page, err)
		}
	}
}
