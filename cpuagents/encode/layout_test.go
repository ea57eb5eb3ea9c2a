package encode

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/rows/rowstest"
)

// TestFeatureColumns: every feature stands under its name in every format, and one that is called
// like another column of the output does not hide it.
func TestFeatureColumns(t *testing.T) {
	l := Layout{
		Series: fixture.Series, Candidates: fixture.Candidates,
		Features: []string{"load", "Score", "counts.normal", `errors "%", all`},
	}
	names := []string{"load", "features.Score", "features.counts.normal", `errors "%", all`}
	if got := l.FeatureColumns(); !slices.Equal(got, names) {
		t.Fatalf("columns %q, want %q", got, names)
	}
	d := fixture.Decisions(0, 3)
	d.Value = []float64{1, 2.5, -3, 1e300, 5, 6, 7, 8, 9, 10, 11, 0.1}
	for _, f := range []rows.Format{"csv", "ndjson", "arrow", "parquet"} {
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
		if f == "ndjson" {
			var first map[string]any
			if err := json.NewDecoder(bytes.NewReader(data)).Decode(&first); err != nil || first["value"] != nil {
				t.Fatalf("%v in %s", err, data)
			}
			for i, name := range names {
				if first[name] != d.Value[i] {
					t.Errorf("%s: %s is %v, want %v", f, name, first[name], d.Value[i])
				}
			}
			continue
		}
		rows, _, err := rowstest.Parse(t, f, data, rows.ColumnSpec{Timestamp: "round", Features: names[:3]})
		if err != nil || len(rows) != 3 || !slices.Equal(rows[2].Values, d.Value[8:11]) {
			t.Errorf("%s: %v, rows %v", f, err, rows)
		}
	}
}
