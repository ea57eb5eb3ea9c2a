package explain_test

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/tools/labelled"
)

// causes are the kinds of generated incidents that have one cause, which a person would name.
var causes = map[string]batch.Surprise{
	"spike": batch.PointSurprise, "dip": batch.PointSurprise,
	"level": batch.LevelSurprise, "drift": batch.LevelSurprise, "leak": batch.LevelSurprise,
	"spread-more": batch.SpreadSurprise, "spread-less": batch.SpreadSurprise, "oscillation": batch.SpreadSurprise,
	"frozen": batch.FrozenSurprise, "flat": batch.FrozenSurprise,
	"events-missing": batch.MissingSurprise, "hump-missing": batch.MissingSurprise,
}

// TestCauses: of generated incidents whose cause is known, and which the predictor finds, the
// record names the right feature for 90 % or more, and the right kind for 75 % or more. The
// incident is in one of three features. Where an incident has several records, the longest one
// counts.
func TestCauses(t *testing.T) {
	d, err := evaluation.NewCellDetector(evaluation.CellOptions{Agents: 16, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	every := testkit.Of(1, 8)
	type count struct{ found, feature, kind int }
	var all count
	table := map[string]*[batch.FeatureSurprises]int{}
	by := map[string]*count{}
	for n, p := range labelled.Pairs() {
		want, known := causes[p.Incident]
		if !known || n%every != 0 {
			continue
		}
		s, err := labelled.Make(37, p, n)
		if err != nil {
			t.Fatal(err)
		}
		if s.Features() > 1 {
			continue // the feature of the incident is not known
		}
		h := fnv.New32a()
		h.Write([]byte(s.Name))
		at := int(h.Sum32() % 3) // the feature of the incident
		values := beside(s, at)
		flat := make([]float32, len(values))
		for i, v := range values {
			flat[i] = float32(v)
		}
		out, err := d.Run(s.Times, flat, 3)
		if err != nil {
			t.Fatal(err)
		}
		x := explain.New(rows.Layout{
			Series: []string{"s"}, Candidates: []string{"normal", "suspicious", "anomalous"},
			Features: []string{"a", "b", "c"},
		}, nil)
		b := &batch.Decisions{Candidates: 3, Value: values, Score: out.Scores, Decision: out.Decisions}
		for i, ns := range s.Times {
			b.Group, b.Row, b.Read = append(b.Group, 0), append(b.Row, uint64(i)), append(b.Read, ns)
			b.Timestamp = append(b.Timestamp, fmt.Sprint(ns/1e9))
		}
		incidents := append(x.Explain(b), x.Finish()...)
		for _, w := range s.Windows {
			var in *explain.Incident
			for k := range incidents {
				one := &incidents[k]
				if int(one.Row) >= w.First && int(one.Row) <= w.Last && (in == nil || one.Rows > in.Rows) {
					in = one
				}
			}
			if in == nil {
				continue
			}
			if by[p.Incident] == nil {
				by[p.Incident], table[p.Incident] = &count{}, &[batch.FeatureSurprises]int{}
			}
			c := by[p.Incident]
			c.found++
			all.found++
			right := len(in.Features) > 0 && in.Features[0] == []string{"a", "b", "c"}[at]
			if right {
				c.feature++
				all.feature++
			}
			if len(in.Kinds) > 0 {
				table[p.Incident][in.Kinds[0]]++
				if in.Kinds[0] == want || p.Incident == "flat" && in.Kinds[0] == batch.LevelSurprise {
					c.kind++
					all.kind++
				}
			}
		}
	}
	for name, c := range by {
		t.Logf("%-16s %3d found %3d feature %3d kind %v", name, c.found, c.feature, c.kind, *table[name])
	}
	feature, kind := float64(all.feature)/float64(all.found), float64(all.kind)/float64(all.found)
	t.Logf("%d found: feature at fault %.1f %%, kind %.1f %%", all.found, 100*feature, 100*kind)
	if all.found < 20 || feature < 0.9 || kind < 0.75 {
		t.Errorf("of %d incidents found, feature at fault %.3f and kind %.3f, want 20 or more, 0.9 and 0.75", all.found,
			feature, kind)
	}
}

// beside puts the values of a series between two quiet features: noise that remembers a little, and
// a day with noise.
func beside(s labelled.Series, at int) []float64 {
	r := rand.New(rand.NewPCG(uint64(at), uint64(len(s.Name))))
	values, memory := make([]float64, 0, 3*len(s.Values)), 0.0
	for row, v := range s.Values {
		memory = 0.6*memory + r.NormFloat64()
		day := math.Sin(2 * math.Pi * float64(s.Times[row]%int64(24*time.Hour)) / float64(24*time.Hour))
		all := []float64{50 + memory, 20 + 8*day + 0.5*r.NormFloat64(), 7 + r.NormFloat64()}
		all[at] = v
		values = append(values, all...)
	}
	return values
}
