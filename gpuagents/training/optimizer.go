package training

import (
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
)

// Optimizer is Adam: it makes a gradient of the sums of a batch, and steps the weights.
type Optimizer struct {
	*memory
	adam                             Adam
	clip, keep                       float32
	mean, square, gradient, partials device.Buffer
}

func newOptimizer(m *memory, o *Options, keep float32) (*Optimizer, error) {
	p := &Optimizer{memory: m, adam: o.Adam, clip: o.Clip, keep: keep}
	size := 4 * int64(o.size())
	for _, b := range []struct {
		to    *device.Buffer
		bytes int64
	}{
		{&p.mean, size},
		{&p.square, size},
		{&p.gradient, size},
		{&p.partials, size/trainset.SuperTile + 4},
	} {
		var err error
		if *b.to, err = m.keep(b.bytes); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// power is b^n by squares, whose bits do not depend on a library.
func power(b float64, n uint64) float64 {
	v := 1.0
	for ; n > 0; n /= 2 {
		if n%2 == 1 {
			v *= b
		}
		b *= b
	}
	return v
}

// gather makes the gradient of the sums of a batch of some moments and targets.
func (p *Optimizer) gather(moments int, targets int64) error {
	return p.launch(trainset.Gather, p.threads(int64(p.size()), trainset.WideBlock), &trainset.GatherArgs{
		GateSums: p.gateSums(), ReadoutSums: p.readoutSums(), EmbedSums: p.embedSums(),
		Exponents: device.Ptr(p.exponents), Control: device.Ptr(p.control), Gradient: device.Ptr(p.gradient),
		Partials: device.Ptr(p.partials), Keep: p.keep, Inverse: 1 / float32(targets), Clip: p.clip,
		Units: uint32(p.class()), Runs: uint32(moments+trainset.Run-1) / trainset.Run,
		ReadoutRows: uint32(p.readoutRows()), EmbedRows: uint32(p.Rows),
	})
}

// adamShape is the shape of a launch of Adam over n weights: the blocks that a GPU runs at once.
func (p *Optimizer) adamShape(n int64) device.Geometry {
	g := p.threads(n, trainset.WideBlock)
	g.Grid = min(g.Grid, max(1, p.blocks*3/4))
	return g
}

// step steps the weights against the gradient. It is step number n, from 1 on.
func (p *Optimizer) step(n uint64) error {
	size := int64(p.size())
	beta1, beta2 := decimal(p.adam.Beta1), decimal(p.adam.Beta2)
	if err := p.launch(trainset.Adam, p.adamShape(size), &trainset.AdamArgs{
		Weights: device.Ptr(p.weights), Mean: device.Ptr(p.mean), Square: device.Ptr(p.square),
		Gradient: device.Ptr(p.gradient), Control: device.Ptr(p.control), Decay: p.adam.Decay,
		FreshMean: float32(1 - beta1), Beta2: p.adam.Beta2, FreshSquare: float32(1 - beta2),
		Rate: float32(decimal(p.adam.Rate) / (1 - power(beta1, n))), Root: float32(math.Sqrt(1 - power(beta2, n))),
		Epsilon: p.adam.Epsilon, Count: uint64(size),
	}); err != nil {
		return err
	}
	return p.tables()
}

// tables makes the tables of the weights.
func (p *Optimizer) tables() error {
	size, units, rows := int64(p.size()), uint32(p.class()), uint32(p.readoutRows())
	if err := p.launch(trainset.Maxima, p.threads(size, trainset.WideBlock), &trainset.MaximaArgs{
		Weights: device.Ptr(p.weights), Control: device.Ptr(p.control), Units: units, ReadoutRows: rows,
	}); err != nil {
		return err
	}
	return p.launch(trainset.Table, p.threads(size, trainset.WideBlock), &trainset.TableArgs{
		Weights: device.Ptr(p.weights), Control: device.Ptr(p.control), Table: device.Ptr(p.gateTable),
		Readout: device.Ptr(p.readoutTable), EmbedNumbers: device.Ptr(p.embedNumbers),
		Exponents: device.Ptr(p.exponents), Maxima: device.Ptr(p.maxima), Units: units, Runs: uint32(p.runs),
		ReadoutRows: rows, EmbedRows: uint32(p.Rows),
	})
}

// set writes the vectors of weights and of Adam, and the exponents, and makes the tables.
func (p *Optimizer) set(weights, mean, square []float32, exponents []int32) error {
	for _, b := range []struct {
		to    device.Buffer
		bytes []byte
	}{
		{p.weights, device.Bytes(weights)},
		{p.mean, device.Bytes(mean)},
		{p.square, device.Bytes(square)},
		{p.exponents, device.Bytes(exponents)},
		{p.maxima, make([]byte, 4*len(exponents))},
		{p.control, make([]byte, 4*trainset.ControlWords)},
	} {
		if err := b.to.Write(0, b.bytes); err != nil {
			return fmt.Errorf("write weights: %w", err)
		}
	}
	return p.tables()
}
