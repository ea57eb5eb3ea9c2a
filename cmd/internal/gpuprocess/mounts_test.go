package gpuprocess

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// TestCheckMounts: a tier whose disk was mounted at an earlier start is refused on the root disk. A
// tier that was always there, one that is replaced by another disk, and one that cannot be read are
// not, and a start without a data folder compares nothing.
func TestCheckMounts(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, mountsFile)
	tiers := []*storeTier{{name: "nvme", dir: "/mnt/nvme"}, {name: "hdd", dir: "/var/hdd"}}
	start := func(dataDir string, nvme, hdd uint64) error {
		return checkMounts(dataDir, tiers, func(path string) (uint64, error) {
			dev := map[string]uint64{"/": 1, "/mnt/nvme": nvme, "/var/hdd": hdd}[path]
			if dev == 0 {
				return 0, syscall.EIO
			}
			return dev, nil
		})
	}
	for _, x := range []struct {
		what      string
		nvme, hdd uint64
		refused   bool
	}{
		{"nvme is mounted", 7, 1, false},
		{"nvme cannot be read", 0, 1, false},
		{"nvme is not mounted", 1, 1, true},
		{"still not", 1, 1, true},
		{"nvme is another disk", 8, 1, false},
		{"hdd is mounted too", 8, 9, false},
		{"hdd is not", 8, 1, true},
	} {
		err := start(dir, x.nvme, x.hdd)
		if (err != nil) != x.refused || x.refused && (!strings.Contains(err.Error(), "its disk is not mounted") ||
			!strings.Contains(err.Error(), file)) {
			t.Errorf("%s: %v, want it refused: %v", x.what, err, x.refused)
		}
		if err := start("", x.nvme, x.hdd); err != nil {
			t.Errorf("%s, without a data folder: %v", x.what, err)
		}
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatalf("os.WriteFile: %v", err)
	}
	if err := start(dir, 8, 9); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("with a damaged file: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatalf("os.Remove: %v", err)
	}
	if err := start(dir, 1, 1); err != nil {
		t.Errorf("after the file was removed: %v", err)
	}
}

// TestUnmountedTier: an agent whose tier was on a mounted disk does not start without the disk, and
// leaves nothing in the folder.
func TestUnmountedTier(t *testing.T) {
	data := t.TempDir()
	disk, err := os.MkdirTemp("/var/tmp", "exoswarm-unmounted-") //nolint:usetesting // t.TempDir may be in memory
	if err != nil {
		t.Skipf("no folder: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(disk) })
	if root, err := deviceOf("/"); err != nil || root != mustDevice(t, disk) {
		t.Skipf("/var/tmp is on a disk of its own: %v", err)
	}
	err = syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m")
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skip("only root may mount a disk")
	}
	if err != nil {
		t.Fatalf("syscall.Mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) }) // a second time is an error
	tiers := []*storeTier{{name: "nvme", dir: disk}}
	owned := folders{}
	if err := openTiers(tiers, owned, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("openTiers: %v", err)
	}
	if err := checkMounts(data, tiers, deviceOf); err != nil {
		t.Fatalf("checkMounts: %v", err)
	}
	if err := owned.Close(); err != nil {
		t.Fatalf("owned.Close: %v", err)
	}
	if err := syscall.Unmount(disk, 0); err != nil {
		t.Fatalf("syscall.Unmount: %v", err)
	}
	cmd := Command()
	cmd.SetArgs([]string{
		"--nats", "nats://127.0.0.1:1", "--data-dir", data, "--tier", "nvme=" + disk, "--device", "host",
	})
	var stderr bytes.Buffer
	if code := command.Run(t.Context(), cmd, &stderr); code != command.ExitUsage ||
		!strings.Contains(stderr.String(), "its disk is not mounted") {
		t.Errorf("code %d: %s", code, stderr.String())
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) != 0 {
		t.Errorf("the folder has %v, %v", left, err)
	}
}

// mustDevice returns the file system of a folder.
func mustDevice(t *testing.T, path string) uint64 {
	t.Helper()
	dev, err := deviceOf(path)
	if err != nil {
		t.Fatalf("deviceOf: %v", err)
	}
	return dev
}

// TestDiskFill: a tier is as full as its capacity or its disk, whichever is fuller.
func TestDiskFill(t *testing.T) {
	for _, x := range []struct {
		used, free, capacity int64
		want                 float64
	}{
		{0, 100, 50, 0}, {25, 75, 50, 0.5}, {25, 25, 1000, 0.5}, {25, 0, 1000, 1}, {60, 100, 50, 1}, {0, 0, 50, 1},
	} {
		if got := diskFill(x.used, x.free, x.capacity); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
}
