package cells

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// gru is the cell with gated memory: the agents of a group share recurrent weights, see the input
// each in their own way, and learn a readout that predicts it.
var gru = &Cell{
	Name: "gru",
	Doc: "gated recurrent units: agents learn to predict the next value and vote by how far it is off, in " +
		"their usual errors",
	Candidates: []string{"normal", "suspicious", "anomalous"},
	Agents:     64,
	Kernel:     "gru_observe",
	embedding:  []string{"hidden"},
	Params: ratioParams([]Param{
		{Name: "hidden", Default: 8, Min: 4, Max: kernels.GruMostHidden, Integer: true, Doc: "units of an agent"},
		{Name: "learn", Default: 0.05, Min: 0, Max: 1, Doc: "step of the readout's learning, a part of the error; 0 " +
			"switches learning off"},
	}, "usual error", 4, 8, 500),
	vars: func(b *Bound) []kernels.Var { return kernels.GruVars(b.hidden(), b.Features, b.Own) },
	block: func(b *Bound) []uint32 {
		w := ratioBlock(b, kernels.GruWords)
		w[kernels.GruHidden] = uint32(b.hidden())
		w[kernels.GruLearn] = b.word("learn")
		if b.Own {
			w[kernels.GruOwn] = 1
			w[kernels.GruUnitsReach] = reach(unitsDeviation / math.Sqrt(float64(b.hidden())))
			w[kernels.GruInputReach] = reach(2 * inputDeviation)
			w[kernels.GruUpdateReach] = reach(updateDeviation)
			w[kernels.GruBiasReach] = reach(inputDeviation)
		}
		return w
	},
	weights: gruTable,
}

// reach returns the bound of a uniform distribution with mean 0 and a standard deviation, as a
// float32 word.
func reach(deviation float64) uint32 { return math.Float32bits(float32(deviation * math.Sqrt(3))) }

func (b *Bound) hidden() int { return int(b.values["hidden"]) }

// Deviations of the random weights. The units' part of a sum has the deviation that
// recurrentDeviation gives the predictor's four units, whatever their number, so that a unit
// forgets; the update gates are spread so that some units are fast and some slow.
const (
	unitsDeviation  = 2 * recurrentDeviation
	updateDeviation = 1.5
	viewDeviation   = 0.5 // of an agent's gain around one, and of its offset
)

// sharedAgent is the index whose random numbers make the shared weights; no agent has it.
const sharedAgent = math.MaxUint32

// gruTable returns the shared weights, gate by gate and unit by unit, and behind them the weights
// of the agents. With Own the kernel draws the shared weights itself, from the seed in their place.
func gruTable(b *Bound, seed uint64) []float32 {
	H := b.hidden()
	if b.Own {
		return append(seedParts(seed), gruOwn(b, seed)...)
	}
	table := make([]float32, 0, kernels.GruShared(H))
	r, unit := newSource(seed, sharedAgent), unitsDeviation/math.Sqrt(float64(H))
	for gate := range kernels.GruGates {
		bias := inputDeviation
		if gate == kernels.GruUpdate {
			bias = updateDeviation
		}
		for range H {
			for range H {
				table = append(table, r.spread(unit))
			}
			table = append(table, r.spread(2*inputDeviation), r.spread(bias))
		}
	}
	return append(table, gruOwn(b, seed)...)
}

// gruOwn returns the weights that differ between agents, component-major.
func gruOwn(b *Bound, seed uint64) []float32 {
	A := b.Agents
	own := make([]float32, kernels.GruWeights(b.Features, A))
	for a := range A {
		r := newSource(seed, a)
		own[kernels.GruGain*A+a] = 1 + r.spread(viewDeviation)
		own[kernels.GruOffset*A+a] = r.spread(viewDeviation)
		projection(r, b.Features, func(f int, v float32) { own[(kernels.GruProject+f)*A+a] = v })
	}
	return own
}
