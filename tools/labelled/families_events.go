package labelled

import "math"

// eventful are the families in which things happen at times.
var eventful = []*Family{
	{
		Name: "burst-clock", Doc: "a batch at fixed times that drains", traits: events | noisy | floor,
		cycles: [2]int{12, 60},
		build: func(d *draws) process {
			s, keep, noise := d.scale(), d.from(0.4, 0.8), d.from(0.01, 0.05)
			v := 0.0
			return process{next: single(func(m *moment) float64 {
				v *= keep
				if size := 1 + 0.4*d.row.Float64(); m.row%d.cycle == 0 && m.events > 0 {
					v += size * m.burst
				}
				return s * (v + noise*m.spread*math.Abs(d.row.NormFloat64()))
			})}
		},
	},
	{
		Name: "burst-random", Doc: "bursts at random times that fade", traits: events | random | noisy | spiky | floor,
		build: func(d *draws) process {
			s, keep, rate, noise := d.scale(), d.from(0.6, 0.9), d.from(0.02, 0.06), d.from(0.01, 0.05)
			v := 0.0
			return process{next: single(func(m *moment) float64 {
				v *= keep
				if u, size := d.row.Float64(), 0.5+d.row.ExpFloat64(); u < rate*m.events {
					v += size * m.burst
				}
				return s * (0.2 + v + noise*m.spread*d.row.NormFloat64())
			})}
		},
	},
	{
		Name: "counter", Doc: "a counter that restarts now and then; its rate follows the day",
		traits: seasonal | noisy | cumulative, steps: daySteps, season: day,
		build: func(d *draws) process {
			s, noise := d.from(5, 100), d.from(0.05, 0.2)
			sum, resets := 0.0, 0.0005
			reset := false
			return process{
				next: single(func(m *moment) float64 {
					x, _ := m.day()
					reset = d.row.Float64() < resets
					return max(s*(0.3+m.season*wave(x)+noise*m.spread*d.row.NormFloat64()), 0)
				}),
				finish: func(v float64) float64 {
					if reset {
						sum = 0
					}
					sum += math.Round(max(v, 0))
					return sum
				},
			}
		},
	},
	{
		Name: "demand", Doc: "zero most of the time, else an order of some size",
		traits: events | random | floor | rare,
		build: func(d *draws) process {
			s, rate := d.from(5, 50), d.from(0.08, 0.25)
			return process{
				next: single(func(m *moment) float64 {
					u, size := d.row.Float64(), 0.5+d.row.Float64()
					if u >= rate*m.events {
						return 0
					}
					return s * size * m.burst
				}),
				finish: whole,
			}
		},
	},
	{
		Name: "on-off", Doc: "a machine that is on and off for random times", traits: events | random | noisy,
		build: func(d *draws) process {
			s, rate, noise := d.scale(), d.from(0.06, 0.15), d.from(0.005, 0.03)
			on := 0.0
			return process{next: single(func(m *moment) float64 {
				if u, to := d.row.Float64(), d.row.IntN(2); u < rate*m.events {
					on = float64(to)
				}
				return s * (0.05 + on*m.burst + noise*m.spread*d.row.NormFloat64())
			})}
		},
	},
	{
		Name: "spikes-usual", Doc: "a quiet level with isolated spikes that are usual",
		traits: events | random | noisy | spiky,
		build: func(d *draws) process {
			s, rate, noise := d.scale(), d.from(0.03, 0.06), d.from(0.01, 0.05)
			return process{next: single(func(m *moment) float64 {
				v := 1 + noise*m.spread*d.row.NormFloat64()
				if u, size := d.row.Float64(), 0.7+0.6*d.row.Float64(); u < rate*m.events {
					v += size * m.burst
				}
				return s * v
			})}
		},
	},
	{
		Name: "steps", Doc: "three levels of load that last for random times", traits: events | random | noisy,
		build: func(d *draws) process {
			s, rate, noise := d.scale(), d.from(0.04, 0.12), d.from(0.01, 0.05)
			level := 0.0
			return process{next: single(func(m *moment) float64 {
				if u, to := d.row.Float64(), d.row.IntN(3); u < rate*m.events {
					level = float64(to)
				}
				return s * (0.5 + level*m.burst + noise*m.spread*d.row.NormFloat64())
			})}
		},
	},
}
