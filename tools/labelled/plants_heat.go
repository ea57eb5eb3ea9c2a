package labelled

// heatPlants move heat, and settle.
var heatPlants = []*Plant{
	{
		Name:   "boiler",
		Doc:    "a steam drum with three controllers: steam, level, feed, pressure, fuel, flue gas, feed valve",
		faults: []string{"fouling", "hunting", "leak", "stuck-valve", "weak-supply"}, settle: 200,
		build: func(d *draws) plantProcess {
			draw, gas := demand(d, 0.5, 0.85, 120), settling(d, 10, 40)
			pressures := controller{gain: d.from(1, 2), reset: d.from(0.02, 0.05), sum: 0.6}
			levels := controller{gain: d.from(0.5, 1), reset: d.from(0.01, 0.03), sum: 0.6}
			valve, fire := actuator{0.6, d.from(0.3, 0.8)}, settling(d, 2, 8)
			area, mass := d.from(15, 40), d.from(10, 25)
			pressure, level, out := 1.0, 1.0, make([]float64, 7)
			return plantProcess{sensors(d, 7), func(f *fault) []float64 {
				steam := draw() * pressure * (1 + 0.006*d.row.NormFloat64())
				fuel := fire(pressures.next(1-pressure, f.hunting)) * (1 - f.weak)
				opening := valve.next(levels.next(1-level+0.5*(steam-0.65), f.hunting), f)
				feed := opening * (1.05 - 0.05*pressure)
				heat := 1.1 * fuel * (1 - 0.5*f.fouling)
				pressure = max(pressure+(heat-steam-0.1*(feed-steam)-0.3*f.leak)/mass, 0.1)
				level = min(max(level+(feed-steam-0.5*f.leak)/area, 0), 2)
				return append(out[:0], steam, level+0.1*(steam-0.65), feed, pressure, fuel,
					gas(0.3+0.7*fuel*(1+f.fouling)), opening)
			}}
		},
	},
	{
		Name: "exchanger", Doc: "two liquids exchange heat: two flows, four temperatures, and the loss of pressure",
		faults: []string{"blockage", "fouling", "leak", "weak-supply"}, settle: 60,
		build: func(d *draws) plantProcess {
			hot, cold := demand(d, 0.6, 1, 100), demand(d, 0.6, 1, 130)
			hotIn, coldIn, area := ar(d.row, 0.985), ar(d.row, 0.99), d.from(0.8, 1.6)
			hotOut, coldOut, out := settling(d, 4, 20), settling(d, 4, 20), make([]float64, 7)
			return plantProcess{sensors(d, 7), func(f *fault) []float64 {
				a, b := hot()*(1-f.weak)/(1+0.3*f.blockage), cold()
				ta, tb := 2+0.04*hotIn(), 0.5+0.02*coldIn()
				// Effectiveness of an exchanger of two equal streams, a good guess between unequal ones.
				ntu := area * (1 - f.fouling) / min(a, b)
				heat := ntu / (1 + ntu) * min(a, b) * (ta - tb)
				loss := a * a * (1 + f.blockage) * (1 + 0.01*d.row.NormFloat64())
				return append(out[:0], a, b*(1-f.leak), ta, hotOut(ta-heat/a), tb, coldOut(tb+heat/b), loss)
			}}
		},
	},
	{
		Name: "heater-loop", Doc: "a heater that holds a temperature: set point, outlet, inlet, wall, power, flow",
		faults: []string{"fouling", "hunting", "stuck-valve", "weak-supply", "wrong-set-point"}, settle: 100,
		build: func(d *draws) plantProcess {
			flows, sets, inlet := demand(d, 0.6, 1, 120), demand(d, 0.9, 1.2, 200), ar(d.row, 0.99)
			c := controller{gain: d.from(1, 2.5), reset: d.from(0.01, 0.04), sum: 0.5}
			power, wall := actuator{0.5, 0.8}, 1.5
			slow, quick := d.from(8, 30), d.from(2, 6)
			at, out := 1.0, make([]float64, 6)
			return plantProcess{sensors(d, 6), func(f *fault) []float64 {
				flow, set, in := flows(), sets()*(1+f.wrong), 0.3+0.03*inlet()
				u := power.next(c.next(set-at, f.hunting), f) * (1 - f.weak)
				pass := 1.2 * (1 - 0.7*f.fouling) * (wall - at)
				wall += (1.6*u*(1+0.01*d.row.NormFloat64()) - pass) / slow
				at += (pass - flow*(at-in)) / quick
				return append(out[:0], set, at, in, wall, u, flow)
			}}
		},
	},
}
