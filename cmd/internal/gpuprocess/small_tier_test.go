package gpuprocess

import (
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents"
)

// TestSmallDisk: a tier on a disk of 24 MiB takes checkpoints, and one on a disk that can never
// take any is refused with a sentence that says so.
func TestSmallDisk(t *testing.T) {
	mount := func(size string) string {
		dir := t.TempDir()
		err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size)
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
			t.Skip("only root may mount a disk")
		}
		if err != nil {
			t.Fatalf("syscall.Mount: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		return dir
	}
	owned := folders{}
	t.Cleanup(func() {
		if err := owned.Close(); err != nil {
			t.Errorf("owned.Close: %v", err)
		}
	})
	disks := []*storeTier{{name: "nvme", dir: mount("4m")}}
	if err := openTiers(disks, owned, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "its disk has 4 MiB, and a tier needs 8 MiB") {
		t.Errorf("openTiers on a disk of 4 MiB: %v, want a refusal", err)
	}
	disks[0].dir = mount("24m")
	if err := openTiers(disks, owned, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("openTiers on a disk of 24 MiB: %v, want no error", err)
	}
	r := newRig(t)
	all := observationsOf([2]int{0, cold}, [2]int{0, cold}, [2]int{0, cold})
	answers, pages := r.undisturbed(t, all)
	c := newCheckpoints(disks...)
	r.announceCold(t, "cold", all)
	a := r.start(t, gpuagents.Options{Checkpoints: c})
	r.answered(t, "cold", len(all))
	a.Stop()
	if strings.Contains(r.String(), "checkpoint not stored") {
		t.Errorf("a checkpoint was not stored:\n%s", r.String())
	}
	r.same(t, "cold", c, answers, pages)
}
