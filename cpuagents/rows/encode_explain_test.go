package rows

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// explained is a batch of a usual row and a surprising one, with two features.
func explained() *batch.Decisions {
	nan := math.NaN()
	return &batch.Decisions{
		Group: []uint32{0, 0}, Row: []uint64{1, 2}, Read: []int64{1, 2}, Timestamp: []string{"a", "b"},
		Value: []float64{1, 2, 3, 4}, Score: []float32{0.25, 0.5}, Decision: []uint32{0, 1},
		Counts: []uint32{4, 0, 0, 4}, Candidates: 2, Leader: []uint64{0, 1}, Round: []uint64{1, 2},
		Explained: &batch.Explained{
			Features: 2, Expected: []float64{nan, nan, 1.5, 9.5}, Low: []float64{nan, nan, 1, 9},
			High: []float64{nan, nan, 2, 10}, Fault: []int8{-1, 1}, Side: []int8{0, -1},
			Kind: []batch.Surprise{0, batch.LevelSurprise}, Before: []uint32{0, 7},
		},
	}
}

// TestExplained: every format has the explanation under the same names, and a feature with the name
// of such a column gets a prefix.
func TestExplained(t *testing.T) {
	l := Layout{
		Series: []string{"s"}, Candidates: []string{"no", "yes"}, Features: []string{"v", "Kind"}, Explain: true,
	}
	document := func(f Format) []byte {
		doc := NewDocument(f, l)
		d := explained()
		for i := range d.Len() {
			if err := doc.Add(d, i); err != nil {
				t.Fatal(err)
			}
		}
		out, err := doc.Take()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	const first = `{"series":"s","row":1,"timestamp":"a","v":1,"features.Kind":2,"score":0.25,"decision":"no",` +
		`"round":1,"counts":{"no":4,"yes":0},"leader":0,"expected":{"v":null,"features.Kind":null},` +
		`"low":{"v":null,"features.Kind":null},"high":{"v":null,"features.Kind":null}}` + "\n"
	const second = `{"series":"s","row":2,"timestamp":"b","v":3,"features.Kind":4,"score":0.5,"decision":"yes",` +
		`"round":2,"counts":{"no":0,"yes":4},"leader":1,"expected":{"v":1.5,"features.Kind":9.5},` +
		`"low":{"v":1,"features.Kind":9},"high":{"v":2,"features.Kind":10},"feature":"features.Kind",` +
		`"direction":"below","kind":"level","before":7}` + "\n"
	if got := string(document("ndjson")); got != first+second {
		t.Errorf("NDJSON is\n%swant\n%s", got, first+second)
	}
	if !json.Valid([]byte(second)) {
		t.Error("the line is not JSON")
	}

	lines, err := csv.NewReader(bytes.NewReader(document("csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]string{
		"expected.v": {"", "1.5"}, "low.v": {"", "1"}, "high.features.Kind": {"", "10"},
		"feature": {"", "features.Kind"}, "direction": {"", "below"}, "kind": {"", "level"}, "before": {"", "7"},
	}
	found := 0
	for column, name := range lines[0] {
		if w, is := want[name]; is {
			found++
			if lines[1][column] != w[0] || lines[2][column] != w[1] {
				t.Errorf("CSV: %s is %q and %q, want %q", name, lines[1][column], lines[2][column], w)
			}
		}
	}
	if found != len(want) {
		t.Errorf("CSV has the columns %v, want all of %v", lines[0], want)
	}

	r, err := ipc.NewFileReader(bytes.NewReader(document("arrow")))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := r.RecordBatch(0)
	if err != nil {
		t.Fatal(err)
	}
	column := func(name string) int { return rec.Schema().FieldIndices(name)[0] }
	bands := rec.Column(column("expected.features.Kind")).(*array.Float64)
	if !math.IsNaN(bands.Value(0)) || bands.Value(1) != 9.5 {
		t.Errorf("Arrow: expected is %v", bands)
	}
	for name, w := range map[string]string{"feature": "features.Kind", "direction": "below", "kind": "level"} {
		if got := rec.Column(column(name)).(*array.String); got.Value(0) != "" || got.Value(1) != w {
			t.Errorf("Arrow: %s is %v, want %q", name, got, w)
		}
	}
	if got := rec.Column(column("before")).(*array.Uint32).Value(1); got != 7 {
		t.Errorf("Arrow: before is %d, want 7", got)
	}
	if len(document("parquet")) == 0 {
		t.Error("no Parquet")
	}
}
