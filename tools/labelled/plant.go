package labelled

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/quality"
)

// A plant is an industrial process with several sensors: a pump, a tank, a heater, a batch. Its
// state changes from row to row by balances of mass, heat and power, with controllers and with
// loads that people and consumers change. Sensors see the state with a lag, noise and a resolution
// of their own. Time constants are in rows, so one plant serves steps from a second to a minute.
//
// A fault changes the plant (a leak, a blockage, wear) or one of its sensors (drift, a stuck
// value). As with other series, the plant draws the same random numbers whatever the fault, and a
// label is where the series differs from the usual one. The rows of a plant with phases of its own
// differ for good after a fault, so there a label ends with the fault.

const (
	// PlantRows is the length of a series of a plant.
	PlantRows = 2400
	// PlantWarmup is the number of normal rows at its begin, on which a detector may learn. They are
	// the probation of quality.Probation.
	PlantWarmup = 360
	// plantHeldBackEvery is the distance of two plants that are held back, in the order of names.
	plantHeldBackEvery = 3
)

// Plant is a family of industrial processes.
type Plant struct {
	// Name is part of the names of series; Doc describes the process.
	Name, Doc string
	// HeldBack reports whether no choice may depend on the plant.
	HeldBack bool

	faults []string // of the process; every plant has the faults of a sensor too
	settle int      // rows in which the plant returns to normal after a fault; 0 with phases
	build  func(d *draws) plantProcess
}

// plantProcess makes the state of rows. next takes the same random numbers whatever the fault; the
// slice has a value of about 1 for each sensor and is valid until the next call.
type plantProcess struct {
	sensors []sensor
	next    func(f *fault) []float64
}

// sensor is how a value of the state becomes a reading.
type sensor struct {
	scale, offset float64 // of the unit
	noise         float64 // deviation, in scales
	lag           float64 // rows
	digit         float64 // resolution in scales; 0 is as fine as a reading
}

// PlantPairs returns all pairs of a plant and a fault, in the order of both names.
func PlantPairs() []Pair {
	var pairs []Pair
	for _, p := range plants {
		for _, k := range plantFaults {
			if k.fits(p) {
				pairs = append(pairs, Pair{p.Name, k.Name})
			}
		}
	}
	return pairs
}

// Plants returns all plants, in the order of their names.
func Plants() []*Plant { return slices.Clone(plants) }

// OfPlants returns the numbers 0 to each-1 of all pairs whose plant is held back, or of all others.
func OfPlants(seed uint64, heldBack bool, each int) ([]Series, error) {
	var all []Series
	for _, p := range PlantPairs() {
		if lookupPlant(p.Family).HeldBack != heldBack {
			continue
		}
		for n := range each {
			s, err := MakePlant(seed, p, n)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// MakePlant returns series number n of a plant with a fault: PlantRows rows with one or two windows
// behind PlantWarmup. Errors are the errors of Make.
func MakePlant(seed uint64, p Pair, n int) (Series, error) {
	s, _, err := makePlant(seed, p, n)
	return s, err
}

// makePlant is MakePlant. It returns the maker too, which knows the usual series.
func makePlant(seed uint64, p Pair, n int) (s Series, k *plantMaker, err error) {
	plant, kind := lookupPlant(p.Family), lookupFault(p.Incident)
	if plant == nil || kind == nil || !kind.fits(plant) {
		return Series{}, nil, fmt.Errorf("%w: plant %q with fault %q", ErrUnknown, p.Family, p.Incident)
	}
	name := fmt.Sprintf("%s/%s/%d", p.Family, p.Incident, n)
	for attempt := range attempts {
		k = newPlantMaker(seed, fmt.Sprint(name, "~", attempt), plant)
		if s, err = k.fault(kind); err == nil {
			s.Name = name
			break
		}
	}
	return s, k, err
}

func lookupPlant(name string) *Plant {
	for _, p := range plants {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// plantMaker makes one series of a plant. It is used once and by one goroutine.
type plantMaker struct {
	seed  uint64
	name  string
	plant *Plant
	times []int64
	place *rand.Rand  // of the faults
	usual [][]float64 // readings without a fault, by sensor and row
	raw   []usual     // of each sensor
}

var plantSteps = []time.Duration{time.Second, 10 * time.Second, time.Minute}

func newPlantMaker(seed uint64, name string, p *Plant) *plantMaker {
	k := &plantMaker{
		seed: seed, name: name, plant: p, place: source(seed, name, 2),
		times: make([]int64, PlantRows),
	}
	r := source(seed, name, 3)
	step := int64(plantSteps[r.IntN(len(plantSteps))])
	at := start.Add(time.Duration(r.IntN(7*24)) * time.Hour).UnixNano()
	for row := range k.times {
		k.times[row] = at + int64(row)*step
	}
	k.usual = k.run(nil)
	for _, column := range k.usual {
		k.raw = append(k.raw, describe(column))
	}
	return k
}

// run returns the readings by sensor and row, with the faults of some rows; nil for none. The plant
// has run for some rows before the first.
func (k *plantMaker) run(faults map[int]fault) [][]float64 {
	const before = 300
	p := k.plant.build(&draws{parameter: source(k.seed, k.name, 0), row: source(k.seed, k.name, 1)})
	noise := source(k.seed, k.name, 4)
	columns, seen := make([][]float64, len(p.sensors)), make([]float64, len(p.sensors))
	for row := -before; row < len(k.times); row++ {
		f, acts := faults[row]
		if !acts {
			f = sound
		}
		for i, v := range p.next(&f) {
			s := &p.sensors[i]
			if row == -before {
				seen[i] = v
			}
			seen[i] += (v - seen[i]) / (1 + s.lag)
			z := noise.NormFloat64()
			if row < 0 {
				continue
			}
			deviation := s.noise
			if f.sensor == i {
				deviation *= f.noisy
			}
			v = seen[i] + deviation*z
			if s.digit > 0 {
				v = s.digit * math.Round(v/s.digit)
			}
			v = s.offset + s.scale*v
			if f.sensor == i && f.offset != 0 {
				v += f.offset * (2*k.raw[i].noise + 0.25*k.raw[i].span())
			}
			if f.sensor == i && f.stuck && row > 0 {
				v = columns[i][row-1]
			}
			columns[i] = append(columns[i], math.Round(v*10000)/10000)
		}
	}
	return columns
}

// fault places one or two faults of a kind, so that each shows.
func (k *plantMaker) fault(kind *Fault) (Series, error) {
	const first, last = PlantWarmup + 100, PlantRows - 60
	count := 1 + k.place.IntN(2)
	part := (last - first) / count
	size := 1 + 2*k.place.Float64()
	faults := map[int]fault{}
	var windows []quality.Window
	for n := range count {
		w, err := k.one(kind, size, first+n*part, first+(n+1)*part-k.plant.settle-50, faults)
		if err != nil {
			return Series{}, err
		}
		windows = append(windows, w)
	}
	columns := k.run(faults)
	return Series{
		Stream: quality.Stream{Name: k.name, Times: k.times, Values: columns[0], Windows: windows}, More: columns[1:],
		Family: k.plant.Name, Incident: kind.Name, Size: size,
	}, nil
}

// one places a fault between two rows, adds it to faults, and returns the rows in which it shows.
func (k *plantMaker) one(kind *Fault, size float64, from, to int, faults map[int]fault) (quality.Window, error) {
	for try := range tries {
		n := kind.rows[0] + k.place.IntN(kind.rows[1]-kind.rows[0]+1)
		first := from + k.place.IntN(to-from-n)
		change := kind.change(&faultDrawn{k.place, size * (1 + float64(try)/10), len(k.usual)})
		own := map[int]fault{}
		for row := range n {
			f, x := sound, 1.0
			if kind.grows {
				x = float64(row+1) / float64(n)
			}
			change(&f, x)
			own[first+row] = f
		}
		w, shows := k.shows(kind, own, first, first+n-1)
		if !shows {
			continue
		}
		for row, f := range own {
			faults[row] = f
		}
		return w, nil
	}
	return quality.Window{}, fmt.Errorf("%w: %s", ErrInvisible, k.name)
}

// shows reports whether a fault between two rows can be seen, and in which rows. A row shows it if a
// sensor differs from the usual reading by more than its noise and a tenth of its span. Behind the
// fault the window goes on until ten rows do not show it, and for no more than the rows in which the
// plant settles.
func (k *plantMaker) shows(kind *Fault, faults map[int]fault, first, last int) (quality.Window, bool) {
	columns := k.run(faults)
	seen := func(row int) bool {
		for i, column := range columns {
			u := k.raw[i]
			if math.Abs(column[row]-k.usual[i][row]) > max(1e-3, min(2*u.noise, 0.1*u.span())) {
				return true
			}
		}
		return false
	}
	w, count := quality.Window{First: -1}, 0
	for row := first; row <= last; row++ {
		if !seen(row) {
			continue
		}
		if count++; w.First < 0 {
			w.First = row
		}
		w.Last = row
	}
	if parts := kind.part * float64(last-first+1); w.First < 0 || float64(count) < parts {
		return w, false
	}
	for row := last + 1; row <= last+k.plant.settle && row <= w.Last+10; row++ {
		if seen(row) {
			w.Last = row
		}
	}
	return w, true
}

// demand is a load between two values that people change: it stays for about hold rows, goes to
// another value within some ten rows, and wanders a little. Some plants have a nearly steady one.
func demand(d *draws, low, high float64, hold int) func() float64 {
	middle, reach := (low+high)/2, (high-low)/2*d.from(0.1, 1)
	slow := ar(d.row, 0.97)
	level := middle + reach*(2*d.parameter.Float64()-1)
	v := level
	return func() float64 {
		if u, to := d.row.Float64(), d.row.Float64(); u < 1/float64(hold) {
			level = middle + reach*(2*to-1)
		}
		v += 0.15 * (level - v)
		return v + 0.02*slow()
	}
}

// sensors draws n sensors. No unit, noise or lag is usual.
func sensors(d *draws, n int) []sensor {
	all := make([]sensor, n)
	for i := range all {
		all[i] = sensor{scale: d.scale(), noise: d.from(0.002, 0.015), lag: max(d.from(-2, 5), 0)}
		all[i].offset = all[i].scale * d.from(-0.5, 2)
		if d.parameter.Float64() < 0.2 {
			all[i].digit = d.from(0.005, 0.02)
		}
	}
	return all
}

// controller is a controller with a proportional part and an integral; its output is from 0 to 1.
type controller struct{ gain, reset, sum float64 }

// next returns the output for a deviation; hunting is the factor of a badly tuned gain less 1.
func (c *controller) next(deviation, hunting float64) float64 {
	gain := c.gain * (1 + hunting)
	c.sum = min(max(c.sum+gain*c.reset*deviation, 0), 1)
	return min(max(c.sum+gain*deviation, 0), 1)
}

// actuator follows its command by a part of the distance in a row, unless it sticks.
type actuator struct{ at, speed float64 }

func (a *actuator) next(command float64, f *fault) float64 {
	if !f.sticks {
		a.at += a.speed * (command - a.at)
	}
	return a.at
}

// plants are in the order of their names. init sorts them and holds every plantHeldBackEvery-th
// back.
var plants []*Plant

func init() {
	plants = slices.Concat(flowPlants, heatPlants, phasePlants)
	slices.SortFunc(plants, func(a, b *Plant) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	for i, p := range plants {
		p.HeldBack = i%plantHeldBackEvery == plantHeldBackEvery-1
	}
}
