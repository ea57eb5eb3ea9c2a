package celldetector_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// stationaryFleet returns the alarms in each hour of the first ten days of a fleet whose entities
// have a sine of one cycle, each in its own phase, and noise in parts of the amplitude.
func stationaryFleet(
	t *testing.T, d *evaluation.CellDetector, entities int, cycle, step time.Duration, noise float64,
) []int {
	t.Helper()
	const length = 10 * 24 * time.Hour
	hours := make([]int, length/time.Hour)
	var (
		lock sync.Mutex
		jobs sync.WaitGroup
		room = make(chan struct{}, runtime.GOMAXPROCS(0))
	)
	for e := range entities {
		jobs.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			r := rand.New(rand.NewPCG(uint64(e), uint64(step)+uint64(cycle)))
			times, x := make([]int64, length/step), make([]float32, length/step)
			for i := range times {
				at := time.Duration(i) * step
				times[i] = 1_772_409_600e9 + int64(at)
				x[i] = float32(20 + 5*math.Sin(2*math.Pi*float64(at)/float64(cycle)+float64(e)) +
					5*noise*r.NormFloat64())
			}
			out, err := d.Run(times, x, 1)
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			for _, row := range out.Anomalous() {
				hours[time.Duration(row)*step/time.Hour]++
			}
		})
	}
	jobs.Wait()
	return hours
}

// TestStationaryFleets: no hour has false alarms of many entities of a stationary fleet: at most
// three times the rate asked for, plus four deviations of chance. Daily habits show after a day,
// weekly habits after a week.
func TestStationaryFleets(t *testing.T) {
	if testing.Short() {
		t.Skip("ten days of fleets are slow under the race detector")
	}
	const perDay = 1
	values := map[string]float64{"alarms_per_day": perDay}
	d, err := evaluation.NewCellDetector(evaluation.CellOptions{Values: values, Agents: 16, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	entities := testkit.Of(40, 16)
	asked := perDay * float64(entities) / 24
	limit := int(3*asked + 4*math.Sqrt(3*asked))
	steps := testkit.Of(4, 2)
	for _, step := range []time.Duration{time.Minute, 5 * time.Minute, 2 * time.Minute, 15 * time.Minute}[:steps] {
		for _, noise := range []float64{0, 0.02, 0.3}[:testkit.Of(3, 2)] {
			for _, cycle := range []time.Duration{
				10 * time.Minute, 20 * time.Minute, time.Hour, 3 * time.Hour, 7 * time.Hour, 24 * time.Hour,
				48 * time.Hour,
			} {
				if cycle <= 2*step { // two points of a sine are no cycle
					continue
				}
				hours := stationaryFleet(t, d, entities, cycle, step, noise)
				worst := slices.Max(hours)
				name := fmt.Sprintf("cycle %v, step %v, noise %v", cycle, step, noise)
				t.Logf("%s: %d of %d entities in the worst hour", name, worst, entities)
				if worst > limit {
					t.Errorf("%s: %d alarms of %d entities in hour %d, want at most %d", name, worst, entities,
						slices.Index(hours, worst), limit)
				}
			}
		}
	}
}
