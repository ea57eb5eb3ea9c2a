package index_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// roomy is a file system that says that it has room, so that only the writes meet a full disk.
type roomy struct{ vfs.OS }

func (roomy) Free(string) (int64, error) { return 1 << 40, nil }

// commitOf is a commit of pages 0..last-1 that follows the epoch before, or none.
func commitOf(epoch, last, before, beforeLast uint64) index.Commit {
	return index.Commit{Epoch: epoch, Note: []byte(note(epoch)), Changes: func(yield func(index.Change) bool) {
		for p := range last {
			c := index.Change{Page: p, New: entry(p, epoch), HasNew: true}
			if p < beforeLast {
				c.Old, c.HadOld = entry(p, before), true
			}
			if !yield(c) {
				return
			}
		}
	}}
}

// TestFullDisk: a table with a page that found no room on the disk fails with tiers.ErrFull, at the
// call that met it or at the next one, and is renewed. What was committed is there.
func TestFullDisk(t *testing.T) {
	const few, many = 10, 5000
	for name, full := range map[string]struct {
		// meet lets the table meet a full disk, and returns the error of the call that notices it.
		meet    func(x *index.Index) error
		renewed bool // the index goes on, else it was closed
	}{
		"commit": {func(x *index.Index) error { return x.Commit(commitOf(2, many, 1, few)) }, true},
		"close":  {func(x *index.Index) error { return x.Close() }, false},
		"crash": {func(x *index.Index) error {
			return errors.Join(x.Commit(commitOf(2, many, 1, few)), x.Close())
		}, false},
		"another table": {func(x *index.Index) error {
			before := index.MapFaults()
			other := x.Commit(commitOf(2, few, 1, few)) // It has its place in the log.
			f, err := os.Create(filepath.Join(t.TempDir(), "f"))
			if err != nil || other != nil {
				return errors.Join(err, other)
			}
			defer f.Close()
			b, err := syscall.Mmap(int(f.Fd()), 0, 1, syscall.PROT_READ, syscall.MAP_SHARED)
			if err != nil {
				return err
			}
			if b[0] != 0 || index.MapFaults() != before+1 {
				t.Errorf("%d faults, want 1", index.MapFaults()-before)
			}
			return errors.Join(syscall.Munmap(b), x.Commit(commitOf(3, few, 2, few)))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); errors.Is(err, syscall.EPERM) {
				t.Skip("only root may mount a disk")
			} else if err != nil {
				t.Fatalf("syscall.Mount: %v", err)
			}
			t.Cleanup(func() {
				if err := syscall.Unmount(dir, 0); err != nil {
					t.Errorf("syscall.Unmount: %v", err)
				}
			})
			opts := diskOptions(dir)
			opts.FS = roomy{}
			x, err := index.Create(opts, index.Meta{PageSize: 4096})
			if err != nil {
				t.Fatalf("index.Create: %v", err)
			}
			defer func() { _ = x.Close() }()
			if err := x.Commit(commitOf(1, few, 0, 0)); err != nil {
				t.Fatalf("x.Commit: %v", err)
			}
			filler := filepath.Join(dir, "filler")
			if err := os.WriteFile(filler, make([]byte, 64<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("os.WriteFile = %v, want %v", err, syscall.ENOSPC)
			}
			if err := full.meet(x); !errors.Is(err, tiers.ErrFull) {
				t.Errorf("on a full disk: %v, want %v", err, tiers.ErrFull)
			}
			if err := os.Remove(filler); err != nil {
				t.Fatalf("os.Remove: %v", err)
			}
			sealed := uint64(1)
			if full.renewed {
				if !x.Broken() {
					t.Error("the index takes commits, want that it must be renewed")
				}
				sealed = 4
				if err := x.Renew(commitOf(sealed, few, 1, few), span(0, few, sealed)); err != nil {
					t.Fatalf("x.Renew: %v", err)
				}
				if err := x.Close(); err != nil {
					t.Fatalf("x.Close: %v", err)
				}
			}
			y, st, table, err := load(opts)
			if err != nil {
				t.Fatalf("index.Open: %v", err)
			}
			defer func() { _ = y.Close() }()
			if st.Damaged != nil && full.renewed {
				t.Errorf("a table that was renewed: %v", st.Damaged)
			}
			if st.Damaged != nil {
				if err := y.Rebuild(span(0, few, sealed)); err != nil {
					t.Errorf("y.Rebuild: %v", err)
				}
			} else if want := slices.Collect(span(0, few, sealed)); len(table) != few || table[0] != want[0] {
				t.Errorf("%d entries, the first %+v, want %+v", len(table), table[0], want)
			}
			if st.Epoch != sealed {
				t.Errorf("epoch %d, want %d", st.Epoch, sealed)
			}
			if err := y.Commit(commitOf(5, few, sealed, few)); err != nil {
				t.Errorf("y.Commit: %v", err)
			}
		})
	}
}
