// Package tune_test measures the choice of settings on generated series.
package tune_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/labelled"
)

// streams returns n generated series with incidents, and their labels.
func streams(t *testing.T, seed uint64, pairs []labelled.Pair) (all []evaluation.TuneSeries, labels []report.Label) {
	t.Helper()
	type label struct{ Series, Begin, End string }
	var texts []label
	for i, p := range pairs {
		s, err := labelled.Make(seed, p, i)
		if err != nil {
			t.Fatalf("Make: %v", err)
		}
		all = append(all, evaluation.TuneSeries{Name: s.Name, Times: s.Times, Rows: s.Flat()})
		for _, w := range s.Windows {
			text := func(row int) string { return time.Unix(0, s.Times[row]).UTC().Format(time.RFC3339Nano) }
			texts = append(texts, label{s.Name, text(w.First), text(w.Last)})
		}
	}
	data, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	// The members of report.Label are in lower case, which JSON does not tell apart.
	members := strings.NewReplacer(`"Series"`, `"series"`, `"Begin"`, `"begin"`, `"End"`, `"end"`)
	if labels, err = report.ParseLabels([]byte(members.Replace(string(data)))); err != nil {
		t.Fatalf("ParseLabels: %v", err)
	}
	return all, labels
}

// chosen are pairs whose series have one feature and two weeks, of different families.
func chosen(t *testing.T, seed uint64, n int) []labelled.Pair {
	t.Helper()
	var out []labelled.Pair
	for i, p := range labelled.Pairs() {
		if i%4 != 1 {
			continue
		}
		s, err := labelled.Make(seed, p, len(out))
		if err != nil {
			t.Fatalf("Make: %v", err)
		}
		days := float64(s.Times[len(s.Times)-1]-s.Times[0]) / 86400e9
		if s.Features() == 1 && math.Abs(days-14) < 1 {
			out = append(out, p)
		}
		if len(out) == n {
			return out
		}
	}
	t.Fatalf("there are %d pairs, want %d", len(out), n)
	return nil
}

// TestTuned: on the parts that it has not seen the choice is on average at least as good as the
// default, with either split. A choice on ten incidents or more loses at most 0.03 of F1. A choice
// on fewer loses less than one incident weighs, and Run then says that it is worse. A long run has
// six seeds.
func TestTuned(t *testing.T) {
	if testing.Short() {
		t.Skip("cells are slow under the race detector")
	}
	sum := 0.0
	first, last := uint64(testkit.Of(510, 514)), uint64(testkit.Of(515, 514))
	for seed := first; seed <= last; seed++ {
		series, labels := streams(t, seed, chosen(t, seed, 16))
		for _, way := range []string{evaluation.ByTime, evaluation.ByEntity} {
			r, err := evaluation.Tune(t.Context(), series, evaluation.TuneOptions{
				Setting: evaluation.Setting{Alarm: 0.37, Agents: 16},
				Alarms:  []float64{0.31, 0.4, 0.43, 0.46, 0.5}, Sizes: []int{16},
				Features: 1, Seed: 1, Labels: labels, Split: way, Share: 0.5,
			})
			if err != nil {
				t.Fatalf("%s: %v", way, err)
			}
			gain := r.After.F1 - r.Before.F1
			sum += gain
			incidents := r.Tried[0].Incidents
			t.Logf("seed %d, %s: %+v of %d incidents, F1 %.3f, now %.3f. %s", seed, way, r.Chosen, incidents,
				r.After.F1, r.Before.F1, r.Warning)
			loss := 0.03
			if incidents < 10 {
				loss = 1 / float64(incidents)
			}
			if -gain > loss {
				t.Errorf("a choice on %d incidents loses %.3f of F1, want at most %.3f", incidents, -gain, loss)
			}
			if !strings.HasPrefix(r.Split, "by "+way) || (gain < 0) != strings.Contains(r.Warning, "worse") {
				t.Errorf("the split is %q, and the warning %q with a gain of %.3f", r.Split, r.Warning, gain)
			}
		}
	}
	if sum <= 0 {
		t.Errorf("the sum of all gains is %.3f, want more than 0", sum)
	}
}
