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

const (
	tenDays = 10 * 24 * time.Hour
	start0  = int64(1_772_409_600e9) // of series, in unix nanoseconds: a midnight
)

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
			times[i] = start0 + int64(at)
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
	return alarmsByHourSince(t, d, series, func(e int) ([]int64, []float32, int) {
		times, x := of(e)
		return times, x, 0
	})
}

// alarmsByHourSince is alarmsByHour from a row of each series on, with which of returns it.
func alarmsByHourSince(
	t *testing.T, d *evaluation.CellDetector, series int, of func(e int) ([]int64, []float32, int),
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
			times, x, first := of(e)
			out, err := d.Run(times, x, 1)
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			for _, row := range out.Anomalous() {
				if row >= first {
					hours[time.Duration(times[row]-times[first])/time.Hour]++
				}
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
	d := detectorOf(t, perDay)
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

// shapes are the cycles of stationary series, by the part of the cycle, from -1 to 1.
var shapes = []func(part float64) float64{
	func(part float64) float64 { return math.Sin(2 * math.Pi * part) },
	func(part float64) float64 { return 2*part - 1 },
	func(part float64) float64 { return math.Copysign(1, 0.3-part) },
	func(part float64) float64 { return math.Exp(-50 * (part - 0.5) * (part - 0.5)) },
}

// cyclic returns ten days of a series with noise in parts of the amplitude.
func cyclic(
	r *rand.Rand, start int64, step, cycle time.Duration, shape int, phase, noise float64,
) (times []int64, x []float32) {
	for i := range int(tenDays / step) {
		at := time.Duration(i) * step
		_, part := math.Modf(float64(at)/float64(cycle) + phase)
		times = append(times, start+int64(at))
		x = append(x, float32(20+5*shapes[shape](part)+5*noise*r.NormFloat64()))
	}
	return times, x
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
	noise, shape, phase := math.Pow(300, -r.Float64()), r.IntN(len(shapes)), r.Float64()
	if r.IntN(5) == 0 {
		noise = 0
	}
	return cyclic(r, start0+r.Int64N(int64(7*24*time.Hour)), step, cycle, shape, phase, noise)
}

// withinThrice fails the test if an hour has more than three times the alarms that are asked for,
// plus four deviations of chance.
func withinThrice(t *testing.T, name string, perDay float64, series int, hours []int) {
	t.Helper()
	worst, asked := slices.Max(hours), perDay*float64(series)/24
	t.Logf("%s: %d of %d series in the worst hour, %.2f times the rate asked for", name, worst, series,
		float64(worst)/asked)
	if limit := 3*asked + 4*math.Sqrt(3*asked); float64(worst) > limit {
		t.Errorf("%s: %d alarms in hour %d, want at most %.0f", name, worst, slices.Index(hours, worst), limit)
	}
}

func detectorOf(t *testing.T, perDay float64) *evaluation.CellDetector {
	t.Helper()
	d, err := evaluation.NewCellDetector(evaluation.CellOptions{
		Values: map[string]float64{"alarms_per_day": perDay}, Agents: 16, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestStationarySeries: in no hour of ten days do stationary series of any cycle and any rate of
// rows together have more than three times the alarms that are asked for.
func TestStationarySeries(t *testing.T) {
	if testing.Short() {
		t.Skip("ten days of series are slow under the race detector")
	}
	for _, of := range []struct {
		perDay float64
		series int
	}{{0.07, testkit.Of(10000, 300)}, {1, testkit.Of(2000, 100)}} {
		hours := alarmsByHour(t, detectorOf(t, of.perDay), of.series, stationarySeries)
		withinThrice(t, fmt.Sprintf("%g alarms a day", of.perDay), of.perDay, of.series, hours)
	}
}

// breaks change a series from a row on: which rows it keeps, and where it goes on. They get the rows
// as [0, rows), the first row of the change, the rows of an hour, and the number of the series.
var breaks = []struct {
	name   string
	change func(rows, first, hour, e int) []int
}{
	{"a gap", func(rows, first, hour, e int) []int {
		return slices.Concat(upTo(0, first, 1), upTo(first+hour*(1+e%24), rows, 1))
	}},
	{"fewer rows", func(rows, first, hour, e int) []int {
		return slices.Concat(upTo(0, first, 1), upTo(first, rows, 2+e%4))
	}},
	{"more rows", func(rows, first, hour, e int) []int {
		return slices.Concat(upTo(0, first, 2+e%4), upTo(first, rows, 1))
	}},
	{"a clock set forward", func(rows, first, hour, _ int) []int {
		return slices.Concat(upTo(0, first, 1), upTo(first+hour, rows, 1))
	}},
	{"a clock set back", func(rows, first, hour, _ int) []int {
		return slices.Concat(upTo(0, first, 1), upTo(first-hour, rows, 1))
	}},
}

func upTo(from, to, step int) (rows []int) {
	for i := from; i < to; i += step {
		rows = append(rows, i)
	}
	return rows
}

// TestBrokenSeries: the same holds for the hours after a gap, another rate of rows, or a clock that
// is set by an hour, as local time is twice a year.
func TestBrokenSeries(t *testing.T) {
	if testing.Short() {
		t.Skip("ten days of series are slow under the race detector")
	}
	const perDay, after = 0.07, 8
	d, series := detectorOf(t, perDay), testkit.Of(1000, 60)
	for _, b := range breaks {
		hours := alarmsByHourSince(t, d, series, func(e int) ([]int64, []float32, int) {
			times, x := stationarySeries(e)
			first := len(x) * (60 + e%30) / 100
			hour := max(1, int(int64(time.Hour)/(times[1]-times[0])))
			rows := b.change(len(x), first, hour, e)
			var at []int64
			var y []float32
			since := len(rows)
			for i, row := range rows {
				at, y = append(at, times[row]), append(y, x[row])
				if since == len(rows) && (row > first || i > 0 && row < rows[i-1]) {
					since = i
				}
			}
			return at, y, min(since, len(rows)-1)
		})
		withinThrice(t, b.name, perDay, series, hours[:after])
	}
}

// TestDailyFleets: a fleet whose entities share a daily cycle, jumps and all, is quiet together from
// the third day on. Nobody can know the first jump.
func TestDailyFleets(t *testing.T) {
	if testing.Short() {
		t.Skip("ten days of fleets are slow under the race detector")
	}
	const perDay, entities = 0.07, 20
	d := detectorOf(t, perDay)
	for _, step := range []time.Duration{5 * time.Minute, time.Minute}[:testkit.Of(2, 1)] {
		for _, noise := range []float64{0.1, 0.01, 0.5}[:testkit.Of(3, 1)] {
			for shape := range shapes {
				hours := alarmsByHour(t, d, entities, func(e int) ([]int64, []float32) {
					return cyclic(rand.New(rand.NewPCG(uint64(e), 11)), start0, step, 24*time.Hour, shape, 0.6, noise)
				})
				name := fmt.Sprintf("shape %d, step %v, noise %g, from the third day on", shape, step, noise)
				withinThrice(t, name, perDay, entities, hours[48:])
			}
		}
	}
}
