package cells

import (
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Weights is the table of random weights for a swarm's seed: as torch.nn.GRUCell and
// torch.nn.Linear are initialised, uniform within one over the root of the units. leaky has none.
// It has no embedding: LookUp draws the rows that it needs. The table of quantum is the circuit
// with the angles of the parameters.
func (a *Addressed) Weights(seed uint64) []uint32 {
	if a.Measures() {
		table, _ := a.circuit.table(a.angles()) // AddressQuantum has made it
		return table
	}
	if !a.isGRU() {
		return nil
	}
	H, I, C := a.hidden(), a.inputs(), a.readouts()
	r, deviation := newSource(seed, sharedAgent), 1/math.Sqrt(3*float64(H))
	draw := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = r.spread(deviation)
		}
		return v
	}
	return a.table(GRUWeights{
		InputHidden: draw(3 * H * I), HiddenHidden: draw(3 * H * H), InputBias: draw(3 * H), HiddenBias: draw(3 * H),
		Readout: draw(C * H), ReadoutBias: draw(C),
	})
}

// GRUWeights are the weights of a trained network, in the layout of PyTorch: I inputs are the
// features and then what agents hear; of torch.nn.GRUCell(I, H) weight_ih, [3H][I], weight_hh,
// [3H][H], bias_ih and bias_hh, [3H], with the gates in the order r, z, n; of torch.nn.Linear(H, C)
// weight, [C][H], and bias, [C]. C are the items of a cell that has some, else its candidates.
type GRUWeights struct {
	InputHidden, HiddenHidden []float32
	InputBias, HiddenBias     []float32
	Readout, ReadoutBias      []float32
	// Embed is weight of torch.nn.Embedding(rows, features), [rows][features], of a cell that has one.
	Embed []float32
}

// Table makes the weights table of trained weights. They have the sizes of the cell, and are finite
// and at most 128. The cell computes with them as multiples of a power of two, one for its gates
// and one for the readout. The largest weight has 15 or 16 bits. Weights of inputs count eightfold,
// and weights of n twice. The scale is coarser where a bias is more than 500 times the largest
// weight. The table of the items follows, with its own scale, and then the embedding, as float32.
func (a *Addressed) Table(w GRUWeights) ([]uint32, error) {
	if !a.isGRU() {
		return nil, fmt.Errorf("%w: %s has no weights", ErrParameter, a.Cell.Name)
	}
	H, I, C := a.hidden(), a.inputs(), a.readouts()
	for _, part := range []struct {
		name string
		have []float32
		want int
	}{
		{"InputHidden", w.InputHidden, 3 * H * I},
		{"HiddenHidden", w.HiddenHidden, 3 * H * H},
		{"InputBias", w.InputBias, 3 * H},
		{"HiddenBias", w.HiddenBias, 3 * H},
		{"Readout", w.Readout, C * H},
		{"ReadoutBias", w.ReadoutBias, C},
		{"Embed", w.Embed, a.Rows * a.Features},
	} {
		if len(part.have) != part.want {
			return nil, fmt.Errorf("%w: gru: %s has %d values, want %d for %d units, %d inputs, %d candidates or items",
				ErrParameter, part.name, len(part.have), part.want, H, I, C)
		}
		for i, v := range part.have {
			if !(v >= -kernels.AgentWeight && v <= kernels.AgentWeight) {
				return nil, fmt.Errorf("%w: gru: %s[%d] is %v, want %d at most", ErrParameter, part.name, i, v,
					kernels.AgentWeight)
			}
		}
	}
	return append(a.table(w), device.Of[uint32](device.Bytes(w.Embed))...), nil
}

// table brings weights into fixed point and into the order of the kernels, padded to the class; see
// kernels.AgentGRUTable.
func (a *Addressed) table(w GRUWeights) []uint32 {
	H, I, C, P := a.hidden(), a.inputs(), a.Candidates, a.class()
	gates, bias := make([]float64, 6*P*P), make([]float64, 4*P)
	for gate := range 3 {
		double := 1.0
		if gate == 2 {
			double = 2
		}
		for j := range H {
			row := gates[(gate*P+j)*2*P:]
			for k, v := range w.HiddenHidden[(gate*H+j)*H:][:H] {
				row[k] = double * float64(v)
			}
			for k, v := range w.InputHidden[(gate*H+j)*I:][:I] {
				row[P+k] = double * float64(v) * (1 << (kernels.AgentUnitBits - kernels.AgentInputBits))
			}
			input, units := double*float64(w.InputBias[gate*H+j]), double*float64(w.HiddenBias[gate*H+j])
			if gate < 2 {
				bias[4*j+gate] = input + units
			} else {
				bias[4*j+2], bias[4*j+3] = input, units
			}
		}
	}
	readout, readoutBias := make([]float64, kernels.AgentMostCandidates*P), make([]float64, C)
	rows, rowBias := wide(w.Readout), wide(w.ReadoutBias)
	if a.Items > 0 {
		rows, rowBias = meanItem(H, rows, rowBias)
	}
	for c := range C {
		copy(readout[c*P:], rows[c*H:][:H])
		readoutBias[c] = rowBias[c]
	}
	t := make([]uint32, kernels.AgentGRUTable(P))
	scale := scaleOf(gates, kernels.AgentGateWeight, bias, kernels.AgentGateBias)
	for i, c := range kernels.Logistic(scale + biasBits) {
		t[kernels.AgentTableLogistic+i] = math.Float32bits(c)
	}
	fill(t[kernels.AgentTableWeights(P):kernels.AgentTableReadout(P)], gates, scale)
	fillBias(t[kernels.AgentTableBias:], bias, scale)
	scale = scaleOf(readout, kernels.AgentVoteWeight, readoutBias, kernels.AgentVoteBias)
	fill(t[kernels.AgentTableReadout(P):], readout, scale)
	votes := t[kernels.AgentTableReadoutBias(P):][:kernels.AgentMostCandidates]
	fillBias(votes, readoutBias, scale)
	for c := C; c < len(votes); c++ {
		none := int32(kernels.AgentNoCandidate)
		votes[c] = uint32(none)
	}
	if a.Items > 0 {
		t = append(t, ItemTable(H, w.Readout, w.ReadoutBias)...)
	}
	return t
}

// biasBits is what a bias has more than a weight: a product over 256.
const biasBits = kernels.AgentUnitBits - 8

// scaleOf is the power of two that weights and biases are multiplied by: the largest for which none
// is above its most, and AgentMostScale at most. The weights and biases are finite.
func scaleOf(weights []float64, mostWeight float64, bias []float64, mostBias float64) int {
	scale := kernels.AgentMostScale
	for _, v := range weights {
		for math.Ldexp(math.Abs(v), scale) > mostWeight {
			scale--
		}
	}
	for _, v := range bias {
		for math.Ldexp(math.Abs(v), scale+biasBits) > mostBias {
			scale--
		}
	}
	return scale
}

// fill writes weights times 2^scale as int16, two to a word, rounded to even.
func fill(to []uint32, weights []float64, scale int) {
	for i, numbers := 0, device.Of[int16](device.Bytes(to)); i < len(weights); i++ {
		numbers[i] = int16(math.RoundToEven(math.Ldexp(weights[i], scale)))
	}
}

// fillBias writes biases times 2^(scale+biasBits) as int32.
func fillBias(to []uint32, bias []float64, scale int) {
	for i, v := range bias {
		to[i] = uint32(int32(math.RoundToEven(math.Ldexp(v, scale+biasBits))))
	}
}
