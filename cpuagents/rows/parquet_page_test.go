package rows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	pqfile "github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/jobs"
)

// withFooter returns a file that ends with a footer which says that it has n bytes.
func withFooter(footer []byte, n uint32, mark string) []byte {
	file := append([]byte("PAR1"), footer...)
	return append(binary.LittleEndian.AppendUint32(file, n), mark...)
}

// TestParquetFooter: a footer lies in the file, is of an allowed size and is no other's.
func TestParquetFooter(t *testing.T) {
	open := func(f *os.File) error {
		r, err := newParquetReader("s", f, pairSpec, nil)
		if err == nil {
			err = r.Close()
		}
		return err
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":     {nil, "0 bytes are no Parquet file"},
		"11 bytes":    {withFooter(nil, 0, "PAR1")[1:], "11 bytes are no Parquet file"},
		"12 bytes":    {withFooter(nil, 0, "PAR1"), "its footer is damaged"},
		"encrypted":   {withFooter([]byte{0}, 1, "PARE"), "is encrypted: decrypt it first"},
		"another end": {withFooter([]byte{0}, 1, "PAR2"), "does not end as a Parquet file does"},
		"as long as the file": {withFooter([]byte{0x1f, 0}, 2, "PAR1"), "its footer is damaged: a value of unknown " +
			"type"}, "longer": {withFooter([]byte{0x1f, 0}, 3, "PAR1"), "says that it has 3 bytes, of a file of 14; " +
			"16777216 are allowed"},
		"shorter": {withFooter([]byte{0x1f, 0x18, 9}, 2, "PAR1"), "its footer is damaged: a length points behind " +
			"its end"},
	} {
		if err := open(fixture.TempFile(t, c.data)); !fixture.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	for n, want := range map[uint32]bool{maxParquetFooter: true, maxParquetFooter + 1: false} {
		f := fixture.TempFile(t, []byte("PAR1"))
		if _, err := f.WriteAt(append(binary.LittleEndian.AppendUint32(nil, n), "PAR1"...), 4+int64(n)); err != nil {
			t.Fatalf("f.WriteAt: %v, want no error", err)
		}
		if err := open(f); !fixture.IsInput(err) || strings.Contains(err.Error(), "16777216 are allowed") == want {
			t.Errorf("a footer of %d bytes: %v", n, err)
		}
	}
	closed := fixture.TempFile(t, nil)
	_ = closed.Close()
	var e *jobs.Error
	if err := open(closed); !errors.As(err, &e) || e.Code != jobs.CodeIO {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

// TestParquetMemory: what a reader takes before the first row, and a memory that is one byte too
// small for it.
func TestParquetMemory(t *testing.T) {
	data := fixture.Parquet(t, fixture.Record(pairRows(10)))
	n := int64(binary.LittleEndian.Uint32(data[len(data)-8:]))
	structs, err := checkCompact(data[int64(len(data))-8-n:])
	if err != nil {
		t.Fatalf("checkCompact: %v, want no error", err)
	}
	buffers := blockBytes(2, 0) + 3*64<<10
	whole := buffers + 2*n + 512*structs
	for limit, want := range map[int64]bool{
		whole: true, whole - 1: false, buffers + 2*n: false,
		buffers + 2*n - 1: false, buffers: false, buffers - 1: false,
	} {
		h := inputmem.WithParts(limit, limit).Hold(t.Context(), "s")
		r, err := newParquetReader("s", fixture.TempFile(t, data), pairSpec, h)
		if (err == nil) != want || err != nil && !inputmem.IsMemory(err) {
			t.Errorf("%d bytes of %d: %v", limit, whole, err)
		}
		if err == nil {
			if h.Bytes() != whole {
				t.Errorf("it takes %d bytes, want %d", h.Bytes(), whole)
			}
			_ = r.Close()
		}
		h.Release()
	}
	// All that the pages took is given back with them.
	h := inputmem.WithParts(1<<30, 1<<30).Hold(t.Context(), "s")
	r, err := newParquetReader("s", fixture.TempFile(t, data), pairSpec, h)
	if err != nil {
		t.Fatalf("newParquetReader: %v, want no error", err)
	}
	if rows, _, err := drainRows(t, r); err != nil || len(rows) != 10 {
		t.Fatalf("%d rows, %v, want 10", len(rows), err)
	}
	if h.Bytes() != whole {
		t.Errorf("at the end it takes %d bytes, want %d", h.Bytes(), whole)
	}
}

// TestParquetEncodings: pages and chunks that are written as this agent reads them, and others.
func TestParquetEncodings(t *testing.T) {
	rec := fixture.Record(pairRows(20))
	plain := parquet.WithDictionaryDefault(false)
	of := func(path string, e parquet.Encoding) []parquet.WriterProperty {
		return []parquet.WriterProperty{plain, parquet.WithEncodingFor(path, e)}
	}
	for name, c := range map[string]struct {
		opts []parquet.WriterProperty
		want string
	}{
		"plain": {of("a", parquet.Encodings.Plain), ""}, "split": {of("a", parquet.Encodings.ByteStreamSplit), ""},
		"dictionary": {nil, ""},
		"delta text": {of("at", parquet.Encodings.DeltaByteArray), "its pages are written with DELTA_BYTE_ARRAY: " +
			"write the file with plain or dictionary encoding"},
		"delta length": {of("at", parquet.Encodings.DeltaLengthByteArray), "its pages are written with " +
			"DELTA_LENGTH_BYTE_ARRAY"},
		"brotli": {
			[]parquet.WriterProperty{parquet.WithCompression(compress.Codecs.Brotli)},
			`is packed with BROTLI: write the file with snappy, gzip, zstd or none`,
		},
		"lz4": {
			[]parquet.WriterProperty{parquet.WithCompression(compress.Codecs.Lz4Raw)},
			`is packed with LZ4_RAW`,
		},
		"a column": {
			[]parquet.WriterProperty{parquet.WithCompressionFor("b", compress.Codecs.Brotli)},
			`column "b" is packed with BROTLI`,
		},
		"not wanted": {[]parquet.WriterProperty{parquet.WithCompressionFor("note", compress.Codecs.Brotli)}, ""},
	} {
		rows, rejects, err := readWriting(t, fixture.File{Format: "parquet", Data: fixture.Parquet(t, rec, c.opts...)},
			pairSpec, fixture.Plenty)
		if (err == nil) != (c.want == "") || err != nil &&
			(!fixture.IsInput(err) || !strings.Contains(err.Error(), c.want)) || err == nil &&
			(len(rows) != 20 || len(rejects) != 0) {
			t.Errorf("%s: %d rows, %v, want %s", name, len(rows), err, c.want)
		}
	}
}

// TestParquetGroups: row groups of any size, none at all too, and blocks that end with them and
// within them.
func TestParquetGroups(t *testing.T) {
	for _, sizes := range [][]int{
		{1},
		{0, 3},
		{3, 0, 0, 2},
		{blockRows - 1, 1},
		{blockRows, 1},
		{blockRows + 1, 1},
		{2 * blockRows},
		{2*blockRows + 1, blockRows},
	} {
		total := 0
		for _, n := range sizes {
			total += n
		}
		rec := fixture.Record(pairRows(total))
		var out bytes.Buffer
		w, err := pqarrow.NewFileWriter(rec.Schema(), &out,
			parquet.NewWriterProperties(parquet.WithMaxRowGroupLength(1<<20)), pqarrow.DefaultWriterProps())
		if err != nil {
			t.Fatalf("pqarrow.NewFileWriter: %v, want no error", err)
		}
		at := 0
		for _, n := range sizes {
			w.NewBufferedRowGroup()
			if n > 0 {
				if err := w.WriteBuffered(rec.NewSlice(int64(at), int64(at+n))); err != nil {
					t.Fatalf("w.WriteBuffered: %v, want no error", err)
				}
			}
			at += n
		}
		if err := w.Close(); err != nil {
			t.Fatalf("w.Close: %v, want no error", err)
		}
		rows, rejects, err := readWriting(t, fixture.File{Format: "parquet", Data: out.Bytes()}, pairSpec,
			fixture.Plenty)
		if err != nil || len(rejects) != 0 || len(rows) != total {
			t.Fatalf("groups of %v: %d rows, %d rejects, %v", sizes, len(rows), len(rejects), err)
		}
		for i, r := range rows {
			if r.Values[0] != float64(i) || r.Values[1] != -float64(i) {
				t.Fatalf("groups of %v, row %d: %v", sizes, i, r.Values)
			}
		}
	}
}

// TestParquetNested: a column that is a list or lies in an optional structure is refused, one in a
// required structure is a column.
func TestParquetNested(t *testing.T) {
	number := arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float64, Nullable: true}
	file := func(field arrow.Field) []byte {
		b := array.NewRecordBuilder(memory.DefaultAllocator,
			arrow.NewSchema([]arrow.Field{{Name: "timestamp", Type: arrow.BinaryTypes.String}, field}, nil))
		defer b.Release()
		b.Field(0).(*array.StringBuilder).Append("1700000000")
		b.Field(1).AppendEmptyValue()
		return fixture.Parquet(t, b.NewRecordBatch())
	}
	for name, c := range map[string]struct {
		field  arrow.Field
		column string
		want   string
	}{
		"list": {
			arrow.Field{Name: "v", Type: arrow.ListOf(number.Type)},
			"v.list.element",
			"is nested, not a number",
		},
		"optional": {
			arrow.Field{Name: "v", Type: arrow.StructOf(number), Nullable: true},
			"v.x",
			"is nested, not a number",
		},
		"required": {arrow.Field{Name: "v", Type: arrow.StructOf(number)}, "v.x", ""},
	} {
		_, _, err := readWriting(t, fixture.File{Format: "parquet", Data: file(c.field)},
			ColumnSpec{Timestamp: "timestamp", Features: []string{c.column}}, fixture.Plenty)
		if (err == nil) != (c.want == "") || err != nil &&
			(!fixture.IsInput(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestParquetKinds: how each type of a column is read as a time and as a number.
func TestParquetKinds(t *testing.T) {
	stamp := func(u schema.TimeUnitType) schema.LogicalType { return schema.NewTimestampLogicalType(true, u) }
	for _, c := range []struct {
		physical     parquet.Type
		logical      schema.LogicalType
		number, time valueKind
	}{
		{parquet.Types.Int32, nil, kindInt32, kindInt32},
		{parquet.Types.Int64, nil, kindInt64, kindInt64},
		{parquet.Types.Float, nil, kindFloat, kindFloat},
		{parquet.Types.Double, nil, kindDouble, kindDouble},
		{parquet.Types.ByteArray, nil, kindNone, kindText},
		{parquet.Types.Int96, nil, kindNone, kindInt96},
		{parquet.Types.Boolean, nil, kindNone, kindNone},
		{parquet.Types.FixedLenByteArray, nil, kindNone, kindNone},
		{parquet.Types.Int32, schema.NewIntLogicalType(8, true), kindInt32, kindInt32},
		{parquet.Types.Int32, schema.NewIntLogicalType(16, false), kindUint32, kindUint32},
		{parquet.Types.Int64, schema.NewIntLogicalType(64, true), kindInt64, kindInt64},
		{parquet.Types.Int64, schema.NewIntLogicalType(64, false), kindUint64, kindUint64},
		{parquet.Types.Int64, stamp(schema.TimeUnitMillis), kindNone, kindMillis},
		{parquet.Types.Int64, stamp(schema.TimeUnitMicros), kindNone, kindMicros},
		{parquet.Types.Int64, stamp(schema.TimeUnitNanos), kindNone, kindNanos},
		{parquet.Types.Int32, schema.DateLogicalType{}, kindNone, kindDate},
		{parquet.Types.ByteArray, schema.StringLogicalType{}, kindNone, kindText},
		{parquet.Types.ByteArray, schema.JSONLogicalType{}, kindNone, kindNone},
		{parquet.Types.ByteArray, schema.EnumLogicalType{}, kindNone, kindNone},
		{parquet.Types.Int32, schema.NewDecimalLogicalType(9, 2), kindNone, kindNone},
		{parquet.Types.Int64, schema.NewDecimalLogicalType(18, 2), kindNone, kindNone},
		{parquet.Types.Int32, schema.NewTimeLogicalType(true, schema.TimeUnitMillis), kindNone, kindNone},
	} {
		var node schema.Node
		var err error
		size := -1
		if c.physical == parquet.Types.FixedLenByteArray {
			size = 4
		}
		if c.logical == nil {
			node, err = schema.NewPrimitiveNode("x", parquet.Repetitions.Required, c.physical, -1, int32(size))
		} else {
			node, err = schema.NewPrimitiveNodeLogical("x", parquet.Repetitions.Required, c.logical, c.physical, size,
				-1)
		}
		if err != nil {
			t.Fatalf("make a column of %v, %v: %v", c.physical, c.logical, err)
		}
		col := schema.NewColumn(node.(*schema.PrimitiveNode), 0, 0)
		if got := kind(col, roleFeature); got != c.number {
			t.Errorf("%s as a number: %d, want %d", typeName(col), got, c.number)
		}
		if got := kind(col, roleTime); got != c.time {
			t.Errorf("%s as a time: %d, want %d", typeName(col), got, c.time)
		}
		if name := typeName(col); !strings.HasPrefix(name, c.physical.String()) ||
			strings.Contains(name, "(") != (c.logical != nil) {
			t.Errorf("%v %v is named %s", c.physical, c.logical, name)
		}
	}
	c := chunk{
		ints: []int32{-1, 7}, longs: []int64{-1, 1500}, float: []float32{0, 0.5}, double: []float64{0, 0.25},
		texts: []parquet.ByteArray{nil, []byte("x")}, int96: make([]parquet.Int96, 2),
	}
	c.int96[1].SetNanoSeconds(1e9)
	binary.LittleEndian.PutUint32(c.int96[1][8:], 2440588) // the Julian day of 1970-01-01
	for k, want := range map[valueKind]struct {
		number float64
		time   string
	}{
		kindInt32: {-1, "-1"}, kindUint32: {math.MaxUint32, "4294967295"}, kindInt64: {-1, "-1"},
		kindUint64: {math.MaxUint64, "18446744073709551615"}, kindFloat: {0, "0"}, kindDouble: {0, "0"},
	} {
		if c.kind = k; c.number(0) != want.number || c.time(0) != want.time {
			t.Errorf("kind %d: %v, %s", k, c.number(0), c.time(0))
		}
	}
	for k, want := range map[valueKind]string{
		kindText: "x", kindDate: "1970-01-08T00:00:00Z", kindMillis: "1970-01-01T00:00:01.5Z",
		kindMicros: "1970-01-01T00:00:00.0015Z", kindNanos: "1970-01-01T00:00:00.0000015Z",
		kindInt96: "1970-01-01T00:00:01Z",
		kindFloat: "0.5", kindDouble: "0.25", kindInt32: "7",
	} {
		if c.kind = k; c.time(1) != want {
			t.Errorf("kind %d: %s, want %s", k, c.time(1), want)
		}
	}
}

// givenPages is a file.PageReader of pages in memory.
type givenPages struct {
	pqfile.PageReader // nil: what is not here is not asked for
	pages             []pqfile.Page
	dictionary        *pqfile.DictionaryPage
	at                int
	err               error
}

func (g *givenPages) Next() bool                                         { g.at++; return g.at <= len(g.pages) }
func (g *givenPages) Page() pqfile.Page                                  { return g.pages[g.at-1] }
func (g *givenPages) Err() error                                         { return g.err }
func (g *givenPages) Close() error                                       { return nil }
func (g *givenPages) GetDictionaryPage() (*pqfile.DictionaryPage, error) { return g.dictionary, nil }

// doubles makes a page that says that it has n rows, of which those in levels are there, and holds
// some values.
func doubles(n int32, levels []byte, values ...float64) pqfile.Page {
	var b []byte
	if levels != nil { // one run of RLE for each level
		var runs []byte
		for _, l := range levels {
			runs = append(runs, 1<<1, l)
		}
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(runs))), runs...)
	}
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return pqfile.NewDataPageV1(memory.NewBufferBytes(b), n, parquet.Encodings.Plain, parquet.Encodings.RLE,
		parquet.Encodings.RLE, int32(len(b)))
}

func doubleChunk(t *testing.T, optional bool, source *givenPages) *chunk {
	t.Helper()
	repetition, level := parquet.Repetitions.Required, int16(0)
	if optional {
		repetition, level = parquet.Repetitions.Optional, 1
	}
	node, err := schema.NewPrimitiveNode("x", repetition, parquet.Types.Double, -1, -1)
	if err != nil {
		t.Fatalf("schema.NewPrimitiveNode: %v, want no error", err)
	}
	descr := schema.NewColumn(node, level, 0)
	guard := &pageGuard{PageReader: source, name: "s"}
	return &chunk{
		descr: descr, guard: guard, kind: kindDouble, features: 1,
		col: pqfile.NewColumnReader( //nolint:staticcheck // the reader under test gets its pages from here
			descr, guard, memory.DefaultAllocator,
			&sync.Pool{New: func() any { return memory.NewResizableBuffer(memory.DefaultAllocator) }}),
	}
}

// TestParquetPages: the rows of pages come in their order with their nulls, and pages that have
// fewer rows or values than they say are damaged.
func TestParquetPages(t *testing.T) {
	if testing.Short() {
		t.Skip("the Arrow library converts pointers into empty pages, which the race detector's checkptr reports: " +
			"not with -short")
	}
	broken := errors.New("input/output error")
	page := func(pages ...pqfile.Page) *givenPages { return &givenPages{pages: pages} }
	nan := math.NaN() // a null
	for name, c := range map[string]struct {
		optional bool
		source   *givenPages
		rows     int
		want     []float64
		err      string
	}{
		"one page":  {false, page(doubles(3, nil, 1, 2, 3)), 3, []float64{1, 2, 3}, ""},
		"two pages": {false, page(doubles(1, nil, 1), doubles(2, nil, 2, 3)), 3, []float64{1, 2, 3}, ""},
		"not all":   {false, page(doubles(3, nil, 1, 2, 3)), 2, []float64{1, 2}, ""},
		"nulls":     {true, page(doubles(4, []byte{1, 0, 1, 0}, 1, 3)), 4, []float64{1, nan, 3, nan}, ""},
		"first null": {
			true, page(doubles(2, []byte{0, 1}, 2), doubles(1, []byte{0})), 3,
			[]float64{nan, 2, nan},
			"",
		},
		"only nulls":    {true, page(doubles(2, []byte{0, 0})), 2, []float64{nan, nan}, ""},
		"no page":       {false, page(), 3, nil, "it has 3 rows fewer than its row group"},
		"too few pages": {false, page(doubles(1, nil, 1)), 3, nil, "it has 2 rows fewer than its row group"},
		"a disk": {
			false, &givenPages{pages: []pqfile.Page{doubles(1, nil, 1)}, err: broken}, 3, nil,
			broken.Error(),
		},
		"too few rows": {false, page(doubles(3, nil, 1, 2)), 3, nil, "eof exception"},
		"no rows":      {false, page(doubles(3, nil)), 3, nil, "eof exception"},
		"negative":     {false, page(doubles(-1, nil, 1)), 1, nil, "a page of -1 rows"},
		"encoding": {
			false, page(pqfile.NewDataPageV1(memory.NewBufferBytes(make([]byte, 8)), 1,
				parquet.Encodings.DeltaBinaryPacked, parquet.Encodings.RLE, parquet.Encodings.RLE, 8)), 1, nil,
			"its pages are written with DELTA_BINARY_PACKED",
		},
	} {
		ch := doubleChunk(t, c.optional, c.source)
		b := &block{}
		b.reset(1, 0, c.rows)
		err := ch.read(b, 0, c.rows)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
			continue
		}
		for i, w := range c.want {
			if b.nulls[0][i] != math.IsNaN(w) || !math.IsNaN(w) && b.values[0][i] != w {
				t.Errorf("%s, row %d: %v, null: %v, want %v", name, i, b.values[0][i], b.nulls[0][i], w)
			}
		}
	}
	// The rows of a page are read in any pieces.
	for _, sizes := range [][]int{{1, 1, 1, 1, 1}, {2, 3}, {4, 1}} {
		ch := doubleChunk(t, true, page(doubles(3, []byte{1, 0, 1}, 1, 3), doubles(2, []byte{1, 1}, 4, 5)))
		var got []float64
		for _, n := range sizes {
			b := &block{}
			b.reset(1, 0, n)
			if err := ch.read(b, 0, n); err != nil {
				t.Fatalf("read in parts of %v: %v, want no error", sizes, err)
			}
			for i := range n {
				if b.nulls[0][i] {
					b.values[0][i] = 2
				}
				got = append(got, b.values[0][i])
			}
		}
		if !slices.Equal(got, []float64{1, 2, 3, 4, 5}) {
			t.Errorf("pieces of %v: %v", sizes, got)
		}
	}
}

// TestParquetDictionaries: a dictionary has at most as many values as bytes, takes memory while its
// chunk is read, and is refused where there is none.
func TestParquetDictionaries(t *testing.T) {
	dictionary := func(n int32, bytes int) *pqfile.DictionaryPage {
		return pqfile.NewDictionaryPage(memory.NewBufferBytes(make([]byte, bytes)), n, parquet.Encodings.Plain)
	}
	for _, c := range []struct {
		n    int32
		size int
		ok   bool
	}{{0, 0, true}, {8, 8, true}, {7, 8, true}, {9, 8, false}, {-1, 8, false}, {1, 0, false}} {
		for _, direct := range []bool{false, true} {
			m := inputmem.WithParts(1<<20, 1<<20)
			h := m.Hold(t.Context(), "s")
			d := dictionary(c.n, c.size)
			g := &pageGuard{PageReader: &givenPages{pages: []pqfile.Page{d}, dictionary: d}, name: "s", hold: h}
			if direct {
				_, err := g.GetDictionaryPage()
				if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "a dictionary of ") {
					t.Errorf("%d values in %d bytes: %v", c.n, c.size, err)
				}
			} else if ok := g.Next(); ok != c.ok || (g.Err() == nil) != c.ok || !ok && g.Next() {
				t.Errorf("%d values in %d bytes: %v, %v", c.n, c.size, ok, g.Err())
			}
			if c.ok && h.Bytes() != 24*int64(c.n) {
				t.Errorf("%d values take %d bytes", c.n, h.Bytes())
			}
			if err := errors.Join(g.Close(), g.Close()); err != nil || h.Bytes() != 0 {
				t.Errorf("%d bytes are taken behind the end, %v", h.Bytes(), err)
			}
		}
	}
	h := inputmem.WithParts(24, 24).Hold(t.Context(), "s")
	g := &pageGuard{
		PageReader: &givenPages{pages: []pqfile.Page{dictionary(1, 8), dictionary(1, 8)}}, name: "s",
		hold: h,
	}
	if !g.Next() || g.Next() || !inputmem.IsMemory(g.Err()) || h.Bytes() != 24 {
		t.Errorf("a second dictionary: %v, %d bytes", g.Err(), h.Bytes())
	}
	none := &pageGuard{PageReader: &givenPages{}, name: "s"}
	if d, err := none.GetDictionaryPage(); d != nil || err != nil || none.Next() || none.Err() != nil {
		t.Errorf("without pages: dictionary %v, %v, then %v, want none and no error", d, err, none.Err())
	}
}
