package labelled

import "math"

// stationary are the families of noise of some kind about a level, or without any.
var stationary = []*Family{
	{
		Name: "ar-fast", Doc: "noise that remembers a little", traits: noisy,
		build: func(d *draws) process {
			s, v := d.scale(), ar(d.row, d.from(0.3, 0.8))
			return process{next: single(func(m *moment) float64 { return s * (10 + m.spread*v()) })}
		},
	},
	{
		Name: "ar-slow", Doc: "a temperature that moves slowly", traits: noisy,
		build: func(d *draws) process {
			s, slow, noise := d.scale(), ar(d.row, d.from(0.97, 0.995)), d.from(0.03, 0.2)
			return process{next: single(func(m *moment) float64 {
				return s * (20 + slow() + noise*m.spread*d.row.NormFloat64())
			})}
		},
	},
	{
		Name: "calm-storm", Doc: "noise whose spread rises and falls", traits: noisy | spiky,
		build: func(d *draws) process {
			s, slow, depth := d.scale(), ar(d.row, 0.98), d.from(0.3, 0.7)
			return process{next: single(func(m *moment) float64 {
				return s * (10 + math.Exp(depth*slow())*m.spread*d.row.NormFloat64())
			})}
		},
	},
	{
		Name: "heavy-tail", Doc: "latencies with a Pareto tail", traits: noisy | spiky | floor,
		build: func(d *draws) process {
			s, shape, body := d.scale(), d.from(0.25, 0.5), d.from(0.1, 0.3)
			return process{next: single(func(m *moment) float64 {
				v := math.Exp(body * m.spread * d.row.NormFloat64())
				if u, far := d.row.Float64(), d.row.Float64(); u < 0.05 {
					v *= math.Pow(1-far, -shape)
				}
				return s * v
			})}
		},
	},
	{
		Name: "log-normal", Doc: "sizes that are log-normal", traits: noisy | spiky | floor,
		build: func(d *draws) process {
			s, body := d.scale(), d.from(0.3, 0.7)
			return process{next: single(func(m *moment) float64 {
				return s * math.Exp(body*m.spread*d.row.NormFloat64())
			})}
		},
	},
	{
		Name: "mixture", Doc: "values of one of two modes, such as hits and misses",
		traits: noisy | events | random | floor,
		build: func(d *draws) process {
			s, share, noise := d.scale(), d.from(0.1, 0.3), d.from(0.03, 0.12)
			return process{next: single(func(m *moment) float64 {
				v := 1.0
				if d.row.Float64() < share*m.events {
					v += m.burst
				}
				return s * (v + noise*m.spread*d.row.NormFloat64())
			})}
		},
	},
	{
		Name: "ou-gaps", Doc: "a level that returns to its mean, with gaps", traits: noisy | gaps | irregular,
		build: func(d *draws) process {
			s, v := d.scale(), ar(d.row, d.from(0.8, 0.95))
			return process{next: single(func(m *moment) float64 { return s * (5 + m.spread*v()) })}
		},
	},
	{
		Name: "quasi-period", Doc: "an oscillation whose phase wanders", traits: noisy,
		build: func(d *draws) process {
			s, a, noise := d.scale(), 2*math.Pi/d.from(20, 60), d.from(0.05, 0.2)
			phase, x := 0.0, 0.0
			return process{next: single(func(m *moment) float64 {
				x = 0.95*x + 0.3*d.row.NormFloat64()
				phase += a * (1 + 0.2*x)
				return s * (3 + math.Sin(phase) + noise*m.spread*d.row.NormFloat64())
			})}
		},
	},
	{
		Name: "walk", Doc: "a price: the sum of its changes", traits: noisy | wandering,
		build: func(d *draws) process {
			s, v := d.scale(), 100.0
			return process{next: single(func(m *moment) float64 {
				v += 0.3 * m.spread * d.row.NormFloat64()
				return s * v
			})}
		},
	},
	{
		Name: "white", Doc: "normal noise about a level", traits: noisy,
		build: func(d *draws) process {
			s := d.scale()
			return process{next: single(func(m *moment) float64 { return s * (8 + m.spread*d.row.NormFloat64()) })}
		},
	},
}

var discrete = []*Family{
	{
		Name: "alarm-bit", Doc: "0, and 1 for short times", traits: events | random | binary | floor | rare,
		build: func(d *draws) process {
			rate, stay := d.from(0.01, 0.04), d.from(0.4, 0.8)
			on := 0.0
			return process{
				next: single(func(m *moment) float64 {
					u, back := d.row.Float64(), d.row.Float64()
					switch {
					case back >= stay:
						on = 0
						if u < rate*m.events/stay {
							on = 1
						}
					case u < rate*m.events:
						on = 1
					}
					return on
				}),
				finish: func(v float64) float64 { return min(max(math.Round(v), 0), 1) },
			}
		},
	},
	{
		Name: "counts-few", Doc: "counts of few events, such as errors a minute",
		traits: events | random | floor | spiky,
		build: func(d *draws) process {
			mean := d.from(0.3, 3)
			return process{
				next: single(func(m *moment) float64 {
					return m.burst * poisson(mean*m.events, d.row.Float64(), d.row.NormFloat64())
				}),
				finish: whole,
			}
		},
	},
	{
		Name: "quantised", Doc: "a sensor with coarse steps", traits: noisy,
		build: func(d *draws) process {
			slow, noise, q := ar(d.row, 0.98), d.from(0.2, 0.6), d.from(0.4, 1)
			return process{
				next: single(func(m *moment) float64 {
					return 20 + slow() + noise*m.spread*d.row.NormFloat64()
				}),
				finish: func(v float64) float64 { return q * math.Round(v/q) },
			}
		},
	},
	{
		Name: "workers", Doc: "a number of workers that follows the day in whole steps",
		traits: seasonal, steps: daySteps,
		season: day,
		build: func(d *draws) process {
			low, high, slow := d.from(1, 4), d.from(6, 20), ar(d.row, 0.9)
			return process{
				next: single(func(m *moment) float64 {
					x, _ := m.day()
					return low + m.season*high*wave(x) + 0.4*slow()
				}),
				finish: whole,
			}
		},
	},
}

// joint are the families with several features, which have a cause in common.
var joint = []*Family{
	{
		Name: "joint-inverse", Doc: "used and free memory, whose sum is nearly fixed", traits: several | noisy,
		build: func(d *draws) process {
			used := causes(ar(d.row, 0.97), ar(d.row, 0.97))
			s, noise := d.scale(), d.from(0.03, 0.1)
			out := make([]float64, 2)
			return process{next: func(m *moment) []float64 {
				v := used(m, 2)
				out[0] = s * (10 + v[0] + noise*m.spread*d.row.NormFloat64())
				out[1] = s * (10 - v[1] + noise*m.spread*d.row.NormFloat64())
				return out
			}}
		},
	},
	{
		Name: "joint-load", Doc: "requests and the load that they cause, by the day",
		traits: several | seasonal | noisy,
		steps:  daySteps, season: day,
		build: func(d *draws) process {
			slow := causes(ar(d.row, 0.95), ar(d.row, 0.95))
			s, noise := d.scale(), d.from(0.03, 0.08)
			out := make([]float64, 2)
			return process{next: func(m *moment) []float64 {
				x, _ := m.day()
				v := slow(m, 2)
				for f := range out {
					out[f] = s * float64(1+4*f) * (1 + m.season*wave(x) + 0.3*v[f] + noise*m.spread*d.row.NormFloat64())
				}
				return out
			}}
		},
	},
	{
		Name: "joint-three", Doc: "three features that follow one cause with delays", traits: several | noisy,
		build: func(d *draws) process {
			first := causes(ar(d.row, 0.9), ar(d.row, 0.9))
			s, noise := d.scale(), d.from(0.05, 0.15)
			var past [3][4]float64 // by feature, the last rows of its cause
			out := make([]float64, 3)
			return process{next: func(m *moment) []float64 {
				for f, v := range first(m, 3) {
					past[f][m.row%4] = v
					delayed := past[f][(m.row+4-f)%4]
					out[f] = s * (5 + delayed + noise*m.spread*d.row.NormFloat64())
				}
				return out
			}}
		},
	},
}

// causes returns a function of the cause of each of n features: the first process for all but the
// feature that the control sets apart. Both processes advance with every row.
func causes(usual, other func() float64) func(m *moment, n int) []float64 {
	out := make([]float64, 4)
	return func(m *moment, n int) []float64 {
		a, b := usual(), other()
		for f := range n {
			if out[f] = a; f == m.apart {
				out[f] = b
			}
		}
		return out[:n]
	}
}
