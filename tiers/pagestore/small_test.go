package pagestore_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

func sizeOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // BadgerDB has removed it meanwhile
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSmallestStore: a tier of 8 MiB holds a page of 2 MiB that does not shrink, or hundreds of
// small pages, through many commits. Its files never exceed it, whether BadgerDB is closed between
// commits or not.
func TestSmallestStore(t *testing.T) {
	const capacity = 8 << 20
	for _, c := range []struct {
		pageSize, pages, commits int
		rest                     time.Duration
	}{
		{pageSize: 2 << 20, pages: 1, commits: 12, rest: time.Hour},
		{pageSize: 2 << 20, pages: 1, commits: 6, rest: time.Nanosecond},
		{pageSize: 4 << 10, pages: 200, commits: 30, rest: time.Hour},
		{pageSize: 4 << 10, pages: 200, commits: 6, rest: time.Nanosecond},
	} {
		t.Run(fmt.Sprintf("%d pages of %d, rest %v", c.pages, c.pageSize, c.rest), func(t *testing.T) {
			t.Parallel()
			dir, ctx := t.TempDir(), t.Context()
			open := func() *pagestore.Store {
				return mustOpen(t, pagestore.Options{
					PageSize: c.pageSize, Tables: index.Badger{Rest: c.rest},
					Tiers: []pagestore.Tier{{Dir: dir, Capacity: capacity, DiskReserve: -1}},
				})
			}
			s := open()
			now := make([][]byte, c.pages)
			check := func() {
				t.Helper()
				if n := sizeOf(t, dir); n > capacity {
					t.Fatalf("%d bytes in files, at most %d", n, capacity)
				}
				got := make([]byte, c.pageSize)
				for page, want := range now {
					if err := s.Get(ctx, uint64(page), got); err != nil || !bytes.Equal(got, want) {
						t.Fatalf("page %d: %v, or other bytes", page, err)
					}
				}
			}
			for n := range c.commits {
				for page := range now {
					now[page] = make([]byte, c.pageSize)
					if _, err := rand.Read(now[page]); err != nil {
						t.Fatal(err)
					}
					if err := s.Put(ctx, 0, uint64(page), now[page], tiers.Kind{}); err != nil {
						t.Fatalf("put %d of commit %d: %v", page, n, err)
					}
				}
				if _, err := s.Commit(ctx, []byte(fmt.Sprint(n))); err != nil {
					t.Fatalf("commit %d: %v", n, err)
				}
				check()
				if n%5 == 4 {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open()
					check()
				}
			}
		})
	}
}

// TestIndexRests: an index that nobody has used for a while has no goroutine and no database open,
// and takes the next commit.
func TestIndexRests(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, pagestore.Options{
		PageSize: 4 << 10, Tables: index.Badger{Rest: 10 * time.Millisecond},
		Tiers: []pagestore.Tier{{Dir: dir, Capacity: 64 << 20}},
	})
	for n := range 3 {
		page := bytes.Repeat([]byte{byte(n + 1)}, 4<<10)
		if err := s.Put(t.Context(), 0, 7, page, tiers.Kind{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		locks := func() []string {
			names, err := filepath.Glob(filepath.Join(dir, "*", "LOCK"))
			if err != nil {
				t.Fatal(err)
			}
			return names
		}
		testkit.Until(t, "the database to be closed", func() bool { return len(locks()) == 0 })
	}
}
