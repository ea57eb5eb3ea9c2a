package encode

import (
	"bytes"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/rows/rowstest"
)

// TestDocuments: in every format a document holds what was collected, in the order in which it
// came, and the same gives the same bytes.
func TestDocuments(t *testing.T) {
	for _, f := range []rows.Format{"csv", "csv.gz", "ndjson", "ndjson.zst", "arrow", "arrow.gz", "parquet"} {
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
		rows, bad, err := rowstest.Parse(t, f, docs[0],
			rows.ColumnSpec{Timestamp: "timestamp", Features: []string{"value"}})
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
