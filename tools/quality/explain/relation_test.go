// Package explain_test measures the explanations of incidents on generated series.
package explain_test

import (
	"fmt"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/tools/labelled"
)

// TestRelationCause: incidents in which a feature stops following the others have the kind
// relation; other incidents do not.
func TestRelationCause(t *testing.T) {
	d, err := evaluation.NewCellDetector(evaluation.CellOptions{Agents: 16, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	found, named := map[string]int{}, map[string]int{}
	for _, family := range []string{"joint-inverse", "joint-three"} {
		for _, incident := range []string{"correlation", "level", "spike"} {
			if family == "joint-inverse" && incident == "level" {
				continue // a rise of two mirrored features is a lost relation too
			}
			for n := range testkit.Of(12, 4) {
				s, err := labelled.Make(41, labelled.Pair{Family: family, Incident: incident}, n)
				if err != nil {
					t.Fatal(err)
				}
				for _, in := range explained(t, d, &s) {
					for _, w := range s.Windows {
						if int(in.Row) < w.First || int(in.Row) > w.Last || len(in.Kinds) == 0 {
							continue
						}
						if found[incident]++; in.Kinds[0] == batch.RelationSurprise {
							named[incident]++
						}
					}
				}
			}
		}
	}
	t.Logf("incidents %v, of kind relation %v", found, named)
	if n := found["correlation"]; n < 8 || 2*named["correlation"] < n {
		t.Errorf("%d of %d changes of correlation are of kind relation", named["correlation"], n)
	}
	if n := found["level"] + found["spike"]; n < 8 || 10*(named["level"]+named["spike"]) > n {
		t.Errorf("%d of %d other incidents are of kind relation", named["level"]+named["spike"], n)
	}
}

func explained(t *testing.T, d *evaluation.CellDetector, s *labelled.Series) []explain.Incident {
	t.Helper()
	out, err := d.Run(s.Times, s.Flat(), s.Features())
	if err != nil {
		t.Fatal(err)
	}
	l := rows.Layout{
		Series: []string{"s"}, Candidates: []string{"normal", "suspicious", "anomalous"},
		Features: []string{"a", "b", "c"}[:s.Features()],
	}
	x := explain.New(l, nil)
	b := &batch.Decisions{Candidates: 3, Score: out.Scores, Decision: out.Decisions}
	for i, ns := range s.Times {
		b.Group, b.Row, b.Read = append(b.Group, 0), append(b.Row, uint64(i)), append(b.Read, ns)
		b.Timestamp, b.Value = append(b.Timestamp, fmt.Sprint(ns/1e9)), append(b.Value, s.Values[i])
		for _, more := range s.More {
			b.Value = append(b.Value, more[i])
		}
	}
	return append(x.Explain(b), x.Finish()...)
}
