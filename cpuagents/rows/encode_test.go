package rows

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// encoded writes decisions of two series, the decisions of the first series in two pieces.
func encoded(t *testing.T, f Format, n int) []byte {
	t.Helper()
	e, pack, err := NewEncoder(
		f,
		Layout{Series: fixture.Series, Candidates: fixture.Candidates, Features: []string{"value"}},
	)
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	var out bytes.Buffer
	w, err := NewPacker(&out, pack)
	if err != nil {
		t.Fatalf("NewPacker: %v, want no error", err)
	}
	if err := e.Begin(w); err != nil {
		t.Fatalf("e.Begin: %v, want no error", err)
	}
	for g := range uint32(2) {
		d := fixture.Decisions(g, n)
		var spool [2][]byte
		for i := range d.Len() {
			part := &spool[min(i/max(n/3, 1), 1)]
			*part = e.Spool(*part, d, i)
		}
		for _, s := range spool {
			if err := e.Piece(int(g), bytes.NewReader(s)); err != nil {
				t.Fatalf("e.Piece: %v, want no error", err)
			}
		}
	}
	if err := e.End(); err != nil {
		t.Fatalf("e.End: %v, want no error", err)
	}
	if err := w.Close(); err != nil {
		t.Fatalf("w.Close: %v, want no error", err)
	}
	return out.Bytes()
}

// TestEncodersAgree: decisions are the same numbers, to the bit, in whatever format they are
// written, the same decisions the same bytes, and every output can be a source.
func TestEncodersAgree(t *testing.T) {
	flat := ColumnSpec{Timestamp: "round", Features: []string{"value", "score", "row"}}
	flatter := ColumnSpec{Timestamp: "round", Features: []string{"leader", "counts.normal", `counts.odd, "very"`}}
	// Rounds of the second series begin again: its rows go back in time and are left out, in all
	// formats alike.
	for _, n := range []int{0, 1, 10, columnRows/2 + 7} {
		if n > 100 && !testkit.Long() {
			continue // seconds, and minutes with the race detector
		}
		want := map[string][]Row{}
		for _, f := range []Format{"csv", "ndjson", "arrow", "parquet", "csv.gz", "ndjson.zst", "arrow.gz"} {
			data := encoded(t, f, n)
			if n < 100 && !bytes.Equal(data, encoded(t, f, n)) {
				t.Errorf("%s: other bytes the second time", f)
			}
			for name, spec := range map[string]ColumnSpec{"flat": flat, "flatter": flatter} {
				if name == "flatter" && f[0] == 'n' {
					continue // its counts are an object
				}
				rows, _, err := parse(t, f, data, spec)
				if err != nil {
					t.Fatalf("%s: parse: %v, want no error", f, err)
				}
				for _, r := range rows { // the score is a 32-bit float, which text writes in its shortest form
					for k := range r.Values[1:] {
						r.Values[1+k] = float64(float32(r.Values[1+k]))
					}
				}
				if want[name] == nil {
					want[name] = rows
				}
				if len(rows) < n || !reflect.DeepEqual(want[name], rows) {
					t.Errorf("%s, %s: %d rows of %d, or others", f, name, len(rows), n)
				}
			}
		}
	}
}

// documentOf returns the document of a batch of decisions.
func documentOf(t *testing.T, f Format, d *batch.Decisions, l Layout) []byte {
	t.Helper()
	p := NewDocument(f, l)
	for i := range d.Len() {
		if err := p.Add(d, i); err != nil {
			t.Fatalf("p.Add: %v, want no error", err)
		}
	}
	data, err := p.Take()
	if err != nil {
		t.Fatalf("p.Take: %v, want no error", err)
	}
	return data
}

// TestLearning: rows of NDJSON say learning up to a round, and no others.
func TestLearning(t *testing.T) {
	d := fixture.Decisions(0, 3)
	copy(d.Round, []uint64{511, 512, 513})
	lines := strings.Split(string(documentOf(t, "ndjson", d, Layout{
		Series: fixture.Series, Candidates: fixture.Candidates, Features: []string{"value"}, Learning: 512,
	})), "\n")
	for i, want := range []bool{true, true, false} {
		var line struct{ Learning bool }
		if err := json.Unmarshal([]byte(lines[i]), &line); err != nil {
			t.Fatalf("json.Unmarshal: %v, want no error", err)
		}
		if line.Learning != want {
			t.Errorf("round %d: learning %v, want %v", d.Round[i], line.Learning, want)
		}
	}
}

// TestDroppedOutput: every format says what was dropped, and has no decision for it.
func TestDroppedOutput(t *testing.T) {
	d := fixture.Decisions(0, 3)
	d.Dropped = []uint8{batch.Applied, batch.DroppedLate, batch.DroppedDuplicate}
	for i := 1; i < 3; i++ {
		d.Decision[i], d.Score[i], d.Counts[2*i], d.Counts[2*i+1], d.Value[i] = batch.NoDecision, 0, 0, 0, float64(i)
	}
	write := func(f Format) []byte {
		return documentOf(t, f, d, Layout{
			Series: fixture.Series, Candidates: fixture.Candidates, Features: []string{"value"},
			Drops: true,
		})
	}
	lines := strings.Split(string(write("ndjson")), "\n")
	for i, why := range []string{"", "late", "duplicate"} {
		var line map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &line); err != nil {
			t.Fatalf("json.Unmarshal: %v, want no error", err)
		}
		_, decided := line["decision"]
		if got, _ := line["dropped"].(string); got != why || decided != (why == "") || line["row"] == nil ||
			line["value"] == nil {
			t.Errorf("line %s: want dropped %q, and row and value", lines[i], why)
		}
	}
	records, err := csv.NewReader(bytes.NewReader(write("csv"))).ReadAll()
	if err != nil || len(records) != 4 {
		t.Fatalf("records: %v, %v, want 4", records, err)
	}
	if last := len(records[0]) - 1; records[0][last] != "dropped" || records[1][last] != "" || records[1][5] == "" ||
		records[2][last] != "late" || records[2][5] != "" || records[3][last] != "duplicate" {
		t.Errorf("records %q, want none, late and duplicate in the last column", records)
	}
	r, err := ipc.NewFileReader(bytes.NewReader(write("arrow")))
	if err != nil {
		t.Fatalf("ipc.NewFileReader: %v, want no error", err)
	}
	defer r.Close()
	rec, err := r.RecordBatch(0)
	if err != nil {
		t.Fatalf("r.RecordBatch: %v, want no error", err)
	}
	last := int(rec.NumCols()) - 1
	for i, why := range []string{"", "late", "duplicate"} {
		decision := rec.Column(5).(*array.String).Value(i)
		if got := rec.Column(last).(*array.String).Value(i); got != why || why != "" && decision != NoDecision ||
			rec.ColumnName(last) != "dropped" {
			t.Errorf("row %d: %s %q, decision %s", i, rec.ColumnName(last), got, decision)
		}
	}
	if _, _, err := parse(t, "parquet", write("parquet"),
		ColumnSpec{Timestamp: "row", Features: []string{"value"}}); err != nil {
		t.Errorf("parse: %v, want no error", err)
	}
}

// TestCSVOutput: names that need quotes have them, as a reader of RFC 4180 expects.
func TestCSVOutput(t *testing.T) {
	records, err := csv.NewReader(bytes.NewReader(encoded(t, "csv", 4))).ReadAll()
	if err != nil || len(records) != 9 {
		t.Fatalf("%d records, %v, want 9", len(records), err)
	}
	if d := cmp.Diff([]string{
		"series", "row", "timestamp", "value", "score", "decision", "round", "counts.normal",
		`counts.odd, "very"`, "leader",
	}, records[0]); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
	if records[1][0] != fixture.Series[0] || records[5][0] != "b\uFFFD" || records[1][1] != "1" {
		t.Errorf("records %q and %q, want the series and row 1", records[1], records[5])
	}
}

func TestPacker(t *testing.T) {
	for _, pack := range []string{"", "gz", "zst"} {
		var out bytes.Buffer
		w, err := NewPacker(&out, pack)
		if err != nil {
			t.Fatalf("NewPacker: %v, want no error", err)
		}
		if _, err := io.WriteString(w, "hello"); err != nil {
			t.Fatalf("io.WriteString: %v, want no error", err)
		}
		if err := w.Close(); err != nil {
			t.Fatalf("w.Close: %v, want no error", err)
		}
		var r io.Reader = &out
		switch pack {
		case "gz":
			r, err = gzip.NewReader(&out)
		case "zst":
			var z *zstd.Decoder
			z, err = zstd.NewReader(&out)
			defer z.Close()
			r = z
		}
		if err != nil {
			t.Fatalf("NewPacker: %v, want no error", err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != "hello" {
			t.Errorf("what was packed with %q reads as %q, %v", pack, got, err)
		}
	}
}

// TestAppendJSON: what the sink writes by hand reads back as the standard library would have it.
func TestAppendJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		var got string
		if err := json.Unmarshal(AppendJSON(nil, want), &got); err != nil || got != want {
			t.Fatalf("%q became %q: %v", want, got, err)
		}
		raw := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if !json.Valid(AppendJSON(nil, raw)) {
			t.Fatalf("%q became invalid JSON", raw)
		}
	})
}

func TestAppendNumber(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, v float64) {
		var got float64
		if err := json.Unmarshal(AppendNumber(nil, v, 64), &got); err != nil || got != v {
			t.Fatalf("%v became %v: %v", v, got, err)
		}
		f := float32(v)
		if math.IsInf(float64(f), 0) {
			return
		}
		if err := json.Unmarshal(AppendNumber(nil, float64(f), 32), &got); err != nil || float32(got) != f {
			t.Fatalf("%v became %v: %v", f, got, err)
		}
	}
	for _, v := range []float64{
		0, 1, -1, 1e-6, 9.99e-7, 1e21, 1e20, math.MaxFloat64, math.SmallestNonzeroFloat64,
		math.MaxFloat32,
	} {
		check(t, v)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.Float64().Filter(func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }).Draw(t,
			"v"))
	})
}

// BenchmarkParquet writes row groups of decisions with the columns of an output.
func BenchmarkParquet(b *testing.B) {
	text, number := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Uint64
	s := arrow.NewSchema([]arrow.Field{
		{Name: "series", Type: text},
		{Name: "row", Type: number},
		{Name: "timestamp", Type: text},
		{Name: "value", Type: arrow.PrimitiveTypes.Float64},
		{Name: "score", Type: arrow.PrimitiveTypes.Float32},
		{Name: "decision", Type: text},
		{Name: "round", Type: number},
		{Name: "leader", Type: number},
		{Name: "counts.normal", Type: arrow.PrimitiveTypes.Uint32},
	}, nil)
	rows := array.NewRecordBuilder(memory.DefaultAllocator, s)
	for i := range columnRows {
		rows.Field(0).(*array.StringBuilder).Append("requests_per_s.csv")
		rows.Field(1).(*array.Uint64Builder).Append(uint64(i))
		rows.Field(2).(*array.StringBuilder).Append(fmt.Sprint(1700000000 + i))
		rows.Field(3).(*array.Float64Builder).Append(math.Sin(float64(i)) * 100)
		rows.Field(4).(*array.Float32Builder).Append(float32(math.Cos(float64(i))))
		rows.Field(5).(*array.StringBuilder).Append([]string{"normal", "anomalous"}[i/1000%2])
		rows.Field(6).(*array.Uint64Builder).Append(uint64(i))
		rows.Field(7).(*array.Uint64Builder).Append(uint64(i % 64))
		rows.Field(8).(*array.Uint32Builder).Append(uint32(i*7919) % 1_562_525)
	}
	rec := rows.NewRecordBatch()
	for b.Loop() {
		w, err := newParquetWriter(io.Discard, s)
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Write(rec); err != nil {
			b.Fatal(err)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(columnRows*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}
