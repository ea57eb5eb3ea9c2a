package labelled

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// trait is a set of properties of a family. They decide which incidents it can have: a spike is no
// incident where spikes are usual, and a season that does not rise needs a season.
type trait uint

const (
	seasonal   trait = 1 << iota // has a period
	noisy                        // has noise that does not decide everything
	events                       // has events
	random                       // the times of its events are random
	several                      // has several features
	spiky                        // isolated high values are usual
	wandering                    // has no level
	cumulative                   // counts up
	binary                       // has two values
	floor                        // has a lowest value near most of its values
	rare                         // has its lowest value most of the time
	irregular                    // has steps that vary
	gaps                         // misses rows
)

// Family is a kind of usual behaviour.
type Family struct {
	// Name is part of the names of series; Doc describes the values.
	Name, Doc string
	// HeldBack reports whether no choice may depend on the family.
	HeldBack bool

	traits trait
	steps  []time.Duration
	// season is the period of the season; without it, cycles are the shortest and the longest
	// period in rows.
	season time.Duration
	cycles [2]int
	build  func(d *draws) process
}

func (f *Family) has(t trait) bool { return f.traits&t != 0 }

func (f *Family) period(k *maker) int {
	if f.season > 0 {
		return int(f.season / k.step)
	}
	return k.cycle
}

// process makes rows. next returns the raw values of a row; the slice is valid until the next call.
// It takes the same random numbers whatever the control, so that a series with an incident is the
// usual one elsewhere. finish rounds or clips a raw value; nil leaves it.
type process struct {
	next   func(m *moment) []float64
	finish func(v float64) float64
}

type draws struct {
	parameter, row *rand.Rand
	step           time.Duration
	cycle          int // rows of a season that is not of the calendar
}

// from draws a parameter between a and b.
func (d *draws) from(a, b float64) float64 { return a + (b-a)*d.parameter.Float64() }

// scale draws a factor between 1 and 1,000, so that no scale is usual.
func (d *draws) scale() float64 { return math.Pow(10, d.from(0, 3)) }

// moment is a row: its number, its time since the Monday on which weeks begin, and its control.
type moment struct {
	row int
	at  time.Duration
	control
}

// of returns the part of a period that has passed, from 0 to 1.
func (m *moment) of(period time.Duration) float64 {
	x := math.Mod(float64(m.at+m.phase)/float64(period), 1)
	if x < 0 {
		x++
	}
	return x
}

// turn returns the part of a cycle of the series that has passed, from 0 to 1.
func (d *draws) turn(m *moment) float64 {
	x := math.Mod((float64(m.row)+float64(m.phase)/float64(d.step))/float64(d.cycle), 1)
	return x
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// day returns the part of the day that has passed, and whether the day is a Saturday or Sunday.
func (m *moment) day() (x float64, weekend bool) { return m.of(day), m.of(week) >= 5.0/7 }

// ar returns a process of variance 1 that keeps a share of its value from row to row.
func ar(r *rand.Rand, share float64) func() float64 {
	v, rest := r.NormFloat64(), math.Sqrt(1-share*share)
	return func() float64 {
		v = share*v + rest*r.NormFloat64()
		return v
	}
}

// wave is 0 at x = 0 and 1 at x = 1/2.
func wave(x float64) float64 { return (1 - math.Cos(2*math.Pi*x)) / 2 }

// hump is 1 at middle and falls to 0 within width to both sides; x goes around.
func hump(x, middle, width float64) float64 {
	d := math.Abs(x - middle)
	d = min(d, 1-d)
	if d >= width {
		return 0
	}
	return (1 + math.Cos(math.Pi*d/width)) / 2
}

// plateau is 1 between two parts of a period, with edges of a width.
func plateau(x, from, to, edge float64) float64 {
	return 1 / (1 + math.Exp(-(x-from)/edge)) / (1 + math.Exp((x-to)/edge))
}

// poisson returns a count of a mean, by one uniform and one normal number.
func poisson(mean, u, z float64) float64 {
	if mean > 30 {
		return max(math.Round(mean+math.Sqrt(mean)*z), 0)
	}
	n, p := 0.0, math.Exp(-mean)
	for sum := p; u > sum && n < 100; sum += p {
		n++
		p *= mean / n
	}
	return n
}

func single(next func(m *moment) float64) func(m *moment) []float64 {
	out := make([]float64, 1)
	return func(m *moment) []float64 {
		out[0] = next(m)
		return out
	}
}

func lookupFamily(name string) *Family {
	for _, f := range families {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Families returns all families, in the order of their names.
func Families() []*Family { return slices.Clone(families) }

// families are in the order of their names. init sorts them, holds every heldBackEvery-th back, and
// gives a step to those without one. Nothing changes them afterwards.
var families []*Family

func init() {
	for _, some := range [][]*Family{calendar, cycles, eventful, stationary, discrete, joint} {
		families = append(families, some...)
	}
	slices.SortFunc(families, func(a, b *Family) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	for i, f := range families {
		f.HeldBack = i%heldBackEvery == heldBackEvery-1
		if f.steps == nil {
			f.steps = anySteps
		}
	}
}

// Steps between rows. Families of the calendar have long ones, so that a series has two weeks or
// more, and families of the week have 12 weeks or more.
var (
	daySteps  = []time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute}
	weekSteps = []time.Duration{30 * time.Minute, time.Hour}
	anySteps  = []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute}
)
