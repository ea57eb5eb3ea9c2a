package encode

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/rows/rowstest"
	"github.com/exoswarm/exoswarm/internal/base/testlong"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// encoded writes decisions of two series, those of the first in two pieces.
func encoded(t *testing.T, f rows.Format, n int) []byte {
	t.Helper()
	e, pack, err := New(f, Layout{Series: fixture.Series, Candidates: fixture.Candidates, Features: []string{"value"}})
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
	flat := rows.ColumnSpec{Timestamp: "round", Features: []string{"value", "score", "row"}}
	flatter := rows.ColumnSpec{Timestamp: "round", Features: []string{"leader", "counts.normal", `counts.odd, "very"`}}
	// Rounds of the second series begin again: its rows go back in time and are left out, in all
	// formats alike.
	for _, n := range []int{0, 1, 10, columnRows/2 + 7} {
		if n > 100 && !testlong.Enabled() {
			continue // seconds, and minutes with the race detector
		}
		want := map[string][]rows.Row{}
		for _, f := range []rows.Format{"csv", "ndjson", "arrow", "parquet", "csv.gz", "ndjson.zst", "arrow.gz"} {
			data := encoded(t, f, n)
			if n < 100 && !bytes.Equal(data, encoded(t, f, n)) {
				t.Errorf("%s: other bytes the second time", f)
			}
			for name, spec := range map[string]rows.ColumnSpec{"flat": flat, "flatter": flatter} {
				if name == "flatter" && f[0] == 'n' {
					continue // its counts are an object
				}
				rows, _, err := rowstest.Parse(t, f, data, spec)
				if err != nil {
					t.Fatalf("%s: rowstest.Parse: %v, want no error", f, err)
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

// TestDroppedOutput: every format says what was dropped, and has no decision for it.
func TestDroppedOutput(t *testing.T) {
	d := fixture.Decisions(0, 3)
	d.Dropped = []uint8{batch.Applied, batch.DroppedLate, batch.DroppedDuplicate}
	for i := 1; i < 3; i++ {
		d.Decision[i], d.Score[i], d.Counts[2*i], d.Counts[2*i+1], d.Value[i] = batch.NoDecision, 0, 0, 0, float64(i)
	}
	write := func(f rows.Format) []byte {
		p := NewDocument(f, Layout{
			Series: fixture.Series, Candidates: fixture.Candidates, Features: []string{"value"},
			Drops: true,
		})
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
	if _, _, err := rowstest.Parse(t, "parquet", write("parquet"),
		rows.ColumnSpec{Timestamp: "row", Features: []string{"value"}}); err != nil {
		t.Errorf("rowstest.Parse: %v, want no error", err)
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
