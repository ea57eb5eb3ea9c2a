package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/exoswarm/exoswarm/cpuagents/access"
)

// made is a page that a test makes.
type made struct {
	kind, values, encoding, levels int
	unpacked                       int // 0 for the size of body
	body                           []byte
}

func (p made) bytes() []byte {
	var t thriftWriter
	t.number(1, compactI32, p.kind)
	if p.unpacked == 0 {
		p.unpacked = len(p.body)
	}
	t.number(2, compactI32, p.unpacked)
	t.number(3, compactI32, len(p.body))
	switch p.kind {
	case pageDictionary:
		t.begin(7)
		t.number(1, compactI32, p.values)
		t.number(2, compactI32, p.encoding)
		t.bool(3, true)
		t.end()
	case pageData:
		t.begin(5)
		t.number(1, compactI32, p.values)
		t.number(2, compactI32, p.encoding)
		t.number(3, compactI32, p.levels)
		t.number(4, compactI32, encRLE)
		t.end()
	case pageDataV2:
		t.begin(8)
		t.number(1, compactI32, p.values)
		t.number(4, compactI32, p.encoding)
		t.number(5, compactI32, p.levels)
		t.number(6, compactI32, 0)
		t.bool(7, false)
		t.end()
	}
	t.stop()
	return append(t.b, p.body...)
}

// doubles makes a page that claims n rows, with the values of the rows in levels, and holds some
// values.
func doubles(n int, levels []byte, values ...float64) made {
	var b []byte
	if levels != nil { // one run for each level
		var runs []byte
		for _, l := range levels {
			runs = append(runs, 1<<1, l)
		}
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(runs))), runs...)
	}
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return made{kind: pageData, values: n, levels: encRLE, body: b}
}

// chunkOf returns a reader of pages.
func chunkOf(t fataler, c Column, codec Codec, mem Memory, pages ...made) *Chunk {
	t.Helper()
	data := []byte(magic)
	for _, p := range pages {
		data = append(data, p.bytes()...)
	}
	end := int64(len(data))
	r, err := NewChunk(bytes.NewReader(data), end, c, ChunkMeta{Codec: codec, Values: 1, start: 4, size: end - 4}, mem)
	if err != nil {
		t.Fatalf("NewChunk: %v", err)
	}
	return r
}

// noLimit is a budget without a limit.
var noLimit = (*access.Hold)(nil)

// TestPages: the rows of pages come in their order with their nulls, and pages that have fewer rows
// or values than they say are damaged.
func TestPages(t *testing.T) {
	nan := math.NaN() // a null
	for name, c := range map[string]struct {
		optional bool
		pages    []made
		want     []float64
		err      string
	}{
		"one page":     {false, []made{doubles(3, nil, 1, 2, 3)}, []float64{1, 2, 3}, ""},
		"two pages":    {false, []made{doubles(1, nil, 1), doubles(2, nil, 2, 3)}, []float64{1, 2, 3}, ""},
		"empty page":   {false, []made{doubles(0, nil), doubles(1, nil, 2)}, []float64{2}, ""},
		"an index":     {false, []made{{kind: pageIndex, body: []byte("x")}, doubles(1, nil, 2)}, []float64{2}, ""},
		"nulls":        {true, []made{doubles(4, []byte{1, 0, 1, 0}, 1, 3)}, []float64{1, nan, 3, nan}, ""},
		"only nulls":   {true, []made{doubles(2, []byte{0, 0})}, []float64{nan, nan}, ""},
		"no page":      {false, nil, nil, ""},
		"too few rows": {false, []made{doubles(3, nil, 1, 2)}, nil, "fewer values than rows"},
		"no rows":      {false, []made{doubles(3, nil)}, nil, "fewer values than rows"},
		"few values":   {true, []made{doubles(2, []byte{1, 1}, 1)}, nil, "fewer values than rows"},
		"few levels":   {true, []made{doubles(3, []byte{1, 1}, 1, 2)}, nil, "fewer rows than its header says"},
		"no levels":    {true, []made{{kind: pageData, values: 1, levels: encRLE, body: []byte{1}}}, nil, "no levels"},
		"long levels": {
			true,
			[]made{{kind: pageData, values: 1, levels: encRLE, body: []byte{9, 0, 0, 0, 2, 1}}},
			nil,
			"2 bytes of levels, and its header says 9",
		},
		"level 2":  {true, []made{doubles(1, []byte{2}, 1)}, nil, "a row has level 2"},
		"negative": {false, []made{doubles(-1, nil, 1)}, nil, "a page of -1 rows"},
		"encoding": {
			false,
			[]made{{kind: pageData, values: 1, encoding: 5, levels: encRLE, body: make([]byte, 8)}},
			nil,
			"its pages are written with DELTA_BINARY_PACKED",
		},
		"encoding of levels": {
			true, []made{{kind: pageData, values: 1, levels: 5, body: make([]byte, 9)}}, nil, "DELTA_BINARY_PACKED",
		},
		"packed levels": {
			true,
			[]made{{kind: pageData, values: 2, levels: encBitPacked, body: append(
				[]byte{0x40}, doubles(1, nil, 7).body...)}},
			[]float64{nan, 7},
			"",
		},
		"version 2": {
			true,
			[]made{{kind: pageDataV2, values: 2, levels: 2, body: append(
				[]byte{2 << 1, 1}, doubles(2, nil, 7, 8).body...)}},
			[]float64{7, 8},
			"",
		},
		"long levels of version 2": {
			true, []made{{kind: pageDataV2, values: 2, levels: 20, body: []byte{4, 1}}}, nil, "20 of levels",
		},
		"split": {
			false, []made{{kind: pageData, values: 1, encoding: encSplit, body: make([]byte, 8)}}, []float64{0}, "",
		},
		"split oddly": {
			false, []made{{kind: pageData, values: 1, encoding: encSplit, body: make([]byte, 9)}}, nil, "splits",
		},
		"size": {
			false, []made{{kind: pageData, values: 1, unpacked: 9, body: make([]byte, 8)}}, nil, "its header says 9",
		},
		"huge": {false, []made{{kind: pageData, values: 1, unpacked: MaxPage + 1}}, nil, "33554432 are allowed"},
		"no dictionary": {
			false,
			[]made{{kind: pageData, values: 1, encoding: encRLEDictionary, body: []byte{1, 2, 0}}},
			nil,
			"a dictionary that is missing",
		},
	} {
		ch := chunkOf(t, Column{Path: "x", Type: Double, Optional: c.optional}, Plain, noLimit, c.pages...)
		var got []float64
		var v Values
		present := make([]bool, 2)
		var err error
		for err == nil {
			var rows, values int
			if rows, values, err = ch.Read(present, &v); err == nil {
				for _, p := range appendValues(nil, Double, present[:rows], values, v) {
					if p == nil {
						got = append(got, nan)
					} else {
						got = append(got, math.Float64frombits(p.(uint64)))
					}
				}
			}
		}
		ch.Close()
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		} else if err == nil && !cmp.Equal(got, c.want, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestDictionaries: a dictionary has at most as many values as bytes, takes memory while its chunk
// is read, is there once, and is large enough for its indexes.
func TestDictionaries(t *testing.T) {
	dictionary := func(n int, body ...byte) made { return made{kind: pageDictionary, values: n, body: body} }
	// A page of one index.
	indexed := func(body ...byte) made {
		return made{kind: pageData, values: 1, encoding: encRLEDictionary, body: body}
	}
	index := func(i byte) made { return indexed(8, 1<<1, i) }
	texts := []byte{1, 0, 0, 0, 'a', 0, 0, 0, 0}
	for name, c := range map[string]struct {
		pages []made
		want  string
		err   string
	}{
		"first":     {[]made{dictionary(2, texts...), index(0)}, "a", ""},
		"second":    {[]made{dictionary(2, texts...), index(1)}, "", ""},
		"beyond":    {[]made{dictionary(2, texts...), index(2)}, "", "value 2 of a dictionary of 2"},
		"many":      {[]made{dictionary(10, texts...), index(0)}, "", "a dictionary of 10 values in 9 bytes"},
		"three":     {[]made{dictionary(3, texts...), index(0)}, "", "fewer values than rows"},
		"negative":  {[]made{dictionary(-1, texts...), index(0)}, "", "a page of -1 rows"},
		"two":       {[]made{dictionary(2, texts...), dictionary(2, texts...)}, "", "two dictionaries"},
		"wide":      {[]made{dictionary(2, texts...), indexed(33)}, "", "33 bits"},
		"encoded":   {[]made{{kind: pageDictionary, values: 2, encoding: 7, body: texts}}, "", "DELTA_BYTE_ARRAY"},
		"cut":       {[]made{dictionary(2, texts...), indexed(8, 2)}, "", "fewer"},
		"no values": {[]made{dictionary(0), index(0)}, "", "value 0 of a dictionary of 0"},
	} {
		h := access.NewMemoryParts(1<<20, 1<<20).Hold(t.Context(), "s")
		ch := chunkOf(t, Column{Path: "x", Type: ByteArray}, Plain, h, c.pages...)
		var v Values
		_, _, err := ch.Read(make([]bool, 1), &v)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) ||
			err == nil && string(v.Texts[0]) != c.want {
			t.Errorf("%s: %q, %v, want %q", name, v.Texts, err, c.want+c.err)
		}
		if want := int64(2*dictionaryValue + len(texts)); err == nil && h.Bytes() != want {
			t.Errorf("%s: it takes %d bytes, want %d", name, h.Bytes(), want)
		}
		ch.Close()
		if h.Bytes() != 0 {
			t.Errorf("%s: %d bytes are taken behind the end", name, h.Bytes())
		}
	}
	for limit, want := range map[int64]bool{int64(2*dictionaryValue + len(texts)): true, 2 * dictionaryValue: false} {
		h := access.NewMemoryParts(limit, limit).Hold(t.Context(), "s")
		ch := chunkOf(t, Column{Path: "x", Type: ByteArray}, Plain, h, dictionary(2, texts...), index(0))
		var v Values
		if _, _, err := ch.Read(make([]bool, 1), &v); (err == nil) != want || err != nil && !access.IsMemory(err) {
			t.Errorf("with %d bytes: %v", limit, err)
		}
		ch.Close()
		h.Release()
	}
}

// TestHeaders: the header of a page may be long, and not longer than its limit.
func TestHeaders(t *testing.T) {
	page := doubles(1, nil, 7).bytes()
	for _, n := range []int{0, 400, 600, 5000, 40_000, maxHeader - 100, maxHeader} {
		var h thriftWriter
		h.number(1, compactI32, pageData)
		h.number(2, compactI32, 8)
		h.number(3, compactI32, 8)
		h.begin(5)
		h.number(1, compactI32, 1)
		h.text(5, strings.Repeat("x", n)) // in the place of statistics
		h.end()
		h.stop()
		data := append([]byte(magic), h.b...)
		data = append(data, page[len(page)-8:]...)
		data = append(data, make([]byte, 2*maxHeader)...)
		hold := access.NewMemoryParts(1<<20, 1<<20).Hold(t.Context(), "s")
		ch, err := NewChunk(bytes.NewReader(data), int64(len(data)), Column{Path: "x", Type: Double},
			ChunkMeta{Values: 1, start: 4, size: int64(len(data) - 4)}, hold)
		if err != nil {
			t.Fatalf("NewChunk: %v", err)
		}
		var v Values
		_, _, err = ch.Read(make([]bool, 1), &v)
		if (err == nil) != (n < maxHeader) || err == nil && v.Doubles[0] != 7 || hold.Bytes() != 0 {
			t.Errorf("a header of %d bytes: %v, %v, %d bytes are held", len(h.b), v.Doubles, err, hold.Bytes())
		}
		ch.Close()
	}
}

// TestChunks: a chunk that is not in the data of the file, or that cannot be read, is refused.
func TestChunks(t *testing.T) {
	for name, c := range map[string]struct {
		column Column
		meta   ChunkMeta
		want   string
	}{
		"whole":     {Column{}, ChunkMeta{Values: 1, start: 4, size: 96}, ""},
		"magic":     {Column{}, ChunkMeta{Values: 1, start: 3, size: 9}, "9 bytes at 3"},
		"footer":    {Column{}, ChunkMeta{Values: 1, start: 4, size: 97}, "the data end at 100"},
		"behind":    {Column{}, ChunkMeta{Values: 1, start: math.MaxInt64, size: 97}, "the data end at 100"},
		"long":      {Column{}, ChunkMeta{Values: 1, start: 4, size: math.MaxInt64}, "the data end at 100"},
		"negative":  {Column{}, ChunkMeta{Values: 1, start: 4, size: -1}, "-1 bytes"},
		"codec":     {Column{}, ChunkMeta{Values: 1, start: 4, Codec: 5}, "LZ4"},
		"odd codec": {Column{}, ChunkMeta{Values: 1, start: 4, Codec: -4}, "codec -4"},
		"nested":    {Column{Nested: true}, ChunkMeta{Values: 1, start: 4}, "nested"},
		"fixed":     {Column{Type: FixedLenByteArray}, ChunkMeta{Values: 1, start: 4}, "values of 0 bytes"},
		"encrypted": {Column{}, ChunkMeta{Values: 1, start: 4, encrypted: true}, "is encrypted"},
		"foreign":   {Column{}, ChunkMeta{Values: 1, start: 4, foreign: true}, "in another file"},
	} {
		_, err := NewChunk(bytes.NewReader(nil), 100, c.column, c.meta, noLimit)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestCut: a page that ends behind its column is refused, and an error of the disk is that error.
func TestCut(t *testing.T) {
	data := append([]byte(magic), doubles(3, nil, 1, 2, 3).bytes()...)
	n := int64(len(data))
	data = append(data, make([]byte, 20)...)
	var v Values
	for cut, want := range map[int64]bool{0: true, 1: false, 8: false, 24: false} {
		c, err := NewChunk(bytes.NewReader(data), n, Column{Type: Double},
			ChunkMeta{Values: 3, start: 4, size: n - 4 - cut}, noLimit)
		if err != nil {
			t.Fatalf("NewChunk: %v", err)
		}
		if _, _, err := c.Read(make([]bool, 3), &v); (err == nil) != want ||
			err != nil && !strings.Contains(err.Error(), "is longer than its column") {
			t.Errorf("%d bytes fewer: %v", cut, err)
		}
	}
	broken := errors.New("input/output error")
	for src, want := range map[io.ReaderAt]error{disk{broken}: broken, disk{io.EOF}: io.ErrUnexpectedEOF} {
		c, err := NewChunk(src, n, Column{Type: Double}, ChunkMeta{Values: 3, start: 4, size: n - 4}, noLimit)
		if err != nil {
			t.Fatalf("NewChunk: %v", err)
		}
		if _, _, err := c.Read(make([]bool, 3), &v); !errors.Is(err, want) {
			t.Errorf("a disk that fails: %v, want %v", err, want)
		}
	}
}

// disk fails at each read.
type disk struct{ err error }

func (d disk) ReadAt([]byte, int64) (int, error) { return 0, d.err }

// TestSchemas: a schema whose counts do not match, or whose names would take more memory than its
// bytes, is refused.
func TestSchemas(t *testing.T) {
	group := func(name string, children, repetition int) node {
		return node{Column: Column{Path: name}, children: children, repetition: repetition}
	}
	leaf := func(repetition int) node { return node{Column: Column{Path: "x"}, leaf: true, repetition: repetition} }
	for name, c := range map[string]struct {
		nodes []node
		want  string
	}{
		"two":          {[]node{group("", 2, 0), leaf(required), leaf(optional)}, "x x?"},
		"repeated":     {[]node{group("", 1, 0), leaf(repeated)}, "x*"},
		"in required":  {[]node{group("", 1, 0), group("g", 1, required), leaf(optional)}, "g.x?"},
		"in optional":  {[]node{group("", 2, 0), group("g", 1, optional), leaf(required), leaf(required)}, "g.x* x"},
		"no root":      {nil, "no schema"},
		"too many":     {[]node{group("", 1, 0), leaf(0), leaf(0)}, "more columns than"},
		"too few":      {[]node{group("", 2, 0), leaf(0)}, "fewer columns than"},
		"empty group":  {[]node{group("", 2, 0), group("g", 0, 0), leaf(0)}, "x"},
		"negative":     {[]node{group("", 1, 0), group("g", -1, 0)}, "nested too deep"},
		"negative all": {[]node{group("", -1, 0)}, "wrong type"},
		"long names": {
			append([]node{group("", 1, 0), group(strings.Repeat("n", 1000), 9, 0)},
				slices.Repeat([]node{leaf(0)}, 9)...),
			"too long",
		},
	} {
		all, err := leaves(c.nodes, 1000)
		var got []string
		for _, l := range all {
			got = append(got, l.Path+map[bool]string{true: "?"}[l.Optional]+map[bool]string{true: "*"}[l.Nested])
		}
		text := strings.Join(got, " ")
		if err == nil && text != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s, %v, want %s", name, text, err, c.want)
		}
	}
	deep := []node{group("", 1, 0)}
	for range maxSchemaDepth + 1 {
		deep = append(deep, group("g", 1, 0))
	}
	if _, err := leaves(append(deep, leaf(0)), 1<<20); err == nil {
		t.Error("a schema of any depth is read")
	}
}

// TestPageBombs: a page that unpacks to another size than its header says is refused, and takes no
// more memory than that size.
func TestPageBombs(t *testing.T) {
	pack := map[Codec]func(b []byte) []byte{
		Zstd: func(b []byte) []byte {
			enc, err := zstd.NewWriter(nil)
			if err != nil {
				t.Fatalf("zstd.NewWriter: %v", err)
			}
			defer enc.Close()
			return enc.EncodeAll(b, nil)
		},
		Snappy: func(b []byte) []byte { return snappy.Encode(nil, b) },
		Gzip: func(b []byte) []byte {
			var out bytes.Buffer
			w := gzip.NewWriter(&out)
			_, err := w.Write(b)
			if err := errors.Join(err, w.Close()); err != nil {
				t.Fatalf("gzip: %v", err)
			}
			return out.Bytes()
		},
		Brotli: func(b []byte) []byte {
			var out bytes.Buffer
			w := brotli.NewWriterLevel(&out, 1)
			_, err := w.Write(b)
			if err := errors.Join(err, w.Close()); err != nil {
				t.Fatalf("brotli: %v", err)
			}
			return out.Bytes()
		},
		LZ4Raw: func(b []byte) []byte {
			out := make([]byte, lz4.CompressBlockBound(len(b)))
			n, err := lz4.CompressBlock(b, out, nil)
			if err != nil {
				t.Fatalf("lz4: %v", err)
			}
			return out[:n]
		},
		Plain: func(b []byte) []byte { return b },
	}
	for codec, pack := range pack {
		large := make([]byte, 64<<20)
		packed := pack(large)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, size := range []int{0, 1, 1 << 20} {
			if err := codec.unpack(make([]byte, size), packed); err == nil {
				t.Errorf("%s: 64 MiB fit into %d bytes", codec, size)
			}
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20+3*uint64(codec.working()) {
			t.Errorf("%s: %d MB were allocated", codec, n>>20)
		}
		got := make([]byte, len(large))
		got[9] = 9
		if err := codec.unpack(got, packed); err != nil || !bytes.Equal(got, large) {
			t.Errorf("%s: %v", codec, err)
		}
		if err := codec.unpack(make([]byte, 101), pack(make([]byte, 100))); err == nil {
			t.Errorf("%s: 100 bytes fill 101", codec)
		}
		if codec != Plain {
			if err := codec.unpack(make([]byte, 10), []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}); err == nil {
				t.Errorf("%s: any bytes are a page", codec)
			}
		}
	}
}

// TestRuns: indexes of every width and length come back, by the oracle of their list.
func TestRuns(t *testing.T) {
	for _, distinct := range []int{1, 2, 3, 8, 200, 257, 70_000} {
		for _, n := range []int{0, 1, 7, 8, 9, 100} {
			for _, run := range []int{1, 7, 8, 30} {
				want := make([]uint32, n)
				for i := range want {
					want[i] = uint32(i/run*40503) % uint32(distinct)
				}
				b := packIndexes(want, distinct)
				got := make([]uint32, n)
				r := hybrid{b: b[1:], width: int(b[0])}
				if err := r.read(got); err != nil || !slices.Equal(got, want) {
					t.Fatalf("%d of %d in runs of %d: %v, %v, want %v", n, distinct, run, got, err, want)
				}
			}
		}
	}
}

// TestLongRuns: a run that says that it is longer than any page is refused.
func TestLongRuns(t *testing.T) {
	for _, head := range []uint64{1<<62 | 1, 1<<33 | 1, 1 << 33, 1, 0} {
		r := hybrid{b: append(binary.AppendUvarint(nil, head), 1, 2, 3, 4), width: 16}
		if err := r.read(make([]uint32, 1)); err == nil {
			t.Errorf("a run that begins with %#x is read", head)
		}
	}
}

// TestWriterErrors: values of another type or length, and columns that are not written, are errors,
// and an error of the file stays.
func TestWriterErrors(t *testing.T) {
	one := []Column{{Path: "x", Type: Double}}
	for name, c := range map[string]struct {
		columns []Column
		values  []any
	}{
		"type":    {one, []any{[]float32{1}}},
		"other":   {one, []any{[]int{1}}},
		"none":    {one, nil},
		"lengths": {append(one, one...), []any{[]float64{1}, []float64{1, 2}}},
	} {
		w, err := NewWriter(io.Discard, "test", c.columns)
		if err != nil {
			t.Fatalf("NewWriter: %v", err)
		}
		if err := w.WriteGroup(c.values...); !errors.Is(err, errTypes) || !errors.Is(w.Close(), errTypes) {
			t.Errorf("%s: %v, then %v, want %v", name, err, w.Close(), errTypes)
		}
	}
	for _, c := range []Column{{Type: Int96}, {Type: Double, Optional: true}, {Type: ByteArray}} {
		if _, err := NewWriter(io.Discard, "test", []Column{c}); err == nil {
			t.Errorf("%+v is written", c)
		}
	}
	full := errors.New("no space")
	var sizes []int
	for room := 0; ; room++ {
		f := &narrow{room, full}
		w, err := NewWriter(f, "test", one)
		if err != nil {
			t.Fatalf("NewWriter: %v", err)
		}
		err = w.WriteGroup([]float64{1, 2})
		if again := w.Close(); err == nil {
			err = again
		}
		if err == nil {
			break
		}
		if sizes = append(sizes, room); !errors.Is(err, full) {
			t.Fatalf("with room for %d writes: %v, want %v", room, err, full)
		}
	}
	// The mark, a dictionary and a page behind their headers, and the footer.
	if len(sizes) != 6 {
		t.Errorf("%d writes make a file: %v", len(sizes), sizes)
	}
}

// narrow fails after some writes.
type narrow struct {
	room int
	err  error
}

func (n *narrow) Write(b []byte) (int, error) {
	if n.room--; n.room < 0 {
		return 0, n.err
	}
	return len(b), nil
}

// TestBounds: bounds leave out what is no number, and a text that is long has none.
func TestBounds(t *testing.T) {
	f := func(v float64) []byte { return binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)) }
	negative := math.Copysign(0, -1)
	for _, c := range []struct {
		got       bounds
		low, high []byte
	}{
		{doubleBounds([]float64{2, math.NaN(), -1}), f(-1), f(2)},
		{doubleBounds([]float64{0}), f(negative), f(0)},
		{doubleBounds([]float64{negative}), f(negative), f(0)},
		{doubleBounds([]float64{math.NaN()}), nil, nil},
		{doubleBounds(nil), nil, nil},
		{floatBounds([]float32{1.5}), []byte{0, 0, 0xc0, 0x3f}, []byte{0, 0, 0xc0, 0x3f}},
		{textBounds([]string{"b", "", "c"}), []byte{}, []byte("c")},
		{textBounds([]string{strings.Repeat("x", longestBound+1)}), nil, nil},
		{intBounds([]uint32{7, 5}, appendInt32), []byte{5, 0, 0, 0}, []byte{7, 0, 0, 0}},
	} {
		if (c.got.low == nil) != (c.low == nil) || !bytes.Equal(c.got.low, c.low) || !bytes.Equal(c.got.high, c.high) {
			t.Errorf("bounds %v, want %v to %v", c.got, c.low, c.high)
		}
	}
}

// FuzzFile: any bytes are an error or columns, and take no more memory than the budget has.
func FuzzFile(f *testing.F) {
	for _, p := range []made{doubles(2, []byte{1, 0}, 1), doubles(1, nil, 1)} {
		f.Add(append([]byte(magic), p.bytes()...), int(Double), true)
	}
	texts := []byte{1, 0, 0, 0, 'a', 0, 0, 0, 0}
	f.Add(append(append([]byte(magic), made{kind: pageDictionary, values: 2, body: texts}.bytes()...),
		made{kind: pageData, values: 9, encoding: 8, body: []byte{8, 9 << 1, 1}}.bytes()...), int(ByteArray), false)
	for _, p := range []struct {
		of, encoding int
		body         []byte
	}{
		{int(Int64), encDelta, differences(1, -2, 1<<40, 7)},
		{int(ByteArray), encDeltaLength, append(differences(1, 0, 2), "abc"...)},
		{int(ByteArray), encDeltaTexts, append(append(differences(0, 1), differences(2, 1)...), "abc"...)},
		{int(FixedLenByteArray) + 8, encDeltaTexts, append(append(differences(0, 1), differences(2, 1)...), "abc"...)},
		{int(Boolean), encRLE, []byte{2, 0, 0, 0, 5 << 1, 1}},
	} {
		f.Add(
			append([]byte(magic), made{kind: pageData, values: 4, encoding: p.encoding, body: p.body}.bytes()...),
			p.of,
			false,
		)
	}
	f.Fuzz(func(t *testing.T, data []byte, of int, optional bool) {
		if _, err := CountStructs(data); err == nil {
			_, _ = ReadFooter(data)
		}
		h := access.NewMemoryParts(1<<20, 1<<20).Hold(t.Context(), "s")
		for _, codec := range []Codec{Plain, Snappy, Gzip, Zstd, Brotli, LZ4Raw} {
			c, err := NewChunk(bytes.NewReader(data), int64(len(data)),
				Column{Path: "x", Type: Type(uint(of) % 8), Optional: optional, Size: 1 + int(uint(of)/8%70)},
				ChunkMeta{Codec: codec, Values: 1, start: 4, size: int64(len(data)) - 4}, h)
			if err != nil {
				continue
			}
			var v Values
			for range 1000 {
				if _, _, err := c.Read(make([]bool, 64), &v); err != nil {
					break
				}
			}
			c.Close()
		}
		if h.Bytes() != 0 {
			t.Fatal(fmt.Sprint(h.Bytes(), " bytes are held"))
		}
	})
}

// FuzzCompact: the walk of a footer ends and never panics.
func FuzzCompact(f *testing.F) {
	f.Add([]byte{0x29, 0x1c, 0, 0})
	f.Add([]byte{0x1b, 1, 0x88, 1, 'a', 1, 'b', 0})
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = checkCompact(data) })
}
