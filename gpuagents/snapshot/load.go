package snapshot

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"sync/atomic"
)

// Load copies the groups of a snapshot into pages, by their numbers in the swarm. Groups of the
// pages that the snapshot does not have stay as they are: in their initial state, or as another
// part of a set has written them. Groups of the snapshot that the pages have no room for are left
// out. The variables must be the same in the same order; otherwise it is an ErrMismatch, and no
// page has changed. After any other error the pages are undefined. All files are read to their
// ends, so a success means that every checksum was right.
func Load(ctx context.Context, store Store, m *Manifest, p *Pages) error {
	if err := m.Fits(p); err != nil {
		return fmt.Errorf("snapshot %s: %w", m.Name, err)
	}
	both := slots{first: max(m.First(), p.First)}
	both.n = min(m.First()+m.Groups, p.First+p.Groups) - both.first
	if both.n <= 0 {
		return nil
	}
	before := (both.first - m.First()) / m.PerFile // parts
	parts := (both.first+both.n-m.First()+m.PerFile-1)/m.PerFile - before
	n := workers(p.Layout.PageBytes, parts)
	free, release := p.hold(n)
	err := share(ctx, n, parts, func(ctx context.Context, d *desk) func(int) error {
		r := &loader{desk: d, store: store, m: m, pages: p, both: both, page: <-free}
		return func(k int) error { return r.part(ctx, before+k) }
	})
	if err = errors.Join(err, release()); err != nil {
		return fmt.Errorf("snapshot %s: %w", m.Name, err)
	}
	return nil
}

// Fits returns an ErrMismatch that names the first difference between the variables of the snapshot
// and of the pages. It uses only the layout of p.
func (m *Manifest) Fits(p *Pages) error {
	if m.PerGroup != p.Layout.Agents {
		return fmt.Errorf("%w: its groups have %d agents, the groups of the swarm %d", ErrMismatch, m.PerGroup,
			p.Layout.Agents)
	}
	if len(m.Variables) != len(p.Layout.Vars) {
		return fmt.Errorf("%w: it has %d state variables, the swarm %d", ErrMismatch, len(m.Variables),
			len(p.Layout.Vars))
	}
	for i, has := range m.Variables {
		want := variable(p.Layout.Vars[i])
		if !has.like(want) {
			return fmt.Errorf("%w: its state variable %d is %s, %d %s a %s, in the swarm %s, %d %s a %s",
				ErrMismatch,
				i, has.Name, has.Width, has.DType, has.Per, want.Name, want.Width, want.DType, want.Per)
		}
	}
	return nil
}

// Verify reads every file of a snapshot and compares it with the manifest. It changes nothing.
// progress, which may be nil, gets the sum of the bytes that were read, from several goroutines; a
// later call may have a smaller sum than an earlier one.
func Verify(ctx context.Context, store Store, m *Manifest, progress func(bytes int64)) error {
	var done atomic.Int64
	files := len(m.Variables) * m.parts()
	err := share(ctx, min(maxWorkers(), files), files, func(ctx context.Context, _ *desk) func(int) error {
		r := &loader{store: store, m: m}
		buf := make([]byte, bufferBytes)
		return func(i int) (err error) {
			f, err := r.open(ctx, i%len(m.Variables), i/len(m.Variables))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.close()) }()
			f.read = func(n int) {
				if progress != nil {
					progress(done.Add(int64(n)))
				}
			}
			return f.end(buf)
		}
	})
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", m.Name, err)
	}
	return nil
}

// loader reads parts one after the other. Each worker has its own.
type loader struct {
	desk  *desk
	store Store
	m     *Manifest
	pages *Pages
	both  slots // the groups that the snapshot and the pages have, by their numbers in the swarm
	page  []byte
	rows  []byte
	old   []byte // a page that is changed in part
}

// part reads part k into its pages. Groups that the pages do not have are read for the checksum
// only.
func (r *loader) part(ctx context.Context, k int) (err error) {
	files := make([]*fileReader, len(r.m.Variables))
	defer func() {
		for _, f := range files {
			if f != nil {
				err = errors.Join(err, f.close())
			}
		}
	}()
	for v := range files {
		if files[v], err = r.open(ctx, v, k); err != nil {
			return err
		}
	}
	groups, l := r.m.part(k), &r.pages.Layout
	at := r.m.First() + groups.first
	skip := max(0, r.both.first-at)
	for v, of := range l.Vars {
		if err := files[v].skip(int64(skip) * int64(rowsPerGroup(of, l.Agents)) * int64(rowBytes(of))); err != nil {
			return err
		}
	}
	groups.n = min(at+groups.n, r.both.first+r.both.n) - at - skip
	groups.first = at + skip - r.pages.First
	err = r.pages.visit(groups, func(page uint64, s slots, group int) error {
		clear(r.page)
		for v, of := range l.Vars {
			n := s.n * rowsPerGroup(of, l.Agents) * rowBytes(of)
			if len(r.rows) < n {
				r.rows = make([]byte, max(n, l.PageBytes))
			}
			if err := files[v].full(r.rows[:n]); err != nil {
				return err
			}
			insert(l, v, s, r.page, r.rows[:n])
		}
		return r.desk.do(ctx, func() error { return r.put(page, s, group) })
	})
	for v := 0; v < len(files) && err == nil; v++ { // groups without a page are read for the checksum
		if len(r.rows) < bufferBytes {
			r.rows = make([]byte, bufferBytes)
		}
		err = files[v].end(r.rows)
	}
	return err
}

// put writes a page. If the page has slots that this part does not cover, put reads the page first
// and changes only the slots of the part. It runs on the goroutine of the owner of the pages.
func (r *loader) put(page uint64, s slots, group int) error {
	if s.first == 0 && (s.n == r.pages.Layout.Slots || group+s.n == r.pages.Groups) {
		return r.pages.Write(page, r.page)
	}
	if r.old == nil {
		r.old = make([]byte, len(r.page))
	}
	if err := r.pages.Read(page, r.old); err != nil {
		return err
	}
	overlay(&r.pages.Layout, s, r.old, r.page)
	return r.pages.Write(page, r.old)
}

// open opens file k of a variable after its header, which it checks. A missing file is an
// ErrCorrupt: the manifest says that it was written.
func (r *loader) open(ctx context.Context, v, k int) (*fileReader, error) {
	file := r.m.Variables[v].Files[k]
	in, err := r.store.Open(ctx, r.m.Name+"/"+file.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is missing", ErrCorrupt, file.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name, err)
	}
	f := &fileReader{
		File: file, ended: func() error { return context.Cause(ctx) }, in: in, sum: sha256.New(), read: func(int) {},
	}
	f.buf = bufio.NewReaderSize(f.in, bufferBytes)
	a, err := readHeader(counted{f})
	if want := r.m.array(v, k); err == nil && a != want {
		err = fmt.Errorf("%w: it has [%d, %d] of %s, want [%d, %d] of %s", ErrCorrupt, a.rows, a.width, a.descr,
			want.rows, want.width, want.descr)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", file.Name, err), f.close())
	}
	return f, nil
}

type fileReader struct {
	File
	// ended returns why reading must end; nil: it may continue. read gets the number of bytes of
	// each read.
	ended func() error
	in    io.ReadCloser
	buf   *bufio.Reader
	sum   hash.Hash
	seen  int64
	read  func(n int)
}

type counted struct{ f *fileReader }

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	if err := c.f.ended(); err != nil {
		return 0, err
	}
	n, err := c.f.buf.Read(p)
	c.f.sum.Write(p[:n])
	c.f.seen += int64(n)
	c.f.read(n)
	return n, err
}

// full fills p. A file that ends early is an ErrCorrupt.
func (f *fileReader) full(p []byte) error {
	if _, err := io.ReadFull(counted{f}, p); err != nil {
		return fmt.Errorf("%s: %w", f.Name, short(err))
	}
	return nil
}

func (f *fileReader) skip(n int64) error {
	if _, err := io.CopyN(io.Discard, counted{f}, n); err != nil {
		return fmt.Errorf("%s: %w", f.Name, short(err))
	}
	return nil
}

// end reads the rest of the file with buf, and compares the length and the checksum with the
// manifest. A file that is too long is read a little past its length and not to its end.
func (f *fileReader) end(buf []byte) error {
	for {
		_, err := (counted{f}).Read(buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if f.seen > f.Bytes {
			break
		}
	}
	if f.seen != f.Bytes {
		return fmt.Errorf("%w: %s does not have %d bytes", ErrCorrupt, f.Name, f.Bytes)
	}
	if got := hex.EncodeToString(f.sum.Sum(nil)); got != f.SHA256 {
		return fmt.Errorf("%w: %s has the SHA-256 %s, the manifest says %s", ErrCorrupt, f.Name, got, f.SHA256)
	}
	return nil
}

// close closes the file. It does not check the checksum.
func (f *fileReader) close() error {
	if err := f.in.Close(); err != nil {
		return fmt.Errorf("close %s: %w", f.Name, err)
	}
	return nil
}
