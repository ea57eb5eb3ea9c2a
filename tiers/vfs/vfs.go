// Package vfs is the seam between the page store and the operating system: the few calls that a
// store of pages makes on files. A test can fail, delay, or cut each of them by a crash.
//
// OS is the file system of the operating system, with O_DIRECT where the medium has it. Package
// tierstest has a file system in memory that can lose power, and one that injects faults.
package vfs

import (
	"io"
	"unsafe"
)

// BlockSize is the unit of aligned I/O in bytes. Offsets, lengths and buffer addresses of a file
// opened with Direct are multiples of it. 4096 covers every disk sold: 512-byte ones accept it, and
// 4Kn ones accept nothing smaller.
const BlockSize = 4096

// Mode says how Open opens a file. The zero Mode opens an existing file for reading and writing.
type Mode uint8

const (
	// Create makes the file and fails with fs.ErrExist when it is there.
	Create Mode = 1 << iota
	// Direct asks for I/O past the page cache. Where the medium refuses (tmpfs does), the file
	// opens without it and File.Direct says so; the caller keeps to the alignment in both cases.
	Direct
)

// FS is a file system. All methods may be called from several goroutines at once. Errors of the
// operating system are wrapped, so that errors.Is finds fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC
// and syscall.EIO.
type FS interface {
	// Open opens a file for reading and writing.
	Open(name string, mode Mode) (File, error)
	// Remove deletes a file. The deletion is durable after SyncDir.
	Remove(name string) error
	// List returns the names of the files in a directory, in no order.
	List(dir string) ([]string, error)
	// MkdirAll makes a directory and its parents, and makes them durable.
	MkdirAll(dir string) error
	// SyncDir makes the creation and deletion of a directory's files durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on a file, which it makes if need be, and fails with ErrLocked
	// at once when it is held. The lock ends with Close and with the death of the process.
	Lock(name string) (io.Closer, error)
	// Free says how many bytes the medium under a directory can still take.
	Free(dir string) (int64, error)
}

// File is an open file. Reads and writes of disjoint ranges may run at once.
type File interface {
	// ReadAt and WriteAt are as in package io: all of p, or an error.
	io.ReaderAt
	io.WriterAt
	// ReadPartsAt and WritePartsAt are ReadAt and WriteAt of parts that lie one behind the other in
	// the file and anywhere in memory, in one request where the system has that (preadv, pwritev).
	// For Direct each part is aligned by itself. parts is the caller's again when they return.
	ReadPartsAt(parts [][]byte, off int64) (int, error)
	WritePartsAt(parts [][]byte, off int64) (int, error)
	// Sync makes every write that returned before durable, with what is needed to read it back
	// (fdatasync). After an error nothing is known about any write since the last success, and a
	// second Sync that succeeds says nothing about them either: kernels drop the error together
	// with the data.
	Sync() error
	// Allocate reserves space for bytes 0..size and makes the file at least that long; new bytes
	// read as zero.
	Allocate(size int64) error
	// Size is the length of the file in bytes.
	Size() (int64, error)
	// Direct reports whether I/O goes past the page cache.
	Direct() bool
	// Close releases the file without syncing it.
	Close() error
}

// Buffer returns n zeroed bytes whose address is a multiple of BlockSize, for I/O on files opened
// with Direct. It is ordinary garbage-collected memory; callers keep and reuse it.
func Buffer(n int) []byte {
	b := make([]byte, n+BlockSize)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (BlockSize - 1))
	return b[skip : skip+n : skip+n]
}

// Aligned reports whether p is fit for a transfer on files opened with Direct: its address and its
// length are multiples of BlockSize.
func Aligned(p []byte) bool {
	return (len(p)|int(uintptr(unsafe.Pointer(unsafe.SliceData(p)))))%BlockSize == 0
}

// EachPart transfers parts one after the other, from the byte skip of them on, and returns how many
// bytes of all were transferred, those skipped included.
func EachPart(parts [][]byte, off int64, skip int, transfer func([]byte, int64) (int, error)) (int, error) {
	done := skip
	for _, p := range parts {
		if skip >= len(p) {
			skip -= len(p)
			continue
		}
		n, err := transfer(p[skip:], off+int64(done))
		done += n
		if err != nil {
			return done, err
		}
		skip = 0
	}
	return done, nil
}
