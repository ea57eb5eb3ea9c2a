//go:build linux && !race

package vfs_test

import (
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// TestPartsAllocate holds transfers of parts to no allocation. The race detector makes sync.Pool
// forget at random.
func TestPartsAllocate(t *testing.T) {
	file, err := vfs.OS{}.Open(filepath.Join(t.TempDir(), "file"), vfs.Create|vfs.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	parts := [][]byte{fill(1, 1), fill(3, 2)}
	allocs := testing.AllocsPerRun(200, func() {
		_, err1 := file.WritePartsAt(parts, 0)
		_, err2 := file.ReadPartsAt(parts, 0)
		if err1 != nil || err2 != nil {
			t.Error(err1, err2)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations a write and read", allocs)
	}
}
