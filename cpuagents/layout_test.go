package cpuagents

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/rows/rowstest"
)

// TestFeatureColumns: every feature stands under its name in every format, and one that is called like another column of the
// output does not hide it.
func TestFeatureColumns(t *testing.T) {
	l := layout{series: twoSeries, candidates: candidates, features: []string{"load", "Score", "counts.normal", `errors "%", all`}}
	names := []string{"load", "features.Score", "features.counts.normal", `errors "%", all`}
	if got := l.featureColumns(); !slices.Equal(got, names) {
		t.Fatalf("columns %q, want %q", got, names)
	}
	d := someDecisions(0, 3)
	d.Value = []float64{1, 2.5, -3, 1e300, 5, 6, 7, 8, 9, 10, 11, 0.1}
	for _, f := range []rows.Format{"csv", "ndjson", "arrow", "parquet"} {
		p := parts{layout: l, format: f}
		for i := range d.Len() {
			if err := p.add(d, i); err != nil {
				t.Fatal(err)
			}
		}
		data, err := p.take()
		if err != nil {
			t.Fatal(err)
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

// TestFeatureColumnsOfTables: a table has a column a feature; names that only case tells apart are refused, since SQLite does
// not tell them.
func TestFeatureColumnsOfTables(t *testing.T) {
	dir := t.TempDir()
	files, err := NewFiles(FilesOptions{Roots: map[Root]string{{Name: "db"}: dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	s := &Streamer{Files: files}
	spec := SinkSpec{URI: "sqlite:db/out.db?table=decisions"}
	l := layout{series: twoSeries, candidates: candidates, features: []string{"load", "score"}}
	tp, err := s.newTap("features", 0, spec, l)
	if err != nil {
		t.Fatal(err)
	}
	defer tp.close()
	d := someDecisions(0, 2)
	d.Value = []float64{1, 2, 3, 4}
	if err := tp.open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := tp.send(t.Context(), 1, d); err != nil {
		t.Fatal(err)
	}
	d.Value = []float64{5, 6} // the first feature alone, of an agent of an earlier version
	if err := tp.send(t.Context(), 2, d); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "out.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), `SELECT "load", "features.score" FROM decisions ORDER BY "load"`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var load, score sql.NullFloat64
		if err := rows.Scan(&load, &score); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(load.Float64, score.Float64, score.Valid))
	}
	if want := []string{"1 2 true", "3 4 true", "5 0 false", "6 0 false"}; rows.Err() != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %q, want %q", rows.Err(), got, want)
	}
	l.features = []string{"load", "LOAD"}
	if _, err := s.newTap("features", 0, spec, l); err == nil || !strings.Contains(err.Error(), "case") {
		t.Errorf("two columns of one name: %v", err)
	}
}
