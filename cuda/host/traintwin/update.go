package traintwin

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

func init() {
	twins.Register(trainset.Gather, gather)
	twins.Register(trainset.Adam, adam)
	twins.Register(trainset.Maxima, maxima)
	twins.Register(trainset.Table, table)
}

// sizes are the sizes of a vector of weights.
type sizes struct{ class, gates, readout, bias, all int }

func sizesOf(units, readoutRows, embedRows uint32) sizes {
	s := sizes{class: int(units), gates: trainset.GateWeights(int(units))}
	s.readout = s.gates + int(readoutRows)*s.class // behind the rows
	s.bias = s.readout + trainset.Padded(int(readoutRows))
	s.all = s.bias + int(embedRows)*s.class
	return s
}

// place is where a weight of a gate is in its matrix or among the biases.
type place struct {
	hidden, input bool // the matrix; neither: a bias
	gate          int
	at            int // in the matrix, or in the biases [2][3][P]
}

func (s *sizes) place(i int) place {
	square := s.class * s.class
	switch {
	case i < 3*square:
		return place{hidden: true, gate: i / square, at: i}
	case i < 6*square:
		return place{input: true, gate: i/square - 3, at: i - 3*square}
	}
	i -= 6 * square
	return place{gate: i / s.class % 3, at: i}
}

// gather is the twin of gather.cu.
func gather(b *twins.Block, a *trainset.GatherBound) {
	s := sizesOf(a.Units, a.ReadoutRows, a.EmbedRows)
	tiles := (s.all + trainset.SuperTile - 1) / trainset.SuperTile
	from, to := b.Part(uint64(tiles))
	for tile := from; tile < to; tile++ {
		first := int(tile) * trainset.SuperTile
		part := a.Gradient[first:min(first+trainset.SuperTile, s.all)]
		squares := make([]float32, len(part))
		for i := range part {
			part[i] = float32(gathered(a, &s, first+i) * a.Inverse)
			squares[i] = float32(part[i] * part[i])
		}
		a.Partials[tile] = foldSuper(squares)
	}
	if atomic.AddUint32(&a.Control[trainset.ControlTicket], 1) != uint32(b.Grid) {
		return
	}
	a.Control[trainset.ControlTicket] = 0
	clear(a.Control[trainset.ControlGates:][:4])
	norm := float32(math.Sqrt(float64(fold(a.Partials[:tiles]))))
	coefficient := float32(1)
	if a.Clip > 0 {
		coefficient = fmath.Min(a.Clip/(norm+1e-6), 1)
	}
	a.Control[trainset.ControlNorm] = math.Float32bits(norm)
	a.Control[trainset.ControlCoefficient] = math.Float32bits(coefficient)
}

// gathered is element i of the gradient before it is divided by the number of targets.
func gathered(a *trainset.GatherBound, s *sizes, i int) float32 {
	switch {
	case i >= s.bias:
		return float32(float32(int64(a.EmbedSums[i-s.bias])) * power(-trainset.EmbedBits))
	case i >= s.readout:
		return float32(float32(int64(a.ReadoutSums[i-s.gates])) * power(-trainset.GradientBits))
	case i >= s.gates:
		unit := float32(a.Keep * power(-trainset.GradientBits-kernels.AgentUnitBits))
		return float32(float32(int64(a.ReadoutSums[i-s.gates])) * unit)
	}
	p, bits := s.place(i), 0
	switch {
	case p.hidden:
		bits = -kernels.AgentUnitBits
	case p.input:
		bits = -kernels.AgentInputBits
	}
	if p.gate == 2 {
		bits++
	}
	sum := float32(0)
	for run := range int(a.Runs) {
		v := float32(int64(a.GateSums[run*s.gates+i]))
		sum += float32(v * power(bits-int(a.Exponents[run])))
	}
	return sum
}

// fold adds up values in the order of cuda/expr/ir: see ir.TileSize.
func fold(v []float32) float32 {
	for len(v) > 1 {
		var next []float32
		for from := 0; from < len(v); from += trainset.SuperTile {
			next = append(next, foldSuper(v[from:min(from+trainset.SuperTile, len(v))]))
		}
		v = next
	}
	return v[0]
}

func foldSuper(v []float32) float32 {
	const tile = trainset.SuperTile / 16
	var sums [16]float32
	for i := range sums {
		n := min(len(v), tile)
		sums[i], v = foldTile(v[:n]), v[n:]
	}
	return halve(sums[:])
}

func foldTile(v []float32) float32 {
	var sums [128]float32
	for i, x := range v {
		sums[i%128] += x
	}
	var lanes [32]float32
	for l := range lanes {
		lanes[l] = (sums[4*l] + sums[4*l+1]) + (sums[4*l+2] + sums[4*l+3])
	}
	return halve(lanes[:])
}

// halve adds the upper half to the lower half until there is one.
func halve(v []float32) float32 {
	for d := len(v) / 2; d > 0; d /= 2 {
		for i := range d {
			v[i] += v[i+d]
		}
	}
	return v[0]
}

// adam is the twin of adam.cu.
func adam(b *twins.Block, a *trainset.AdamBound) {
	norm := math.Float32frombits(a.Control[trainset.ControlNorm])
	if !(norm <= math.MaxFloat32) {
		return
	}
	coefficient := math.Float32frombits(a.Control[trainset.ControlCoefficient])
	from, to := b.Part(a.Count)
	for i := from; i < to; i++ {
		p := a.Weights[i]
		g := float32(a.Gradient[i]*coefficient) + float32(a.Decay*p)
		m := a.Mean[i]
		m = fmath.FMA(a.FreshMean, g-m, m)
		v := fmath.FMA(float32(a.FreshSquare*g), g, float32(a.Square[i]*a.Beta2))
		root := float32(math.Sqrt(float64(v)))/a.Root + a.Epsilon
		a.Mean[i], a.Square[i] = m, v
		a.Weights[i] = p - float32(a.Rate*m)/root
	}
}

// weightOf is a weight of a gate as the table has it, before its scale.
func weightOf(p place, v float32) float32 {
	if p.input {
		v = float32(v * (1 << (kernels.AgentUnitBits - kernels.AgentInputBits)))
	}
	if p.gate == 2 {
		v = float32(v * 2)
	}
	return v
}

// biasOf is bias i, 0 to 3, of unit j: of the gates r and z, and of the inputs' and the units' part
// of n. biases are [2][3][P].
func biasOf(biases []float32, class, i, j int) float64 {
	input := func(gate int) float64 { return float64(biases[gate*class+j]) }
	hidden := func(gate int) float64 { return float64(biases[(3+gate)*class+j]) }
	switch i {
	case 2:
		return 2 * input(2)
	case 3:
		return 2 * hidden(2)
	}
	return input(i) + hidden(i)
}

// upper returns the bits of the smallest float32 that is not less than |v|.
func upper(v float64) uint32 {
	v = math.Abs(v)
	f := float32(v)
	bits := math.Float32bits(f)
	if float64(f) < v {
		bits++
	}
	return bits
}

// maxima is the twin of maxima.cu.
func maxima(b *twins.Block, a *trainset.MaximaBound) {
	s := sizesOf(a.Units, a.ReadoutRows, 0)
	var most [4]uint32
	of := func(which int, v float64) { most[which] = max(most[which], upper(v)) }
	from, to := b.Part(uint64(s.bias))
	biases := 6 * s.class * s.class
	for i := int(from); i < int(to); i++ {
		v := a.Weights[i]
		switch {
		case i >= s.readout:
			of(3, float64(v))
		case i >= s.gates:
			of(2, float64(v))
		case i >= biases+4*s.class:
		case i >= biases:
			at := i - biases
			of(1, biasOf(a.Weights[biases:s.gates], s.class, at/s.class, at%s.class))
		default:
			of(0, float64(weightOf(s.place(i), v)))
		}
	}
	for i, v := range most {
		raise(&a.Control[trainset.ControlGates+i], v)
	}
}

// raise sets a word to v if v is larger.
func raise(to *uint32, v uint32) {
	for {
		old := atomic.LoadUint32(to)
		if v <= old || atomic.CompareAndSwapUint32(to, old, v) {
			return
		}
	}
}

// scaleOf is the exponent of weights and biases with these maxima, as bits of float32. Weights that
// are not finite have the least one.
func scaleOf(weight, bias uint32, mostWeight, mostBias float64) int {
	s := kernels.AgentMostScale
	for s > trainset.LeastScale && (math.Ldexp(float64(math.Float32frombits(weight)), s) > mostWeight ||
		math.Ldexp(float64(math.Float32frombits(bias)), s+biasBits) > mostBias) {
		s--
	}
	return s
}

// biasBits is what a bias has more than a weight: a product over 256.
const biasBits = kernels.AgentUnitBits - 8

// fixed is a value times 2^bits, rounded to even.
func fixed(v float64, bits int) int32 { return int32(math.RoundToEven(math.Ldexp(v, bits))) }

// table is the twin of table.cu.
func table(b *twins.Block, a *trainset.TableBound) {
	s := sizesOf(a.Units, a.ReadoutRows, a.EmbedRows)
	c := a.Control
	w := scaleOf(c[trainset.ControlGates], c[trainset.ControlGateBias], kernels.AgentGateWeight, kernels.AgentGateBias)
	wr := scaleOf(c[trainset.ControlReadout], c[trainset.ControlReadoutBias], kernels.AgentVoteWeight,
		kernels.AgentVoteBias)
	if b.Index == 0 {
		tableHead(a, w, wr)
	}
	P, biases := s.class, a.Weights[6*s.class*s.class:s.gates]
	gates := device.Of[int16](device.Bytes(a.Table[kernels.AgentTableWeights(P):]))
	rows := device.Of[int16](device.Bytes(a.Readout[trainset.ReadoutHead+trainset.Padded(int(a.ReadoutRows)):]))
	from, to := b.Part(uint64(s.all))
	for i := int(from); i < int(to); i++ {
		v := a.Weights[i]
		switch {
		case i >= s.bias:
			v = fmath.Clamp(v, kernels.AgentGRUInput)
			a.EmbedNumbers[i-s.bias] = int16(round(v, 1<<kernels.AgentInputBits))
		case i >= s.readout:
			a.Readout[trainset.ReadoutHead+i-s.readout] = uint32(fixed(float64(v), wr+biasBits))
		case i >= s.gates:
			rows[i-s.gates] = int16(fixed(float64(v), wr))
		case i >= 6*P*P:
			if at := i - 6*P*P; at < 4*P {
				which, j := at/P, at%P
				bias := biasOf(biases, P, which, j)
				a.Table[kernels.AgentTableBias+4*j+which] = uint32(fixed(bias, w+biasBits))
			}
		default:
			p := s.place(i)
			at := p.at / P * 2 * P // of the row of the unit
			if p.input {
				at += P
			}
			gates[at+i%P] = int16(fixed(float64(weightOf(p, v)), w))
		}
	}
}

// tableHead writes what a launch of Table writes once.
func tableHead(a *trainset.TableBound, w, wr int) {
	for i, v := range kernels.Logistic(w + biasBits) {
		a.Table[kernels.AgentTableLogistic+i] = math.Float32bits(v)
	}
	for i, v := range kernels.Logistic(wr + biasBits) {
		a.Readout[i] = math.Float32bits(v)
	}
	a.Control[trainset.ControlGateScale] = uint32(int32(w))
	a.Control[trainset.ControlReadoutScale] = uint32(int32(wr))
	for run := range int(a.Runs) {
		if most := a.Maxima[run]; most != 0 {
			e := trainset.FirstExponent - (int32(most>>23) - 127)
			a.Exponents[run] = max(-trainset.MostExponent, min(e, trainset.MostExponent))
		}
		a.Maxima[run] = 0
	}
}
