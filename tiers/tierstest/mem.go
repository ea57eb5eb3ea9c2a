package tierstest

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Mem is a file system in memory that knows which of its bytes a power loss would spare. Writes
// become durable with File.Sync, and the names of files with SyncDir; Crash clones what would be
// left of everything else.
//
// It refuses unaligned transfers on files opened with Direct, as a disk would.
type Mem struct {
	mu       sync.Mutex
	capacity int64 // bytes that Allocate and WriteAt may use together; 0 means no bound
	used     int64
	dirs     map[string]*memDir
	locks    map[string]bool
}

var _ vfs.FS = (*Mem)(nil)

// memDir is a directory: the names as they are, and as a crash would leave them at the least.
type memDir struct {
	now    map[string]*memNode
	synced map[string]*memNode
	// touched lists the names that were created or removed since the last SyncDir.
	touched map[string]bool
}

type memNode struct {
	now    []byte
	synced []byte
	// pending are the changes since the last Sync, in order.
	pending []memWrite
}

// memWrite is one change: data at off, or, with data nil, a longer file of off bytes.
type memWrite struct {
	off  int64
	data []byte
}

// NewMem returns an empty file system. A capacity above 0 makes writes beyond that many bytes fail
// with ENOSPC.
func NewMem(capacity int64) *Mem {
	return &Mem{capacity: capacity, dirs: map[string]*memDir{}, locks: map[string]bool{}}
}

func (m *Mem) dir(name string) (*memDir, string, error) {
	d := m.dirs[filepath.Dir(name)]
	if d == nil {
		return nil, "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return d, filepath.Base(name), nil
}

// Open implements vfs.FS.
func (m *Mem) Open(name string, mode vfs.Mode) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.dir(name)
	if err != nil {
		return nil, err
	}
	n := d.now[base]
	if mode&vfs.Create != 0 {
		if n != nil {
			return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
		}
		n = &memNode{}
		d.now[base] = n
		d.touched[base] = true
	}
	if n == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{fs: m, node: n, name: name, direct: mode&vfs.Direct != 0}, nil
}

// Remove implements vfs.FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.dir(name)
	if err != nil {
		return err
	}
	n := d.now[base]
	if n == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	m.used -= int64(len(n.now))
	delete(d.now, base)
	d.touched[base] = true
	return nil
}

// List implements vfs.FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.dirs[filepath.Clean(dir)]
	if d == nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: fs.ErrNotExist}
	}
	names := make([]string, 0, len(d.now))
	for name := range d.now {
		names = append(names, name)
	}
	return names, nil
}

// MkdirAll implements vfs.FS. Directories survive a crash at once.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = filepath.Clean(dir)
	if m.dirs[dir] == nil {
		m.dirs[dir] = &memDir{now: map[string]*memNode{}, synced: map[string]*memNode{}, touched: map[string]bool{}}
	}
	return nil
}

// SyncDir implements vfs.FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.dirs[filepath.Clean(dir)]
	if d == nil {
		return &fs.PathError{Op: "syncdir", Path: dir, Err: fs.ErrNotExist}
	}
	for name := range d.touched {
		if n := d.now[name]; n != nil {
			d.synced[name] = n
		} else {
			delete(d.synced, name)
		}
	}
	clear(d.touched)
	return nil
}

// Lock implements vfs.FS. Locks do not pass into clones, as they do not survive the machine.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, _, err := m.dir(name); err != nil {
		return nil, err
	}
	if m.locks[name] {
		return nil, fmt.Errorf("lock %s: %w", name, vfs.ErrLocked)
	}
	m.locks[name] = true
	return memLock{m, name}, nil
}

type memLock struct {
	fs   *Mem
	name string
}

func (l memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.name)
	return nil
}

// Free implements vfs.FS.
func (m *Mem) Free(string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.capacity == 0 {
		return 1 << 62, nil
	}
	return max(m.capacity-m.used, 0), nil
}

// FlipBit inverts one bit of a file, in what is read and in what a crash leaves, as decay of the
// medium would.
func (m *Mem) FlipBit(name string, bit int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.dir(name)
	if err != nil {
		return err
	}
	n := d.now[base]
	if n == nil || bit < 0 || bit/8 >= int64(len(n.now)) {
		return &fs.PathError{Op: "flip", Path: name, Err: fs.ErrNotExist}
	}
	n.now[bit/8] ^= 1 << (bit % 8)
	if bit/8 < int64(len(n.synced)) {
		n.synced[bit/8] ^= 1 << (bit % 8)
	}
	return nil
}

// DropUnsynced makes a file forget that its unsynced writes have to become durable, as Linux does
// when fdatasync fails: they are still read back, a later Sync succeeds, and a crash loses them. A
// name that is not there is ignored.
func (m *Mem) DropUnsynced(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, base, err := m.dir(name); err == nil && d.now[base] != nil {
		d.now[base].pending = nil
	}
}

type memFile struct {
	fs     *Mem
	node   *memNode
	name   string
	direct bool
}

// check returns an error for a transfer that the medium of a direct file would refuse.
func (f *memFile) check(p []byte, off int64) error {
	if !f.direct {
		return nil
	}
	return checkAligned(p, off)
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check(p, off); err != nil {
		return 0, err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if off >= int64(len(f.node.now)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.now[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check(p, off); err != nil {
		return 0, err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.grow("write", off+int64(len(p))); err != nil {
		return 0, err
	}
	copy(f.node.now[off:], p)
	f.node.pending = append(f.node.pending, memWrite{off: off, data: append([]byte{}, p...)})
	return len(p), nil
}

func (f *memFile) ReadPartsAt(parts [][]byte, off int64) (int, error) {
	return vfs.EachPart(parts, off, 0, f.ReadAt)
}

func (f *memFile) WritePartsAt(parts [][]byte, off int64) (int, error) {
	return vfs.EachPart(parts, off, 0, f.WriteAt)
}

// grow makes the node at least size bytes long, within the capacity. The caller holds the lock.
func (f *memFile) grow(op string, size int64) error {
	more := size - int64(len(f.node.now))
	if more <= 0 {
		return nil
	}
	if f.fs.capacity > 0 && f.fs.used+more > f.fs.capacity {
		return &fs.PathError{Op: op, Path: f.name, Err: syscall.ENOSPC}
	}
	f.fs.used += more
	f.node.now = append(f.node.now, make([]byte, more)...)
	return nil
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	for _, w := range f.node.pending {
		f.node.synced = w.apply(f.node.synced)
	}
	f.node.pending = nil
	return nil
}

func (w memWrite) apply(b []byte) []byte {
	if more := w.off + int64(len(w.data)) - int64(len(b)); more > 0 {
		b = append(b, make([]byte, more)...)
	}
	copy(b[w.off:], w.data)
	return b
}

func (f *memFile) Allocate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if size <= int64(len(f.node.now)) {
		return nil
	}
	if err := f.grow("allocate", size); err != nil {
		return err
	}
	f.node.pending = append(f.node.pending, memWrite{off: size})
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.node.now)), nil
}

func (f *memFile) Direct() bool { return f.direct }

func (f *memFile) Close() error { return nil }

// checkAligned returns an error that wraps vfs.ErrAlignment unless a transfer of p at off is fit
// for a file opened with Direct. So tests on any medium find what only O_DIRECT would refuse.
func checkAligned(p []byte, off int64) error {
	if off%vfs.BlockSize != 0 || !vfs.Aligned(p) {
		return fmt.Errorf("%d bytes of %p at offset %d: %w", len(p), p, off, vfs.ErrAlignment)
	}
	return nil
}
