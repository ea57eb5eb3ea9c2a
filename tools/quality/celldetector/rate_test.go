package celldetector_test

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/labelled"
	"github.com/exoswarm/exoswarm/tools/quality/measures"
)

// rateSeries is the number of quiet series of TestAlarmsPerDay; make quiet has 10,000.
var rateSeries = flag.Int("rate.series", 0, "quiet series of a month, over all families; 0: one of each family")

// quietRate returns the false alarms a day and series on n quiet series of each family, of all
// together and by family.
func quietRate(t *testing.T, perDay float64, entities, n int) (measures.Rate, map[string]*measures.Rate) {
	t.Helper()
	d, err := evaluation.NewCellDetector(evaluation.CellOptions{
		Values: map[string]float64{"alarms_per_day": perDay, "entities": float64(entities)}, Agents: 16, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	var (
		all  measures.Rate
		own  = map[string]*measures.Rate{}
		lock sync.Mutex
		jobs sync.WaitGroup
		room = make(chan struct{}, runtime.GOMAXPROCS(0))
	)
	for _, f := range labelled.Families() {
		rate := &measures.Rate{}
		own[f.Name] = rate
		jobs.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			for i := range n {
				s, err := labelled.Quiet(2000, f.Name, i)
				if err != nil {
					t.Error(err)
					return
				}
				out, err := d.Run(s.Times, s.Flat(), s.Features())
				if err != nil {
					t.Error(err)
					return
				}
				days := time.Duration(s.Times[len(s.Times)-1]-s.Times[0]).Hours() / 24
				lock.Lock()
				one := measures.Rate{Alarms: len(out.Anomalous()), Days: days}
				all.Add(one)
				rate.Add(one)
				lock.Unlock()
			}
		})
	}
	jobs.Wait()
	return all, own
}

// TestAlarmsPerDay: on quiet series of all families the predictor raises the false alarms that were
// asked for, within a factor of 1.5: a series, or all together.
func TestAlarmsPerDay(t *testing.T) {
	if testing.Short() {
		t.Skip("a month of each family is slow under the race detector")
	}
	families := len(labelled.Families())
	n := testkit.Of(8, 1)
	if *rateSeries > 0 {
		n = (*rateSeries + families - 1) / families
	}
	for _, of := range []struct {
		perDay   float64
		entities int
		fewest   int // series of a family, for a figure that chance does not make
	}{{0.2, 1, 1}, {0.05, 1, 8}, {0.01, 1, 20}, {20, 1000, 8}} {
		if n < of.fewest {
			continue
		}
		t.Run(fmt.Sprintf("%g a day, %d entities", of.perDay, of.entities), func(t *testing.T) {
			rate, own := quietRate(t, of.perDay, of.entities, n)
			factor := rate.Against(of.perDay / float64(of.entities))
			t.Logf("%d series, %d alarms, %.4f a day and series, a factor of %.2f from the rate asked for",
				n*families, rate.Alarms, rate.PerDay(), factor)
			within := 0
			for _, name := range slices.Sorted(maps.Keys(own)) {
				times := own[name].PerDay() * float64(of.entities) / of.perDay
				t.Logf("%-16s %.2f times the rate asked for", name, times)
				if times <= 1.5 && times >= 1/1.5 {
					within++
				}
			}
			t.Logf("%d of %d families are within a factor of 1.5", within, families)
			if factor > 1.5 {
				t.Errorf("a factor of %.2f, want at most 1.5", factor)
			}
		})
	}
}
