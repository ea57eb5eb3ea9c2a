package sink

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestDroppedTable: a table has nulls in place of a decision on what was dropped.
func TestDroppedTable(t *testing.T) {
	s, q, _, dir := resources(t)
	d := fixture.Decisions(0, 3)
	d.Dropped = []uint8{batch.Applied, batch.DroppedLate, batch.DroppedDuplicate}
	d.Decision[1], d.Decision[2] = batch.NoDecision, batch.NoDecision
	tp, err := s.New("dropping", 0, Spec{URI: "sqlite:db/dropped.db?table=decisions"},
		rows.Layout{Series: fixture.Series, Candidates: fixture.Candidates, Features: []string{"value"}, Drops: true})
	if err != nil {
		t.Fatalf("s.New: %v, want no error", err)
	}
	defer tp.Close()
	if err := tp.Open(fixture.Within(t), q.Swarms.Log("dropping", 1, swarms.Out)); err != nil {
		t.Fatalf("tp.Open: %v, want no error", err)
	}
	if err := tp.Send(fixture.Within(t), 1, d); err != nil {
		t.Fatalf("tp.Send: %v, want no error", err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "dropped.db"))
	if err != nil {
		t.Fatalf("sql.Open: %v, want no error", err)
	}
	defer db.Close()
	var got string
	if err := db.QueryRowContext(fixture.Within(t),
		`SELECT group_concat(coalesce(dropped, '-') || ' ' || (decision IS NULL) || (score IS NULL) || (leader IS `+
			`NULL) || (round IS NULL) || ("counts.normal" IS NULL), ', ') FROM (SELECT * FROM decisions ORDER `+
			`BY row)`).Scan(&got); err != nil {
		t.Fatalf("Scan: %v, want no error", err)
	}
	if got != "- 00000, late 11111, duplicate 11111" {
		t.Errorf("columns that are null: %q, want all of the two dropped rows", got)
	}
}

// TestFeatureColumnsOfTables: a table has a column a feature; names that only case tells apart are
// refused, since SQLite does not tell them.
func TestFeatureColumnsOfTables(t *testing.T) {
	dir := t.TempDir()
	files, err := files.New(files.Options{Roots: map[files.Root]string{{Name: "db"}: dir}})
	if err != nil {
		t.Fatalf("files.New: %v, want no error", err)
	}
	t.Cleanup(func() { _ = files.Close() })
	s := Resources{Files: files}
	spec := Spec{URI: "sqlite:db/out.db?table=decisions"}
	l := rows.Layout{Series: fixture.Series, Candidates: fixture.Candidates, Features: []string{"load", "score"}}
	tp, err := s.New("features", 0, spec, l)
	if err != nil {
		t.Fatalf("s.New: %v, want no error", err)
	}
	defer tp.Close()
	d := fixture.Decisions(0, 2)
	d.Value = []float64{1, 2, 3, 4}
	if err := tp.Open(t.Context(), nil); err != nil {
		t.Fatalf("tp.Open: %v, want no error", err)
	}
	if err := tp.Send(t.Context(), 1, d); err != nil {
		t.Fatalf("tp.Send: %v, want no error", err)
	}
	d.Value = []float64{5, 6} // the first feature alone, of an agent of an earlier version
	if err := tp.Send(t.Context(), 2, d); err != nil {
		t.Fatalf("tp.Send: %v, want no error", err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "out.db"))
	if err != nil {
		t.Fatalf("sql.Open: %v, want no error", err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), `SELECT "load", "features.score" FROM decisions ORDER BY "load"`)
	if err != nil {
		t.Fatalf("db.QueryContext: %v, want no error", err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var load, score sql.NullFloat64
		if err := rows.Scan(&load, &score); err != nil {
			t.Fatalf("rows.Scan: %v, want no error", err)
		}
		got = append(got, fmt.Sprint(load.Float64, score.Float64, score.Valid))
	}
	if want := []string{"1 2 true", "3 4 true", "5 0 false", "6 0 false"}; rows.Err() != nil ||
		!slices.Equal(got, want) {
		t.Errorf("%v: %q, want %q", rows.Err(), got, want)
	}
	l.Features = []string{"load", "LOAD"}
	if _, err := s.New("features", 0, spec, l); err == nil || !strings.Contains(err.Error(), "case") {
		t.Errorf("two columns of one name: %v", err)
	}
}
