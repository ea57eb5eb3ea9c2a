package run

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// windowBytes is the most bytes of a file that a mark compares.
const windowBytes = 64 << 10

// fileMark identifies a file that grows by its inode and by the end of the part that is known,
// across processes, renames and copies. The zero value marks no file.
type fileMark struct {
	Device uint64 `json:"device,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
	// Modified is the time of modification when the mark was made, in unix nanoseconds.
	Modified int64 `json:"modified,omitempty"`
	// Bytes is the size of the known part. Digest is the SHA-256 of its last windowBytes bytes.
	// Marks of earlier programs have none.
	Bytes  int64  `json:"bytes,omitempty"`
	Digest string `json:"digest,omitempty"`
}

func statFile(info os.FileInfo) (m fileMark, err error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return m, errors.New("this system does not identify files")
	}
	device := uint64(stat.Dev) //nolint:unconvert // int32 on darwin
	return fileMark{Device: device, Inode: stat.Ino, Modified: info.ModTime().UnixNano()}, nil
}

// sameInode reports whether two marks have one inode. An inode is used again when its file is gone.
func (m fileMark) sameInode(o fileMark) bool { return m.Device == o.Device && m.Inode == o.Inode }

// in reports whether a file with the inode of now holds the marked part.
func (m fileMark) in(f *os.File, now fileMark) bool {
	if info, err := f.Stat(); err != nil || info.Size() < m.Bytes {
		return false
	}
	if m.Digest == "" {
		return m.sameInode(now)
	}
	w, err := readWindow(f, m.Bytes)
	return err == nil && w.digest() == m.Digest
}

// window is the last bytes of the known part of a file, up to windowBytes.
type window struct{ buf []byte }

func readWindow(f io.ReaderAt, end int64) (w window, err error) {
	w.buf = make([]byte, min(end, windowBytes))
	_, err = f.ReadAt(w.buf, end-int64(len(w.buf)))
	if errors.Is(err, io.EOF) && len(w.buf) == 0 {
		err = nil
	}
	return w, err
}

// add moves the window behind bytes that follow it.
func (w *window) add(b []byte) {
	b = b[max(0, len(b)-windowBytes):]
	if len(w.buf)+len(b) > 2*windowBytes {
		w.buf = append(w.buf[:0], w.last()...)
	}
	w.buf = append(w.buf, b...)
}

func (w *window) last() []byte { return w.buf[max(0, len(w.buf)-windowBytes):] }

func (w *window) digest() string {
	sum := sha256.Sum256(w.last())
	return hex.EncodeToString(sum[:])
}

// in reports whether a file has the window at byte end.
func (w *window) in(f io.ReaderAt, end int64) bool {
	now, err := readWindow(f, end)
	return err == nil && bytes.HasSuffix(now.buf, w.last())
}

// tail reads a file from a byte on. With path it waits at the end of the file for more, until the
// writer has gone on in another file. It ends at once when the bytes before it have changed.
type tail struct {
	ctx context.Context //nolint:containedctx // Read has none, and the tail lives as long as the context
	f   *os.File
	// path is the name under which the writer continues; empty: the file does not grow.
	path string
	id   fileMark // of f, for its inode

	at     int64
	window window
	// modified is the time of modification, in unix nanoseconds, with which the file had all that was
	// read.
	modified atomic.Int64
	moved    bool      // the writer has left the file
	looked   time.Time // at the folder
	cut      bool      // the file was truncated or written again
}

// pollEvery is the interval of polls of a file that may grow, and lookEvery of polls of its folder.
const (
	pollEvery = 5 * time.Millisecond
	lookEvery = 500 * time.Millisecond
)

// Read implements io.Reader. io.EOF is the end of the file, or of ctx.
func (t *tail) Read(p []byte) (int, error) {
	for {
		if t.ctx.Err() != nil {
			return 0, io.EOF
		}
		n, err := t.f.ReadAt(p, t.at)
		if n == 0 && !errors.Is(err, io.EOF) {
			return 0, err
		}
		info, err := t.f.Stat()
		if err != nil {
			return 0, err
		}
		// The bytes before are compared after the read, so the read has got what follows them.
		if n > 0 || info.Size() < t.at || info.ModTime().UnixNano() != t.modified.Load() {
			if t.cut = !t.window.in(t.f, t.at); t.cut {
				return 0, io.EOF
			}
			t.modified.Store(info.ModTime().UnixNano())
		}
		if n > 0 {
			t.window.add(p[:n])
			t.at += int64(n)
			return n, nil
		}
		if t.path == "" || t.moved {
			return 0, io.EOF
		}
		// The writer adds to a file that was renamed until it opens the next. So the end is looked at
		// once more when the next has rows.
		if now, err := os.Stat(t.path); err == nil && !os.SameFile(info, now) {
			if t.moved = now.Size() > 0; !t.moved && time.Since(t.looked) > lookEvery {
				t.moved = t.left()
				t.looked = time.Now()
			}
			if t.moved {
				continue
			}
		}
		if err := sleep(t.ctx, pollEvery); err != nil {
			return 0, io.EOF
		}
	}
}

// left reports whether a newer file than f has rows, though the one with the path has none.
func (t *tail) left() bool {
	m := t.id
	m.Bytes, m.Digest = t.at, t.window.digest()
	files, found, err := chain(t.path, m, "")
	return err == nil && (len(files) > 2 || len(files) > 1 && (!found || !files[0].sameInode(t.id)))
}

func sleep(ctx context.Context, d time.Duration) error {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// followed is a file that may hold rows of a writer: the file with the name that is followed, or
// one in its folder. It belongs to one goroutine.
type followed struct {
	path string
	info os.FileInfo
	fileMark
	format rows.Format // with the packing
	// original reports that rotation has given the file its name, with a number or date, or that the
	// file is the named one. Other files, such as a copy or an output, are read only if they hold what
	// was read.
	original bool
	// contents is the unpacked file, while chain compares it.
	contents *os.File
}

func (c *followed) packed() bool { return strings.Contains(string(c.format), ".") }

// open opens the contents of the file, unpacked into a temporary file in dir. The caller closes it.
func (c *followed) open(dir string) (*os.File, error) {
	f, err := os.Open(c.path)
	if err != nil || !c.packed() {
		return f, err
	}
	from, err := rows.Contents(c.path, f, c.format, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	to, err := os.CreateTemp(dir, "unpacked-*")
	if err != nil {
		return nil, err
	}
	if err = os.Remove(to.Name()); err == nil {
		_, err = io.Copy(to, from)
	}
	if err != nil {
		_ = to.Close()
		return nil, fmt.Errorf("unpack %s: %w", c.path, err)
	}
	return to, nil
}

// use calls fn with the contents of the file and their size, and returns its result; false if the
// file cannot be read.
func (c *followed) use(temp string, fn func(f *os.File, size int64) bool) bool {
	f := c.contents
	if f == nil {
		var err error
		if f, err = c.open(temp); err != nil {
			return false
		}
		if c.packed() {
			c.contents = f
		} else {
			defer f.Close()
		}
	}
	info, err := f.Stat()
	return err == nil && fn(f, info.Size())
}

func (c *followed) holds(m fileMark, temp string) bool {
	if !c.packed() && c.info.Size() < m.Bytes {
		return false
	}
	return c.use(temp, func(f *os.File, _ int64) bool { return m.in(f, c.fileMark) })
}

// followable returns the files of the folder of a path that may hold rows of its writer. named is
// the one with the path; nil if there is none.
func followable(path string) (named *followed, others []*followed, err error) {
	add := func(name string, info os.FileInfo) (*followed, error) {
		mark, err := statFile(info)
		c := &followed{path: name, info: info, fileMark: mark}
		c.format, _ = rows.FormatOf(name, "csv") // of text, which is enough to unpack it
		suffix, same := strings.CutPrefix(filepath.Base(name), filepath.Base(path))
		c.original = name == path || same && len(suffix) > 1 && suffix[1] >= '0' && suffix[1] <= '9' ||
			!same && rotated(path, name, name)
		return c, err
	}
	info, err := os.Stat(path)
	switch {
	case err == nil:
		if named, err = add(path, info); err != nil {
			return nil, nil, err
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, nil, err
	}
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() == 0 || named != nil && os.SameFile(info, named.info) {
			continue
		}
		c, err := add(filepath.Join(dir, e.Name()), info)
		if err != nil {
			return nil, nil, err
		}
		others = append(others, c)
	}
	return named, others, nil
}

// chain returns the files that may hold rows behind a mark, in the order in which they were
// written. found reports whether the first of them holds the mark. The last is the file with the
// path, if it exists. Without a mark there are no others.
func chain(path string, m fileMark, temp string) (files []*followed, found bool, err error) {
	named, others, err := followable(path)
	if err != nil {
		return nil, false, err
	}
	if m == (fileMark{}) {
		if named != nil {
			files = append(files, named)
		}
		return files, false, nil
	}
	all := slices.Clone(others)
	if named != nil {
		all = append(all, named)
	}
	// Packing keeps the time of a file. So a packed file without newer rows is left alone.
	all = slices.DeleteFunc(all, func(c *followed) bool { return c.packed() && c.Modified < m.Modified })
	defer func() {
		for _, c := range all {
			if c.contents != nil {
				_ = c.contents.Close()
			}
		}
	}()
	slices.SortFunc(all, inOrder)
	holder := holderOf(m, path, named, all, temp)
	if holder != nil && holder == named {
		return []*followed{named}, true, nil
	}
	since, like := m.Modified, path
	if holder != nil {
		since, like = holder.Modified, holder.path
	}
	for _, c := range all {
		newer := c.Modified > since || holder != nil && c.Modified == since && older(holder.path, c.path)
		if newer && c != holder && c != named && c.original && rotated(path, c.path, like) && !isCopy(c, all, temp) &&
			c.use(temp, func(_ *os.File, size int64) bool { return size > 0 }) {
			files = append(files, c)
		}
	}
	slices.SortFunc(files, inOrder)
	if holder != nil {
		files = append([]*followed{holder}, files...)
	}
	if named != nil {
		files = append(files, named)
	}
	return files, holder != nil, nil
}

// inOrder orders files by the time of their last row.
func inOrder(a, b *followed) int {
	if n := cmp.Compare(a.Modified, b.Modified); n != 0 || a == b {
		return n
	}
	if older(a.path, b.path) {
		return -1
	}
	return 1
}

// holderOf returns the file that holds a mark, of files in order; nil if there is none. It is the
// one with the inode. Otherwise it is a copy: the oldest one that is not older than the mark, since
// the mark of a file with a header alone is in many, and of its copies the longest.
func holderOf(m fileMark, path string, named *followed, all []*followed, temp string) (holder *followed) {
	for _, sure := range []func(*followed) bool{
		func(c *followed) bool { return c.sameInode(m) },
		func(c *followed) bool { return !c.sameInode(m) && c.Modified >= m.Modified },
		func(c *followed) bool { return !c.sameInode(m) && c.Modified < m.Modified && !c.packed() },
	} {
		i := slices.IndexFunc(all, func(c *followed) bool {
			return sure(c) && (!c.packed() || rotated(path, c.path, path)) && c.holds(m, temp)
		})
		if i >= 0 {
			holder = all[i]
			break
		}
	}
	if holder == nil || holder == named {
		return holder
	}
	for _, c := range all { // also of the one with the inode, which may be used again
		if n := holder.compare(c, temp); n < 0 || n == 0 && (c == named || c.original && !holder.original) {
			holder = c
		}
	}
	return holder
}

// compare returns -1 if another file begins with the contents of c and has more, 0 if it has them
// alone, and 1 otherwise.
func (c *followed) compare(o *followed, temp string) (result int) {
	result = 1
	if o == c || !c.packed() && !o.packed() && o.info.Size() < c.info.Size() {
		return result
	}
	c.use(temp, func(f *os.File, size int64) bool {
		w, err := readWindow(f, size)
		if err != nil || c.original && bytes.Count(w.buf, []byte("\n")) < 2 {
			return false // of a file that was truncated in its first row other files may have the part
		}
		return o.use(temp, func(f *os.File, other int64) bool {
			if other >= size && w.in(f, size) {
				result = cmp.Compare(size, other)
			}
			return true
		})
	})
	return result
}

// isCopy reports whether another file begins with the contents of c, which rotation has named. Of
// equal files the oldest one is no copy.
func isCopy(c *followed, all []*followed, temp string) bool {
	return slices.ContainsFunc(all, func(o *followed) bool {
		n := c.compare(o, temp)
		return n < 0 || n == 0 && o.original && inOrder(o, c) < 0
	})
}

// rotated reports whether name is one that rotation gives to the file with a path: app.csv.1 or
// app.csv-20260102.gz; and app-20260102.csv if like, another rotated file, has such a name.
func rotated(path, name, like string) bool {
	path, name, like = filepath.Base(path), filepath.Base(name), filepath.Base(like)
	if strings.HasPrefix(name, path) {
		return name != path
	}
	if strings.HasPrefix(like, path) {
		return false
	}
	ext := filepath.Ext(path)
	stem, ok := strings.CutPrefix(name, strings.TrimSuffix(path, ext))
	return ok && len(stem) > 1 && strings.ContainsRune("-._", rune(stem[0])) && stem[1] >= '0' && stem[1] <= '9' &&
		strings.Contains(stem, ext)
}

func rotation(path string) (n int, ok bool) {
	if pack := filepath.Ext(path); pack == ".gz" || pack == ".zst" {
		path = strings.TrimSuffix(path, pack)
	}
	n, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(path), "."))
	return n, err == nil && n < 10_000
}

// older reports whether a rotated file is older than another file, by their names: a new file has a
// small number or a late date.
func older(a, b string) bool {
	i, numbered := rotation(a)
	j, both := rotation(b)
	if numbered && both && i != j {
		return i > j
	}
	return a < b
}
