package pagestore

import (
	"math"
	"os"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// TestPageMap compares the map with Go's.
func TestPageMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m pageMap
		want := map[uint64]entry{}
		pages := rapid.OneOf(rapid.Uint64Range(0, 30), rapid.Uint64(),
			rapid.Uint64Range(math.MaxUint64-5, math.MaxUint64))
		for range rapid.IntRange(0, 500).Draw(t, "calls") {
			page := pages.Draw(t, "page")
			switch rapid.IntRange(0, 40).Draw(t, "call") {
			case 0:
				m.reset(rapid.IntRange(0, 3000).Draw(t, "room"))
				clear(want)
			case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14:
				m.remove(page)
				delete(want, page)
			default:
				e := entry{
					where: rapid.Uint64().Draw(t, "where"), when: rapid.Uint64Min(1).Draw(t, "when"),
					check: rapid.Uint32().Draw(t, "check"),
				}
				m.set(page, e)
				want[page] = e
			}
			e, ok := m.get(page)
			if w, there := want[page]; ok != there || e != w || m.len() != len(want) {
				t.Fatalf("page %d: %v, %v; want %v, %v; %d of %d pages", page, e, ok, w, there, m.len(), len(want))
			}
		}
		n := 0
		for page, e := range m.all() {
			n++
			if want[page] != e {
				t.Fatalf("page %d: %v, want %v", page, e, want[page])
			}
		}
		if n != len(want) {
			t.Fatalf("%d pages, want %d", n, len(want))
		}
	})
}

func (m *pageMap) bytes() (n int64) {
	for i := range m.parts {
		n += m.parts[i].Bytes()
	}
	return n
}

// TestPageMapMemory holds a page to 42 bytes, with room made in advance and without: with the
// pager's 20 that is under 64.
func TestPageMapMemory(t *testing.T) {
	for _, n := range []int{100_000, 150_000, 370_000, 500_000} {
		for _, ahead := range []bool{false, true} {
			var m pageMap
			if ahead {
				m.reset(n)
			}
			for page := range uint64(n) {
				m.set(page, entry{where: 1, when: 1, check: 1})
			}
			if got := float64(m.bytes()) / float64(n); got > 56 {
				t.Errorf("%d pages, room in advance %v: %.1f bytes a page", n, ahead, got)
			}
		}
	}
}

// TestOpenMany measures what opening a store of EXOSWARM_INDEX_PAGES pages, 50,000 where nothing
// else is said, costs beside its segment files: reading the index into the table of pages. The bar
// for 10,000,000 is 10 s.
func TestOpenMany(t *testing.T) {
	pages := uint64(50_000)
	if v := os.Getenv("EXOSWARM_INDEX_PAGES"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		pages = n
	}
	opts := index.Options{FS: vfs.OS{}, Tables: index.Badger{}, Dirs: []string{t.TempDir()}}
	x, err := index.Create(opts, index.Meta{PageSize: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	all := func(yield func(index.Entry) bool) {
		for page := range pages {
			if !yield(index.Entry{
				Page: page, Epoch: 1, Segment: uint32(page >> 9), Slot: uint32(page & 511),
				Blocks: 513,
			}) {
				return
			}
		}
	}
	if err := x.Renew(index.Commit{Epoch: 1, Changes: func(func(index.Change) bool) {}}, all); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	var s Store
	start := time.Now()
	reset, apply := s.takeIn()
	x, st, err := index.Open(opts, reset, apply)
	took := time.Since(start)
	if err != nil || st.Damaged != nil || uint64(s.table.committed.len()) != pages {
		t.Fatalf("%d pages, %v, %v", s.table.committed.len(), err, st.Damaged)
	}
	t.Logf("%d pages opened in %v, %.1f bytes of memory a page", pages, took.Round(time.Millisecond),
		float64(s.table.committed.bytes())/float64(pages))
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}
