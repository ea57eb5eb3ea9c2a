package cells

import (
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Hearing returns the cell with n more inputs, which all agents of a swarm hear. They follow the
// features, and an observation does not contain them. Only gru hears, and its features and what it
// hears are 1 to its padded units together. The error is an ErrParameter.
func (a *Addressed) Hearing(n int) (*Addressed, error) {
	if n == 0 {
		return a, nil
	}
	if a.HearsNeighbours() {
		return nil, fmt.Errorf("%w: %s: an agent hears its neighbours alone: leave hear out", ErrParameter, a.Cell.Name)
	}
	if a.Measures() {
		return nil, fmt.Errorf("%w: %s: its agents hear nothing: use gru, or leave hear out", ErrParameter, a.Cell.Name)
	}
	if !a.isGRU() {
		return nil, fmt.Errorf("%w: %s: it takes a current and a gain and hears nothing: use gru, or leave hear out",
			ErrParameter, a.Cell.Name)
	}
	if most := a.class(); n < 0 || n > most-a.Features {
		return nil, fmt.Errorf("%w: %s: %d features and %d inputs that are heard: use at most %d together, or more "+
			"units", ErrParameter, a.Cell.Name, a.Features, n, most)
	}
	with := *a
	with.Hears = n
	return &with, nil
}

// inputs returns the number of inputs of an agent: the features and what it hears.
func (a *Addressed) inputs() int { return a.Features + a.Hears }

// BiasBytes is the place of the biases in a weights table, in bytes from its start.
const BiasBytes = 4 * kernels.AgentTableBias

// Biases returns the biases of the gates for agents that hear values, one for each of Hears, in
// their order. They replace the biases of the weights table, where all heard values are 0. table is
// not changed, and the caller owns the result.
//
// All agents hear the same values, so the products with their weights are the same for all agents.
// Sums are of integers and exact in any order. A step with these biases therefore has the bits of a
// step of agents whose rows hold the values as inputs, and costs what a step costs that hears
// nothing. Values are finite, and clamped to kernels.AgentGRUInput.
func (a *Addressed) Biases(table []uint32, values []float32) []uint32 {
	P := a.class()
	biases := append([]uint32(nil), table[kernels.AgentTableBias:kernels.AgentTableReadoutBias(P)]...)
	weights := device.Of[int16](device.Bytes(table[kernels.AgentTableWeights(P):kernels.AgentTableReadout(P)]))
	for k, v := range values {
		if a.elem() == kernels.BF16 { // as rows hold it
			v = device.FromBF16(device.ToBF16(v))
		}
		x := split(int32(math.RoundToEven(
			math.Ldexp(float64(min(max(v, -kernels.AgentGRUInput), kernels.AgentGRUInput)), kernels.AgentInputBits),
		)))
		for gate := range 3 {
			for j := range P {
				w := split(int32(weights[(gate*P+j)*2*P+P+a.Features+k]))
				biases[4*j+gate] += uint32(x.high*w.number + x.low*w.high)
			}
		}
	}
	return biases
}

// halves is a number of 16 bits as two signed bytes: 256*high + low.
type halves struct{ number, high, low int32 }

func split(number int32) halves {
	high := (number + 128) >> 8
	return halves{number, high, number - 256*high}
}
