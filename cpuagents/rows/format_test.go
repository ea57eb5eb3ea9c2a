package rows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/internal/tabletest"
	pqt "github.com/exoswarm/exoswarm/cpuagents/parquet"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var pairSpec = ColumnSpec{Timestamp: "at", Features: []string{"a", "b"}}

// drainRows reads a source to its end and closes it. The numbers of rows and rejects must follow
// one another.
func drainRows(t testing.TB, r Reader) (rows []Row, rejects []Reject, err error) {
	t.Helper()
	return fixture.Drain(t, r, func(row Row, rej *Reject) uint64 {
		if rej != nil {
			return rej.Row
		}
		return row.Number
	})
}

// readWriting reads what writings wrote.
func readWriting(t testing.TB, w fixture.File, spec ColumnSpec, limit int64) (rows []Row, rejects []Reject, err error) {
	t.Helper()
	r, err := Open("s", fixture.TempFile(t, w.Data), Format(w.Format), spec, limit, nil)
	if err != nil {
		return nil, nil, err
	}
	return drainRows(t, r)
}

// TestFormatsAgree: a table is the same rows, to the bit, and the same rejects, however it is
// written.
func TestFormatsAgree(t *testing.T) {
	all := tabletest.Files(t, fixture.HardTable())
	want, wantRejects, err := readWriting(t, all[0], pairSpec, fixture.Plenty)
	if err != nil {
		t.Fatalf("readWriting: %v, want no error", err)
	}
	numbers := func(rejects []Reject) (n []uint64) {
		for _, r := range rejects {
			n = append(n, r.Row)
		}
		return n
	}
	if len(want) != 8 || !slices.Equal(numbers(wantRejects), []uint64{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16}) {
		t.Fatalf("%d rows, rejects %v", len(want), wantRejects)
	}
	for _, w := range all {
		rows, rejects, err := readWriting(t, w, pairSpec, fixture.Plenty)
		if err != nil {
			t.Errorf("%s: readWriting: %v, want no error", w.Name, err)
			continue
		}
		bits := cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) })
		if d := cmp.Diff(want, rows, cmp.AllowUnexported(Row{}), bits); d != "" {
			t.Errorf("%s: difference (-want +got):\n%s", w.Name, d)
		}
		if !slices.Equal(numbers(rejects), numbers(wantRejects)) {
			t.Errorf("%s: rejects %v", w.Name, rejects)
		}
		for _, r := range rejects {
			if r.Reason == "" || r.Series != "s" ||
				(r.Line != 0) != (Format(w.Format)[0] == 'c' || Format(w.Format)[0] == 'n') {
				t.Errorf("%s: %+v, want a reason, the series s, and a line in texts alone", w.Name, r)
			}
		}
	}
}

// TestFormatsAgreeOnManyRows: blocks, pages, row groups and record batches of any size make no
// difference.
func TestFormatsAgreeOnManyRows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var rows []fixture.Row
	many := testkit.Of(9001, 4500)
	if testing.Short() {
		many = 1500
	}
	for i := range many {
		v := []fixture.Cell{rnd.NormFloat64(), rnd.NormFloat64() * 1e6}
		if rnd.IntN(50) == 0 {
			v[rnd.IntN(2)] = nil
		}
		rows = append(rows, fixture.Row{Time: strconv.Itoa(1700000000 + i), Values: v})
	}
	all := tabletest.Files(t, rows)
	want, wantRejects, err := readWriting(t, all[0], pairSpec, fixture.Plenty)
	if err != nil {
		t.Fatalf("readWriting: %v, want no error", err)
	}
	for _, w := range all {
		got, rejects, err := readWriting(t, w, pairSpec, fixture.Plenty)
		if err != nil || len(rejects) != len(wantRejects) {
			t.Errorf("%s: %d rejects of %d, %v", w.Name, len(rejects), len(wantRejects), err)
			continue
		}
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s: other rows", w.Name)
		}
	}
}

// TestBlank: a source without times has the same rows in every format, with NaN for a feature that
// may be left out and without a row that leaves out another one.
func TestBlank(t *testing.T) {
	spec := ColumnSpec{Features: []string{"a", "b"}, Blank: 1, AnyOrder: true}
	table := []fixture.Row{
		{Time: "1700000000", Values: []fixture.Cell{1.5, 2.0}},
		{Time: "1700000000", Values: []fixture.Cell{2.5, nil}},
		{Time: "1700000000", Values: []fixture.Cell{nil, 3.0}},
		{Time: "1600000000", Values: []fixture.Cell{3.5, 4.0}},
	}
	for _, w := range tabletest.Files(t, table) {
		got, rejects, err := readWriting(t, w, spec, fixture.Plenty)
		if err != nil || len(got) != 3 || len(rejects) != 1 || rejects[0].Row != 3 {
			t.Errorf("%s: %v, rejects %v, error %v; want three rows and row 3", w.Name, got, rejects, err)
			continue
		}
		for i, want := range [][]float64{{1.5, 2}, {2.5, math.NaN()}, {3.5, 4}} {
			for f, v := range want {
				if math.Float64bits(v) != math.Float64bits(got[i].Values[f]) || got[i].Timestamp != "" {
					t.Errorf("%s: row %v, want %v and no time", w.Name, got[i], want)
				}
			}
		}
	}
	spec.Settings = map[string]string{"c": "train.target"}
	spec.Features[1] = "c"
	for _, w := range tabletest.Files(t, table) {
		_, _, err := readWriting(t, w, spec, fixture.Plenty)
		if strings.HasPrefix(w.Format, "ndjson") {
			continue // any member may be missing
		}
		if err == nil || !strings.Contains(err.Error(), "train.target: COLUMN") {
			t.Errorf("%s: a missing column: %v, want the key of the specification", w.Name, err)
		}
	}
}

// TestEmptyTables: no rows are no fault of a file that says what it is.
func TestEmptyTables(t *testing.T) {
	for _, w := range tabletest.Files(t, nil) {
		if rows, rejects, err := readWriting(t, w, pairSpec, fixture.Plenty); err != nil ||
			len(rows)+len(rejects) != 0 {
			t.Errorf("%s: rows %v, rejects %v, error %v; want none", w.Name, rows, rejects, err)
		}
	}
}

// TestTypedColumns: integers, small floats and times of every unit, in Arrow and Parquet.
func TestTypedColumns(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	alloc := memory.DefaultAllocator
	column := func(dt arrow.DataType, add func(array.Builder)) arrow.Array {
		b := array.NewBuilder(alloc, dt)
		defer b.Release()
		add(b)
		b.AppendNull()
		return b.NewArray()
	}
	stamp := func(u arrow.TimeUnit, v int64) arrow.Array {
		return column(&arrow.TimestampType{Unit: u, TimeZone: "Europe/Berlin"},
			func(b array.Builder) { b.(*array.TimestampBuilder).Append(arrow.Timestamp(v)) })
	}
	times := map[string]struct {
		arr  arrow.Array
		text string
	}{
		"s":      {stamp(arrow.Second, at.Unix()), "2026-03-04T05:06:07Z"},
		"ms":     {stamp(arrow.Millisecond, at.UnixMilli()+5), "2026-03-04T05:06:07.005Z"},
		"us":     {stamp(arrow.Microsecond, at.UnixMicro()), "2026-03-04T05:06:07Z"},
		"ns":     {stamp(arrow.Nanosecond, at.UnixNano()+9), "2026-03-04T05:06:07.000000009Z"},
		"before": {stamp(arrow.Millisecond, -1), "1969-12-31T23:59:59.999Z"},
		"date": {column(arrow.FixedWidthTypes.Date32,
			func(b array.Builder) { b.(*array.Date32Builder).Append(20516) }), "2026-03-04T00:00:00Z"},
		"int": {column(arrow.PrimitiveTypes.Int64,
			func(b array.Builder) { b.(*array.Int64Builder).Append(at.UnixNano()) }), "1772600767000000000"},
		"int32": {column(arrow.PrimitiveTypes.Int32,
			func(b array.Builder) { b.(*array.Int32Builder).Append(1772600767) }), "1772600767"},
		"float": {column(arrow.PrimitiveTypes.Float64,
			func(b array.Builder) { b.(*array.Float64Builder).Append(1772600767.5) }), "1772600767.5"},
	}
	numbers := map[string]struct {
		arr   arrow.Array
		value float64
	}{
		"int8": {column(arrow.PrimitiveTypes.Int8, func(b array.Builder) { b.(*array.Int8Builder).Append(-8) }), -8},
		"uint16": {column(arrow.PrimitiveTypes.Uint16,
			func(b array.Builder) { b.(*array.Uint16Builder).Append(65535) }), 65535},
		"int32": {column(arrow.PrimitiveTypes.Int32,
			func(b array.Builder) { b.(*array.Int32Builder).Append(math.MinInt32) }), math.MinInt32},
		"uint32": {column(arrow.PrimitiveTypes.Uint32,
			func(b array.Builder) { b.(*array.Uint32Builder).Append(math.MaxUint32) }), math.MaxUint32},
		"int64": {column(arrow.PrimitiveTypes.Int64,
			func(b array.Builder) { b.(*array.Int64Builder).Append(-1 << 40) }), -1 << 40},
		"uint64": {column(arrow.PrimitiveTypes.Uint64,
			func(b array.Builder) { b.(*array.Uint64Builder).Append(math.MaxUint64) }), math.MaxUint64},
		"float": {column(arrow.PrimitiveTypes.Float32,
			func(b array.Builder) { b.(*array.Float32Builder).Append(0.1) }), float64(float32(0.1))},
	}
	check := func(name string, ts, v arrow.Array, text string, value float64) {
		s := arrow.NewSchema([]arrow.Field{
			{Name: "timestamp", Type: ts.DataType(), Nullable: true},
			{Name: "value", Type: v.DataType(), Nullable: true},
		}, nil)
		rec := array.NewRecordBatch(s, []arrow.Array{ts, v}, int64(ts.Len()))
		for _, w := range []fixture.File{
			{Name: "arrow", Format: "arrow", Data: tabletest.Arrow(t, rec, true)},
			{Name: "parquet", Format: "parquet", Data: tabletest.Parquet(t, rec)},
		} {
			rows, rejects, err := readWriting(t, w, valueSpec, fixture.Plenty)
			if err != nil || len(rows) != 1 || len(rejects) != 1 || rows[0].Timestamp != text ||
				rows[0].Values[0] != value {
				t.Errorf("%s in %s: %+v %+v %v", name, w.Name, rows, rejects, err)
			}
		}
	}
	for name, c := range times {
		check(name, c.arr, numbers["float"].arr, c.text, numbers["float"].value)
	}
	for name, c := range numbers {
		check(name, times["s"].arr, c.arr, times["s"].text, c.value)
	}
}

// TestBadColumns: a column that is missing, twice there or of another type is said by name, with
// the cure.
func TestBadColumns(t *testing.T) {
	table := func(fields ...arrow.Field) arrow.RecordBatch {
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
		defer b.Release()
		for i := range fields {
			b.Field(i).AppendEmptyValue()
		}
		return b.NewRecordBatch()
	}
	stamp := arrow.Field{Name: "timestamp", Type: arrow.BinaryTypes.String}
	value := arrow.Field{Name: "value", Type: arrow.PrimitiveTypes.Float64}
	for name, c := range map[string]struct {
		rec  arrow.RecordBatch
		want string
	}{
		"missing": {
			table(stamp, arrow.Field{Name: "v", Type: value.Type}),
			`s: no column "value"; the file has "timestamp", "v": name the columns in the swarm spec ` +
				`(features: [COLUMN])`,
		},
		"twice": {table(stamp, value, value), `s: column "value" appears twice: rename one of them`},
		"text":  {table(stamp, arrow.Field{Name: "value", Type: arrow.BinaryTypes.String}), `s: column "value" is `},
		"boolean": {
			table(arrow.Field{Name: "timestamp", Type: arrow.FixedWidthTypes.Boolean}, value),
			`s: column "timestamp" is `,
		},
		"time": {
			table(stamp, arrow.Field{Name: "value", Type: arrow.FixedWidthTypes.Time32ms}),
			`s: column "value" is `,
		},
	} {
		for _, w := range []fixture.File{
			{Name: "arrow", Format: "arrow", Data: tabletest.Arrow(t, c.rec, false)},
			{Name: "parquet", Format: "parquet", Data: tabletest.Parquet(t, c.rec)},
		} {
			_, _, err := readWriting(t, w, valueSpec, fixture.Plenty)
			if !fixture.IsInput(err) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%s in %s: %v", name, w.Name, err)
			}
		}
	}
	list := table(stamp, arrow.Field{Name: "value", Type: arrow.ListOf(arrow.PrimitiveTypes.Float64)})
	if _, _, err := readWriting(t, fixture.File{Format: "arrow", Data: tabletest.Arrow(t, list, false)}, valueSpec,
		fixture.Plenty); !fixture.IsInput(err) || !strings.Contains(err.Error(), "without dictionaries") {
		t.Errorf("readWriting: %v, want an error of the input and %q in its text", err, "without dictionaries")
	}
}

func TestBadLines(t *testing.T) {
	text := strings.Join([]string{
		"\xef\xbb\xbf" + `{"timestamp":1,"value":1}`,
		"not json",
		`[1,2]`,
		`{"timestamp":2}`,
		`{"value":2}`,
		`{"timestamp":3,"value":"3"}`,
		`{"timestamp":3,"value":null}`,
		`{"timestamp":3,"value":true}`,
		`{"timestamp":3,"value":{"x":1}}`,
		`{"timestamp":null,"value":1}`,
		`{"timestamp":3,"value":1,"value":2}`,
		`{"timestamp":3,"value":1e400}`,
		"",
		"\t {} \r",
		`{"timestamp":4,"value":4,"x":"` + strings.Repeat("x", 2<<20) + `"}`,
		"{\"timestamp\":5,\"value\":5,\"x\":\"\xff\"}",
		`{"timestamp":"1970-01-01T00:00:06Z","value":-6.5e0}`,
		`{"timestamp":5,"value":7}`,
		`{"timestamp":9,"value":9}`,
	}, "\n")
	rows, rejects, err := readWriting(t, fixture.File{Format: "ndjson", Data: []byte(text)}, valueSpec, fixture.Plenty)
	if err != nil {
		t.Fatalf("readWriting: %v, want no error", err)
	}
	var got []string
	for _, r := range rejects {
		got = append(got, fmt.Sprintf("%d/%d: %s", r.Row, r.Line, r.Reason))
	}
	want := []string{
		"2/2: it is not valid JSON",
		"3/3: it is not a JSON object",
		`4/4: it has no member "value"`,
		`5/5: it has no member "timestamp"`,
		`6/6: column "value" is a string, not a number`,
		`7/7: column "value" is null, not a number`,
		`8/8: column "value" is a boolean, not a number`,
		`9/9: column "value" is an object, not a number`,
		`10/10: its timestamp is null, not a string or a number`,
		`11/11: member "value" appears twice`,
		`12/12: column "value": "1e400" is infinite or beyond 1e36: agents see 32-bit floats`,
		`13/14: it has no member "timestamp"`,
		`14/15: the line is longer than 1048576 bytes`,
		`15/16: it is not valid UTF-8`,
		`17/18: its timestamp "5" goes back behind the row before it`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
	if len(rows) != 3 || rows[1].Values[0] != -6.5 || rows[1].Number != 16 || rows[2].Timestamp != "9" {
		t.Errorf("%+v, want three rows, the second of them row 16 with -6.5, the third at 9", rows)
	}
}

// TestCutOff: a file that ends too early never gives a row that is not in it. Formats that say how
// long they are give an error; a text may end anywhere.
func TestCutOff(t *testing.T) {
	all := tabletest.Files(t, fixture.HardTable())
	full, _, err := readWriting(t, all[0], pairSpec, fixture.Plenty)
	if err != nil {
		t.Fatalf("readWriting: %v, want no error", err)
	}
	for _, w := range all {
		for n := 0; n < len(w.Data); n += 1 + len(w.Data)/150 {
			rows, _, err := readWriting(t, fixture.File{Name: w.Name, Format: w.Format, Data: w.Data[:n]}, pairSpec,
				fixture.Plenty)
			if err != nil && !fixture.IsInput(err) {
				t.Errorf("%s cut at %d of %d: %v", w.Name, n, len(w.Data), err)
			}
			if err == nil && Format(w.Format) != "csv" && Format(w.Format) != "ndjson" && Format(w.Format) != "arrow" {
				t.Errorf("%s cut at %d of %d: no error", w.Name, n, len(w.Data))
			}
			if Format(w.Format) == "csv" {
				continue // its last number may be cut in its middle
			}
			if len(rows) > len(full) || len(rows) > 0 &&
				!cmp.Equal(full[:len(rows)], rows, cmp.AllowUnexported(Row{})) {
				t.Errorf("%s cut at %d: %+v", w.Name, n, rows)
			}
		}
	}
}

// TestDamage: whatever byte of a file is wrong, reading it ends without a panic, and an error is
// the data's.
func TestDamage(t *testing.T) {
	for _, w := range tabletest.Files(t, fixture.HardTable()) {
		for _, mask := range []byte{0x01, 0x80, 0xff} {
			step := 1 + len(w.Data)/testkit.Of(80, 25)
			for i := 0; i < len(w.Data); i += step {
				data := slices.Clone(w.Data)
				data[i] ^= mask
				if _, _, err := readWriting(t, fixture.File{Name: w.Name, Format: w.Format, Data: data}, pairSpec,
					fixture.Plenty); err != nil && !fixture.IsInput(err) {
					t.Errorf("%s, byte %d of %d by %#x: %v", w.Name, i, len(w.Data), mask, err)
				}
			}
		}
	}
}

// TestBombs: what unpacks to far more than it is, or says so, is refused before it takes memory.
func TestBombs(t *testing.T) {
	big := append([]byte("at,a,b\n"), bytes.Repeat([]byte("1,1,1\n"), testkit.Of(1<<20, 1<<18))...)
	long := append([]byte("at,a,b\n"), bytes.Repeat([]byte{'7'}, testkit.Of(64, 17)<<20)...)
	for name, w := range map[string]fixture.File{
		"gzip":             {Name: "", Format: "csv.gz", Data: fixture.Gzip(t, big)},
		"zstd":             {Name: "", Format: "csv.zst", Data: fixture.Zstd(t, big)},
		"gzip of one line": {Name: "", Format: "ndjson.gz", Data: fixture.Gzip(t, long)},
		"zstd of one line": {Name: "", Format: "csv.zst", Data: fixture.Zstd(t, long)},
	} {
		_, _, err := readWriting(t, w, pairSpec, 1<<20)
		if !fixture.IsInput(err) || !strings.Contains(err.Error(), "--max-unpacked") {
			t.Errorf("%s: readWriting: %v, want an error of the input and %q in its text", name, err, "--max-unpacked")
		}
		if _, _, err := readWriting(t, w, pairSpec, fixture.Plenty); err != nil {
			t.Errorf("%s with room: %v", name, err)
		}
	}
	rec := tabletest.Record(fixture.HardTable())
	plain, packed := tabletest.Arrow(t, rec, false), tabletest.Arrow(t, rec, false, ipc.WithZstd())
	lie := func(data []byte, at int, v uint64) []byte {
		data = slices.Clone(data)
		binary.LittleEndian.PutUint64(data[at:], v)
		return data
	}
	// Every word of the file as a length that is beyond reason.
	for _, data := range [][]byte{plain, packed} {
		step := testkit.Of(4, 108)
		if testing.Short() {
			step = 36 // minutes with the race detector
		}
		for at := 0; at+8 <= len(data); at += step {
			for _, v := range []uint64{1 << 62, 1 << 31} {
				if _, _, err := readWriting(t, fixture.File{Format: "arrow", Data: lie(data, at, v)}, pairSpec,
					fixture.Plenty); err != nil && !fixture.IsInput(err) {
					t.Errorf("word at %d as %#x: %v", at, v, err)
				}
			}
		}
	}
	// A footer of Parquet with a list of two billion elements.
	footer := []byte{0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0}
	file := append([]byte("PAR1"), footer...)
	file = append(binary.LittleEndian.AppendUint32(file, uint32(len(footer))), "PAR1"...)
	if _, _, err := readWriting(t, fixture.File{Format: "parquet", Data: file}, pairSpec,
		fixture.Plenty); !fixture.IsInput(err) || !strings.Contains(err.Error(), "footer is damaged") {
		t.Errorf("readWriting: %v, want an error of the input and %q in its text", err, "footer is damaged")
	}
}

// TestArrowTimes: the text of a time in a column of every type that may hold one.
func TestArrowTimes(t *testing.T) {
	mem := memory.DefaultAllocator
	whole, natural, date, date64, float := array.NewInt64Builder(mem), array.NewUint64Builder(mem),
		array.NewDate32Builder(mem), array.NewDate64Builder(mem), array.NewFloat64Builder(mem)
	text, large, stamp := array.NewStringBuilder(mem), array.NewLargeStringBuilder(mem),
		array.NewTimestampBuilder(mem, &arrow.TimestampType{Unit: arrow.Millisecond})
	whole.Append(-1790000000)
	natural.Append(math.MaxUint64)
	date.Append(20000)
	date64.Append(20000*86400_000 + 1)
	float.Append(1.5e9)
	text.Append("2026-01-01")
	large.Append(strings.Repeat("9", 500))
	stamp.Append(1500)
	for want, b := range map[string]array.Builder{
		"-1790000000": whole, "18446744073709551615": natural, "2024-10-04T00:00:00Z": date,
		"2024-10-04T00:00:00.001Z": date64, "1500000000": float,
		"2026-01-01": text, strings.Repeat("9", maxTimestamp+1): large, "1970-01-01T00:00:01.5Z": stamp,
	} {
		if got := ArrowTime(b.NewArray(), 0); got != want {
			t.Errorf("%T: %s, want %s", b, got, want)
		}
	}
}

// TestHugePages: a page of a Parquet file that exceeds the limit is refused, however it is
// compressed.
func TestHugePages(t *testing.T) {
	const rows = pqt.MaxPage/8 + 1
	stamps, values := array.NewInt64Builder(memory.DefaultAllocator), array.NewFloat64Builder(memory.DefaultAllocator)
	stamps.AppendValues(make([]int64, rows), nil)
	values.AppendValues(make([]float64, rows), nil)
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "timestamp", Type: arrow.PrimitiveTypes.Int64},
		{Name: "value", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{stamps.NewArray(), values.NewArray()}, rows)
	for _, codec := range []compress.Compression{
		compress.Codecs.Uncompressed, compress.Codecs.Snappy,
		compress.Codecs.Zstd,
	} {
		var out bytes.Buffer
		w, err := pqarrow.NewFileWriter(schema, &out,
			parquet.NewWriterProperties(parquet.WithDictionaryDefault(false),
				parquet.WithDataPageSize(2*pqt.MaxPage),
				parquet.WithBatchSize(rows), parquet.WithCompression(codec)), pqarrow.DefaultWriterProps())
		if err != nil {
			t.Fatalf("pqarrow.NewFileWriter: %v, want no error", err)
		}
		if err := w.Write(rec); err != nil {
			t.Fatalf("w.Write: %v, want no error", err)
		}
		if err := w.Close(); err != nil {
			t.Fatalf("w.Close: %v, want no error", err)
		}
		r, err := Open("s", fixture.TempFile(t, out.Bytes()), "parquet",
			ColumnSpec{Timestamp: "timestamp", Features: []string{"value"}}, fixture.Plenty, nil)
		if err == nil {
			_, _, err = r.Next()
			_ = r.Close()
		}
		if !fixture.IsInput(err) {
			t.Errorf("%s, a page of %d bytes: %v", codec, 8*rows, err)
		}
	}
}

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]Format{
		"a.csv": "csv", "A.CSV": "csv", "x/y.ndjson": "ndjson", "a.jsonl.gz": "ndjson.gz", "a.parquet": "parquet",
		"a.pq":    "parquet",
		"a.arrow": "arrow", "a.feather.zst": "arrow.zst", "a.csv.gzip": "csv.gz", "file:in0/a.b.arrows": "arrow",
	} {
		if f, known := FormatOf(name, "x"); f != want || !known {
			t.Errorf("%s: format %s, known %v; want %s, known", name, f, known, want)
		}
	}
	for name, want := range map[string]Format{
		"a": "x", "a.txt": "x", "a.gz": "x.gz", "object:input-1": "x",
		".csv.d/a": "x",
	} {
		if f, known := FormatOf(name, "x"); f != want || known {
			t.Errorf("%s: format %s, known %v; want %s, not known", name, f, known, want)
		}
	}
	for _, f := range []Format{"", "x", "csv.", "csv.bz2", "parquet.gz", "csv.gz.gz", ".gz"} {
		if _, err := Open("s", fixture.TempFile(t, nil), f, pairSpec, fixture.Plenty, nil); err == nil {
			t.Errorf("%q is a format", f)
		}
	}
}

// fuzzFormat checks that reading ends, rows are numbered, and an error is the data's.
func fuzzFormat(f *testing.F, format Format) {
	for _, w := range tabletest.Files(f, fixture.HardTable()[:6]) {
		if Format(w.Format) == format {
			f.Add(w.Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, _, err := readWriting(t, fixture.File{Format: string(format), Data: data}, pairSpec,
			16<<20); err != nil && !fixture.IsInput(err) {
			t.Fatalf("%v, want no error or one of the input", err)
		}
	})
}

func FuzzNDJSON(f *testing.F)  { fuzzFormat(f, "ndjson") }
func FuzzArrow(f *testing.F)   { fuzzFormat(f, "arrow") }
func FuzzParquet(f *testing.F) { fuzzFormat(f, "parquet") }
func FuzzGzip(f *testing.F)    { fuzzFormat(f, "csv.gz") }
func FuzzZstd(f *testing.F)    { fuzzFormat(f, "csv.zst") }

func BenchmarkFormats(b *testing.B) {
	var rows []fixture.Row
	for i := range 100_000 {
		rows = append(rows, fixture.Row{
			Time:   strconv.Itoa(1700000000 + i),
			Values: []fixture.Cell{float64(i) * 1.1, float64(i)},
		})
	}
	rec := tabletest.Record(rows)
	var stream bytes.Buffer
	w := ipc.NewWriter(&stream, ipc.WithSchema(rec.Schema()))
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		b.Fatalf("joined errors: %v, want no error", err)
	}
	var pq bytes.Buffer
	p, err := pqarrow.NewFileWriter(rec.Schema(), &pq,
		parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy)), pqarrow.DefaultWriterProps())
	if err != nil {
		b.Fatalf("pqarrow.NewFileWriter: %v, want no error", err)
	}
	if err := errors.Join(p.Write(rec), p.Close()); err != nil {
		b.Fatalf("joined errors: %v, want no error", err)
	}
	for _, w := range []fixture.File{
		{Name: "csv", Format: "csv", Data: fixture.CSV(rows)},
		{Name: "csv.gz", Format: "csv.gz", Data: fixture.Gzip(b, fixture.CSV(rows))},
		{Name: "csv.zst", Format: "csv.zst", Data: fixture.Zstd(b, fixture.CSV(rows))},
		{Name: "ndjson", Format: "ndjson", Data: fixture.NDJSON(rows)},
		{Name: "arrow", Format: "arrow", Data: stream.Bytes()},
		{Name: "parquet", Format: "parquet", Data: pq.Bytes()},
	} {
		b.Run(w.Name, func(b *testing.B) {
			for b.Loop() {
				r, err := Open("s", fixture.TempFile(b, w.Data), Format(w.Format), pairSpec, fixture.Plenty, nil)
				if err != nil {
					b.Fatalf("Open: %v, want no error", err)
				}
				for err == nil {
					_, _, err = r.Next()
				}
				if !errors.Is(err, io.EOF) {
					b.Fatalf("Open: %v, want %v", err, io.EOF)
				}
				_ = r.Close()
			}
			b.ReportMetric(float64(len(rows))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}

// TestFeatureRange: numbers that agents cannot see in 32 bits are rejected, and no others.
func TestFeatureRange(t *testing.T) {
	for text, why := range map[string]string{
		"0": "", "-0": "", "0e9": "", "1e36": "", "-1e36": "", "1.2e-38": "", "9007199254740993": "", "1e15": "",
		"3e38": "beyond 1e36", "-1.01e36": "beyond 1e36", "1e400": "beyond 1e36", "Inf": "beyond 1e36",
		"1e-42": "nearer to 0", "-1e-39": "nearer to 0", "1e-400": "nearer to 0", "NaN": "NaN", "x": "not a number",
	} {
		_, problem := parseFeature("value", text)
		if (problem == "") != (why == "") || !strings.Contains(problem, why) {
			t.Errorf("%s: %q, want %q", text, problem, why)
		}
	}
}

// parse reads data of a format to the end.
func parse(t testing.TB, f Format, data []byte, spec ColumnSpec) ([]Row, []Reject, error) {
	t.Helper()
	r, err := Open("s", fixture.TempFile(t, data), f, spec, fixture.Plenty, nil)
	if err != nil {
		return nil, nil, err
	}
	return drainRows(t, r)
}
