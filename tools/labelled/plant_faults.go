package labelled

import (
	"math/rand/v2"
	"slices"
)

// Fault is a kind of fault of a plant.
type Fault struct {
	// Name is part of the names of series; Doc describes what happens.
	Name, Doc string

	sensor bool    // one sensor is wrong, and the plant is not
	grows  bool    // from nothing on, row by row
	rows   [2]int  // the shortest and the longest length
	part   float64 // of its rows, which must differ from the usual ones
	// change returns what changes the fault of a row; x is up to 1 where the fault grows, else 1.
	change func(d *faultDrawn) func(f *fault, x float64)
}

// faultDrawn is what a fault depends on.
type faultDrawn struct {
	r       *rand.Rand
	size    float64
	sensors int
}

// fits reports whether a plant can have faults of the kind.
func (k *Fault) fits(p *Plant) bool { return k.sensor || slices.Contains(p.faults, k.Name) }

// fault is what is wrong in one row: sound is nothing.
type fault struct {
	// The plant reads these. The parts are from 0 to 1.
	friction   float64 // of a drive: 1 doubles its load
	leak       float64 // part of a flow that is lost
	blockage   float64 // resistance of a pipe, in usual ones
	cavitation float64 // vapour in a flow: noise of flow and pressure, and vibration
	fouling    float64 // part of a transfer of heat that is lost
	weak       float64 // part of a supply that is lost
	sticks     bool    // actuators do not move
	hunting    float64 // gain of controllers, in usual ones
	slow       float64 // phases last longer, in usual lengths
	wrong      float64 // set points are off

	// The reading of a sensor; -1 for none.
	sensor int
	offset float64
	noisy  float64 // factor of the noise
	stuck  bool
}

var sound = fault{sensor: -1, noisy: 1}

func lookupFault(name string) *Fault {
	for _, k := range plantFaults {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// PlantFaults returns all kinds, in the order of their names.
func PlantFaults() []*Fault { return slices.Clone(plantFaults) }

// by is a change of the plant that has a size.
func by(set func(f *fault, x float64)) func(*faultDrawn) func(*fault, float64) {
	return func(d *faultDrawn) func(*fault, float64) {
		return func(f *fault, x float64) { set(f, x*d.size) }
	}
}

// at is a change of one sensor, with a sign.
func at(set func(f *fault, x float64)) func(*faultDrawn) func(*fault, float64) {
	return func(d *faultDrawn) func(*fault, float64) {
		i, sign := d.r.IntN(d.sensors), float64(2*d.r.IntN(2)-1)
		return func(f *fault, x float64) {
			f.sensor = i
			set(f, x*d.size*sign)
		}
	}
}

// plantFaults are all kinds, by name. Sizes are set by eye on charts of plants to choose on.
var plantFaults = []*Fault{
	{
		Name: "blockage", Doc: "a pipe or a filter is partly closed", rows: [2]int{60, 300}, part: 0.4,
		change: by(func(f *fault, x float64) { f.blockage = 0.35 * x }),
	},
	{
		Name: "cavitation",
		Doc:  "vapour in a pump or valve: spread more than level", rows: [2]int{60, 300}, part: 0.2,
		change: by(func(f *fault, x float64) { f.cavitation = 0.5 * x }),
	},
	{
		Name: "fouling", Doc: "a surface passes less and less heat", grows: true, rows: [2]int{150, 400}, part: 0.3,
		change: by(func(f *fault, x float64) { f.fouling = min(0.25*x, 0.9) }),
	},
	{
		Name: "friction", Doc: "a bearing wears out", grows: true, rows: [2]int{120, 400}, part: 0.3,
		change: by(func(f *fault, x float64) { f.friction = 0.25 * x }),
	},
	{
		Name: "hunting", Doc: "a controller is tuned too high and oscillates", rows: [2]int{80, 300}, part: 0.3,
		change: by(func(f *fault, x float64) { f.hunting = 2.5 * x }),
	},
	{
		Name: "leak", Doc: "more and more of a flow is lost", grows: true, rows: [2]int{150, 400}, part: 0.3,
		change: by(func(f *fault, x float64) { f.leak = min(0.12*x, 0.8) }),
	},
	{
		Name: "sensor-drift",
		Doc:  "a sensor drifts away", sensor: true, grows: true, rows: [2]int{150, 400}, part: 0.3,
		change: at(func(f *fault, x float64) { f.offset = x }),
	},
	{
		Name: "sensor-noisy",
		Doc:  "a sensor has a multiple of its noise", sensor: true, rows: [2]int{60, 300}, part: 0.2,
		change: at(func(f *fault, x float64) { f.noisy = 2 + 2*max(x, -x) }),
	},
	{
		Name: "sensor-offset", Doc: "a sensor is off by a constant", sensor: true, rows: [2]int{60, 300}, part: 0.4,
		change: at(func(f *fault, x float64) { f.offset = x }),
	},
	{
		Name: "sensor-stuck", Doc: "a sensor repeats its value", sensor: true, rows: [2]int{60, 300}, part: 0.1,
		change: at(func(f *fault, _ float64) { f.stuck = true }),
	},
	{
		Name: "slow-phase", Doc: "the phases of a cycle last too long", rows: [2]int{120, 400}, part: 0.3,
		change: by(func(f *fault, x float64) { f.slow = 0.3 * x }),
	},
	{
		Name: "stuck-valve", Doc: "an actuator does not move", rows: [2]int{80, 300}, part: 0.2,
		change: by(func(f *fault, _ float64) { f.sticks = true }),
	},
	{
		Name: "weak-supply", Doc: "a supply of power, fuel or pressure is low", rows: [2]int{60, 300}, part: 0.4,
		change: by(func(f *fault, x float64) { f.weak = min(0.07*x, 0.6) }),
	},
	{
		Name: "wrong-set-point", Doc: "the plant runs where it never runs", rows: [2]int{60, 300}, part: 0.4,
		change: by(func(f *fault, x float64) { f.wrong = 0.12 * x }),
	},
}
