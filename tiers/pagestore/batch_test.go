package pagestore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

func idsUpTo(n int) []uint64 {
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = uint64(i)
	}
	return ids
}

// versionOf fills every second page of a batch into the store's memory, and returns the others as
// they are.
func versionOf(pages []uint64, version uint64) func(i int, buf []byte) ([]byte, error) {
	return func(i int, buf []byte) ([]byte, error) {
		c := content(pages[i], version)
		if i%2 == 0 {
			return c, nil
		}
		return buf, copyAll(buf, c)
	}
}

func copyAll(dst, src []byte) error {
	if len(dst) != len(src) {
		return fmt.Errorf("%d bytes for a page of %d", len(dst), len(src))
	}
	copy(dst, src)
	return nil
}

// TestBatch holds batches to what single calls do, in every codec, with a key and without, and to
// their order.
func TestBatch(t *testing.T) {
	for _, key := range [][]byte{nil, []byte("0123456789abcdef")} {
		opts := memOptions(tierstest.NewMem(0))
		opts.Key = key
		s := mustOpen(t, opts)
		w := newWorld()
		for tier := range 3 {
			for version := range uint64(4) {
				pages := idsUpTo(25)
				slices.Reverse(pages)
				asked := 0
				fill := versionOf(pages, version)
				n, err := s.PutAll(t.Context(), tier, pages, pagestore.Kind{Elem: 4},
					func(i int, buf []byte) ([]byte, error) {
						if i != asked {
							t.Errorf("content of page %d of the batch is asked for, want %d", i, asked)
						}
						asked++
						return fill(i, buf)
					})
				if n != len(pages) || err != nil || asked != n {
					t.Fatalf("%d of %d pages put, %d asked for, %v", n, len(pages), asked, err)
				}
				for _, page := range pages {
					w.pages[page] = version
				}
				if err := w.compare(s); err != nil {
					t.Error(err)
				}
				given := 0
				n, err = s.GetAll(t.Context(), pages, func(i int, got []byte) error {
					if i != given || !bytes.Equal(got, content(pages[i], version)) {
						t.Errorf("page %d of the batch is given, want %d, or it holds something else", i, given)
					}
					given++
					return nil
				})
				if n != len(pages) || err != nil || given != n {
					t.Errorf("%d of %d pages read, %d given, %v", n, len(pages), given, err)
				}
			}
		}
	}
	s := mustOpen(t, memOptions(tierstest.NewMem(0)))
	put, err := s.PutAll(t.Context(), 0, nil, pagestore.Kind{}, nil)
	got, err2 := s.GetAll(t.Context(), nil, nil)
	if err := errors.Join(err, err2); err != nil || put != 0 || got != 0 {
		t.Errorf("empty batches: %d, %d, %v", put, got, err)
	}
}

// TestBatchStops fails batches in every way and at every page: what is said to be put is there, the
// page that failed is as it was, and nothing is handed on behind one that cannot be read.
func TestBatchStops(t *testing.T) {
	errOwn := errors.New("own")
	pages := idsUpTo(8)
	for _, c := range []struct {
		name string
		want error
	}{
		{"content", errOwn},
		{"write", syscall.EIO},
		{"space", syscall.ENOSPC},
		{"context", context.Canceled},
		{"length", tiers.ErrInvalid},
		{"read", tiers.ErrNotFound},
		{"taking", errOwn},
	} {
		for at := range pages {
			var writes atomic.Int64
			writes.Store(-1)
			fs := &tierstest.Inject{FS: tierstest.NewMem(0), Before: func(op tierstest.Op) error {
				if op.Kind != tierstest.OpWrite || filepath.Ext(op.Name) != ".seg" || op.Len < pageSize ||
					writes.Load() < 0 || writes.Add(1) != int64(at+1) {
					return nil
				}
				if c.name == "write" || c.name == "space" {
					return c.want
				}
				return nil
			}}
			s := mustOpen(t, memOptions(fs))
			w := newWorld()
			for _, page := range pages {
				if err := put(s, 2, page, 1); err != nil {
					t.Fatal(err)
				}
				w.pages[page] = 1
			}
			before := make([]pagestore.Info, len(pages))
			for i, page := range pages {
				before[i], _ = s.Stat(page)
			}
			writes.Store(0)
			ctx, cancel := context.WithCancel(t.Context())
			fill := versionOf(pages, 2)
			var n int
			var err error
			switch c.name {
			case "read", "taking":
				if c.name == "read" {
					if err := s.Delete(ctx, pages[at]); err != nil {
						t.Fatal(err)
					}
					delete(w.pages, pages[at])
				}
				given := 0
				n, err = s.GetAll(ctx, pages, func(i int, got []byte) error {
					if !bytes.Equal(got, content(pages[i], 1)) {
						t.Errorf("page %d holds something else", i)
					}
					if c.name == "taking" && i == at {
						return errOwn
					}
					given++
					return nil
				})
				if given != n || n != at {
					t.Errorf("%s at %d: %d pages given, %d said", c.name, at, given, n)
				}
			default:
				n, err = s.PutAll(ctx, 2, pages, pagestore.Kind{Elem: 4}, func(i int, buf []byte) ([]byte, error) {
					switch {
					case i != at:
					case c.name == "content":
						return nil, errOwn
					case c.name == "context":
						cancel()
					case c.name == "length":
						return buf[1:], nil
					}
					return fill(i, buf)
				})
			}
			cancel()
			if !errors.Is(err, c.want) {
				t.Errorf("%s at %d: %v, want %v", c.name, at, err, c.want)
			}
			// Which page the write that fails belongs to is open, and so is how far the other page
			// was when the context ended.
			if exact := c.name != "write" && c.name != "space" && c.name != "context"; exact && n != at ||
				n >= len(pages) {
				t.Errorf("%s at %d: %d pages were done", c.name, at, n)
			}
			for i, page := range pages {
				now, _ := s.Stat(page)
				if now == before[i] || w.pages[page] == 0 {
					if i < n && c.name != "read" && c.name != "taking" {
						t.Errorf("%s at %d: page %d was not put", c.name, at, i)
					}
					continue
				}
				if i == n {
					t.Errorf("%s at %d: the page that failed was put", c.name, at)
				}
				w.pages[page] = 2
			}
			if err := errors.Join(w.compare(s), checkAccounting(s, fs.FS)); err != nil {
				t.Errorf("%s at %d: %v", c.name, at, err)
			}
		}
	}
}

// TestBatchOverlaps holds every write of a page until the next page is asked for, and every page
// that is handed on until the next one is read: a batch that did one thing after the other would
// never end. No more than two are under way.
func TestBatchOverlaps(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const n = 12
	begun := make([]chan struct{}, n+1)
	var once []sync.Once
	reset := func() {
		once = make([]sync.Once, n+1)
		for i := range begun {
			begun[i] = make(chan struct{})
		}
		once[n].Do(func() { close(begun[n]) }) // Nothing comes behind the last one.
	}
	reset()
	arrive := func(i int) { once[i].Do(func() { close(begun[i]) }) }
	await := func(i int) error {
		select {
		case <-begun[i]:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var writes, reads, written atomic.Int64
	fs := &tierstest.Inject{FS: tierstest.NewMem(0)}
	counts := func(op tierstest.Op, kind tierstest.OpKind) bool {
		return op.Kind == kind && filepath.Ext(op.Name) == ".seg" && op.Len > pageSize
	}
	fs.Before = func(op tierstest.Op) error {
		switch {
		case counts(op, tierstest.OpWrite):
			for range 1000 { // So that a lane too many would be seen.
				runtime.Gosched()
			}
			return await(min(int(writes.Add(1)), n)) // The first write waits for the second page.
		case counts(op, tierstest.OpRead):
			arrive(int(reads.Add(1)) - 1)
		}
		return nil
	}
	fs.After = func(op tierstest.Op) {
		if counts(op, tierstest.OpWrite) {
			written.Add(1)
		}
	}
	s := mustOpen(t, memOptions(fs))
	pages := idsUpTo(n)
	if _, err := s.PutAll(ctx, 2, pages, pagestore.Kind{}, func(i int, _ []byte) ([]byte, error) {
		if under := i - int(written.Load()); under > 1 {
			t.Errorf("%d pages are under way when page %d is asked for", under, i)
		}
		arrive(i)
		return content(pages[i], 3), nil
	}); err != nil {
		t.Fatal(err)
	}
	reset()
	if _, err := s.GetAll(ctx, pages, func(i int, _ []byte) error {
		if ahead := int(reads.Load()) - i; ahead > 2 {
			t.Errorf("%d reads are ahead of page %d", ahead, i)
		}
		return await(i + 1)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestAlignment puts and gets pages in memory of any alignment.
func TestAlignment(t *testing.T) {
	for _, key := range [][]byte{nil, []byte("0123456789abcdef")} {
		opts := memOptions(tierstest.NewMem(0))
		opts.Key = key
		s := mustOpen(t, opts)
		for i, skip := range []int{0, 1, 512, vfs.BlockSize} {
			for tier := range 3 {
				page, version := uint64(i), uint64(tier)
				c := vfs.Buffer(pageSize + vfs.BlockSize)[skip : skip+pageSize]
				copy(c, content(page, version))
				if err := s.Put(t.Context(), tier, page, c, pagestore.Kind{Elem: 4}); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(c, content(page, version)) {
					t.Errorf("a put of memory %d bytes off changed it", skip)
				}
				room := vfs.Buffer(pageSize + 2*vfs.BlockSize)
				for _, off := range []int{0, 1, 512, vfs.BlockSize} {
					clear(room)
					if err := s.Get(t.Context(), page, room[off:off+pageSize]); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(room[off:off+pageSize], content(page, version)) {
						t.Errorf("tier %d: a get into memory %d bytes off returns something else", tier, off)
					}
					if bytes.Count(room[:off], []byte{0}) != off ||
						bytes.Count(room[off+pageSize:], []byte{0}) != len(room)-off-pageSize {
						t.Errorf("a get into memory %d bytes off writes beside the page", off)
					}
				}
			}
		}
	}
}

// TestPadding: behind the stored bytes of a record that is shorter than its blocks there is nothing
// of what went through the same memory before.
func TestPadding(t *testing.T) {
	fs := tierstest.NewMem(0)
	s := mustOpen(t, memOptions(fs))
	full := vfs.Buffer(pageSize + vfs.BlockSize)[1:][:pageSize] // Not aligned, so it passes through a buffer.
	for i := range full {
		full[i] = 0xff
	}
	for page := range uint64(20) {
		if err := s.Put(t.Context(), 2, page, full, pagestore.Kind{}); err != nil {
			t.Fatal(err)
		}
		if err := put(s, int(page%2), page, 1); err != nil { // It shrinks.
			t.Fatal(err)
		}
		in, err := s.Stat(page)
		if err != nil {
			t.Fatal(err)
		}
		rec := slurp(t, fs, in.File)[in.Offset : in.Offset+in.Bytes]
		end := vfs.BlockSize + int(binary.LittleEndian.Uint32(rec[28:]))
		if end >= len(rec) {
			t.Fatalf("a record of %d bytes has no padding to look at", len(rec))
		}
		if bytes.Count(rec[end:], []byte{0}) != len(rec)-end {
			t.Errorf("page %d: the padding holds something", page)
		}
	}
}
