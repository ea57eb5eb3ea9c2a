package pagestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// TestElementBounds: elements up to the codec's largest are taken, and read back in every size.
func TestElementBounds(t *testing.T) {
	ctx := t.Context()
	for _, id := range []CodecID{Raw, LZ4, Zstd} {
		s := smallStore(
			t,
			tierstest.NewMem(0),
			func(o *Options) { o.PageSize, o.Tiers[0].Codec.ID = 4*vfs.BlockSize, id },
		)
		for elem := range uint8(MaxElem + 1) {
			page, got := make([]byte, 4*vfs.BlockSize), make([]byte, 4*vfs.BlockSize)
			rng := rand.New(rand.NewPCG(1, uint64(elem)))
			for i := range page { // It shrinks once its bytes are transposed.
				if elem > 0 && i%int(elem) == 0 {
					page[i] = byte(rng.Uint32())
				}
			}
			if err := s.Put(ctx, 0, uint64(elem), page, Kind{Elem: elem, Class: elem}); err != nil {
				t.Errorf("%v, elements of %d: %v", id, elem, err)
			} else if err := s.Get(ctx, uint64(elem), got); err != nil || string(got) != string(page) {
				t.Errorf("%v, elements of %d: other bytes are read: %v", id, elem, err)
			}
		}
		want := fmt.Sprintf("put page 99: %d bytes of elements of 17, want %d: %v", 4*vfs.BlockSize, 4*vfs.BlockSize,
			tiers.ErrInvalid)
		if err := s.Put(ctx, 0, 99, make([]byte, 4*vfs.BlockSize), Kind{Elem: MaxElem + 1}); !errors.Is(err,
			tiers.ErrInvalid) || err.Error() != want || s.Has(99) {
			t.Errorf("%v, elements of %d: %v", id, MaxElem+1, err)
		}
	}
}

// TestSaving: a page is stored encoded where that saves a sixteenth of it and a block, else raw,
// and every page reads back.
func TestSaving(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		blocks, most int // of a page, and of its encoded form
		step, tries  int // bytes from one page to the next, around the bound
	}{
		{1, 0, 64, 4},
		{2, 1, 1, testkit.Of(200, 60)},
		{4, 3, 1, testkit.Of(200, 60)},
		{16, 15, 16, testkit.Of(60, 20)},
		{32, 30, 64, testkit.Of(60, 20)},
		{512, 480, 512, testkit.Of(40, 10)},
		{4416, 4140, 1024, testkit.Of(10, 4)},
	} {
		if testing.Short() && c.blocks > 16 {
			continue // pages of megabytes take seconds with the race detector
		}
		size := c.blocks * vfs.BlockSize
		s := smallStore(t, tierstest.NewMem(0), func(o *Options) {
			o.PageSize, o.Tiers[0].Capacity, o.Tiers[0].Codec.ID = size, 1<<30, LZ4
			o.Tiers[0].SegmentBytes = int64(2*size + 1<<20) // the file system in memory clears each segment
		})
		coder, err := newCoder(size, Codec{ID: LZ4})
		if err != nil {
			t.Fatal(err)
		}
		random, room := filled(size, size), make([]byte, c.most*vfs.BlockSize)
		// Random bytes do not shrink: the encoded page is as long, but for 1 part in 255.
		from := max(c.most*vfs.BlockSize-size/255-c.step*c.tries/2, 0)
		raws := 0
		for i := range c.tries + 2 {
			n := from + i*c.step
			switch i - c.tries {
			case 0:
				n = size
			case 1:
				n = 0
			}
			page, got := make([]byte, size), make([]byte, size)
			copy(page, random[:min(n, size)])
			want := c.blocks
			if n, _, _, err := coder.Encode(room, page, 1); err != nil {
				t.Fatal(err)
			} else if n > 0 {
				want = (n + vfs.BlockSize - 1) / vfs.BlockSize
			}
			if want == c.blocks {
				raws++
			}
			if err := s.Put(ctx, 0, 1, page, Kind{Elem: 1, Class: uint8(i)}); err != nil {
				t.Fatal(err)
			}
			in, err := s.Stat(1)
			if err != nil {
				t.Fatal(err)
			}
			if blocks := int(in.Bytes/vfs.BlockSize) - 1; blocks != want { // less the header
				t.Errorf("a page of %d blocks, %d bytes of it random, takes %d blocks, want %d", c.blocks, n, blocks,
					want)
			}
			if err := s.Get(ctx, 1, got); err != nil || string(got) != string(page) {
				t.Errorf("a page of %d blocks, %d bytes of it random: other bytes are read: %v", c.blocks, n, err)
			}
		}
		if c.most > 0 && (raws < 2 || raws > c.tries) {
			t.Errorf("%d of %d pages of %d blocks are raw: the bound is not among them", raws, c.tries, c.blocks)
		}
	}
}

// TestCopyKeepsEncoding: a copy within a tier has the stored bytes of the original, also where the
// class of the page is left raw by now.
func TestCopyKeepsEncoding(t *testing.T) {
	ctx := t.Context()
	const size = 4 * vfs.BlockSize
	s := smallStore(t, tierstest.NewMem(0), func(o *Options) { o.PageSize, o.Tiers[0].Codec.ID = size, LZ4 })
	kind := Kind{Elem: 1, Class: 7}
	if err := s.Put(ctx, 0, 1, filled(size, 9), kind); err != nil {
		t.Fatal(err)
	}
	for page := range uint64(4) {
		if err := s.Put(ctx, 0, 10+page, filled(size, size), kind); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	before, err := s.Stat(1)
	if err != nil || before.Bytes != 2*vfs.BlockSize {
		t.Fatalf("%+v: %v", before, err)
	}
	if err := s.rewrite(ctx, 1, 0); err != nil {
		t.Fatal(err)
	}
	after, err := s.Stat(1)
	if err != nil || after.Bytes != before.Bytes || after.Epoch != before.Epoch || after.Offset == before.Offset &&
		after.File == before.File {
		t.Errorf("%+v is copied to %+v: %v", before, after, err)
	}
	got := make([]byte, size)
	if err := s.Get(ctx, 1, got); err != nil || string(got) != string(filled(size, 9)) {
		t.Errorf("other bytes are read: %v", err)
	}
}

// TestHopelessClass: a class of pages that did not shrink four times is stored raw without a try,
// other classes are not, and a tier without a codec stores all of them raw.
func TestHopelessClass(t *testing.T) {
	ctx := t.Context()
	const size = 4 * vfs.BlockSize
	for _, id := range []CodecID{LZ4, Raw} {
		s := smallStore(t, tierstest.NewMem(0), func(o *Options) { o.PageSize, o.Tiers[0].Codec.ID = size, id })
		stored := func(page uint64, class uint8, random int) int64 {
			if err := s.Put(ctx, 0, page, filled(size, random), Kind{Elem: 1, Class: class}); err != nil {
				t.Fatal(err)
			}
			in, err := s.Stat(page)
			if err != nil {
				t.Fatal(err)
			}
			return in.Bytes/vfs.BlockSize - 1
		}
		for page := range uint64(8) {
			random, want := size, int64(4)
			if page >= 4 { // It would shrink.
				random = 0
			}
			if got := stored(page, 7, random); got != want {
				t.Errorf("%v: page %d takes %d blocks, want %d", id, page, got, want)
			}
		}
		want := int64(1)
		if id == Raw {
			want = 4
		}
		if got := stored(9, 8, 0); got != want {
			t.Errorf("%v: a page of another class takes %d blocks, want %d", id, got, want)
		}
	}
}

// TestReadOfOtherRecords: a record that takes as many blocks as a raw page, and is none, is decoded
// and checked as its header says. This version writes none, since those blocks would be saved.
func TestReadOfOtherRecords(t *testing.T) {
	ctx := t.Context()
	const size = 4 * vfs.BlockSize
	s := smallStore(t, tierstest.NewMem(0), func(o *Options) { o.PageSize, o.Tiers[0].Codec.ID = size, LZ4 })
	page := filled(size, size-2000)
	encoded := vfs.Buffer(size)
	coder, err := newCoder(size, Codec{ID: LZ4})
	if err != nil {
		t.Fatal(err)
	}
	n, _, _, err := coder.Encode(encoded, page, 1)
	if err != nil || n <= size-vfs.BlockSize {
		t.Fatalf("%d bytes: %v", n, err)
	}
	shuffled, raw := vfs.Buffer(size), vfs.Buffer(size)
	shuffleBytes(shuffled, page, 4)
	copy(raw, page)
	for name, c := range map[string]struct {
		h    recordHeader
		body []byte
		err  error
	}{
		"encoded":      {recordHeader{Stored: n, Codec: LZ4, Elem: 1}, encoded, nil},
		"shuffled":     {recordHeader{Stored: size, Shuffled: true, Elem: 4}, shuffled, nil},
		"raw":          {recordHeader{Stored: size, Elem: 4}, raw, nil},
		"raw, cut off": {recordHeader{Stored: size - 1, Elem: 4}, raw, tiers.ErrCorrupt},
	} {
		w, buf := s.table.startWrite(1), s.records.takeBuffer()
		c.h.Life, c.h.Seq = w.Life, w.Seq
		change, tried, err := s.records.place(s.records.dirs[0], 0, 1, w.epoch, c.h, buf, c.body)
		s.records.freeBuffer(buf)
		if done, err := s.table.endWrite(ctx, 1, w, change, tried, err); !done || err != nil {
			t.Fatalf("%s: %v, %v", name, done, err)
		}
		if in, err := s.Stat(1); err != nil || in.Bytes != 5*vfs.BlockSize {
			t.Fatalf("%s: %+v, %v", name, in, err)
		}
		got := vfs.Buffer(size)
		if err := s.Get(ctx, 1, got); !errors.Is(err, c.err) || err == nil && string(got) != string(page) {
			t.Errorf("%s: other bytes are read: %v", name, err)
		}
	}
}
