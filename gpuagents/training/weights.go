package training

import (
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
)

// tensor is a part of Weights, and where its elements are in the vector of the device.
type tensor struct {
	name   string
	values *[]float32
	width  int // of a row
	// at returns the place of the first element of a row.
	rows int
	at   func(row int) int
}

// tensors returns the parts of w.
func (s Shape) tensors(w *Weights) []tensor {
	H, I, P, K := s.Hidden, s.Inputs, s.class(), s.readoutRows()
	readout := trainset.GateWeights(P)
	bias := readout + K*P
	embed := bias + trainset.Padded(K)
	gate := func(row int) int { return row/H*P + row%H } // of a unit of a gate, in padded units
	element := func(from int) func(int) int { return func(row int) int { return from + gate(row) } }
	rows := func(from int) func(int) int { return func(row int) int { return from + gate(row)*P } }
	plain := func(from, step int) func(int) int { return func(row int) int { return from + row*step } }
	return []tensor{
		{"weight_ih", &w.InputHidden, I, 3 * H, rows(3 * P * P)},
		{"weight_hh", &w.HiddenHidden, H, 3 * H, rows(0)},
		{"bias_ih", &w.InputBias, 1, 3 * H, element(6 * P * P)},
		{"bias_hh", &w.HiddenBias, 1, 3 * H, element(6*P*P + 3*P)},
		{"readout.weight", &w.Readout, H, K, plain(readout, P)},
		{"readout.bias", &w.ReadoutBias, 1, K, plain(bias, 1)},
		{"embed.weight", &w.Embed, I, s.Rows, plain(embed, P)},
	}
}

// size is the number of elements of the vector of weights.
func (s Shape) size() int {
	P, K := s.class(), s.readoutRows()
	return trainset.GateWeights(P) + K*P + trainset.Padded(K) + s.Rows*P
}

// vector returns the vector of weights.
func (s Shape) vector(w *Weights) ([]float32, error) {
	v := make([]float32, s.size())
	for _, part := range s.tensors(w) {
		values := *part.values
		if len(values) != part.rows*part.width {
			return nil, fmt.Errorf("%w: weights: %s has %d values, want %d x %d", ErrInvalid, part.name, len(values),
				part.rows, part.width)
		}
		for i, x := range values {
			if !(math.Abs(float64(x)) <= kernels.AgentWeight) {
				return nil, fmt.Errorf("%w: weights: %s[%d] is %v: use %d at most", ErrInvalid, part.name, i, x,
					kernels.AgentWeight)
			}
		}
		for row := range part.rows {
			copy(v[part.at(row):], values[row*part.width:][:part.width])
		}
	}
	return v, nil
}

// weights returns the weights of a vector.
func (s Shape) weights(v []float32) Weights {
	var w Weights
	for _, part := range s.tensors(&w) {
		for row := range part.rows {
			*part.values = append(*part.values, v[part.at(row):][:part.width]...)
		}
	}
	return w
}

// drawWord is the third word of the counters of initial weights. Counters of dropout have smaller
// ones.
const drawWord = 1 << 31

// draw returns random weights: uniform within 1 over the root of the units, as torch.nn.GRUCell and
// torch.nn.Linear draw theirs. Rows of the embedding are as small as the weights; with PyTorch's
// deviation of 1 a training learns worse.
func (s Shape) draw(seed uint64) Weights {
	var w Weights
	key := [2]uint32{uint32(seed), uint32(seed >> 32)}
	bound := float32(1 / math.Sqrt(float64(s.Hidden)))
	for i, part := range s.tensors(&w) {
		values := make([]float32, part.rows*part.width)
		for k := range values {
			words := kernels.Philox(key, [4]uint32{uint32(k), uint32(i), drawWord, 0})
			values[k] = float32(float32(int32(words[0]>>8)-1<<23)*(1.0/(1<<23))) * bound
		}
		*part.values = values
	}
	return w
}
