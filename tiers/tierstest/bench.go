package tierstest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Disk returns a folder for the benchmark of a disk, and a raw file of size bytes in it for direct
// I/O. The folder is name in EXOSWARM_BENCH_DIR, or temporary; it is removed with the benchmark.
func Disk(b *testing.B, name string, size int64) (dir string, raw vfs.File) {
	b.Helper()
	if dir = os.Getenv("EXOSWARM_BENCH_DIR"); dir == "" {
		dir = b.TempDir()
	}
	dir = filepath.Join(dir, name)
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	fs := vfs.OS{}
	if err := fs.MkdirAll(dir); err != nil {
		b.Fatal(err)
	}
	raw, err := fs.Open(filepath.Join(dir, "raw"), vfs.Create|vfs.Direct)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = raw.Close() })
	if err := raw.Allocate(size); err != nil {
		b.Fatal(err)
	}
	return dir, raw
}
