//go:build !linux

package vfs

import (
	"math"
	"os"
	"syscall"
)

// directFlag is 0: I/O past the page cache is a Linux matter here.
const directFlag = 0

// refusesDirect is never asked without directFlag.
func refusesDirect(error) bool { return false }

// readParts and writeParts transfer nothing: the caller transfers part by part.
func readParts(syscall.RawConn, [][]byte, int64) (int, error) { return 0, nil }

func writeParts(syscall.RawConn, [][]byte, int64) (int, error) { return 0, nil }

// dataSync is a full fsync.
func dataSync(f *os.File) error { return f.Sync() }

// allocate makes the file longer without reserving its blocks.
func allocate(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil || info.Size() >= size {
		return err
	}
	return f.Truncate(size)
}

// freeBytes knows no bound.
func freeBytes(string) (int64, error) { return math.MaxInt64, nil }
