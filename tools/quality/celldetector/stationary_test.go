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

const tenDays = 10 * 24 * time.Hour

// stationaryFleet returns the alarms in each hour of the first ten days of a fleet whose entities
// have a sine of one cycle, each in its own phase, and noise in parts of the amplitude.
func stationaryFleet(
	t *testing.T, d *evaluation.CellDetector, entities int, cycle, step time.Duration, noise float64,
) []int {
	t.Helper()
	return alarmsByHour(t, d, entities, func(e int) ([]int64, []float32) {
		r := rand.New(rand.NewPCG(uint64(e), uint64(step)+uint64(cycle)))
		times, x := make([]int64, tenDays/step), make([]float32, tenDays/step)
		for i := range times {
			at := time.Duration(i) * step
			times[i] = 1_772_409_600e9 + int64(at)
			x[i] = float32(20 + 5*math.Sin(2*math.Pi*float64(at)/float64(cycle)+float64(e)) + 5*noise*r.NormFloat64())
		}
		return times, x
	})
}

// alarmsByHour returns the alarms in each hour of the first ten days of series, which of returns by
// their number.
func alarmsByHour(
	t *testing.T, d *evaluation.CellDetector, series int, of func(e int) ([]int64, []float32),
) []int {
	t.Helper()
	hours := make([]int, tenDays/time.Hour)
	var (
		lock sync.Mutex
		jobs sync.WaitGroup
		room = make(chan struct{}, runtime.GOMAXPROCS(0))
	)
	for e := range series {
		jobs.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			times, x := of(e)
			out, err := d.Run(times, x, 1)
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			for _, row := range out.Anomalous() {
				hours[time.Duration(times[row]-times[0])/time.Hour]++
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

// stationarySeries returns series e of TestStationarySeries: a cycle from 3 rows to a week, a row from
// 30 s to 2 h, one of four shapes, noise from nothing to the amplitude, and any start.
func stationarySeries(e int) (times []int64, x []float32) {
	r := rand.New(rand.NewPCG(uint64(e), 9))
	between := func(low, high time.Duration) time.Duration {
		return time.Duration(float64(low) * math.Pow(float64(high)/float64(low), r.Float64()))
	}
	step := between(30*time.Second, 2*time.Hour).Round(time.Second)
	cycle := between(3*step, 7*24*time.Hour)
	if usual := []time.Duration{time.Hour, 8 * time.Hour, 24 * time.Hour, 168 * time.Hour}[r.IntN(4)]; r.IntN(2) == 0 &&
		usual >= 3*step {
		cycle = usual
	}
	noise, shape, phase := math.Pow(300, -r.Float64()), r.IntN(4), r.Float64()
	if r.IntN(5) == 0 {
		noise = 0
	}
	start := 1_772_409_600e9 + r.Int64N(int64(7*24*time.Hour))
	for i := range int(tenDays / step) {
		at := time.Duration(i) * step
		_, part := math.Modf(float64(at)/float64(cycle) + phase)
		v := 0.0
		switch shape {
		case 0:
			v = math.Sin(2 * math.Pi * part)
		case 1:
			v = 2*part - 1
		case 2:
			v = math.Copysign(1, 0.3-part)
		case 3:
			v = math.Exp(-50 * (part - 0.5) * (part - 0.5))
		}
		times = append(times, start+int64(at))
		x = append(x, float32(20+5*v+5*noise*r.NormFloat64()))
	}
	return times, x
}

// TestStationarySeries: in no hour of ten days do stationary series of any cycle and any rate of
// rows together have more than three times the alarms that are asked for, plus four deviations of
// chance.
func TestStationarySeries(t *testing.T) {
	if testing.Short() {
		t.Skip("ten days of series are slow under the race detector")
	}
	for _, of := range []struct {
		perDay float64
		series int
	}{{1, testkit.Of(10000, 200)}, {0.07, testkit.Of(10000, 100)}} {
		d, err := evaluation.NewCellDetector(evaluation.CellOptions{
			Values: map[string]float64{"alarms_per_day": of.perDay}, Agents: 16, Seed: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		hours := alarmsByHour(t, d, of.series, stationarySeries)
		worst, asked := slices.Max(hours), of.perDay*float64(of.series)/24
		name := fmt.Sprintf("%d series, %g alarms a day", of.series, of.perDay)
		t.Logf("%s: %d in the worst hour, %.2f times the rate asked for", name, worst, float64(worst)/asked)
		if limit := 3*asked + 4*math.Sqrt(3*asked); float64(worst) > limit {
			t.Errorf("%s: %d alarms in hour %d, want at most %.0f", name, worst, slices.Index(hours, worst), limit)
		}
	}
}
