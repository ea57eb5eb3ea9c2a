package labelled

import "math"

// centrifugal is a centrifugal pump or a fan in a pipe with a static head of 0.2: head falls with
// the square of the flow, and the pipe needs a head that rises with it. With speed and resistance of
// 1 head, flow and power are 1.
type centrifugal struct{ d *draws }

func (c centrifugal) next(speed, resistance float64, f *fault) (flow, head, power, shake float64) {
	z, y := c.d.row.NormFloat64(), c.d.row.NormFloat64()
	most := 1.3 * speed * speed * (1 - 0.06*f.cavitation)
	flow = math.Sqrt(max(most-0.2, 0) / (0.3 + 0.8*max(resistance+f.blockage, 0.05)))
	head = most - 0.3*flow*flow
	rough := 0.006 * (1 + 4*f.cavitation)
	flow, head = flow*(1+rough*z), head*(1+0.7*rough*y)
	power = speed * (0.25 + 0.75*flow*head + 0.4*f.friction)
	shake = speed * speed * (0.5 + 0.5*flow*flow + 0.8*f.friction + 0.6*f.cavitation)
	shake *= 1 + 0.04*(1+2*f.cavitation)*math.Abs(z+y)
	return flow, head, power, shake
}

// settling returns a function of a value that follows another one, by a part of the distance in a
// row, which is drawn: one divided by rows.
func settling(d *draws, from, to float64) func(v float64) float64 {
	part, at, began := 1/d.from(from, to), 0.0, false
	return func(v float64) float64 {
		if !began {
			at, began = v, true
		}
		at += part * (v - at)
		return at
	}
}

// flowPlants move liquids and gases.
var flowPlants = []*Plant{
	{
		Name:   "fan",
		Doc:    "a fan at a speed that follows a demand: speed, flow, pressure, current, vibration, bearing",
		faults: []string{"blockage", "friction", "leak", "weak-supply", "wrong-set-point"}, settle: 60,
		build: func(d *draws) plantProcess {
			load, machine := demand(d, 0.6, 1, 90), centrifugal{d}
			run, warm, out := settling(d, 3, 15), settling(d, 30, 80), make([]float64, 6)
			return plantProcess{sensors(d, 6), func(f *fault) []float64 {
				speed := run(load()*(1+f.wrong)) * (1 - 0.5*f.weak)
				flow, head, power, shake := machine.next(speed, 1-f.leak, f)
				return append(out[:0], speed, flow, head, power/(1-f.weak), shake, warm(0.5+0.3*power+0.5*f.friction))
			}}
		},
	},
	{
		Name: "pump", Doc: "a pump and a valve that people set: speed, two pressures, flow, current, voltage, " +
			"vibration, bearing and liquid",
		faults: []string{"blockage", "cavitation", "friction", "leak", "weak-supply"}, settle: 60,
		build: func(d *draws) plantProcess {
			speed, valve, machine := demand(d, 0.8, 1, 150), demand(d, 0.8, 1.6, 120), centrifugal{d}
			net, suction := ar(d.row, 0.9), ar(d.row, 0.95)
			warm, liquid, out := settling(d, 40, 120), settling(d, 80, 200), make([]float64, 9)
			return plantProcess{sensors(d, 9), func(f *fault) []float64 {
				voltage := (1 + 0.004*net()) * (1 - f.weak)
				w := speed() * (1 - 0.4*f.weak)
				flow, head, power, shake := machine.next(w, valve()*(1-f.leak), f)
				in := 0.5 + 0.01*suction() - 0.1*flow*flow - 0.05*f.cavitation
				return append(out[:0], w, in, in+head, flow*(1-f.leak), power/voltage, voltage, shake,
					warm(0.6+0.3*power+0.5*f.friction), liquid(0.8+0.1*power/max(flow, 0.1)))
			}}
		},
	},
	{
		Name:   "tank",
		Doc:    "a tank whose level a valve in its outlet holds: inflow, level, valve, outflow, temperature",
		faults: []string{"blockage", "hunting", "leak", "stuck-valve", "wrong-set-point"}, settle: 80,
		build: func(d *draws) plantProcess {
			feed, warm := demand(d, 0.4, 0.8, 100), settling(d, 60, 150)
			area, c := d.from(8, 25), controller{gain: d.from(2, 4), reset: d.from(0.01, 0.04), sum: 0.5}
			valve, level, out := actuator{0.5, d.from(0.3, 0.9)}, 1.0, make([]float64, 5)
			return plantProcess{sensors(d, 5), func(f *fault) []float64 {
				in, z := feed(), d.row.NormFloat64()
				to := valve.next(c.next(level-1-f.wrong, f.hunting), f)
				flow := 1.2 * to / math.Sqrt(1+f.blockage) * math.Sqrt(max(level, 0)) * (1 + 0.005*z)
				level = min(max(level+(in-flow-0.3*f.leak)/area, 0), 2)
				return append(out[:0], in, level, to, flow, warm(1.2-0.3*in))
			}}
		},
	},
	{
		Name: "tanks-three",
		Doc: "three tanks in a row, fed by a pump that holds the last level: three levels, pump, " +
			"current, two flows",
		faults: []string{"blockage", "friction", "hunting", "leak", "wrong-set-point"}, settle: 100,
		build: func(d *draws) plantProcess {
			draw, machine := demand(d, 0.5, 0.8, 150), centrifugal{d}
			area, c := d.from(4, 12), controller{gain: d.from(0.8, 1.6), reset: d.from(0.01, 0.03), sum: 0.6}
			levels, out := [3]float64{1.2, 1, 0.8}, make([]float64, 7)
			return plantProcess{sensors(d, 7), func(f *fault) []float64 {
				speed := 0.45 + 0.65*c.next(0.8*(1+f.wrong)-levels[2], f.hunting)
				in, _, power, _ := machine.next(speed, 1, &fault{friction: f.friction})
				between := func(tank int, k float64) float64 {
					h := levels[tank] - levels[tank+1]
					return math.Copysign(1.5*k*math.Sqrt(math.Abs(h)), h)
				}
				first, second := between(0, 1), between(1, 1/(1+f.blockage))
				third := draw() * math.Sqrt(max(levels[2], 0)) * (1 + 0.01*d.row.NormFloat64())
				for i, sum := range []float64{in - first, first - second - 0.8*f.leak, second - third} {
					levels[i] = min(max(levels[i]+sum/area, 0), 3)
				}
				return append(out[:0], levels[0], levels[1], levels[2], speed, power, in, third)
			}}
		},
	},
	{
		Name: "valve-loop", Doc: "a valve that holds a flow: set point, flow, position, command, two pressures",
		faults: []string{"blockage", "cavitation", "hunting", "leak", "stuck-valve", "weak-supply"}, settle: 40,
		build: func(d *draws) plantProcess {
			set, supply := demand(d, 0.4, 0.8, 80), ar(d.row, 0.98)
			c := controller{gain: d.from(0.2, 0.6), reset: d.from(0.1, 0.3), sum: 0.5}
			valve, flow, out := actuator{0.5, d.from(0.2, 0.7)}, 0.5, make([]float64, 6)
			follow := settling(d, 1, 4)
			return plantProcess{sensors(d, 6), func(f *fault) []float64 {
				want, z, y := set(), d.row.NormFloat64(), d.row.NormFloat64()
				command := c.next(want-flow*(1-f.leak), f.hunting)
				opening := 0.05 + valve.next(command, f)
				before := (1.5 + 0.04*supply()) * (1 - f.weak)
				k := opening * opening / (1 + f.blockage)
				flow = follow(math.Sqrt(before / (0.5 + 0.5/k)))
				flow *= 1 + 0.004*(1+5*f.cavitation)*z
				return append(out[:0], want, flow*(1-f.leak), opening, command, before-0.2*flow*flow,
					0.3*flow*flow*(1+0.01*(1+6*f.cavitation)*y))
			}}
		},
	},
}
