package pagestore_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/testlong"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

// smallDisk mounts an empty disk of so many MiB. It skips the test where that is not allowed.
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

// TestFullDisk: somebody else fills the disk of a store and frees it again, at any moment of its
// writes. The store fails with an error and goes on, no write ends the process, and what was
// committed is there.
func TestFullDisk(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) { fullDisk(t, smallDisk(t, kind, "40m")) })
	}
}

func fullDisk(t *testing.T, dir string) {
	ctx, cancel := context.WithCancel(t.Context())
	var round atomic.Int64
	var filling sync.WaitGroup
	filling.Go(func() {
		for ctx.Err() == nil {
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
			for was := round.Load(); round.Load() < was+3 && ctx.Err() == nil; {
				time.Sleep(time.Millisecond)
			}
			if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
				t.Error(err)
			}
		}
	})
	defer filling.Wait()
	defer cancel()
	opts := pagestore.Options{PageSize: 4096, New: true, Tiers: []pagestore.Tier{{
		Name: "disk", Dir: filepath.Join(dir, "store"), Capacity: 16 << 20, SegmentBytes: 1 << 20, DiskReserve: -1,
	}}}
	rounds, full, commits, committed := testlong.Of(2000, 200), 0, 0, uint64(0)
	var s *pagestore.Store
	for n := 1; n <= rounds; n++ {
		round.Store(int64(n))
		if n%20 == 0 && s == nil { // a new store has files to make
			if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
				t.Fatal(err)
			}
			committed = 0
		}
		if s == nil {
			var err error
			if s, err = pagestore.Open(opts); err != nil {
				if full++; !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, tiers.ErrFull) {
					t.Fatalf("open: %v, want that the disk is full", err)
				}
				continue
			}
			if committed > 0 && s.Epoch() < committed {
				t.Fatalf("epoch %d after an opening, want %d", s.Epoch(), committed)
			}
		}
		err := func() error {
			page := make([]byte, 4096)
			for p := uint64(n % 50 * 20); p < uint64(n%50*20+20); p++ {
				page[0], page[1] = byte(n), byte(p)
				if err := s.Put(t.Context(), 0, p, page, tiers.Kind{}); err != nil {
					return err
				}
			}
			epoch, err := s.Commit(t.Context(), []byte{byte(n)})
			if err == nil {
				committed = epoch
				commits++
			}
			return err
		}()
		if err != nil {
			if full++; !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, tiers.ErrFull) &&
				!errors.Is(err, tiers.ErrUnavailable) {
				t.Fatalf("round %d: %v, want that the disk is full", n, err)
			}
		}
		if n%10 == 9 || err != nil {
			_ = s.Close()
			s = nil
		}
	}
	if s != nil {
		_ = s.Close()
	}
	t.Logf("%d rounds, %d of them met a full disk, %d committed", rounds, full, commits)
	if full == 0 || commits == 0 {
		t.Errorf("%d rounds met a full disk and %d commits succeeded: the test shows nothing", full, commits)
	}
}
