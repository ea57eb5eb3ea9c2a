package pagestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

func TestCommitAndReopen(t *testing.T) {
	ctx := context.Background()
	fs := tierstest.NewMem(0)
	s := mustOpen(t, memOptions(fs))
	if s.Epoch() != 0 || len(s.Note()) != 0 || len(s.Pages()) != 0 {
		t.Fatalf("a new store is at epoch %d with note %q and %d pages", s.Epoch(), s.Note(), len(s.Pages()))
	}
	w := world{pages: map[uint64]uint64{}}
	for page := range uint64(20) {
		if err := put(s, int(page%3), page, page); err != nil {
			t.Fatal(err)
		}
		w.pages[page] = page
	}
	w.note = "position 7"
	epoch, err := s.Commit(ctx, []byte(w.note))
	if err != nil || epoch != 1 {
		t.Fatalf("epoch %d, %v; want 1", epoch, err)
	}
	if err := w.compare(s); err != nil {
		t.Error(err)
	}
	// What follows is never committed.
	if err := put(s, 0, 3, 99); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, 4); err != nil {
		t.Fatal(err)
	}
	if err := s.Get(ctx, 4, make([]byte, pageSize)); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("deleted page: %v, want ErrNotFound", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, memOptions(fs))
	if err := w.compare(s); err != nil {
		t.Error(err)
	}
	if s.Epoch() != 1 {
		t.Errorf("epoch %d, want 1", s.Epoch())
	}
}

func TestCommitIsIncremental(t *testing.T) {
	fs := tierstest.NewMem(0)
	var bytesWritten int
	inject := &tierstest.Inject{FS: fs, After: func(op tierstest.Op) {
		if op.Kind == tierstest.OpWrite && filepath.Ext(op.Name) == ".seg" {
			bytesWritten += op.Len
		}
	}}
	s := mustOpen(t, memOptions(inject))
	for page := range uint64(50) {
		if err := put(s, 2, page, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	bytesWritten = 0
	if err := put(s, 2, 17, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if want := pageSize + vfs.BlockSize; bytesWritten > want {
		t.Errorf("one dirty page of 50 wrote %d bytes of segments, want %d", bytesWritten, want)
	}
}

func TestOneProcess(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		opts := memOptions(tierstest.NewMem(0))
		if dir != "" {
			opts.FS, opts.Tables = vfs.OS{}, nil
			for i := range opts.Tiers {
				opts.Tiers[i].Dir, opts.Tiers[i].Capacity = filepath.Join(dir, fmt.Sprint(i)), 256<<20
			}
		}
		s := mustOpen(t, opts)
		if _, err := pagestore.Open(opts); !errors.Is(err, tiers.ErrLocked) {
			t.Errorf("second opening: %v, want ErrLocked", err)
		}
		// Sharing one tier is enough to be refused.
		part := opts
		part.Tiers = part.Tiers[2:]
		if _, err := pagestore.Open(part); !errors.Is(err, tiers.ErrLocked) {
			t.Errorf("second opening of one tier: %v, want ErrLocked", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		mustOpen(t, opts)
	}
}

func TestOptionsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*pagestore.Options){
		"page size":     func(o *pagestore.Options) { o.PageSize = 5000 },
		"no tiers":      func(o *pagestore.Options) { o.Tiers = nil },
		"no directory":  func(o *pagestore.Options) { o.Tiers[1].Dir = "" },
		"same dir":      func(o *pagestore.Options) { o.Tiers[1].Dir = "/nvme/." },
		"nested dir":    func(o *pagestore.Options) { o.Tiers[1].Dir = "/nvme/below" },
		"tiny capacity": func(o *pagestore.Options) { o.Tiers[0].Capacity = 1 << 19 },
		"key":           func(o *pagestore.Options) { o.Key = make([]byte, 5) },
		"codec":         func(o *pagestore.Options) { o.Tiers[0].Codec.ID = 9 },
	} {
		opts := memOptions(tierstest.NewMem(0))
		change(&opts)
		if s, err := pagestore.Open(opts); !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
			if s != nil {
				_ = s.Close()
			}
		}
	}
}

func TestForeignDirectoriesAreRefused(t *testing.T) {
	ctx := context.Background()
	fs := tierstest.NewMem(0)
	s := mustOpen(t, memOptions(fs))
	for tier := range 3 {
		if err := put(s, tier, uint64(tier), 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*pagestore.Options){
		"page size": func(o *pagestore.Options) { o.PageSize *= 2 },
		"order":     func(o *pagestore.Options) { o.Tiers[0], o.Tiers[1] = o.Tiers[1], o.Tiers[0] },
		"key":       func(o *pagestore.Options) { o.Key = make([]byte, 32) },
	} {
		opts := memOptions(fs)
		change(&opts)
		if s, err := pagestore.Open(opts); !errors.Is(err, tiers.ErrMismatch) {
			t.Errorf("%s: %v, want ErrMismatch", name, err)
			if s != nil {
				_ = s.Close()
			}
		}
	}
	// A third tier alone has segments of a store whose index is elsewhere.
	opts := memOptions(fs)
	opts.Tiers = opts.Tiers[2:]
	if s, err := pagestore.Open(opts); !errors.Is(err, tiers.ErrCorrupt) {
		t.Errorf("tier without index: %v, want ErrCorrupt", err)
		if s != nil {
			_ = s.Close()
		}
	}
}

func TestEncryption(t *testing.T) {
	ctx := context.Background()
	fs := tierstest.NewMem(0)
	opts := memOptions(fs)
	opts.Key = bytes.Repeat([]byte{7}, 32)
	s := mustOpen(t, opts)
	w := world{pages: map[uint64]uint64{}, note: "n"}
	for page := range uint64(9) {
		if err := put(s, int(page%3), page, page); err != nil {
			t.Fatal(err)
		}
		w.pages[page] = page
	}
	if _, err := s.Commit(ctx, []byte("n")); err != nil {
		t.Fatal(err)
	}
	if err := w.compare(s); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.compare(mustOpen(t, opts)); err != nil {
		t.Error(err)
	}
	// Page 0 is stored raw in tier 0 when there is no key; with one its words are nowhere on the
	// medium.
	needle := content(0, 0)[64:96]
	for _, dir := range []string{"/nvme", "/ssd", "/hdd"} {
		names, err := fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if bytes.Contains(slurp(t, fs, filepath.Join(dir, name)), needle) {
				t.Errorf("%s/%s holds a page's bytes in clear", dir, name)
			}
		}
	}
}

func slurp(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if size > 0 {
		if _, err := f.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestCapacityIsNeverPassed(t *testing.T) {
	ctx := context.Background()
	opts := memOptions(tierstest.NewMem(0))
	opts.Tiers = opts.Tiers[2:]
	opts.Tiers[0].Capacity = 2 << 20
	fs := tierstest.NewMem(opts.Tiers[0].Capacity) // The medium itself enforces the cap.
	opts.FS, opts.Tables = fs, tierstest.Backend{FS: fs}
	opts.Tiers[0].DiskReserve = -1
	s := mustOpen(t, opts)
	rng := rand.New(rand.NewPCG(4, 4))
	w := world{pages: map[uint64]uint64{}}
	full := 0
	for i := range 3000 {
		page := rng.Uint64N(60)
		err := put(s, 0, page, uint64(i))
		switch {
		case errors.Is(err, tiers.ErrFull):
			full++
			for p := range w.pages {
				if err := s.Delete(ctx, p); err != nil {
					t.Fatal(err)
				}
				delete(w.pages, p)
				if len(w.pages) < 10 {
					break
				}
			}
		case err != nil:
			t.Fatal(err)
		default:
			w.pages[page] = uint64(i)
		}
		if i%7 == 0 || errors.Is(err, tiers.ErrFull) {
			if _, err := s.Commit(ctx, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if full == 0 {
		t.Error("the tier was never full: the test shows nothing")
	}
	if err := w.compare(s); err != nil {
		t.Error(err)
	}
}

// TestAgainstMap runs random operations against a map, with reopening, over several shapes of
// store.
func TestAgainstMap(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		fs := tierstest.NewMem(0)
		opts := memOptions(fs)
		opts.Tiers = opts.Tiers[:rapid.IntRange(1, 3).Draw(t, "tiers")]
		for i := range opts.Tiers {
			opts.Tiers[i].SegmentBytes = rapid.SampledFrom([]int64{1, 64 << 10, 1 << 20}).Draw(t, "segment")
		}
		if rapid.Bool().Draw(t, "key") {
			opts.Key = make([]byte, 16)
		}
		s, err := pagestore.Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		now, last := world{pages: map[uint64]uint64{}}, world{pages: map[uint64]uint64{}}
		anyPage := rapid.Uint64Range(0, 12)
		anyTier := rapid.IntRange(0, len(opts.Tiers)-1)
		var version uint64
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				page := anyPage.Draw(t, "page")
				version++
				if err := put(s, anyTier.Draw(t, "tier"), page, version); err != nil {
					t.Fatal(err)
				}
				now.pages[page] = version
			},
			"delete": func(t *rapid.T) {
				page := anyPage.Draw(t, "page")
				err := s.Delete(ctx, page)
				if _, ok := now.pages[page]; ok != (err == nil) || (err != nil && !errors.Is(err, tiers.ErrNotFound)) {
					t.Fatalf("delete page %d: %v, there: %v", page, err, ok)
				}
				delete(now.pages, page)
			},
			"move": func(t *rapid.T) {
				page := anyPage.Draw(t, "page")
				tier := anyTier.Draw(t, "tier")
				err := s.Move(ctx, page, tier)
				if _, ok := now.pages[page]; ok != (err == nil) {
					t.Fatalf("move page %d: %v, there: %v", page, err, ok)
				}
				if info, statErr := s.Stat(page); err == nil && (statErr != nil || info.Tier != tier) {
					t.Fatalf("page %d moved to tier %d is in %+v, %v", page, tier, info, statErr)
				}
			},
			"sync": func(t *rapid.T) {
				if err := s.Sync(ctx); err != nil {
					t.Fatal(err)
				}
			},
			"settle": func(t *rapid.T) {
				if err := s.Settle(ctx); err != nil {
					t.Fatal(err)
				}
			},
			"commit": func(t *rapid.T) {
				now.note = rapid.String().Draw(t, "note")
				if _, err := s.Commit(ctx, []byte(now.note)); err != nil {
					t.Fatal(err)
				}
				last = now.clone()
			},
			"rollback": func(t *rapid.T) {
				if err := s.Rollback(ctx); err != nil {
					t.Fatal(err)
				}
				now = last.clone()
			},
			"reopen": func(t *rapid.T) {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if s, err = pagestore.Open(opts); err != nil {
					t.Fatal(err)
				}
				now = last.clone()
			},
			"": func(t *rapid.T) {
				if err := now.compare(s); err != nil {
					t.Fatal(err)
				}
				if err := checkAccounting(s, fs); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}
