// Package labelled generates labelled series on which detectors are developed: families of usual
// behaviour, with incidents of many kinds at known rows.
//
// The same seed makes the same series. All random numbers come from PCG generators whose seeds are
// the seed of the caller and the name of the series. Values are rounded to 1/10,000, which hides
// the last bits in which processors differ.
//
// # How a series is made
//
// A family has a process, which makes the raw values of a row from random numbers, the time and a
// control. The control of most rows is idle. An incident changes the control of its rows: the
// season, the spread, the events, or the raw value itself. Then the family rounds, clips or sums
// the raw value, as its sensor would.
//
// A process draws the same random numbers whatever the control, so a series with an incident is the
// usual one elsewhere, and both can be compared row by row. The windows are the rows that differ.
// An incident that does not show at a place is placed elsewhere; so no label is about nothing.
//
// Sizes of incidents are in units of the raw values of the series without incidents: its span, its
// noise, or its usual top and bottom (type usual). So one kind of incident fits all families.
//
// # Families that are held back
//
// Families are in alphabetical order, and every seventh is held back: no parameter and no structure
// of a detector may be chosen by its results on those (docs/quality.md). Family.HeldBack says so.
//
// # Plants
//
// A plant is an industrial process with 4 to 9 sensors, whose faults last for minutes to hours (type
// Plant). Every third plant is held back.
package labelled

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/quality"
)

// Rows is the length of a series with incidents.
const Rows = 4032 // two weeks of five minutes

// heldBackEvery is the distance of two families that are held back.
const heldBackEvery = 7

// Series is a generated series.
type Series struct {
	// Stream has the name, which is family/incident/number, the times, the values of the first
	// feature, and the windows: first and last row of each incident.
	quality.Stream
	// More are the values of further features, one slice each. Most families have none.
	More [][]float64
	// Family and Incident are names. Incident is empty for a series without any.
	Family, Incident string
	// Size is the size of the incidents of the kinds that have one: 1 is the smallest, 3 the
	// largest.
	Size float64
}

// Features returns the number of values of a row.
func (s *Series) Features() int { return 1 + len(s.More) }

// Flat returns the rows one after the other, in the form that an observe kernel reads. The caller
// owns the slice.
func (s *Series) Flat() []float32 {
	flat := make([]float32, 0, len(s.Values)*s.Features())
	for row, v := range s.Values {
		flat = append(flat, float32(v))
		for _, more := range s.More {
			flat = append(flat, float32(more[row]))
		}
	}
	return flat
}

// Pair is a family with a kind of incident that it can have.
type Pair struct{ Family, Incident string }

// Pairs returns all pairs, in the order of families and incidents.
func Pairs() []Pair {
	var pairs []Pair
	for _, f := range families {
		for _, i := range incidents {
			if i.fits(f) {
				pairs = append(pairs, Pair{f.Name, i.Name})
			}
		}
	}
	return pairs
}

// Make returns series number n of a family with an incident. It returns an ErrUnknown for a pair
// that is not one of Pairs. Parameters with which the incident does not show at any place are drawn
// again; an ErrInvisible says that this failed too often, which tests rule out for many numbers.
func Make(seed uint64, p Pair, n int) (Series, error) {
	s, _, err := makeSeries(seed, p, n)
	return s, err
}

const attempts = 20

// makeSeries is Make. It returns the maker too, which knows the usual series.
func makeSeries(seed uint64, p Pair, n int) (s Series, k *maker, err error) {
	f, i := lookupFamily(p.Family), lookupIncident(p.Incident)
	if f == nil || i == nil || !i.fits(f) {
		return Series{}, nil, fmt.Errorf("%w: family %q with incident %q", ErrUnknown, p.Family, p.Incident)
	}
	name := fmt.Sprintf("%s/%s/%d", p.Family, p.Incident, n)
	for attempt := range attempts {
		k = newMaker(seed, fmt.Sprint(name, "~", attempt), f, Rows, 0)
		if s, err = k.incident(i); err == nil {
			s.Name = name
			break
		}
	}
	return s, k, err
}

// Quiet returns series number n of a family over a month without incidents. Rows are at least five
// minutes apart.
func Quiet(seed uint64, family string, n int) (Series, error) {
	f := lookupFamily(family)
	if f == nil {
		return Series{}, fmt.Errorf("%w: family %q", ErrUnknown, family)
	}
	k := newMaker(seed, fmt.Sprintf("%s/quiet/%d", family, n), f, 0, 30*24*time.Hour)
	return k.series(k.run(nil)), nil
}

// Of returns the numbers 0 to each-1 of all pairs whose family is held back, or of all others.
func Of(seed uint64, heldBack bool, each int) ([]Series, error) {
	var all []Series
	for _, p := range Pairs() {
		if lookupFamily(p.Family).HeldBack != heldBack {
			continue
		}
		for n := range each {
			s, err := Make(seed, p, n)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// maker makes one series. A maker is used once and by one goroutine. It runs the process of the
// family several times: without incidents, to know what is usual, and with them.
type maker struct {
	seed   uint64
	name   string
	family *Family
	step   time.Duration
	cycle  int // rows, for a family with cycles
	times  []int64
	place  *rand.Rand // of the incidents
	// usual has the values without incidents by feature and row, and raw what describes the values
	// of each feature before they are rounded.
	usual [][]float64
	raw   []usual
}

// usual describes the values of a feature before the family rounds and clips them.
type usual struct {
	noise       float64 // deviation of neighbouring rows
	low, high   float64 // 5th and 95th percentile
	bottom, top float64 // 0.5th and 99.5th percentile
}

func (u usual) span() float64 { return u.high - u.low }

// newMaker draws the step, the times and the parameters of a series and runs it without incidents.
// With a length, the number of rows follows from it; else it is rows.
func newMaker(seed uint64, name string, f *Family, rows int, length time.Duration) *maker {
	k := &maker{seed: seed, name: name, family: f, place: source(seed, name, 2)}
	steps := f.steps
	k.step = steps[source(seed, name, 3).IntN(len(steps))]
	if length > 0 {
		k.step = max(k.step, 5*time.Minute)
		rows = int(length / k.step)
	}
	if c := f.cycles; c[0] > 0 {
		k.cycle = c[0] + source(seed, name, 5).IntN(c[1]-c[0]+1)
	}
	k.times = k.makeTimes(rows)
	raw := make([][]float64, 0)
	k.usual = k.runRaw(nil, &raw)
	for _, column := range raw {
		k.raw = append(k.raw, describe(column))
	}
	return k
}

// source returns a generator of its own for each use of a series: 0 for parameters, 1 for rows, 2
// for the places and sizes of incidents, 3 for the step, 4 for the times and 5 for the cycle. A
// change of one use leaves the numbers of the others as they are.
func source(seed uint64, name string, use uint64) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()+use))
}

var start = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// makeTimes returns the timestamps: at a fixed step, from a random day of the week on, unless the
// family has steps that vary or gaps.
func (k *maker) makeTimes(rows int) []int64 {
	r := source(k.seed, k.name, 4)
	at := start.AddDate(0, 0, r.IntN(7)).UnixNano()
	times := make([]int64, rows)
	for i := range times {
		times[i] = at
		step := k.step
		if k.family.has(irregular) {
			step = time.Duration((0.2 + 1.6*r.Float64()) * float64(step)).Round(time.Second)
		}
		if k.family.has(gaps) && r.IntN(400) == 0 {
			step += time.Duration(1+r.IntN(60)) * k.step
		}
		at += int64(step)
	}
	return times
}

func describe(column []float64) usual {
	sorted, steps := slices.Clone(column), make([]float64, len(column)-1)
	for i := range steps {
		steps[i] = math.Abs(column[i+1] - column[i])
	}
	slices.Sort(sorted)
	slices.Sort(steps)
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }
	u := usual{low: at(0.05), high: at(0.95), bottom: at(0.005), top: at(0.995)}
	if u.span() == 0 { // events are rarer than one row out of twenty
		u.low, u.high = sorted[0], sorted[len(sorted)-1]
	}
	if u.top == u.bottom {
		u.bottom, u.top = u.low, u.high
	}
	// The median of the distance of two normal values is 0.954 deviations.
	u.noise = steps[len(steps)/2] / 0.954
	return u
}

// run returns the columns of the series with the controls of some rows; nil for none.
func (k *maker) run(controls map[int]control) [][]float64 { return k.runRaw(controls, nil) }

// runRaw is run. It adds the values before rounding to raw, by column.
func (k *maker) runRaw(controls map[int]control, raw *[][]float64) [][]float64 {
	p := k.family.build(&draws{source(k.seed, k.name, 0), source(k.seed, k.name, 1), k.step, k.cycle})
	var columns [][]float64
	for row, t := range k.times {
		c, acts := controls[row]
		if !acts {
			c = idle
		}
		m := moment{row: row, at: time.Duration(t - start.UnixNano()), control: c}
		values := p.next(&m)
		if columns == nil {
			columns = make([][]float64, len(values))
			if raw != nil {
				*raw = make([][]float64, len(values))
			}
		}
		for f, v := range values {
			if raw != nil {
				(*raw)[f] = append((*raw)[f], v)
			}
			if acts && (c.feature < 0 || c.feature == f) {
				v = c.output(v, k.raw[f])
			}
			if p.finish != nil {
				v = p.finish(v)
			}
			if acts && c.frozen && row > 0 {
				v = columns[f][row-1]
			}
			columns[f] = append(columns[f], math.Round(v*10000)/10000)
		}
	}
	return columns
}

func (k *maker) series(columns [][]float64) Series {
	return Series{
		Stream: quality.Stream{Name: k.name, Times: k.times, Values: columns[0]}, More: columns[1:],
		Family: k.family.Name,
	}
}

// incident places one to three incidents of a kind, so that each shows.
func (k *maker) incident(kind *Incident) (Series, error) {
	size := 1 + 2*k.place.Float64()
	count := 1
	if !kind.lasting {
		count += k.place.IntN(3)
	}
	controls := map[int]control{}
	var windows []quality.Window
	from, to := int(0.45*float64(len(k.times))), int(0.97*float64(len(k.times)))
	part := (to - from) / count
	for n := range count {
		w, err := k.one(kind, size, from+n*part, from+(n+1)*part, controls)
		if err != nil {
			return Series{}, err
		}
		windows = append(windows, w)
	}
	s := k.series(k.run(controls))
	s.Windows, s.Incident, s.Size = windows, kind.Name, size
	return s, nil
}

const tries = 40

// one places an incident between two rows, adds its controls, and returns the rows in which it
// shows: those in which the series differs from the usual one with the same random numbers.
func (k *maker) one(kind *Incident, size float64, from, to int, controls map[int]control) (quality.Window, error) {
	period := k.family.period(k)
	for try := range tries {
		force := size * (1 + float64(try/10)) // a place that hides every size asks for a larger one
		n := kind.rows(k.place, period)
		n = min(max(n, 1), (to-from)*2/3)
		first := from + k.place.IntN(to-from-n)
		effect, own := kind.effect(&drawn{k.place, force, period, k.step, len(k.raw)}), map[int]control{}
		last := first + n - 1
		if kind.lasting {
			last = len(k.times) - 1
		}
		for row := first; row <= last; row++ {
			own[row] = effect(row-first, n)
		}
		w, shows := k.shows(kind, own, first, first+n-1)
		if !shows {
			continue
		}
		for row, c := range own {
			controls[row] = c
		}
		return w, nil
	}
	return quality.Window{}, fmt.Errorf("%w: %s", ErrInvisible, k.name)
}

// shows reports whether an incident can be seen between two rows, and in which.
func (k *maker) shows(kind *Incident, controls map[int]control, first, last int) (quality.Window, bool) {
	columns := k.run(controls)
	differ, clear := 0, 0
	w := quality.Window{First: -1}
	for row := first; row <= last; row++ {
		seen := false
		for f, column := range columns {
			d, u := math.Abs(column[row]-k.usual[f][row]), k.raw[f]
			seen = seen || d > max(1e-3, min(0.02*u.span(), 0.5*u.noise))
			if d >= 4*u.noise && d >= 0.3*u.span() {
				clear++
			}
		}
		if !seen {
			continue
		}
		if differ++; w.First < 0 {
			w.First = row
		}
		w.Last = row
	}
	if kind.sparse {
		return w, differ >= 4
	}
	if kind.subtle {
		return w, 10*differ >= 3*(last-first+1)
	}
	return w, clear > 0 && 12*differ >= last-first+1
}
