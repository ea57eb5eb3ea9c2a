package gpuprocess

import (
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host"
)

// TestDivide checks that what a process hands out stays below its memory, whatever it is.
func TestDivide(t *testing.T) {
	if _, err := divide(100 << 20); err == nil {
		t.Error("100 MiB are enough")
	}
	for _, total := range []int64{300 << 20, 1 << 30, 24 << 30, 2 << 40} {
		b, err := divide(total)
		if err != nil {
			t.Fatalf("divide: %v", err)
		}
		d, err := host.Open(host.Options{MemoryLimit: b.device()})
		if err != nil {
			t.Fatalf("host.Open: %v", err)
		}
		for _, c := range []struct {
			device, host int64
			fits         bool
		}{
			{0, -1, true},
			{0, b.forPages(), true},
			{b.forPages(), -1, true},
			{b.forPages() / 2, b.forPages() / 2, true},
			{b.forPages(), 1 << 20, false},
			{0, b.forPages() + 1, false},
		} {
			inHost, err := b.hostPages([]device.Device{d}, c.device, c.host)
			if (err == nil) != c.fits {
				t.Errorf("%d: %d on the device, %d in host memory: %v", total, c.device, c.host, err)
			}
			if err != nil {
				continue
			}
			onDevice, err := b.pages(d, c.device, inHost, 0)
			if err != nil {
				t.Fatalf("b.pages: %v", err)
			}
			if sum := onDevice + inHost + b.rest; sum > b.heap+1 || b.heap >= total {
				t.Errorf("%d: %d for pages on the device, %d in host memory, %d for the rest, of a heap of %d", total,
					onDevice, inHost, b.rest, b.heap)
			}
		}
		if err := d.Close(); err != nil {
			t.Errorf("d.Close: %v", err)
		}
	}
}

// TestDiskRoom checks that a folder that is made with the first shard counts with the file system
// below which it will be, that tiers of one file system count once, and that a tier has no more
// than its capacity.
func TestDiskRoom(t *testing.T) {
	dir := t.TempDir()
	later := folderTier(filepath.Join(dir, "checkpoints", "later"))
	if n := diskRoom(nil); n != 0 {
		t.Errorf("%d bytes without a tier", n)
	}
	one, two := diskRoom([]*storeTier{later}), diskRoom([]*storeTier{later, folderTier(dir)})
	if one <= 1<<20 || two >= 2*one-1<<20 {
		t.Errorf("%d bytes in a folder to come, %d with its parent", one, two)
	}
	if n := diskRoom([]*storeTier{
		{name: "a", dir: dir, capacity: 4096},
		{name: "b", dir: dir, capacity: 8192},
	}); n != 12288 {
		t.Errorf("%d bytes in tiers of 4096 and 8192", n)
	}
}
