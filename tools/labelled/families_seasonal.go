package labelled

import (
	"math"
)

// calendar are the families with the time of the day or of the week.
var calendar = []*Family{
	{
		Name: "daily-drift", Doc: "a day with a level that wanders a little", traits: seasonal | noisy, steps: daySteps,
		season: day,
		build: func(d *draws) process {
			s, peak, noise := d.scale(), d.from(0.3, 0.8), d.from(0.03, 0.15)
			slow, fast := ar(d.row, 0.998), ar(d.row, 0.6)
			return process{next: single(func(m *moment) float64 {
				x, _ := m.day()
				return s * (3 + m.season*hump(x, peak, 0.45) + 0.3*slow() + noise*m.spread*fast())
			})}
		},
	},
	{
		Name: "daily-heavy", Doc: "a day of latencies with a heavy tail", traits: seasonal | noisy | spiky | floor,
		steps: daySteps, season: day,
		build: func(d *draws) process {
			s, noise, tail := d.scale(), d.from(0.08, 0.2), d.from(0.003, 0.01)
			return process{next: single(func(m *moment) float64 {
				x, _ := m.day()
				v := s * (1 + m.season*wave(x)) * math.Exp(noise*m.spread*d.row.NormFloat64())
				if u, far := d.row.Float64(), d.row.Float64(); u < tail {
					v *= math.Pow(1-far, -0.6)
				}
				return v
			})}
		},
	},
	{
		Name: "daily-humps", Doc: "two humps on a workday, one low one at the weekend", traits: seasonal | noisy,
		steps: daySteps, season: day,
		build: func(d *draws) process {
			s, noise, evening := d.scale(), d.from(0.02, 0.08), d.from(0.6, 1.3)
			fast := ar(d.row, 0.8)
			return process{next: single(func(m *moment) float64 {
				x, weekend := m.day()
				v := hump(x, 0.35, 0.12) + evening*hump(x, 0.74, 0.15)
				if weekend {
					v = 0.5 * hump(x, 0.55, 0.3)
				}
				return s * (0.3 + m.season*v + noise*m.spread*fast())
			})}
		},
	},
	{
		Name: "daily-irregular", Doc: "a day at irregular steps, with gaps",
		traits: seasonal | noisy | irregular | gaps, steps: daySteps, season: day,
		build: func(d *draws) process {
			s, noise := d.scale(), d.from(0.03, 0.15)
			fast := ar(d.row, 0.5)
			return process{next: single(func(m *moment) float64 {
				x, _ := m.day()
				return s * (1 + m.season*wave(x-0.1) + noise*m.spread*fast())
			})}
		},
	},
	{
		Name: "daily-office", Doc: "busy in working hours, quiet at night and at weekends", traits: seasonal | noisy,
		steps: daySteps, season: day,
		build: func(d *draws) process {
			s, from, to, noise := d.scale(), d.from(0.28, 0.38), d.from(0.68, 0.8), d.from(0.03, 0.12)
			fast := ar(d.row, 0.7)
			return process{next: single(func(m *moment) float64 {
				x, weekend := m.day()
				v := plateau(x, from, to, 0.015)
				if weekend {
					v *= 0.2
				}
				return s * (0.2 + m.season*v + noise*m.spread*(0.3+v)*fast())
			})}
		},
	},
	{
		Name: "daily-percent", Doc: "a load in percent that reaches its limits",
		traits: seasonal | noisy, steps: daySteps,
		season: day,
		build: func(d *draws) process {
			high, noise := d.from(80, 110), d.from(2, 8)
			fast := ar(d.row, 0.6)
			return process{
				next: single(func(m *moment) float64 {
					x, _ := m.day()
					return 5 + m.season*high*wave(x) + noise*m.spread*fast()
				}),
				finish: func(v float64) float64 { return math.Round(10*min(max(v, 0), 100)) / 10 },
			}
		},
	},
	{
		Name: "daily-requests", Doc: "counts whose mean follows the day", traits: seasonal, steps: daySteps,
		season: day,
		build: func(d *draws) process {
			low, high := d.from(1, 20), d.from(20, 400)
			return process{
				next: single(func(m *moment) float64 {
					x, weekend := m.day()
					if weekend {
						x *= 0.9
					}
					return poisson(max(low+m.season*high*wave(x), 0), d.row.Float64(), d.row.NormFloat64())
				}),
				finish: whole,
			}
		},
	},
	{
		Name: "daily-sine", Doc: "a smooth day with little noise",
		traits: seasonal | noisy, steps: daySteps, season: day,
		build: func(d *draws) process {
			s, noise, shift := d.scale(), d.from(0.01, 0.1), d.from(0, 1)
			return process{next: single(func(m *moment) float64 {
				x, _ := m.day()
				return s * (1 + m.season*wave(x+shift) + noise*m.spread*d.row.NormFloat64())
			})}
		},
	},
	{
		Name: "weekly-counts", Doc: "a week of hourly counts with few at night", traits: seasonal | noisy | floor,
		steps: weekSteps, season: day,
		build: func(d *draws) process {
			high, noise := d.from(3, 40), d.from(0.05, 0.2)
			slow := ar(d.row, 0.95)
			return process{
				next: single(func(m *moment) float64 {
					x, weekend := m.day()
					v := hump(x, 0.5, 0.35)
					if weekend {
						v *= 1.5
					}
					mean := high * max(m.season*v, 0) * math.Exp(noise*m.spread*slow())
					return poisson(mean, d.row.Float64(), d.row.NormFloat64())
				}),
				finish: whole,
			}
		},
	},
	{
		Name: "weekly-growth", Doc: "sales by week and day that grow by some percent a month", traits: seasonal | noisy,
		steps: weekSteps, season: day,
		build: func(d *draws) process {
			s, noise, growth := d.scale(), d.from(0.03, 0.1), d.from(-0.05, 0.12)
			days := [7]float64{}
			for i := range days {
				days[i] = d.from(0.6, 1.4)
			}
			fast := ar(d.row, 0.5)
			return process{next: single(func(m *moment) float64 {
				x, _ := m.day()
				v := days[int(m.of(week)*7)] * plateau(x, 0.3, 0.85, 0.04)
				grown := 1 + growth*float64(m.at)/float64(30*day)
				return s * grown * (0.2 + m.season*v + noise*m.spread*fast())
			})}
		},
	},
	{
		Name: "weekly-rides", Doc: "rides by day and week, with nights that move at weekends", traits: seasonal | noisy,
		steps: weekSteps, season: day,
		build: func(d *draws) process {
			s, noise := d.scale(), d.from(0.02, 0.08)
			slow := ar(d.row, 0.97)
			return process{next: single(func(m *moment) float64 {
				x, weekend := m.day()
				v := hump(x, 0.36, 0.2) + 1.2*hump(x, 0.79, 0.25)
				if weekend {
					v = 1.2*hump(x, 0.95, 0.3) + 0.7*hump(x, 0.6, 0.25)
				}
				return s * (0.4 + m.season*v + noise*m.spread*slow())
			})}
		},
	},
}

// cycles are the families with a period that is not of the calendar, or with none that is fixed.
var cycles = []*Family{
	{
		Name: "cycle-pulse", Doc: "a pulse of a fixed form in each cycle", traits: seasonal | noisy,
		cycles: [2]int{50, 160},
		build: func(d *draws) process {
			s, noise, width := d.scale(), d.from(0.01, 0.05), d.from(0.05, 0.15)
			return process{next: single(func(m *moment) float64 {
				x := d.turn(m)
				v := hump(x, 0.3, width) - 0.3*hump(x, 0.3+1.5*width, width)
				return s * (1 + m.season*v + noise*m.spread*d.row.NormFloat64())
			})}
		},
	},
	{
		Name: "cycle-sine", Doc: "a sine of some minutes with noise", traits: seasonal | noisy, cycles: [2]int{25, 120},
		build: func(d *draws) process {
			s, noise := d.scale(), d.from(0.02, 0.15)
			return process{next: single(func(m *moment) float64 {
				return s * (1 + m.season*wave(d.turn(m)) + noise*m.spread*d.row.NormFloat64())
			})}
		},
	},
	{
		Name: "cycle-square", Doc: "a machine that is on and off by the clock", traits: seasonal | noisy,
		cycles: [2]int{30, 100},
		build: func(d *draws) process {
			s, noise, on := d.scale(), d.from(0.005, 0.03), d.from(0.25, 0.6)
			return process{next: single(func(m *moment) float64 {
				v := 0.0
				if d.turn(m) < on {
					v = 1
				}
				return s * (0.05 + m.season*v + noise*m.spread*(0.2+v)*d.row.NormFloat64())
			})}
		},
	},
	{
		Name: "sawtooth", Doc: "a store that fills and is emptied at once", traits: seasonal | noisy,
		cycles: [2]int{60, 200},
		build: func(d *draws) process {
			s, noise := d.scale(), d.from(0.005, 0.03)
			return process{next: single(func(m *moment) float64 {
				return s * (0.1 + m.season*d.turn(m) + noise*m.spread*d.row.NormFloat64())
			})}
		},
	},
}

func whole(v float64) float64 { return max(math.Round(v), 0) }
