package cells

import (
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Embedding returns the cell with an embedding: an observation has one number, from 0 to rows-1,
// and the row of that number are the features. Only gru has one. The error is an ErrParameter.
func (a *Addressed) Embedding(rows int) (*Addressed, error) {
	if !a.isGRU() {
		return nil, fmt.Errorf("%w: %s: it has no embedding: use gru, or leave embed out", ErrParameter, a.Cell.Name)
	}
	if rows < 1 || rows > kernels.AgentMostRows {
		return nil, fmt.Errorf("%w: %s: an embedding of %d rows: use 1 to %d", ErrParameter, a.Cell.Name, rows,
			kernels.AgentMostRows)
	}
	with := *a
	with.Rows = rows
	return &with, nil
}

// Asking returns the cell with a readout by item: an observation may name an item, and is answered
// with the score of its agent for it, from 0 to 1. The cell has two candidates, and an agent votes
// for the second one if the mean of the rows gives it a score above one half. Only gru has items.
// The error is an ErrParameter.
func (a *Addressed) Asking(items int) (*Addressed, error) {
	if !a.isGRU() {
		return nil, fmt.Errorf("%w: %s: it has no items: use gru, or leave items out", ErrParameter, a.Cell.Name)
	}
	if items < 1 || items > kernels.AgentMostItems {
		return nil, fmt.Errorf("%w: %s: %d items: use 1 to %d", ErrParameter, a.Cell.Name, items,
			kernels.AgentMostItems)
	}
	if a.Candidates != 2 {
		return nil, fmt.Errorf("%w: %s: %d candidates, and with items an agent votes between 2: whether its mean "+
			"score is above one half", ErrParameter, a.Cell.Name, a.Candidates)
	}
	with := *a
	with.Items = items
	return &with, nil
}

// Width returns the number of values of an observation: the features, or the number of a row.
func (a *Addressed) Width() int {
	if a.Rows > 0 {
		return 1
	}
	return a.Features
}

// readouts returns the rows of the readout of a model.
func (a *Addressed) readouts() int {
	if a.Items > 0 {
		return a.Items
	}
	return a.Candidates
}

// DeviceWords returns the length of the part of a weights table that kernels read: the embedding,
// which is behind it, is read by the host.
func (a *Addressed) DeviceWords() int {
	switch {
	case a.Measures():
		return kernels.QuantumTableGates + kernels.QuantumGateWords*len(a.circuit.gates)
	case !a.isGRU():
		return 0
	case a.Items == 0:
		return kernels.AgentGRUTable(a.class())
	}
	first, n := a.ItemWords()
	return first + n
}

// TableWords returns the lengths that a weights table may have: with the embedding, or without it,
// where the embedding is random.
func (a *Addressed) TableWords() (with, without int) {
	n := a.DeviceWords()
	return n + a.Rows*a.Features, n
}

// Numbered reports whether a value is the number of a row of the embedding.
func (a *Addressed) Numbered(v float32) bool {
	return v >= 0 && v < float32(a.Rows) && v == float32(int32(v))
}

// LookUp appends the features of observations of a cell with an embedding to a slice, from their
// numbers. A value that is not Numbered has features of NaN, which a step refuses. table is a
// weights table; without an embedding in it the rows are random, by the seed, of mean 0 and
// deviation 1.
func (a *Addressed) LookUp(to []float32, numbers []float32, table []uint32, seed uint64) []float32 {
	own := device.Of[float32](device.Bytes(table[a.DeviceWords():]))
	for _, v := range numbers {
		switch {
		case !a.Numbered(v):
			for range a.Features {
				to = append(to, float32(math.NaN()))
			}
		case len(own) > 0:
			to = append(to, own[int(v)*a.Features:][:a.Features]...)
		default:
			r := newSource(seed, int(v))
			for range a.Features {
				to = append(to, r.spread(1))
			}
		}
	}
	return to
}

// ItemTable brings the readout by item of H units, weights [items][H] and bias [items], into fixed
// point, padded to the class; see kernels.AgentItemsTable. All are finite and at most 128.
func ItemTable(units int, weights, bias []float32) []uint32 {
	P, items := kernels.AgentHidden(units), len(bias)
	rows, biases := wide(weights), wide(bias)
	scale := scaleOf(rows, kernels.AgentVoteWeight, biases, kernels.AgentVoteBias)
	t := make([]uint32, kernels.AgentItemsTable(items, P))
	for i, c := range kernels.Logistic(scale + biasBits) {
		t[kernels.AgentItemsLogistic+i] = math.Float32bits(c)
	}
	fillBias(t[kernels.AgentItemsBias:], biases, scale)
	for k := range items {
		fill(t[kernels.AgentItemsReadout(items)+k*P/2:], rows[k*units:][:units], scale)
	}
	return t
}

// meanItem returns the readout of the votes of a cell with items, [2][units], and its biases:
// zeros, and the means of the rows and of their biases.
func meanItem(units int, rows, bias []float64) (readout, biases []float64) {
	readout, biases = make([]float64, 2*units), make([]float64, 2)
	for i, v := range rows {
		readout[units+i%units] += v
	}
	for k := range units {
		readout[units+k] /= float64(len(bias))
	}
	for _, v := range bias {
		biases[1] += v
	}
	biases[1] /= float64(len(bias))
	return readout, biases
}

func wide(v []float32) []float64 {
	to := make([]float64, len(v))
	for i, x := range v {
		to[i] = float64(x)
	}
	return to
}

// ScoreKernel returns the name of the kernel that computes the scores of a cell with items.
func (a *Addressed) ScoreKernel() string { return kernels.AgentGRUName("score", a.class(), a.elem()) }

// ItemWords returns the part of a weights table that is the table of the items.
func (a *Addressed) ItemWords() (first, n int) {
	return kernels.AgentGRUTable(a.class()), kernels.AgentItemsTable(a.Items, a.class())
}
