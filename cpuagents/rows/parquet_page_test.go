package rows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/internal/tabletest"
	pqt "github.com/exoswarm/exoswarm/cpuagents/parquet"
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
	for n, want := range map[uint32]bool{pqt.MaxFooter: true, pqt.MaxFooter + 1: false} {
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
	data := tabletest.Parquet(t, tabletest.Record(pairRows(10)))
	n := int64(binary.LittleEndian.Uint32(data[len(data)-8:]))
	structs, err := pqt.CountStructs(data[int64(len(data))-8-n:])
	if err != nil {
		t.Fatalf("CountStructs: %v, want no error", err)
	}
	buffers := blockBytes(2, 0) + 3*64<<10
	whole := buffers + 2*n + 512*structs
	for limit, want := range map[int64]bool{
		whole: true, whole - 1: false, buffers + 2*n: false,
		buffers + 2*n - 1: false, buffers: false, buffers - 1: false,
	} {
		h := access.NewMemoryParts(limit, limit).Hold(t.Context(), "s")
		r, err := newParquetReader("s", fixture.TempFile(t, data), pairSpec, h)
		if (err == nil) != want || err != nil && !access.IsMemory(err) {
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
	h := access.NewMemoryParts(1<<30, 1<<30).Hold(t.Context(), "s")
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
	rec := tabletest.Record(pairRows(20))
	plain := parquet.WithDictionaryDefault(false)
	of := func(path string, e parquet.Encoding) []parquet.WriterProperty {
		return []parquet.WriterProperty{plain, parquet.WithEncodingFor(path, e)}
	}
	for name, c := range map[string]struct {
		opts []parquet.WriterProperty
		want string
	}{
		"plain": {of("a", parquet.Encodings.Plain), ""}, "split": {of("a", parquet.Encodings.ByteStreamSplit), ""},
		"dictionary":   {nil, ""},
		"delta text":   {of("at", parquet.Encodings.DeltaByteArray), ""},
		"delta length": {of("at", parquet.Encodings.DeltaLengthByteArray), ""},
		"brotli":       {[]parquet.WriterProperty{parquet.WithCompression(compress.Codecs.Brotli)}, ""},
		"lz4":          {[]parquet.WriterProperty{parquet.WithCompression(compress.Codecs.Lz4Raw)}, ""},
		"version 2, packed": {
			append(of("at", parquet.Encodings.DeltaByteArray), parquet.WithDataPageVersion(parquet.DataPageV2),
				parquet.WithCompression(compress.Codecs.Lz4Raw)), "",
		},
	} {
		file := fixture.File{Format: "parquet", Data: tabletest.Parquet(t, rec, c.opts...)}
		rows, rejects, err := readWriting(t, file, pairSpec, fixture.Plenty)
		if (err == nil) != (c.want == "") || err != nil &&
			(!fixture.IsInput(err) || !strings.Contains(err.Error(), c.want)) || err == nil &&
			(len(rows) != 20 || len(rejects) != 0) {
			t.Errorf("%s: %d rows, %v, want %s", name, len(rows), err, c.want)
		}
	}
}

// TestParquetTypes: decimals of every width are features, and dates and UUIDs are keys.
func TestParquetTypes(t *testing.T) {
	alloc := memory.DefaultAllocator
	stamps := column(arrow.BinaryTypes.String, func(b array.Builder) {
		for i := range 4 {
			b.(*array.StringBuilder).Append(fmt.Sprint(i))
		}
	})
	read := func(key, value arrow.Array, opts ...parquet.WriterProperty) ([]Row, error) {
		t.Helper()
		s := arrow.NewSchema([]arrow.Field{
			{
				Name: "at",
				Type: stamps.DataType(),
			}, {Name: "key", Type: key.DataType()}, {Name: "v", Type: value.DataType()},
		}, nil)
		rec := array.NewRecordBatch(s, []arrow.Array{stamps, key, value}, 4)
		rows, rejects, err := readWriting(t, fixture.File{Format: "parquet", Data: tabletest.Parquet(t, rec, opts...)},
			ColumnSpec{Timestamp: "at", Features: []string{"v"}, Key: []string{"key"}}, fixture.Plenty)
		if len(rejects) > 0 {
			t.Errorf("rejects: %+v", rejects)
		}
		return rows, err
	}
	date := column(arrow.FixedWidthTypes.Date32, func(b array.Builder) {
		for i := range 4 {
			b.(*array.Date32Builder).Append(arrow.Date32(20516*i - 1))
		}
	})
	dates := []string{"1969-12-31", "2026-03-03", "2082-05-04", "2138-07-06"}
	for _, c := range []struct {
		precision int32
		integer   bool
	}{{9, true}, {18, true}, {9, false}, {18, false}, {38, false}} {
		value := column(&arrow.Decimal128Type{Precision: c.precision, Scale: 3}, func(b array.Builder) {
			for _, v := range []int64{1, -1, 123456789, -100000} {
				b.(*array.Decimal128Builder).Append(decimal128.FromI64(v))
			}
		})
		for _, codec := range []compress.Compression{compress.Codecs.Uncompressed, compress.Codecs.Brotli} {
			rows, err := read(date, value, parquet.WithStoreDecimalAsInteger(c.integer), parquet.WithCompression(codec))
			if err != nil || len(rows) != 4 {
				t.Fatalf("decimals of %d digits: %d rows, %v", c.precision, len(rows), err)
			}
			for i, want := range []float64{0.001, -0.001, 123456.789, -100} {
				if rows[i].Values[0] != want || rows[i].Key != dates[i] {
					t.Errorf(
						"decimals of %d digits: row %d is %v of %q, want %v of %q",
						c.precision,
						i,
						rows[i].Values[0],
						rows[i].Key,
						want,
						dates[i],
					)
				}
			}
		}
	}
	ids := extensions.NewUUIDBuilder(alloc)
	want := []string{
		"6ba7b810-9dad-11d1-80b4-00c04fd430c8", "00000000-0000-0000-0000-000000000000",
		"ffffffff-ffff-ffff-ffff-ffffffffffff", "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
	}
	for _, id := range want {
		if err := ids.AppendValueFromString(id); err != nil {
			t.Fatal(err)
		}
	}
	number := column(arrow.PrimitiveTypes.Int32, func(b array.Builder) {
		for i := range 4 {
			b.(*array.Int32Builder).Append(int32(i))
		}
	})
	rows, err := read(ids.NewArray(), number)
	if err != nil || len(rows) != 4 {
		t.Fatalf("UUIDs: %d rows, %v", len(rows), err)
	}
	for i := range want {
		if rows[i].Key != want[i] {
			t.Errorf("the UUID of row %d is %q, want %q", i, rows[i].Key, want[i])
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
		rec := tabletest.Record(pairRows(total))
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
		return tabletest.Parquet(t, b.NewRecordBatch())
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
	for _, c := range []struct {
		physical     pqt.Type
		logical      pqt.Logical
		number, time valueKind
	}{
		{pqt.Int32, pqt.None, kindInt32, kindInt32},
		{pqt.Int64, pqt.None, kindInt64, kindInt64},
		{pqt.Float, pqt.None, kindFloat, kindFloat},
		{pqt.Double, pqt.None, kindDouble, kindDouble},
		{pqt.ByteArray, pqt.None, kindNone, kindText},
		{pqt.Int96, pqt.None, kindNone, kindInt96},
		{pqt.Boolean, pqt.None, kindNone, kindNone},
		{pqt.FixedLenByteArray, pqt.None, kindNone, kindNone},
		{pqt.Int32, pqt.Signed, kindInt32, kindInt32},
		{pqt.Int32, pqt.Unsigned, kindUint32, kindUint32},
		{pqt.Int64, pqt.Signed, kindInt64, kindInt64},
		{pqt.Int64, pqt.Unsigned, kindUint64, kindUint64},
		{pqt.Int64, pqt.Millis, kindNone, kindMillis},
		{pqt.Int64, pqt.Micros, kindNone, kindMicros},
		{pqt.Int64, pqt.Nanos, kindNone, kindNanos},
		{pqt.Int32, pqt.Date, kindNone, kindDate},
		{pqt.ByteArray, pqt.Text, kindNone, kindText},
		{pqt.ByteArray, pqt.Other, kindNone, kindNone},
		{pqt.Int32, pqt.Other, kindNone, kindNone},
		{pqt.Int64, pqt.Other, kindNone, kindNone},
		{pqt.ByteArray, pqt.Signed, kindNone, kindNone},
		{pqt.Int64, pqt.Date, kindNone, kindNone},
	} {
		col := pqt.Column{Path: "x", Type: c.physical, Logical: c.logical}
		if got := kind(col, roleFeature); got != c.number {
			t.Errorf("%s, %d as a number: %d, want %d", c.physical, c.logical, got, c.number)
		}
		if got := kind(col, roleTime); got != c.time {
			t.Errorf("%s, %d as a time: %d, want %d", c.physical, c.logical, got, c.time)
		}
	}
	for meaning, want := range map[string]string{"": "INT32", "Decimal": "INT32 (Decimal)"} {
		if got := typeName(pqt.Column{Type: pqt.Int32, Meaning: meaning}); got != want {
			t.Errorf("a column is named %s, want %s", got, want)
		}
	}
	c := chunk{values: pqt.Values{
		Int32s: []int32{-1, 7}, Int64s: []int64{-1, 1500}, Floats: []float32{0, 0.5}, Doubles: []float64{0, 0.25},
		Texts: [][]byte{nil, []byte("x")}, Int96s: make([][12]byte, 2),
	}}
	binary.LittleEndian.PutUint64(c.values.Int96s[1][:], 1e9)
	binary.LittleEndian.PutUint32(c.values.Int96s[1][8:], 2440588) // the Julian day of 1970-01-01
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
