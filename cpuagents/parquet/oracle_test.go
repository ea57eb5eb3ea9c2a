package parquet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	oracle "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cpuagents/access"
)

// fataler is a testing.T or a rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// openFile reads the footer of a file, and returns where it begins.
func openFile(data []byte) (*Footer, int64, error) {
	if len(data) < 12 {
		return nil, 0, io.ErrUnexpectedEOF
	}
	size := int64(binary.LittleEndian.Uint32(data[len(data)-8:]))
	limit := int64(len(data)) - 8 - size
	if limit < 0 {
		return nil, 0, io.ErrUnexpectedEOF
	}
	footer := data[limit : len(data)-8]
	if _, err := CountStructs(footer); err != nil {
		return nil, 0, err
	}
	f, err := ReadFooter(footer)
	return f, limit, err
}

// readColumn returns the values of a column, batch rows at a time; nil for a null. What it takes of
// the budget it gives back.
func readColumn(data []byte, f *Footer, limit int64, at, batch int) (all []any, err error) {
	mem := access.NewMemoryParts(1<<30, 1<<30)
	hold := mem.Hold(context.Background(), "s")
	defer hold.Release()
	for _, g := range f.Groups {
		c, err := NewChunk(bytes.NewReader(data), limit, f.Columns[at], g.Chunks[at], hold)
		if err != nil {
			return nil, err
		}
		present, rows := make([]bool, batch), int64(0)
		var v Values
		for err == nil {
			var n, values int
			if n, values, err = c.Read(present, &v); err == nil {
				all = appendValues(all, f.Columns[at].Type, present[:n], values, v)
				rows += int64(n)
			}
		}
		c.Close()
		if hold.Bytes() != 0 {
			return nil, fmt.Errorf("%d bytes are held behind the end", hold.Bytes())
		}
		if !errors.Is(err, io.EOF) {
			return nil, err
		}
		if rows != g.Rows {
			return nil, fmt.Errorf("%d rows of %d", rows, g.Rows)
		}
	}
	return all, nil
}

func appendValues(all []any, of Type, present []bool, values int, v Values) []any {
	i := 0
	for _, has := range present {
		if !has {
			all = append(all, nil)
			continue
		}
		all = append(all, valueAt(of, v, i))
		i++
	}
	if i != values {
		panic(fmt.Sprintf("%d values, and %d rows have one", values, i))
	}
	return all
}

func valueAt(of Type, v Values, i int) any {
	switch of {
	case Boolean:
		return v.Bools[i]
	case Int32:
		return v.Int32s[i]
	case Int64:
		return v.Int64s[i]
	case Int96:
		return v.Int96s[i]
	case Float:
		return math.Float32bits(v.Floats[i])
	case Double:
		return math.Float64bits(v.Doubles[i])
	}
	return string(v.Texts[i])
}

// kinds are the columns that the Arrow library writes for the tests: the type of Arrow, how a value
// is appended, and the same value as this package reads it.
var kinds = []struct {
	of      arrow.DataType
	column  Column
	value   *rapid.Generator[any]
	append  func(b array.Builder, v any)
	reading func(v any) any
}{
	{
		arrow.PrimitiveTypes.Float64,
		Column{Type: Double},
		anyOf(rapid.Float64()),
		func(b array.Builder, v any) { b.(*array.Float64Builder).Append(v.(float64)) },
		func(v any) any { return math.Float64bits(v.(float64)) },
	},
	{
		arrow.PrimitiveTypes.Float32,
		Column{Type: Float},
		anyOf(rapid.Float32()),
		func(b array.Builder, v any) { b.(*array.Float32Builder).Append(v.(float32)) },
		func(v any) any { return math.Float32bits(v.(float32)) },
	},
	{
		arrow.PrimitiveTypes.Int32,
		Column{Type: Int32, Logical: Signed},
		anyOf(rapid.Int32Range(-3, 3)),
		func(b array.Builder, v any) { b.(*array.Int32Builder).Append(v.(int32)) }, same,
	},
	{
		arrow.PrimitiveTypes.Uint64,
		Column{Type: Int64, Logical: Unsigned},
		anyOf(rapid.Uint64()),
		func(b array.Builder, v any) { b.(*array.Uint64Builder).Append(v.(uint64)) },
		func(v any) any { return int64(v.(uint64)) },
	},
	{
		arrow.BinaryTypes.String,
		Column{Type: ByteArray, Logical: Text},
		anyOf(rapid.StringN(0, 6, 20)),
		func(b array.Builder, v any) { b.(*array.StringBuilder).Append(v.(string)) }, same,
	},
	{
		arrow.FixedWidthTypes.Boolean,
		Column{Type: Boolean},
		anyOf(rapid.Bool()),
		func(b array.Builder, v any) { b.(*array.BooleanBuilder).Append(v.(bool)) }, same,
	},
	{
		&arrow.TimestampType{Unit: arrow.Microsecond},
		Column{Type: Int64, Logical: Micros},
		anyOf(rapid.Int64Range(-9, 1<<50)),
		func(b array.Builder, v any) { b.(*array.TimestampBuilder).Append(arrow.Timestamp(v.(int64))) }, same,
	},
	{
		arrow.PrimitiveTypes.Int64,
		Column{Type: Int64, Logical: Signed},
		anyOf(rapid.Int64()),
		func(b array.Builder, v any) { b.(*array.Int64Builder).Append(v.(int64)) }, same,
	},
	{
		arrow.PrimitiveTypes.Int32,
		Column{Type: Int32, Logical: Signed},
		anyOf(rapid.Int32()),
		func(b array.Builder, v any) { b.(*array.Int32Builder).Append(v.(int32)) }, same,
	},
	{
		&arrow.FixedSizeBinaryType{ByteWidth: 5},
		Column{Type: FixedLenByteArray, Size: 5},
		fixed(5),
		func(b array.Builder, v any) { b.(*array.FixedSizeBinaryBuilder).Append([]byte(v.(string))) }, same,
	},
}

func same(v any) any { return v }

// fixed returns a generator of texts of n bytes. Some begin alike.
func fixed(n int) *rapid.Generator[any] {
	return rapid.Map(rapid.SliceOfN(rapid.ByteRange(0, 2), n, n), func(b []byte) any { return string(b) })
}

func anyOf[T any](g *rapid.Generator[T]) *rapid.Generator[any] {
	return rapid.Map(g, func(v T) any { return v })
}

// codecs are the codecs that are read, as the Arrow library names them.
var codecs = []compress.Compression{
	compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Zstd,
	compress.Codecs.Brotli, compress.Codecs.Lz4Raw,
}

// TestReadTwin reads random columns that the Arrow library has written, in every codec, encoding
// and version of pages.
func TestReadTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := kinds[rapid.IntRange(0, len(kinds)-1).Draw(t, "kind")]
		optional := rapid.Bool().Draw(t, "optional")
		value := k.value
		if optional {
			value = rapid.OneOf(k.value, rapid.Just(any(nil)))
		}
		// Few values that differ, and runs of one, are what dictionaries and runs are for.
		few := rapid.SliceOfN(value, 1, 4).Draw(t, "few")
		var values []any
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 40), 0, 20).Draw(t, "runs") {
			if rapid.Bool().Draw(t, "run") {
				v := rapid.SampledFrom(few).Draw(t, "value")
				for range n {
					values = append(values, v)
				}
				continue
			}
			values = append(values, rapid.SliceOfN(value, n, n).Draw(t, "values")...)
		}
		data := writeOracle(t, k.of, optional, k.append, values, options(t, k.of)...)
		f, limit, err := openFile(data)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		want := k.column
		want.Path, want.Optional, want.Meaning = "x", optional, f.Columns[0].Meaning
		if f.Columns[0] != want {
			t.Fatalf("the column is %+v, want %+v", f.Columns[0], want)
		}
		got, err := readColumn(data, f, limit, 0, rapid.IntRange(1, 100).Draw(t, "batch"))
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		var expected []any
		for _, v := range values {
			if v != nil {
				v = k.reading(v)
			}
			expected = append(expected, v)
		}
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Fatalf("read (-want +got):\n%s", diff)
		}
	})
}

// options draws how a file is written.
func options(t *rapid.T, of arrow.DataType) []oracle.WriterProperty {
	o := []oracle.WriterProperty{
		oracle.WithCompression(rapid.SampledFrom(codecs).Draw(t, "codec")),
		oracle.WithDictionaryDefault(rapid.Bool().Draw(t, "dictionary")),
		oracle.WithDataPageSize(int64(rapid.IntRange(1, 400).Draw(t, "page"))),
		oracle.WithBatchSize(int64(rapid.IntRange(1, 50).Draw(t, "batch size"))),
		oracle.WithStats(rapid.Bool().Draw(t, "statistics")),
	}
	if rapid.Bool().Draw(t, "version 2") {
		o = append(o, oracle.WithDataPageVersion(oracle.DataPageV2))
	}
	delta := rapid.Bool().Draw(t, "differences")
	with := func(e oracle.Encoding) {
		o = append(o, oracle.WithEncodingFor("x", e), oracle.WithDictionaryFor("x", false))
	}
	switch id := of.ID(); {
	case id == arrow.BOOL: // of runs the library writes each page with the values of the pages before
		with(oracle.Encodings.Plain)
	case id == arrow.STRING && delta && rapid.Bool().Draw(t, "prefixes"):
		with(oracle.Encodings.DeltaByteArray)
	case id == arrow.STRING && delta:
		with(oracle.Encodings.DeltaLengthByteArray)
	case id == arrow.FIXED_SIZE_BINARY && delta:
		with(oracle.Encodings.ByteStreamSplit)
	case (arrow.IsInteger(id) || id == arrow.TIMESTAMP) && delta:
		with(oracle.Encodings.DeltaBinaryPacked)
	}
	if arrow.IsFloating(of.ID()) && rapid.Bool().Draw(t, "split") {
		o = append(o, oracle.WithEncodingFor("x", oracle.Encodings.ByteStreamSplit),
			oracle.WithDictionaryFor("x", false))
	}
	return o
}

// writeOracle writes a column with the Arrow library, in row groups of up to 100 rows.
func writeOracle(
	t fataler, of arrow.DataType, optional bool, add func(array.Builder, any), values []any,
	opts ...oracle.WriterProperty,
) []byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: of, Nullable: optional}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, v := range values {
		if v == nil {
			b.Field(0).AppendNull()
		} else {
			add(b.Field(0), v)
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	var out bytes.Buffer
	opts = append(opts, oracle.WithMaxRowGroupLength(100))
	w, err := pqarrow.NewFileWriter(schema, &out, oracle.NewWriterProperties(opts...), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatalf("make a writer: %v", err)
	}
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		t.Fatalf("write: %v", err)
	}
	return out.Bytes()
}

// TestMeanings: the meaning of each type of column that the Arrow library writes.
func TestMeanings(t *testing.T) {
	stamp := func(u arrow.TimeUnit) arrow.DataType { return &arrow.TimestampType{Unit: u, TimeZone: "UTC"} }
	for _, c := range []struct {
		of      arrow.DataType
		typ     Type
		logical Logical
		meaning string
	}{
		{arrow.PrimitiveTypes.Int8, Int32, Signed, "Int"},
		{arrow.PrimitiveTypes.Uint16, Int32, Unsigned, "Int"},
		{arrow.PrimitiveTypes.Int64, Int64, Signed, "Int"},
		{arrow.PrimitiveTypes.Uint64, Int64, Unsigned, "Int"},
		{arrow.PrimitiveTypes.Date32, Int32, Date, "Date"},
		{arrow.PrimitiveTypes.Float32, Float, None, ""},
		{arrow.BinaryTypes.String, ByteArray, Text, "String"},
		{arrow.BinaryTypes.Binary, ByteArray, None, ""},
		{stamp(arrow.Millisecond), Int64, Millis, "Timestamp"},
		{stamp(arrow.Microsecond), Int64, Micros, "Timestamp"},
		{stamp(arrow.Nanosecond), Int64, Nanos, "Timestamp"},
		{arrow.FixedWidthTypes.Time32ms, Int32, Other, "Time"},
		{&arrow.Decimal128Type{Precision: 9, Scale: 2}, Int32, Decimal, "Decimal"},
		{&arrow.FixedSizeBinaryType{ByteWidth: 4}, FixedLenByteArray, None, ""},
		{arrow.FixedWidthTypes.Float16, FixedLenByteArray, Other, "Float16"},
	} {
		data := writeOracle(t, c.of, true, nil, []any{nil}, oracle.WithStoreDecimalAsInteger(true))
		f, _, err := openFile(data)
		if err != nil {
			t.Fatalf("%s: %v", c.of, err)
		}
		want := Column{Path: "x", Type: c.typ, Logical: c.logical, Meaning: c.meaning, Optional: true}
		want.Size = map[string]int{"": 4, "Float16": 2}[c.meaning]
		if want.Scale = 0; c.logical == Decimal {
			want.Scale = 2
		}
		if c.typ != FixedLenByteArray {
			want.Size = 0
		}
		if f.Columns[0] != want {
			t.Errorf("%s is %+v, want %+v", c.of, f.Columns[0], want)
		}
	}
}

// TestWriteTwin writes random row groups, and reads them with the Arrow library and with this
// package.
func TestWriteTwin(t *testing.T) {
	columns := []Column{
		{Path: "text", Type: ByteArray, Logical: Text, Meaning: "String"},
		{Path: "u64", Type: Int64, Logical: Unsigned, Meaning: "Int"},
		{Path: "u32", Type: Int32, Logical: Unsigned, Meaning: "Int"},
		{Path: "f64", Type: Double},
		{Path: "f32", Type: Float},
	}
	rapid.Check(t, func(t *rapid.T) {
		var out bytes.Buffer
		w, err := NewWriter(&out, "test", columns)
		if err != nil {
			t.Fatalf("NewWriter: %v", err)
		}
		want := make([][]any, len(columns))
		for range rapid.IntRange(0, 3).Draw(t, "groups") {
			n := rapid.SampledFrom([]int{0, 1, 2, 7, 8, 9, 50, 300}).Draw(t, "rows")
			group := drawGroup(t, n)
			if err := w.WriteGroup(group...); err != nil {
				t.Fatalf("WriteGroup: %v", err)
			}
			for c, values := range group {
				want[c] = append(want[c], read(values)...)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		f, limit, err := openFile(out.Bytes())
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		if diff := cmp.Diff(columns, f.Columns); diff != "" {
			t.Fatalf("columns (-want +got):\n%s", diff)
		}
		theirs := readOracle(t, out.Bytes())
		for i, c := range columns {
			got, err := readColumn(out.Bytes(), f, limit, i, 64)
			if err != nil {
				t.Fatalf("read %s: %v", c.Path, err)
			}
			if diff := cmp.Diff(want[i], got); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", c.Path, diff)
			}
			if diff := cmp.Diff(want[i], theirs[i]); diff != "" {
				t.Fatalf("%s by the Arrow library (-want +got):\n%s", c.Path, diff)
			}
		}
	})
}

// drawGroup draws the values of a row group, with runs and values that repeat.
func drawGroup(t *rapid.T, n int) []any {
	return []any{
		drawValues(t, n, rapid.StringN(0, 5, 12)), drawValues(t, n, rapid.Uint64()),
		drawValues(t, n, rapid.Uint32()), drawValues(t, n, rapid.Float64()), drawValues(t, n, rapid.Float32()),
	}
}

func drawValues[T any](t *rapid.T, n int, g *rapid.Generator[T]) []T {
	few := rapid.SliceOfN(g, 1, 20).Draw(t, "few")
	values := make([]T, n)
	repeats, runs := rapid.Bool().Draw(t, "repeats"), rapid.Bool().Draw(t, "runs")
	for i := range values {
		switch {
		case runs && i%11 != 0:
			values[i] = values[i-1]
		case repeats:
			values[i] = rapid.SampledFrom(few).Draw(t, "value")
		default:
			values[i] = g.Draw(t, "value")
		}
	}
	return values
}

// read returns written values as valueAt returns them.
func read(values any) (all []any) {
	switch values := values.(type) {
	case []string:
		for _, v := range values {
			all = append(all, v)
		}
	case []uint64:
		for _, v := range values {
			all = append(all, int64(v))
		}
	case []uint32:
		for _, v := range values {
			all = append(all, int32(v))
		}
	case []float64:
		for _, v := range values {
			all = append(all, math.Float64bits(v))
		}
	case []float32:
		for _, v := range values {
			all = append(all, math.Float32bits(v))
		}
	}
	return all
}

// readOracle reads a file of the columns of TestWriteTwin with the Arrow library.
func readOracle(t fataler, data []byte) [][]any {
	t.Helper()
	table, err := pqarrow.ReadTable(context.Background(), bytes.NewReader(data), nil, pqarrow.ArrowReadProperties{},
		memory.DefaultAllocator)
	if err != nil {
		t.Fatalf("read with the Arrow library: %v", err)
	}
	defer table.Release()
	all := make([][]any, table.NumCols())
	for c := range all {
		for _, part := range table.Column(c).Data().Chunks() {
			switch a := part.(type) {
			case *array.String:
				for i := range a.Len() {
					all[c] = append(all[c], a.Value(i))
				}
			case *array.Uint64:
				all[c] = append(all[c], read(a.Values())...)
			case *array.Uint32:
				all[c] = append(all[c], read(a.Values())...)
			case *array.Float64:
				all[c] = append(all[c], read(a.Values())...)
			case *array.Float32:
				all[c] = append(all[c], read(a.Values())...)
			default:
				t.Fatalf("column %d is %s", c, part.DataType())
			}
		}
	}
	return all
}

// TestSizes: a file is at most a tenth larger than the file of the Arrow library, for decisions as
// they are written.
func TestSizes(t *testing.T) {
	const n = 20_000
	texts, rows, scores := make([]string, n), make([]uint64, n), make([]float64, n)
	names := array.NewStringBuilder(memory.DefaultAllocator)
	numbers := array.NewUint64Builder(memory.DefaultAllocator)
	floats := array.NewFloat64Builder(memory.DefaultAllocator)
	for i := range n {
		texts[i] = time.Unix(1700000000+int64(i)*60, 0).UTC().Format(time.RFC3339)
		rows[i], scores[i] = uint64(i), math.Round(100*math.Sin(float64(i)))/100
	}
	names.AppendValues(texts, nil)
	numbers.AppendValues(rows, nil)
	floats.AppendValues(scores, nil)
	var ours, theirs bytes.Buffer
	w, err := NewWriter(&ours, "test", []Column{
		{Path: "timestamp", Type: ByteArray, Logical: Text},
		{Path: "row", Type: Int64, Logical: Unsigned},
		{Path: "score", Type: Double},
	})
	if err != nil {
		t.Fatalf("NewWriter: %v", err)
	}
	if err := errors.Join(w.WriteGroup(texts, rows, scores), w.Close()); err != nil {
		t.Fatalf("write: %v", err)
	}
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "timestamp", Type: arrow.BinaryTypes.String},
		{Name: "row", Type: arrow.PrimitiveTypes.Uint64},
		{Name: "score", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{names.NewArray(), numbers.NewArray(), floats.NewArray()}, n)
	o, err := pqarrow.NewFileWriter(schema, &theirs,
		oracle.NewWriterProperties(oracle.WithCompression(compress.Codecs.Zstd)), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatalf("make a writer: %v", err)
	}
	if err := errors.Join(o.Write(rec), o.Close()); err != nil {
		t.Fatalf("write with the Arrow library: %v", err)
	}
	t.Logf("%d bytes, and %d of the Arrow library", ours.Len(), theirs.Len())
	if ours.Len() > theirs.Len()*11/10 {
		t.Errorf("%d bytes, and %d of the Arrow library", ours.Len(), theirs.Len())
	}
}
