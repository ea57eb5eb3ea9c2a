package rows

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
)

// TestDocuments: in every format a document holds what was collected, in the order in which it
// came, and the same gives the same bytes.
func TestDocuments(t *testing.T) {
	for _, f := range []Format{"csv", "csv.gz", "ndjson", "ndjson.zst", "arrow", "arrow.gz", "parquet"} {
		var docs [3][]byte
		p := NewDocument(f, Layout{Series: fixture.Series, Candidates: fixture.Candidates, Features: []string{"value"}})
		for n := range docs {
			for _, d := range fixture.Batches()[:2+n/2] {
				for i := range d.Len() {
					if err := p.Add(d, i); err != nil {
						t.Fatalf("%s: Add: %v, want no error", f, err)
					}
				}
			}
			var err error
			if docs[n], err = p.Take(); err != nil {
				t.Fatalf("%s: Take: %v, want no error", f, err)
			}
		}
		if !bytes.Equal(docs[0], docs[1]) || bytes.Equal(docs[1], docs[2]) || p.MediaType() == "" {
			t.Errorf("%s: documents of %d, %d and %d bytes", f, len(docs[0]), len(docs[1]), len(docs[2]))
		}
		rows, bad, err := parse(t, f, docs[0],
			ColumnSpec{Timestamp: "timestamp", Features: []string{"value"}})
		if err != nil || len(rows) != 90 || len(bad) > 0 {
			t.Fatalf("%s: %d rows, rejects %v, %v, want 90 rows", f, len(rows), bad, err)
		}
		for i, r := range rows {
			if want := fixture.Decisions(uint32(i%2), 45).Value[i/2]; r.Values[0] != want {
				t.Fatalf("%s: value of row %d is %v, want %v", f, i, r.Values[0], want)
			}
		}
	}
}

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
	for _, f := range []Format{"csv", "ndjson", "arrow", "parquet"} {
		data := documentOf(t, f, d, l)
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
		rows, _, err := parse(t, f, data, ColumnSpec{Timestamp: "round", Features: names[:3]})
		if err != nil || len(rows) != 3 || !slices.Equal(rows[2].Values, d.Value[8:11]) {
			t.Errorf("%s: %v, rows %v", f, err, rows)
		}
	}
}
