package lanes

import (
	"math"
	"unsafe"

	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// Number is a number of fixed point of 16 bits, 256*High + Low, with the bytes as signed numbers.
type Number struct{ High, Low int32 }

// pair is the number as a factor of a pair: the whole number by the high byte of the other factor,
// and its high byte by the other's low one. Products of low bytes are left out.
func (n Number) pair() int32 { return int32(uint16(256*n.High+n.Low)) | n.High<<16 }

// Weights are made by New.
type Weights struct {
	Hidden   int  // units of an agent, and as many inputs; a multiple of 8
	BF16     bool // units are rounded to bf16 after each step
	Logistic fmath.Logistic
	// UnitBits and InputBits are the bits behind the point of units and inputs.
	UnitBits, InputBits int
	Bias                []int32  // [Hidden][4]: reset, update, new by inputs, new by units
	Gates               []Number // [3][Hidden][2*Hidden]: reset, update, new; units first
	ReadoutBias         []int32  // [candidates]
	Readout             []Number // [candidates][Hidden]
}

// New returns a GRU with a copy of the weights, or nil where the processor has no AVX2 and FMA.
func New(w *Weights) *GRU {
	if !Available() {
		return nil
	}
	H := w.Hidden
	g := &GRU{
		hidden: H, bf16: w.BF16, wide: wide, candidates: len(w.ReadoutBias), bias: append([]int32(nil), w.Bias...),
		readBias: append([]int32(nil), w.ReadoutBias...), weights: make([]int32, 0, 6*H*H),
		readout: make([]int32, len(w.Readout)), units: make([]float32, 2*H*Width),
		pairs: make([]int32, 2*H*Width),
	}
	for j := range H {
		for k := range 2 * H {
			for gate := range 3 {
				g.weights = append(g.weights, w.Gates[(gate*H+j)*2*H+k].pair())
			}
		}
	}
	for i, n := range w.Readout {
		g.readout[i] = n.pair()
	}
	scale := func(bits int) uint32 { return math.Float32bits(float32(int(1) << bits)) }
	table := [constants]uint32{
		half: math.Float32bits(0.5), one: math.Float32bits(1), two: math.Float32bits(2),
		minusOne: math.Float32bits(-1), unitScale: scale(w.UnitBits), inputScale: scale(w.InputBits),
		magic: math.Float32bits(3 << 22), roundHigh: 128, lowHalf: 0xffff, halfMinus: 0x7fff, lowBit: 1,
		highHalf: 0xffff0000, mostNegated: 1 << 31,
	}
	for i, c := range w.Logistic {
		table[logistic0+i] = math.Float32bits(c)
	}
	for i, c := range table {
		for k := range g.table[i] {
			g.table[i][k] = c
		}
	}
	return g
}

// Load takes the rows of Width agents: the units and the inputs of each, one agent after the other.
func (g *GRU) Load(rows []float32) {
	n := 2 * g.hidden
	_ = rows[n*Width-1]
	for a := 0; a < Width; a += 8 {
		for k := 0; k < n; k += 8 {
			transpose(&call{
				from: unsafe.Pointer(&rows[a*n+k]), fromStep: 4 * n,
				to: unsafe.Pointer(&g.units[k*Width+a]), toStep: 4 * Width,
			})
		}
	}
	g.fix(g.units[:g.hidden*Width], 0, unitScale)
	g.fix(g.units[g.hidden*Width:], g.hidden*Width, inputScale)
}

func (g *GRU) fix(values []float32, at, scale int) {
	fixPairs(&call{
		from: unsafe.Pointer(&values[0]), to: unsafe.Pointer(&g.pairs[at]), table: unsafe.Pointer(&g.table),
		scale: unsafe.Pointer(&g.table[scale]), count: len(values) / 8,
	})
}

// Step updates the units of the agents n times.
func (g *GRU) Step(n int) {
	c := &call{
		pairs: unsafe.Pointer(&g.pairs[0]), weights: unsafe.Pointer(&g.weights[0]), bias: unsafe.Pointer(&g.bias[0]),
		table: unsafe.Pointer(&g.table), hidden: g.hidden, count: g.hidden * Width / 8,
		units: unsafe.Pointer(&g.units[0]), next: unsafe.Pointer(&g.units[0]),
	}
	for range n {
		// A unit is read only where it is written, and the sums are of the pairs.
		if g.wide {
			stepUnits512(c)
		} else {
			stepUnits(c)
		}
		if g.bf16 {
			roundUnits(c)
		}
		g.fix(g.units[:g.hidden*Width], 0, unitScale)
	}
}

// Choose returns the candidate with the largest readout of each agent, of equal ones the first. It
// is valid until the next call.
func (g *GRU) Choose() *[Width]int32 {
	choose(&call{
		pairs: unsafe.Pointer(&g.pairs[0]), weights: unsafe.Pointer(&g.readout[0]),
		bias: unsafe.Pointer(&g.readBias[0]), table: unsafe.Pointer(&g.table), hidden: g.hidden,
		choices: g.candidates, best: unsafe.Pointer(&g.best),
	})
	return &g.best
}

// Store writes the units back to the rows of Load; inputs stay.
func (g *GRU) Store(rows []float32) {
	n := 2 * g.hidden
	_ = rows[n*Width-1]
	for a := 0; a < Width; a += 8 {
		for k := 0; k < g.hidden; k += 8 {
			transpose(&call{
				from: unsafe.Pointer(&g.units[k*Width+a]), fromStep: 4 * Width,
				to: unsafe.Pointer(&rows[a*n+k]), toStep: 4 * n,
			})
		}
	}
}
