package pagestore_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// smallDisk mounts an empty disk of a size as mount(8) takes it. It skips the test where that is
// not allowed.
func smallDisk(t *testing.T, kind, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a disk")
	}
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	args := [][]string{{"mount", "-t", "tmpfs", "-o", "size=" + size, "tmpfs", dir}}
	if kind == "ext4" {
		args = [][]string{
			{"truncate", "-s", size, image}, {"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir},
		}
	}
	for _, a := range args {
		if out, err := exec.CommandContext(t.Context(), a[0], a[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no %s here: %q: %v: %s", kind, a, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// roomy is a file system that says that it has room, so that only the writes meet a full disk.
type roomy struct{ vfs.OS }

func (roomy) Free(string) (int64, error) { return 1 << 40, nil }

// TestFullDisk: another program fills the disk of a store and frees it again, at any moment of its
// writes. The store fails with an error and stays usable, no write ends the process, and what was
// committed is there.
func TestFullDisk(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) { fullDisk(t, smallDisk(t, kind, "40m"), vfs.OS{}) })
		t.Run(kind+" that says it has room", func(t *testing.T) {
			if fullDisk(t, smallDisk(t, kind, "40m"), roomy{}) == 0 {
				t.Error("no write to a mapped file met a full disk: the test shows nothing")
			}
		})
	}
}

// fullDisk returns how many errors came from mapped files.
func fullDisk(t *testing.T, dir string, fs vfs.FS) (mapped int) {
	ctx, cancel := context.WithCancel(t.Context())
	var round atomic.Int64
	waitRounds := func(n int64) {
		end := round.Load() + n
		testkit.Until(t, "rounds", func() bool { return round.Load() >= end || ctx.Err() != nil })
	}
	var filling sync.WaitGroup
	filling.Go(func() {
		for rest := int64(0); ctx.Err() == nil; rest = 4 - rest { // Every other time the disk stays free for a while.
			waitRounds(rest)
			f, err := os.Create(filepath.Join(dir, "filler"))
			for part := make([]byte, 1<<16); err == nil && ctx.Err() == nil; {
				_, err = f.Write(part)
			}
			if f != nil {
				_ = f.Close()
			}
			if !errors.Is(err, syscall.ENOSPC) && err != nil {
				t.Errorf("fill the disk: %v", err)
				return
			}
			waitRounds(3)
			if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
				t.Error(err)
			}
		}
	})
	defer filling.Wait()
	defer cancel()
	opts := pagestore.Options{FS: fs, PageSize: 4096, New: true, Tiers: []pagestore.Tier{{
		Name: "disk", Dir: filepath.Join(dir, "store"), Capacity: 16 << 20, SegmentBytes: 1 << 20, DiskReserve: -1,
	}}}
	rounds, full, commits, committed := testkit.Of(2000, 200), 0, 0, uint64(0)
	var content [50]byte // the first byte of each of the 20 pages of a row, as committed
	var s *pagestore.Store
	defer func() {
		if s != nil {
			_ = s.Close()
		}
	}()
	one := func(n int) (err error) {
		if s == nil {
			if s, err = pagestore.Open(opts); err != nil {
				return err
			}
			if s.Epoch() < committed {
				t.Fatalf("epoch %d after an opening, want %d", s.Epoch(), committed)
			}
			page := make([]byte, 4096)
			for p := uint64(0); p < 1000 && s.Epoch() == committed; p++ {
				if err := s.Get(t.Context(), p, page); content[p/20] != 0 && (err != nil || page[0] != content[p/20]) {
					t.Fatalf("page %d has %d, want %d: %v", p, page[0], content[p/20], err)
				}
			}
		}
		page := make([]byte, 4096)
		row := n % len(content)
		for p := uint64(row * 20); p < uint64(row*20+20); p++ {
			page[0], page[1] = byte(n%255+1), byte(p)
			if err := s.Put(t.Context(), 0, p, page, tiers.Kind{}); err != nil {
				return err
			}
		}
		epoch, err := s.Commit(t.Context(), []byte{byte(n)})
		if err == nil {
			committed, content[row] = epoch, page[0]
			commits++
		}
		return err
	}
	for n := 1; n <= rounds; n++ {
		round.Store(int64(n))
		if n%20 == 0 && s == nil { // a new store has files to make
			if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
				t.Fatal(err)
			}
			committed, content = 0, [50]byte{}
		}
		err := one(n)
		if err != nil {
			full++
			if strings.Contains(err.Error(), "of mapped files") {
				mapped++
			}
			if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, tiers.ErrFull) &&
				!errors.Is(err, tiers.ErrUnavailable) {
				t.Fatalf("round %d: %v, want that the disk is full", n, err)
			}
		}
		if n%10 == 9 || err != nil {
			if s != nil {
				_ = s.Close()
			}
			s = nil
		}
	}
	t.Logf("%d rounds, %d of them met a full disk, %d in mapped files, %d committed", rounds, full, mapped, commits)
	if full == 0 {
		t.Error("no round met a full disk: the test shows nothing")
	}
	cancel()
	filling.Wait()
	// ext4 frees blocks later.
	testkit.Until(t, "a commit on a free disk", func() bool { return one(rounds+1) == nil })
	return mapped
}
