package pagestore_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

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
