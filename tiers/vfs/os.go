package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// OS is the operating system's file system.
type OS struct{}

var _ FS = OS{}

// Open implements FS.
func (OS) Open(name string, mode Mode) (File, error) {
	flag := os.O_RDWR
	if mode&Create != 0 {
		flag |= os.O_CREATE | os.O_EXCL
	}
	if mode&Direct != 0 && directFlag != 0 {
		f, err := os.OpenFile(name, flag|directFlag, 0o600)
		if err == nil {
			return newOSFile(f, true)
		}
		if !refusesDirect(err) {
			return nil, err
		}
		// The kernel may have created the file before it refused the flag.
		flag &^= os.O_EXCL
	}
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return newOSFile(f, false)
}

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// List implements FS.
func (OS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// MkdirAll implements FS.
func (fs OS) MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("make directory %s: it is a file", dir)
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := fs.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return fs.SyncDir(parent)
}

// SyncDir implements FS.
func (OS) SyncDir(dir string) (err error) {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}

// Free implements FS.
func (OS) Free(dir string) (int64, error) { return freeBytes(dir) }

type osFile struct {
	*os.File
	direct bool
	raw    syscall.RawConn // of File, for calls that os does not have
}

func newOSFile(f *os.File, direct bool) (File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{File: f, direct: direct, raw: raw}, nil
}

func (f *osFile) ReadPartsAt(parts [][]byte, off int64) (int, error) {
	n, err := readParts(f.raw, parts, off)
	if err != nil {
		return n, &os.PathError{Op: "preadv", Path: f.Name(), Err: err}
	}
	return EachPart(parts, off, n, f.ReadAt)
}

func (f *osFile) WritePartsAt(parts [][]byte, off int64) (int, error) {
	n, err := writeParts(f.raw, parts, off)
	if err != nil {
		return n, &os.PathError{Op: "pwritev", Path: f.Name(), Err: err}
	}
	return EachPart(parts, off, n, f.WriteAt)
}

func (f *osFile) Sync() error { return dataSync(f.File) }

func (f *osFile) Allocate(size int64) error { return allocate(f.File, size) }

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) Direct() bool { return f.direct }
