package labelled

import (
	"math"
	"math/rand/v2"
	"time"
)

// Incident is a kind of incident.
type Incident struct {
	// Name is part of the names of series; Doc describes what happens.
	Name, Doc string

	// needs are the traits that a family must have, not the traits that it must not have.
	needs, not trait
	// lasting incidents stay to the end of the series, and the window is their begin.
	lasting bool
	// subtle incidents keep all values in their usual range; what differs is their order, spread or
	// time.
	subtle bool
	// sparse incidents change few rows of their window.
	sparse bool
	// rows draws the length; period is the period of the season in rows, or 0.
	rows func(r *rand.Rand, period int) int
	// effect returns the control of row k out of n.
	effect func(d *drawn) func(k, n int) control
}

// drawn is what an incident depends on.
type drawn struct {
	r        *rand.Rand
	size     float64
	period   int // rows of a season, or 0
	step     time.Duration
	features int
}

func (d *drawn) sign() float64 { return float64(2*d.r.IntN(2) - 1) }

// fits reports whether a family can have incidents of the kind.
func (i *Incident) fits(f *Family) bool { return f.traits&i.needs == i.needs && f.traits&i.not == 0 }

// control is what an incident changes in one row. The zero of most fields changes much: idle is the
// control that changes nothing.
type control struct {
	// The process reads these.
	season float64       // factor of the seasonal part above its lowest point
	phase  time.Duration // the season is shifted by this time
	spread float64       // factor of the noise
	events float64       // factor of the rate of events
	burst  float64       // factor of the size of events
	apart  int           // feature that follows other causes; -1 for none

	// Applied to the raw value of the feature; -1 for all features.
	feature int
	shift   float64 // in spans of the feature, see usual
	noise   float64 // in deviations of the noise
	beyond  float64 // if not 0, the value is this many reaches above the usual top, or below the bottom
	top     float64 // highest value, in spans above the low one; 0 for none
	flat    bool    // the low value alone
	frozen  bool    // the value of the row before
}

var idle = control{season: 1, spread: 1, events: 1, burst: 1, apart: -1, feature: -1}

func (c *control) output(v float64, u usual) float64 {
	if c.flat {
		return u.low
	}
	switch {
	case c.beyond > 0:
		v = u.top + c.beyond*(u.top-u.bottom)
	case c.beyond < 0:
		v = u.bottom + c.beyond*(u.top-u.bottom)
	}
	v += c.shift*u.span() + c.noise*u.noise
	if c.top > 0 {
		v = min(v, u.low+c.top*u.span())
	}
	return v
}

func lookupIncident(name string) *Incident {
	for _, i := range incidents {
		if i.Name == name {
			return i
		}
	}
	return nil
}

// Incidents returns all kinds, in the order of their names.
func Incidents() []*Incident { return append([]*Incident(nil), incidents...) }

func between(a, b int) func(*rand.Rand, int) int {
	return func(r *rand.Rand, _ int) int { return a + r.IntN(b-a+1) }
}

// parts is a length of a share of the period.
func parts(share float64) func(*rand.Rand, int) int {
	return func(_ *rand.Rand, period int) int { return int(share * float64(period)) }
}

func steady(change func(c *control, d *drawn)) func(*drawn) func(int, int) control {
	return func(d *drawn) func(int, int) control {
		c := idle
		change(&c, d)
		return func(int, int) control { return c }
	}
}

// incidents are all kinds, by name. Sizes were set by eye on charts of some series, so that a
// person sees most incidents of size 1 and all of size 3; no detector was asked.
var incidents = []*Incident{
	{
		Name: "capped", Doc: "values do not exceed a level below their usual top", needs: seasonal, sparse: true,
		not: cumulative, rows: parts(1),
		effect: steady(func(c *control, d *drawn) { c.top = 0.7 - 0.15*d.size }),
	},
	{
		Name: "correlation", Doc: "one feature follows other causes than the rest", needs: several, subtle: true,
		rows:   between(100, 250),
		effect: steady(func(c *control, d *drawn) { c.apart = d.r.IntN(d.features) }),
	},
	{
		Name: "dip", Doc: "one to three rows far below all others", not: spiky | cumulative | floor,
		rows:   between(1, 3),
		effect: steady(func(c *control, d *drawn) { c.beyond, c.noise = -0.2*d.size, -2*d.size }),
	},
	{
		Name: "drift", Doc: "the level moves slowly and stays", not: wandering | binary, lasting: true,
		rows: between(150, 400),
		effect: func(d *drawn) func(int, int) control {
			by := d.sign() * 0.45 * d.size
			return func(k, n int) control {
				c := idle
				c.shift = by * min(float64(k+1)/float64(n), 1)
				return c
			}
		},
	},
	{
		Name: "events-larger", Doc: "events of a multiple of their size", needs: events, not: binary,
		rows:   between(80, 250),
		sparse: true,
		effect: steady(func(c *control, d *drawn) { c.burst = 1.5 + d.size }),
	},
	{
		Name: "events-missing", Doc: "the usual events do not come", needs: events, sparse: true,
		rows:   between(120, 300),
		effect: steady(func(c *control, _ *drawn) { c.events = 0 }),
	},
	{
		Name: "events-more", Doc: "events come a multiple as often", needs: events | random, sparse: true,
		rows:   between(100, 250),
		effect: steady(func(c *control, d *drawn) { c.events = 2 + 2*d.size }),
	},
	{
		Name: "flat", Doc: "one low value only", not: cumulative | rare, subtle: true, rows: between(40, 200),
		effect: steady(func(c *control, _ *drawn) { c.flat = true }),
	},
	{
		Name: "frozen", Doc: "the last value is repeated", not: rare, subtle: true, rows: between(40, 200),
		effect: steady(func(c *control, _ *drawn) { c.frozen = true }),
	},
	{
		Name: "hump-missing", Doc: "the season does not rise for a period", needs: seasonal, rows: parts(1),
		effect: steady(func(c *control, d *drawn) { c.season = 0.4 - 0.13*d.size }),
	},
	{
		Name: "inverted", Doc: "the season goes the other way for a period", needs: seasonal, not: floor,
		rows:   parts(1),
		effect: steady(func(c *control, d *drawn) { c.season = -0.3 * d.size }),
	},
	{
		Name: "leak", Doc: "the level rises slowly and falls back at once", not: wandering | cumulative | binary,
		rows: between(100, 300),
		effect: func(d *drawn) func(int, int) control {
			by := 0.5 * d.size
			return func(k, n int) control {
				c := idle
				c.shift = by * float64(k+1) / float64(n)
				return c
			}
		},
	},
	{
		Name: "level", Doc: "the level changes and stays", not: wandering, lasting: true, rows: between(100, 200),
		effect: steady(func(c *control, d *drawn) { c.shift = d.sign() * 0.4 * d.size }),
	},
	{
		Name: "level-one", Doc: "the level of one feature changes, and the others do not", needs: several,
		rows:   between(60, 200),
		effect: steady(func(c *control, d *drawn) { c.shift, c.feature = d.sign()*0.35*d.size, d.r.IntN(d.features) }),
	},
	{
		Name: "oscillation", Doc: "a fast oscillation is added", not: binary | cumulative, rows: between(50, 150),
		effect: func(d *drawn) func(int, int) control {
			period := float64(5 + d.r.IntN(9))
			return func(k, _ int) control {
				c := idle
				wave := math.Sin(2 * math.Pi * float64(k) / period)
				c.shift, c.noise = 0.15*d.size*wave, 2*d.size*wave
				return c
			}
		},
	},
	{
		Name: "period", Doc: "the season runs faster or slower for two periods", needs: seasonal, subtle: true,
		rows: parts(2),
		effect: func(d *drawn) func(int, int) control {
			// The season is whole periods ahead after the incident.
			ahead := float64(d.period) * float64(d.step)
			return func(k, n int) control {
				c := idle
				c.phase = time.Duration(ahead * float64(k) / float64(n))
				return c
			}
		},
	},
	{
		Name: "spike", Doc: "one to three rows far above all others", not: spiky | cumulative | binary,
		rows:   between(1, 3),
		effect: steady(func(c *control, d *drawn) { c.beyond, c.noise = 0.2*d.size, 2*d.size }),
	},
	{
		Name: "spread-less", Doc: "the noise becomes small", needs: noisy, subtle: true, lasting: true,
		rows:   between(100, 250),
		effect: steady(func(c *control, d *drawn) { c.spread = 0.25 - 0.08*d.size }),
	},
	{
		Name: "spread-more", Doc: "the noise grows and stays", needs: noisy, subtle: true, lasting: true,
		rows:   between(100, 250),
		effect: steady(func(c *control, d *drawn) { c.spread = 1.5 + d.size }),
	},
	{
		Name: "usual-elsewhere", Doc: "some rows with the values of another time", needs: seasonal,
		rows:   between(3, 12),
		effect: steady(func(c *control, d *drawn) { c.phase = time.Duration(d.period/2) * d.step }),
	},
	{
		Name: "wrong-hour", Doc: "a period whose peak comes at the wrong time", needs: seasonal, rows: parts(1),
		effect: steady(func(c *control, d *drawn) {
			c.phase = time.Duration(float64(d.period)*(0.25+0.25*d.r.Float64())) * d.step
		}),
	},
}
