package celldetector_test

import (
	"flag"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/base/quality"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/labelled"
	"github.com/exoswarm/exoswarm/tools/quality/measures"
)

var (
	relationEach = flag.Int("relation.each", 0, "series of each pair of TestRelations, four times as many of "+
		"incident correlation; 0: a few")
	relationSeed = flag.Uint64("relation.seed", 1000, "seed of TestRelations; below 1,000 for choices")
)

func jointSeries(t *testing.T) []labelled.Series {
	t.Helper()
	each := testkit.Of(3, 1)
	if *relationEach > 0 {
		each = *relationEach
	}
	var all []labelled.Series
	for _, p := range labelled.Pairs() {
		few := each == 1 && p.Incident != "correlation" && p.Incident != "level-one"
		if few || !strings.HasPrefix(p.Family, "joint") {
			continue
		}
		n := each
		if p.Incident == "correlation" {
			n *= 4
		}
		for i := range n {
			s, err := labelled.Make(*relationSeed, p, i)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
	}
	return all
}

// found counts alarms of a kind of incident, or of all kinds.
type found struct {
	windows, found, outside, rows, series int
	vus                                   float64
}

// detectJoint runs the predictor over series, with relations or without, and counts by incident; ""
// has all.
func detectJoint(t *testing.T, all []labelled.Series, relations float64) map[string]*found {
	t.Helper()
	values := map[string]float64{"relations": relations}
	d, err := evaluation.NewCellDetector(evaluation.CellOptions{Values: values, Agents: 64, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]*found{"": {}}
	var lock sync.Mutex
	var jobs sync.WaitGroup
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range all {
		jobs.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			s := &all[i]
			out, err := d.Run(s.Times, s.Flat(), s.Features())
			if err != nil {
				t.Error(err)
				return
			}
			probation, alarms := quality.Probation(len(s.Times)), out.Anomalous()
			in := func(w quality.Window, row int) bool { return w.First <= row && row <= w.Last+fleetSlack }
			one := found{windows: len(s.Windows), rows: len(s.Times) - probation, series: 1}
			for _, w := range s.Windows {
				if slices.ContainsFunc(alarms, func(row int) bool { return in(w, row) }) {
					one.found++
				}
			}
			for _, row := range alarms {
				inside := func(w quality.Window) bool { return in(w, row) }
				if row >= probation && !slices.ContainsFunc(s.Windows, inside) {
					one.outside++
				}
			}
			scores, windows := measures.Behind(out.Scores, s.Windows, probation)
			one.vus = quality.VUSPR(scores, windows, quality.Buffer)
			lock.Lock()
			defer lock.Unlock()
			if by[s.Incident] == nil {
				by[s.Incident] = &found{}
			}
			for _, f := range []*found{by[""], by[s.Incident]} {
				f.windows, f.found, f.outside = f.windows+one.windows, f.found+one.found, f.outside+one.outside
				f.rows, f.series, f.vus = f.rows+one.rows, f.series+1, f.vus+one.vus
			}
		})
	}
	jobs.Wait()
	return by
}

// TestRelations: with relations the predictor finds most incidents in which one feature stops
// following the others, and raises no more alarms outside.
func TestRelations(t *testing.T) {
	if testing.Short() {
		t.Skip("series of several features are slow under the race detector")
	}
	all := jointSeries(t)
	without, with := detectJoint(t, all, 0), detectJoint(t, all, 1)
	var kinds []string
	for kind := range with {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		a, b := without[kind], with[kind]
		t.Logf("%-16s %3d windows, found %3d without relations and %3d with; outside %.2f and %.2f in 1,000 rows; "+
			"VUS-PR %.3f and %.3f", kind, a.windows, a.found, b.found, 1000*float64(a.outside)/float64(a.rows),
			1000*float64(b.outside)/float64(b.rows), a.vus/float64(a.series), b.vus/float64(b.series))
	}
	if c := with["correlation"]; 4*c.found < 3*c.windows || c.found < 2*without["correlation"].found {
		t.Errorf("found %d of %d changes of correlation, and %d without relations", c.found, c.windows,
			without["correlation"].found)
	}
	if with[""].outside > without[""].outside+4 {
		t.Errorf("%d alarms outside, and %d without relations", with[""].outside, without[""].outside)
	}
}
