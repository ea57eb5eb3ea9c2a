package index_test

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func entry(page, epoch uint64) index.Entry {
	return index.Entry{
		Page: page, Epoch: epoch, Segment: uint32(page), Slot: uint32(epoch), Blocks: uint16(page%7 + 1),
		Tier: uint8(page % 3),
	}
}

// span yields entries first..last-1 of an epoch.
func span(first, last, epoch uint64) iter.Seq[index.Entry] {
	return func(yield func(index.Entry) bool) {
		for p := first; p < last; p++ {
			if !yield(entry(p, epoch)) {
				return
			}
		}
	}
}

// changes yields what an epoch does to pages first..last-1, which the epoch before wrote, unless
// that is 0.
func changes(first, last, epoch, before uint64) iter.Seq[index.Change] {
	return func(yield func(index.Change) bool) {
		for p := first; p < last; p++ {
			c := index.Change{Page: p, New: entry(p, epoch), HasNew: true}
			if before > 0 {
				c.Old, c.HadOld = entry(p, before), true
			}
			if !yield(c) {
				return
			}
		}
	}
}

func memOptions(fsys vfs.FS) index.Options {
	return index.Options{FS: fsys, Tables: tierstest.Backend{FS: fsys}, Dirs: []string{"/a", "/b"}}
}

func diskOptions(dir string) index.Options {
	return index.Options{FS: vfs.OS{}, Tables: index.Badger{}, Dirs: []string{dir}}
}

func load(opts index.Options) (*index.Index, index.State, map[uint64]index.Entry, error) {
	table := map[uint64]index.Entry{}
	x, st, err := index.Open(opts, func(m index.Meta) { table = make(map[uint64]index.Entry, m.Pages) },
		func(e index.Entry) { table[e.Page] = e })
	return x, st, table, err
}

// note returns the note of an epoch; the empty index has none.
func note(epoch uint64) string {
	if epoch == 0 {
		return ""
	}
	return fmt.Sprint("epoch ", epoch)
}

func newMem(t *testing.T) *tierstest.Mem {
	t.Helper()
	mem := tierstest.NewMem(0)
	for _, d := range []string{"/a", "/b"} {
		if err := mem.MkdirAll(d); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// TestCommitOfManyTransactions cuts the power after every call of commits that take several
// transactions and replace what the ones before wrote: each comes back whole or not at all.
func TestCommitOfManyTransactions(t *testing.T) {
	mem := newMem(t)
	rng := rand.New(rand.NewPCG(1, 1))
	acked, making := uint64(0), uint64(0)
	inject := &tierstest.Inject{FS: mem}
	crashes := 0
	x, err := index.Create(memOptions(inject), index.Meta{PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	inject.After = func(op tierstest.Op) {
		if !op.Kind.Mutates() || t.Failed() {
			return
		}
		for _, keep := range []float64{0, 0.5, 0.98, 1} {
			crashes++
			y, st, table, err := load(memOptions(mem.Crash(keep, rng)))
			if err != nil || st.Damaged != nil {
				t.Errorf("after %v %s at %d, keeping %v: %v, %v", op.Kind, op.Name, op.Off, keep, err, st.Damaged)
				return
			}
			if st.Epoch != acked && st.Epoch != making || string(st.Note) != note(st.Epoch) {
				t.Errorf("epoch %d with note %q, want %d or %d", st.Epoch, st.Note, acked, making)
			}
			want := map[uint64]index.Entry{}
			for epoch := uint64(1); epoch <= st.Epoch; epoch++ {
				for e := range span(epoch, epoch+20, epoch) {
					want[e.Page] = e
				}
			}
			if fmt.Sprint(table) != fmt.Sprint(want) {
				t.Errorf("epoch %d has %d entries, want %d", st.Epoch, len(table), len(want))
			}
			if err := y.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	for epoch := uint64(1); epoch <= 5; epoch++ {
		making = epoch
		c := index.Commit{Epoch: epoch, Note: []byte(note(epoch)), Changes: func(yield func(index.Change) bool) {
			for p := epoch; p < epoch+20; p++ {
				c := index.Change{Page: p, New: entry(p, epoch), HasNew: true}
				if epoch > 1 && p < epoch+19 {
					c.Old, c.HadOld = entry(p, epoch-1), true
				}
				if !yield(c) {
					return
				}
			}
		}}
		if err := x.Commit(c); err != nil {
			t.Fatal(err)
		}
		acked = epoch
	}
	t.Logf("%d crashes", crashes)
	if err := x.Verify(); err != nil {
		t.Error(err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// TestSuperblockDamage damages one copy of the superblock and then both.
func TestSuperblockDamage(t *testing.T) {
	mem := newMem(t)
	x, err := index.Create(memOptions(mem), index.Meta{PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	for epoch := uint64(1); epoch <= 5; epoch++ {
		if err := x.Commit(index.Commit{Epoch: epoch, Changes: changes(0, 10, epoch, epoch-1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	const third = (4096*4 + 70) * 8 // a bit in the third commit's seal
	if err := mem.FlipBit("/a/0000000000000001.supera", third); err != nil {
		t.Fatal(err)
	}
	both := mem.Crash(1, rand.New(rand.NewPCG(1, 1)))
	x, st, table, err := load(memOptions(mem))
	if err != nil || st.Epoch != 5 || !st.Healed || len(table) != 10 || table[3] != entry(3, 5) {
		t.Fatalf("one copy damaged: %+v, %d entries, %v", st, len(table), err)
	}
	if err := errors.Join(x.Verify(), x.Close()); err != nil {
		t.Error(err)
	}
	if err := both.FlipBit("/b/0000000000000001.superb", third+5); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := load(memOptions(both)); !errors.Is(err, tiers.ErrCorrupt) {
		t.Errorf("both copies damaged: %v, want ErrCorrupt", err)
	}
}

// TestBadgerSplitsCommits commits more than BadgerDB takes in a transaction, and refuses a table
// that lost some of it.
func TestBadgerSplitsCommits(t *testing.T) {
	const pages = 120_000
	dir := t.TempDir()
	x, err := index.Create(diskOptions(dir), index.Meta{PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	for epoch := uint64(1); epoch <= 2; epoch++ {
		if err := x.Commit(index.Commit{
			Epoch: epoch, Note: []byte(note(epoch)),
			Changes: changes(0, pages, epoch, epoch-1),
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(x.Verify(), x.Close()); err != nil {
		t.Fatal(err)
	}
	x, st, table, err := load(diskOptions(dir))
	if err != nil || st.Damaged != nil || st.Epoch != 2 || len(table) != pages || table[77] != entry(77, 2) {
		t.Fatalf("%+v, %d entries, %v", st, len(table), err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range tables(t, dir) {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	x, st, _, err = load(diskOptions(dir))
	if err != nil || !errors.Is(st.Damaged, fs.ErrNotExist) {
		t.Fatalf("table deleted: %v, %v", err, st.Damaged)
	}
	if err := x.Commit(index.Commit{Epoch: 3, Changes: changes(0, 1, 3, 2)}); !errors.Is(err, index.ErrBroken) {
		t.Errorf("commit without a table: %v, want ErrBroken", err)
	}
	if err := x.Rebuild(span(0, pages-1, 2)); !errors.Is(err, tiers.ErrCorrupt) {
		t.Errorf("rebuild with a page short: %v, want ErrCorrupt", err)
	}
	if err := x.Rebuild(span(0, pages, 2)); err != nil {
		t.Errorf("rebuild: %v", err)
	}
	if err := x.Commit(index.Commit{Epoch: 3, Changes: changes(0, 1, 3, 2)}); err != nil {
		t.Error(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

func tables(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+index.TableExt))
	if err != nil || len(names) == 0 {
		t.Fatalf("tables %v, %v", names, err)
	}
	return names
}

// TestOpenMany compares every entry of an index of EXOSWARM_INDEX_PAGES pages, 100,000 where
// nothing else is said, after it was opened again. The test of the same name in package pagestore
// measures it with the table of a store.
func TestOpenMany(t *testing.T) {
	pages := uint64(100_000)
	if s := os.Getenv("EXOSWARM_INDEX_PAGES"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		pages = n
	}
	dir := t.TempDir()
	x, err := index.Create(diskOptions(dir), index.Meta{PageSize: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := x.Renew(index.Commit{Epoch: 1, Changes: func(func(index.Change) bool) {}},
		span(0, pages, 1)); err != nil {
		t.Fatal(err)
	}
	wrote := time.Since(start)
	size := x.Bytes()
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	x, st, table, err := load(diskOptions(dir))
	if err != nil || st.Damaged != nil || uint64(len(table)) != pages {
		t.Fatalf("%d pages, %v, %v", len(table), err, st.Damaged)
	}
	t.Logf("%d pages: written in %v, %d MiB, opened in %v", pages, wrote.Round(time.Millisecond), size>>20,
		time.Since(start).Round(time.Millisecond))
	for page, e := range table {
		if e != entry(page, 1) {
			t.Fatalf("page %d: %+v", page, e)
		}
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, n := range []uint64{1, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, err := index.Create(diskOptions(b.TempDir()), index.Meta{PageSize: 2 << 20})
			if err != nil {
				b.Fatal(err)
			}
			epoch := uint64(0)
			for b.Loop() {
				epoch++
				if err := x.Commit(index.Commit{Epoch: epoch, Changes: changes(0, n, epoch, epoch-1)}); err != nil {
					b.Fatal(err)
				}
			}
			if err := x.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
