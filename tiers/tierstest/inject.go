package tierstest

import (
	"io"

	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// OpKind names a call of FS or File.
type OpKind uint8

// The kinds of call that Inject reports.
const (
	OpOpen OpKind = iota + 1
	OpCreate
	OpRemove
	OpList
	OpMkdir
	OpSyncDir
	OpLock
	OpFree
	OpRead
	OpWrite
	OpSync
	OpAllocate
)

// String returns the name that test logs use.
func (k OpKind) String() string {
	names := [...]string{
		OpOpen: "open", OpCreate: "create", OpRemove: "remove", OpList: "list", OpMkdir: "mkdir", OpSyncDir: "syncdir",
		OpLock: "lock", OpFree: "free", OpRead: "read", OpWrite: "write", OpSync: "sync", OpAllocate: "allocate",
	}
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return "unknown"
}

// Mutates reports whether the call changes what a crash would leave behind.
func (k OpKind) Mutates() bool {
	switch k {
	case OpCreate, OpRemove, OpMkdir, OpSyncDir, OpWrite, OpSync, OpAllocate:
		return true
	}
	return false
}

// Op is one call. Off and Len are 0 where the call has none.
type Op struct {
	Kind OpKind
	Name string
	Off  int64
	Len  int
}

// Inject is a file system that runs hooks around every call of another one. Hooks run on the
// caller's goroutine; they may block (a stall), and several may run at once.
type Inject struct {
	FS vfs.FS
	// Before, when not nil, may fail the call by returning an error: it then does not reach FS,
	// except that the first half of a failed write does, as a device that fails half way would
	// leave it.
	Before func(Op) error
	// After, when not nil, runs when a call has succeeded and before its caller learns of it.
	After func(Op)
}

var _ vfs.FS = (*Inject)(nil)

func (i *Inject) around(op Op, call func() error) error {
	if i.Before != nil {
		if err := i.Before(op); err != nil {
			return err
		}
	}
	if err := call(); err != nil {
		return err
	}
	if i.After != nil {
		i.After(op)
	}
	return nil
}

// Open implements vfs.FS.
func (i *Inject) Open(name string, mode vfs.Mode) (f vfs.File, err error) {
	op := Op{Kind: OpOpen, Name: name}
	if mode&vfs.Create != 0 {
		op.Kind = OpCreate
	}
	err = i.around(op, func() error {
		f, err = i.FS.Open(name, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &injectFile{fs: i, name: name, f: f, direct: mode&vfs.Direct != 0}, nil
}

// Remove implements vfs.FS.
func (i *Inject) Remove(name string) error {
	return i.around(Op{Kind: OpRemove, Name: name}, func() error { return i.FS.Remove(name) })
}

// List implements vfs.FS.
func (i *Inject) List(dir string) (names []string, err error) {
	err = i.around(Op{Kind: OpList, Name: dir}, func() error {
		names, err = i.FS.List(dir)
		return err
	})
	return names, err
}

// MkdirAll implements vfs.FS.
func (i *Inject) MkdirAll(dir string) error {
	return i.around(Op{Kind: OpMkdir, Name: dir}, func() error { return i.FS.MkdirAll(dir) })
}

// SyncDir implements vfs.FS.
func (i *Inject) SyncDir(dir string) error {
	return i.around(Op{Kind: OpSyncDir, Name: dir}, func() error { return i.FS.SyncDir(dir) })
}

// Lock implements vfs.FS.
func (i *Inject) Lock(name string) (c io.Closer, err error) {
	err = i.around(Op{Kind: OpLock, Name: name}, func() error {
		c, err = i.FS.Lock(name)
		return err
	})
	return c, err
}

// Free implements vfs.FS.
func (i *Inject) Free(dir string) (n int64, err error) {
	err = i.around(Op{Kind: OpFree, Name: dir}, func() error {
		n, err = i.FS.Free(dir)
		return err
	})
	return n, err
}

type injectFile struct {
	fs     *Inject
	name   string
	f      vfs.File
	direct bool
}

func (f *injectFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.fs.around(Op{Kind: OpRead, Name: f.name, Off: off, Len: len(p)}, func() error {
		n, err = f.f.ReadAt(p, off)
		return err
	})
	return n, err
}

func (f *injectFile) WriteAt(p []byte, off int64) (n int, err error) {
	return f.WritePartsAt([][]byte{p}, off)
}

// ReadPartsAt implements vfs.File. It is one call to the hooks.
func (f *injectFile) ReadPartsAt(parts [][]byte, off int64) (n int, err error) {
	err = f.fs.around(Op{Kind: OpRead, Name: f.name, Off: off, Len: length(parts)}, func() error {
		n, err = f.f.ReadPartsAt(parts, off)
		return err
	})
	return n, err
}

// WritePartsAt implements vfs.File. It is one call to the hooks.
func (f *injectFile) WritePartsAt(parts [][]byte, off int64) (n int, err error) {
	if f.direct {
		at := off
		for _, p := range parts {
			if err := checkAligned(p, at); err != nil {
				return 0, err
			}
			at += int64(len(p))
		}
	}
	op := Op{Kind: OpWrite, Name: f.name, Off: off, Len: length(parts)}
	if f.fs.Before != nil {
		if err := f.fs.Before(op); err != nil {
			left := op.Len / 2 / vfs.BlockSize * vfs.BlockSize
			n, writeErr := vfs.EachPart(parts, off, 0, func(p []byte, at int64) (int, error) {
				p = p[:min(len(p), left)]
				left -= len(p)
				return f.f.WriteAt(p, at)
			})
			if writeErr != nil {
				return n, writeErr
			}
			return n, err
		}
	}
	n, err = f.f.WritePartsAt(parts, off)
	if err == nil && f.fs.After != nil {
		f.fs.After(op)
	}
	return n, err
}

func length(parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	return n
}

func (f *injectFile) Sync() error {
	return f.fs.around(Op{Kind: OpSync, Name: f.name}, f.f.Sync)
}

func (f *injectFile) Allocate(size int64) error {
	return f.fs.around(Op{Kind: OpAllocate, Name: f.name, Len: int(size)}, func() error { return f.f.Allocate(size) })
}

func (f *injectFile) Size() (int64, error) { return f.f.Size() }

func (f *injectFile) Direct() bool { return f.f.Direct() }

func (f *injectFile) Close() error { return f.f.Close() }
