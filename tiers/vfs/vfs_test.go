package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fill(blocks int, b byte) []byte {
	p := vfs.Buffer(blocks * vfs.BlockSize)
	for i := range p {
		p[i] = b
	}
	return p
}

// TestSame runs one script on the real file system and on the one in memory.
func TestSame(t *testing.T) {
	for name, f := range map[string]vfs.FS{
		"os": vfs.OS{}, "mem": tierstest.NewMem(0),
		"inject": &tierstest.Inject{FS: tierstest.NewMem(0)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			if err := f.MkdirAll(dir); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "file")
			if _, err := f.Open(path, 0); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("open what is not there: %v, want ErrNotExist", err)
			}
			file, err := f.Open(path, vfs.Create|vfs.Direct)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Open(path, vfs.Create); !errors.Is(err, fs.ErrExist) {
				t.Errorf("create what is there: %v, want ErrExist", err)
			}
			if err := file.Allocate(3 * vfs.BlockSize); err != nil {
				t.Fatal(err)
			}
			if err := file.Allocate(vfs.BlockSize); err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteAt(fill(1, 7), vfs.BlockSize); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(file.Sync(), f.SyncDir(dir)); err != nil {
				t.Fatal(err)
			}
			got := vfs.Buffer(3 * vfs.BlockSize)
			if _, err := file.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			if want := slices.Concat(fill(1, 0), fill(1, 7), fill(1, 0)); !bytes.Equal(got, want) {
				t.Error("the file does not hold what was written")
			}
			parts := [][]byte{fill(1, 1), nil, fill(2, 2)}
			if n, err := file.WritePartsAt(parts, 0); err != nil || n != 3*vfs.BlockSize {
				t.Errorf("write of parts: %d bytes, %v", n, err)
			}
			into := [][]byte{vfs.Buffer(2 * vfs.BlockSize), vfs.Buffer(vfs.BlockSize)}
			if n, err := file.ReadPartsAt(into, 0); err != nil || n != 3*vfs.BlockSize {
				t.Errorf("read of parts: %d bytes, %v", n, err)
			}
			if !bytes.Equal(slices.Concat(into...), slices.Concat(parts...)) {
				t.Error("parts are not read as they were written")
			}
			if n, err := file.ReadPartsAt(into, vfs.BlockSize); !errors.Is(err, io.EOF) || n != 2*vfs.BlockSize {
				t.Errorf("read of parts beyond the end: %d bytes, %v; want 2 blocks and EOF", n, err)
			}
			if size, err := file.Size(); err != nil || size != 3*vfs.BlockSize {
				t.Errorf("size %d, %v", size, err)
			}
			if free, err := f.Free(dir); err != nil || free <= 0 {
				t.Errorf("%d bytes free, %v", free, err)
			}
			lock, err := f.Lock(filepath.Join(dir, "LOCK"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Lock(filepath.Join(dir, "LOCK")); !errors.Is(err, vfs.ErrLocked) {
				t.Errorf("second lock: %v, want ErrLocked", err)
			}
			if note := fmt.Sprintf("%s: locked by another process (pid %d on ", dir, os.Getpid()); name == "os" {
				if _, err := f.Lock(filepath.Join(dir, "LOCK")); !strings.HasPrefix(err.Error(), note) {
					t.Errorf("second lock: %v, want %s", err, note)
				}
			}
			if err := errors.Join(lock.Close(), file.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := file.ReadPartsAt(into, 0); name == "os" && !errors.Is(err, fs.ErrClosed) {
				t.Errorf("read of a closed file: %v, want ErrClosed", err)
			}
			names, err := f.List(dir)
			if err != nil || !slices.Contains(names, "file") {
				t.Errorf("list: %v, %v", names, err)
			}
			if err := f.Remove(path); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Open(path, 0); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("open what was removed: %v, want ErrNotExist", err)
			}
		})
	}
}

// TestCrash holds Mem to what it says of a power loss.
func TestCrash(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	m := tierstest.NewMem(0)
	if err := m.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	f, err := m.Open("/d/f", vfs.Create)
	if err != nil {
		t.Fatal(err)
	}
	write := func(b byte) {
		t.Helper()
		if _, err := f.WriteAt(fill(8, b), 0); err != nil {
			t.Fatal(err)
		}
	}
	read := func(c *tierstest.Mem) []byte {
		t.Helper()
		g, err := c.Open("/d/f", 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		size, _ := g.Size()
		b := make([]byte, size)
		if size > 0 {
			if _, err := g.ReadAt(b, 0); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	write(1)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := read(m.Crash(0, rng)); got != nil {
		t.Error("a name that was not synced survived")
	}
	if err := m.SyncDir("/d"); err != nil {
		t.Fatal(err)
	}
	write(2)
	if got := read(m.Crash(0, rng)); !bytes.Equal(got, fill(8, 1)) {
		t.Error("keeping nothing does not leave the synced bytes")
	}
	if got := read(m.Crash(1, rng)); !bytes.Equal(got, fill(8, 2)) {
		t.Error("keeping everything does not leave the written bytes")
	}
	torn := false
	for range 50 {
		got := read(m.Crash(0.5, rng))
		ones := bytes.Count(got, []byte{1})
		if ones%vfs.BlockSize != 0 || ones+bytes.Count(got, []byte{2}) != len(got) {
			t.Fatal("a block is torn, or holds what was never written")
		}
		torn = torn || (ones > 0 && ones < len(got))
	}
	if !torn {
		t.Error("no crash tore the write")
	}
	m.DropUnsynced("/d/f")
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := read(m.Crash(1, rng)); !bytes.Equal(got, fill(8, 1)) {
		t.Error("a sync after a failed one made its writes durable")
	}
}

// TestLimits holds Mem to its capacity and to the alignment of direct files, and Inject to half a
// failed write.
func TestLimits(t *testing.T) {
	m := tierstest.NewMem(2 * vfs.BlockSize)
	if err := m.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	fail := false
	inject := &tierstest.Inject{FS: m, Before: func(op tierstest.Op) error {
		if fail && op.Kind == tierstest.OpWrite {
			return syscall.EIO
		}
		return nil
	}}
	f, err := inject.Open("/d/f", vfs.Create|vfs.Direct)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(fill(3, 1), 0); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("over capacity: %v, want ENOSPC", err)
	}
	if _, err := f.WriteAt(fill(1, 1)[:100], 0); !errors.Is(err, vfs.ErrAlignment) {
		t.Errorf("short block: %v, want ErrAlignment", err)
	}
	if _, err := f.WriteAt(fill(2, 1), 0); err != nil {
		t.Fatal(err)
	}
	fail = true
	if _, err := f.WriteAt(fill(2, 2), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("injected: %v, want EIO", err)
	}
	got := vfs.Buffer(2 * vfs.BlockSize)
	if _, err := f.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if got[0] != 2 || got[vfs.BlockSize] != 1 {
		t.Errorf("a failed write left blocks of %d and %d, want 2 and 1", got[0], got[vfs.BlockSize])
	}
	if _, err := f.WritePartsAt([][]byte{fill(1, 3), fill(1, 4)}, 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("injected: %v, want EIO", err)
	}
	if _, err := f.WritePartsAt([][]byte{fill(1, 3), fill(1, 4)[:100]}, 0); !errors.Is(err, vfs.ErrAlignment) {
		t.Errorf("a part that is not aligned: %v, want ErrAlignment", err)
	}
	if _, err := f.ReadPartsAt([][]byte{got}, 0); err != nil {
		t.Fatal(err)
	}
	if got[0] != 3 || got[vfs.BlockSize] != 1 {
		t.Errorf("a failed write of parts left blocks of %d and %d, want 3 and 1", got[0], got[vfs.BlockSize])
	}
}

// TestManyParts transfers more parts at once than one request takes, with short ones at the end.
func TestManyParts(t *testing.T) {
	file, err := vfs.OS{}.Open(filepath.Join(t.TempDir(), "file"), vfs.Create|vfs.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var parts, into [][]byte
	for i := range 150 {
		parts = append(parts, fill(1+i%3, byte(i)))
		into = append(into, vfs.Buffer((3-i%3)*vfs.BlockSize))
	}
	all := slices.Concat(parts...)
	if n, err := file.WritePartsAt(parts, vfs.BlockSize); err != nil || n != len(all) {
		t.Errorf("write: %d of %d bytes, %v", n, len(all), err)
	}
	if n, err := file.ReadPartsAt(into, vfs.BlockSize); err != nil || n != len(all) {
		t.Errorf("read: %d of %d bytes, %v", n, len(all), err)
	}
	if !bytes.Equal(slices.Concat(into...), all) {
		t.Error("parts are not read as they were written")
	}
}

// TestAligned: memory is aligned when its address and its length are multiples of a block.
func TestAligned(t *testing.T) {
	b := vfs.Buffer(3 * vfs.BlockSize)
	for i, p := range [][]byte{b, b[vfs.BlockSize:], b[1:], b[:100], b[512 : 512+vfs.BlockSize]} {
		if got, want := vfs.Aligned(p), i < 2; got != want {
			t.Errorf("row %d, %d bytes: aligned is %v, want %v", i, len(p), got, want)
		}
	}
}
