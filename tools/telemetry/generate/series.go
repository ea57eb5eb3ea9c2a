package main

import (
	"math"
	"math/rand/v2"
	"time"
)

const (
	minute = time.Minute
	hours  = time.Hour
)

// all are the files. Every incident comes after at least three days of usual values.
var all = []series{
	{
		name: "cpu_load_percent", low: 0, high: 100, decimals: 1, // of a server: day and night, workdays and weekends
		usual: func(r *rand.Rand) func(int) float64 {
			slow := drift(r, 0.9, 3)
			return func(row int) float64 { return 12 + 45*daytime(row) + slow() + 2*r.NormFloat64() }
		},
		incidents: []incident{
			{
				"the server is down", 4, 11 * hours, 50 * minute,
				func(m moment) float64 { return 0.3 + 0.3*m.r.Float64() },
			},
			// Hard: the level is the same as every afternoon.
			{
				"a job runs away in the night", 9, 1*hours + 20*minute, 3 * hours,
				func(m moment) float64 { return m.usual + 38 },
			},
		},
	},
	{
		name: "requests_per_s", low: 0, high: math.Inf(1), decimals: 1, // rate of a counter: its noise grows with it
		usual: func(r *rand.Rand) func(int) float64 {
			return func(row int) float64 {
				mean := 40 + 360*daytime(row)
				return mean + 1.5*math.Sqrt(mean)*r.NormFloat64()
			}
		},
		incidents: []incident{
			{"a flood of requests", 3, 21 * hours, 25 * minute, func(m moment) float64 { return 4.5 * m.usual }},
			{
				"half of the clients cannot connect", 10, 13 * hours, 2 * hours,
				func(m moment) float64 { return 0.5 * m.usual },
			},
		},
	},
	{
		name: "room_temperature_c", low: -20, high: 80, decimals: 2, // of a machine room: slow, with little noise
		usual: func(r *rand.Rand) func(int) float64 {
			slow := drift(r, 0.995, 0.4)
			return func(row int) float64 { return 21 + 1.5*daytime(row-12) + slow() + 0.06*r.NormFloat64() }
		},
		incidents: []incident{
			{
				"the cooling fails and comes back", 5, 8 * hours, 6 * hours,
				func(m moment) float64 { return m.usual + 9*rise(m.x, 0.65) },
			},
			// Hard: every value is usual; that they are equal is not.
			{"the sensor repeats one value", 11, 9 * hours, 7 * hours, func(m moment) float64 { return m.before }},
		},
	},
	{
		name: "latency_p99_ms", low: 1, high: 30_000, decimals: 1, // log-normal, with a heavy tail that is usual
		usual: func(r *rand.Rand) func(int) float64 {
			return func(row int) float64 {
				v := 80 * (1 + 0.4*daytime(row)) * math.Exp(0.18*r.NormFloat64())
				if r.Float64() < 0.006 {
					v *= math.Pow(1-r.Float64(), -0.7)
				}
				return v
			}
		},
		incidents: []incident{
			{"a query without its index", 6, 10 * hours, 150 * minute, func(m moment) float64 { return 3 * m.usual }},
			// Hard: no row stands out from the one before.
			{
				"it gets slower for a day until a restart", 11, 6 * hours, 26 * hours,
				func(m moment) float64 { return m.usual * (1 + 1.2*m.x) },
			},
		},
	},
	{
		name: "pump_power_w", low: 0, high: 2000, decimals: 0, // on for about 35 minutes, off for about 70
		usual: func(r *rand.Rand) func(int) float64 {
			on, left := false, 0
			return func(int) float64 {
				if left--; left < 0 {
					on = !on
					if left = 12 + r.IntN(4); on {
						left = 6 + r.IntN(3)
					}
				}
				if on {
					return 740 + 12*r.NormFloat64()
				}
				return 6 + r.NormFloat64()
			}
		},
		incidents: []incident{
			// Hard: each value is one of the pump that is on.
			{
				"the pump does not switch off", 7, 14 * hours, 5 * hours,
				func(m moment) float64 { return 740 + 12*m.r.NormFloat64() },
			},
			{
				"the pump runs with half its power", 12, 2 * hours, 8 * hours,
				func(m moment) float64 { return 0.5 * m.usual },
			},
		},
	},
	{
		// a batch at every full hour that drains in half of one
		name: "queue_depth", low: 0, high: math.Inf(1), decimals: 0,
		usual: func(r *rand.Rand) func(int) float64 {
			batch := 0.0
			return func(row int) float64 {
				if row%12 == 0 {
					batch = 150 + 60*r.Float64()
				} else {
					batch *= 0.55
				}
				return batch + 8*daytime(row)*r.ExpFloat64()
			}
		},
		incidents: []incident{
			{
				"the consumer stops", 8, 15*hours + 10*minute, 4 * hours,
				func(m moment) float64 { return m.usual + 1500*rise(m.x, 0.75) },
			},
			// Hard: what is missing leaves values that are usual between batches.
			{"no batch comes", 12, 9 * hours, 4 * hours, func(m moment) float64 { return 6 * m.r.ExpFloat64() }},
		},
	},
}

// rise goes from 0 up to 1 at top and back.
func rise(x, top float64) float64 {
	if x < top {
		return x / top
	}
	return (1 - x) / (1 - top)
}
