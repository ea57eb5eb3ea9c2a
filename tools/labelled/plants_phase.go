package labelled

import "math"

// phasePlants have phases that end by their own state, so their rows differ for good after a fault.
var phasePlants = []*Plant{
	{
		Name: "batch-press", Doc: "a press that closes, holds and opens: position, force, pressure, current, oil",
		faults: []string{"friction", "leak", "slow-phase", "weak-supply"},
		build: func(d *draws) plantProcess {
			hold, rest, speed := d.from(8, 16), d.from(4, 10), d.from(0.15, 0.3)
			oil, out := settling(d, 60, 150), make([]float64, 5)
			phase, left, position, pressure := 0, 0.0, 0.0, 0.3
			return plantProcess{sensors(d, 5), func(f *fault) []float64 {
				u, z := d.row.Float64(), d.row.NormFloat64()
				move, want := 0.0, 0.3
				switch left--; phase {
				case 0: // closes
					move, want = speed*(1-f.weak)/(1+0.5*f.friction), 0.5+0.3*f.friction
					if position >= 1 {
						phase, left = 1, (hold+3*u)*(1+f.slow)
					}
				case 1: // holds
					want = (1.2 + 0.02*z) * (1 - f.weak)
					if left <= 0 {
						phase = 2
					}
				case 2: // opens
					move, want = -speed*(1-f.weak)/(1+0.5*f.friction), 0.5+0.3*f.friction
					if position <= 0 {
						phase, left = 3, (rest+4*u)*(1+f.slow)
					}
				default: // waits
					if left <= 0 {
						phase = 0
					}
				}
				position = min(max(position+move, 0), 1)
				pressure += 0.6 * (want*(1-0.5*f.leak) - pressure)
				force := 0.0
				if position >= 1 {
					force = pressure
				}
				current := 0.2 + 0.6*pressure + 0.5*f.leak + 2*math.Abs(move)*(1+f.friction)
				return append(out[:0], position, force, pressure*(1+0.01*z), current,
					oil(0.5+0.6*current+0.5*f.friction))
			}}
		},
	},
	{
		Name: "batch-reactor",
		Doc: "batches that fill, heat, hold, cool and drain by set points: set point, temperature, " +
			"jacket, level, pressure, stirrer",
		faults: []string{"fouling", "friction", "leak", "slow-phase", "weak-supply", "wrong-set-point"},
		build: func(d *draws) plantProcess {
			top, hold, fill := d.from(0.9, 1.2), d.from(12, 25), d.from(0.08, 0.15)
			c, out := controller{gain: 3, reset: 0.02}, make([]float64, 6)
			phase, left, level, at, jacket := 0, 0.0, 0.1, 0.3, 0.3
			return plantProcess{sensors(d, 6), func(f *fault) []float64 {
				u, z := d.row.Float64(), d.row.NormFloat64()
				set, to := 0.3, 0.3
				switch left--; phase {
				case 0:
					level += fill * (1 - 0.5*f.weak) / (1 + f.slow)
					if level >= 1 {
						phase, c.sum = 1, 0
					}
				case 1, 2:
					set = top * (1 + f.wrong)
					to = 0.3 + 1.6*(1-f.weak)*c.next(set-at, 0)
					if phase == 1 && (at >= 0.97*set || left < -200) {
						phase, left = 2, (hold+6*u)*(1+f.slow)
					} else if phase == 2 && left <= 0 {
						phase = 3
					}
				case 3:
					to = 0.1
					if at <= 0.45 {
						phase = 4
					}
				default:
					if level -= 0.12 / (1 + f.slow); level <= 0.1 {
						phase, left = 0, 0
					}
				}
				level = max(level-0.01*f.leak, 0.05)
				jacket += 0.3 * (to - jacket)
				at += 0.15*(1-f.fouling)*(jacket-at)/max(level, 0.3) + 0.001*z
				stir := 0.2 + 0.5*level*(1+0.5*f.friction) + 0.1*max(1-at, 0)
				return append(out[:0], set, at, jacket, level, math.Exp(at-1)*(1-0.3*f.leak), stir)
			}}
		},
	},
	{
		Name: "cold-room",
		Doc: "a room that a machine cools between two temperatures, with a door: room, coil, current, " +
			"pressure, outside",
		faults: []string{"fouling", "friction", "leak", "weak-supply"},
		build: func(d *draws) plantProcess {
			outside, door := demand(d, 0.9, 1.1, 200), d.from(0.01, 0.03)
			room, coil, open, band := 0.2, 0.0, 0.0, d.from(0.03, 0.06)
			warm, out := settling(d, 3, 8), make([]float64, 5)
			on := 0.0
			return plantProcess{sensors(d, 5), func(f *fault) []float64 {
				u, z, air := d.row.Float64(), d.row.NormFloat64(), outside()
				open *= 0.7
				if u < door {
					open = 1
				}
				if room > 0.2+band {
					on = 1
				} else if room < 0.2-band {
					on = 0
				}
				cold := on * (1 - 0.6*f.leak) * (1 - f.weak)
				coil += 0.3 * (room - 0.35*cold - coil)
				room += 0.006*(air-room)*(1+2*open) + 0.05*(1-0.6*f.fouling)*(coil-room) + 0.0005*z
				current := on * (0.8 + 0.2*air + 0.5*f.friction) / (1 - f.weak) * (1 + 0.01*z)
				return append(out[:0], room, coil, current, 0.4+warm(on*(0.5+0.2*air)*(1-0.5*f.leak)), air)
			}}
		},
	},
	{
		Name: "compressor",
		Doc: "a compressor that loads and unloads by the pressure of its vessel: pressure, current, " +
			"demand, two temperatures",
		faults: []string{"fouling", "friction", "leak", "weak-supply"},
		build: func(d *draws) plantProcess {
			draw, size, band := demand(d, 0.3, 0.6, 100), d.from(15, 40), d.from(0.04, 0.08)
			pressure, on := 1.0, 0.0
			hot, oil, out := settling(d, 5, 15), settling(d, 40, 100), make([]float64, 5)
			return plantProcess{sensors(d, 5), func(f *fault) []float64 {
				flow, z := draw(), d.row.NormFloat64()
				if pressure < 1-band {
					on = 1
				} else if pressure > 1+band {
					on = 0
				}
				pressure += (on*(1-f.weak) - flow - 0.4*f.leak) / size
				current := (0.35 + on*(0.4+0.4*pressure) + 0.3*f.friction) * (1 + 0.01*z) / (1 - 0.5*f.weak)
				heat := 0.4 + 0.8*current
				return append(out[:0], pressure, current, flow, hot(heat*(1+0.3*f.fouling)),
					oil(0.4+0.5*heat*(1+0.8*f.fouling)+0.4*f.friction))
			}}
		},
	},
	{
		Name: "filter", Doc: "a filter that clogs and is washed: pressure, flow, current, clarity, wash valve",
		faults: []string{"blockage", "leak", "slow-phase", "weak-supply"},
		build: func(d *draws) plantProcess {
			machine, feed := centrifugal{d}, demand(d, 0.9, 1.1, 150)
			clog, rate, out := 0.0, d.from(0.015, 0.03), make([]float64, 5)
			washing, clear := 0.0, settling(d, 3, 8)
			return plantProcess{sensors(d, 5), func(f *fault) []float64 {
				u, dirt := d.row.Float64(), feed()
				resistance := 1 + clog
				if washing > 0 {
					resistance = 0.5
				}
				flow, head, power, _ := machine.next(1-0.5*f.weak, resistance*(1-0.5*f.leak), f)
				valve := 0.0
				switch washing--; {
				case washing > 0:
					clog *= 0.6
					valve = 1
				case clog > 1:
					washing = (6 + 2*u) * (1 + f.slow)
				default:
					clog += rate * dirt * flow
				}
				return append(out[:0], head, flow, power, clear(1-0.3*valve-0.8*f.leak+0.05*clog), valve)
			}}
		},
	},
	{
		Name: "heater-thermostat",
		Doc: "a bath that a thermostat heats, with cold goods at times: bath, element, current, " +
			"room",
		faults: []string{"fouling", "leak", "weak-supply", "wrong-set-point"},
		build: func(d *draws) plantProcess {
			rooms, goods := ar(d.row, 0.995), d.from(0.008, 0.02)
			band, mass := d.from(0.015, 0.03), d.from(20, 50)
			bath, element, on, out := 1.0, 1.0, 0.0, make([]float64, 4)
			return plantProcess{sensors(d, 4), func(f *fault) []float64 {
				u, size, room, z := d.row.Float64(), d.row.Float64(), 0.3+0.02*rooms(), d.row.NormFloat64()
				if u < goods {
					bath -= 0.02 + 0.03*size
				}
				if set := 1 + f.wrong; bath < set-band {
					on = 1
				} else if bath > set+band {
					on = 0
				}
				element += 0.25 * (bath + 1.2*on*(1-f.weak) - element)
				pass := 1.2 * (1 - 0.7*f.fouling) * (element - bath)
				bath += (pass - 0.8*(bath-room) - 0.4*f.leak) / mass
				return append(out[:0], bath, element, on*(1-f.weak)*(1+0.01*z), room)
			}}
		},
	},
	{
		Name: "pumps-duty", Doc: "two pumps that take turns: two currents, two vibrations, pressure, flow",
		faults: []string{"blockage", "cavitation", "friction", "leak", "weak-supply"},
		build: func(d *draws) plantProcess {
			first, second, draw := centrifugal{d}, centrifugal{d}, demand(d, 0.9, 1.3, 120)
			duty, left, turn, out := d.from(30, 70), 0.0, 0, make([]float64, 6)
			better := d.from(0.96, 1.04)
			var runs [2]func(float64) float64
			for i := range runs {
				runs[i] = settling(d, 2, 6)
			}
			return plantProcess{sensors(d, 6), func(f *fault) []float64 {
				u, pipe := d.row.Float64(), draw()*(1-f.leak)
				if left--; left <= 0 {
					turn, left = 1-turn, duty+6*u
				}
				var speed [2]float64
				for i := range speed {
					speed[i] = runs[i](math.Abs(float64(i-turn))) * (1 - 0.4*f.weak)
				}
				// A fault of a pump is one of the first.
				other := &fault{blockage: f.blockage}
				a, ha, pa, sa := first.next(speed[0], pipe, f)
				b, hb, pb, sb := second.next(better*speed[1], pipe, other)
				return append(out[:0], pa/(1-f.weak), pb/(1-f.weak), sa, sb, max(ha, hb, 0.2), (a+b)*(1-f.leak))
			}}
		},
	},
}
