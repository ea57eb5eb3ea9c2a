// Package languagetwin has the Go twins of the kernels of language models
// (cuda/kernels/languageset). RFC 0076 says what each rounds and in which order it adds.
package languagetwin

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	set "github.com/exoswarm/exoswarm/cuda/kernels/languageset"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
	"github.com/exoswarm/exoswarm/internal/base/quant"
)

func init() {
	for _, kind := range set.Types() {
		twins.Register(set.Name(set.Embed, kind), func(b *twins.Block, a *set.EmbedBound) { embed(b, a, kind) })
		twins.Register(set.Name(set.Product, kind), func(b *twins.Block, a *set.ProductBound) { product(b, a, kind) })
	}
	twins.Register(set.Norm, norm)
	twins.Register(set.Rotate, rotate)
	twins.Register(set.Gate, gate)
}

// matrix reads rows of weights as float32.
type matrix struct {
	kind    string
	data    []byte
	columns int
	bytes   int
	decoded []float32 // of types other than F32
}

func newMatrix(kind string, data []byte, columns uint32) *matrix {
	elements, bytes, _ := quant.Block(kind)
	m := &matrix{kind: kind, data: data, columns: int(columns), bytes: int(int64(columns) / elements * bytes)}
	if kind != quant.F32 {
		m.decoded = make([]float32, columns)
	}
	return m
}

// row returns a row, which is valid until the next call.
func (m *matrix) row(i int) []float32 {
	data := m.data[i*m.bytes:][:m.bytes]
	switch m.kind {
	case quant.F32:
		return device.Of[float32](data)
	case quant.BF16:
		for k, v := range device.Of[uint16](data) {
			m.decoded[k] = device.FromBF16(v)
		}
	default: // whole blocks, which the caller of a launch makes sure of
		if err := quant.Decode(m.kind, m.decoded, data); err != nil {
			panic(err)
		}
	}
	return m.decoded
}

// embed is the twin of embed.cu.
func embed(b *twins.Block, a *set.EmbedBound, kind string) {
	table := newMatrix(kind, a.Table, a.Columns)
	from, to := b.Part(uint64(a.Count))
	for row := from; row < to; row++ {
		copy(a.X[row*uint64(a.Columns):], table.row(int(a.Rows[set.RowWords*row])))
	}
}

// product is the twin of product.cu. A block has some of the outputs of all rows.
func product(b *twins.Block, a *set.ProductBound, kind string) {
	weights, n := newMatrix(kind, a.Weights, a.Columns), int(a.Columns)
	from, to := b.Part(uint64(a.Outputs))
	for o := from; o < to; o++ {
		w := weights.row(int(o))
		for row := range int(a.Count) {
			v, at := lanes.Dot(w, a.X[row*n:][:n]), row*int(a.Outputs)+int(o)
			if a.Flags&set.ProductBias != 0 {
				v += a.Bias[o]
			}
			if a.Flags&set.ProductAdd != 0 {
				v += a.Y[at]
			}
			a.Y[at] = v
		}
	}
}

// normOf returns 1 / sqrt(mean of squares + epsilon).
func normOf(x []float32, epsilon float32) float32 {
	mean := lanes.Dot(x, x) / float32(len(x))
	return 1 / float32(math.Sqrt(float64(mean+epsilon)))
}

// norm is the twin of norm.cu.
func norm(b *twins.Block, a *set.NormBound) {
	n := int(a.Columns)
	from, to := b.Part(uint64(a.Count))
	for row := int(from); row < int(to); row++ {
		source := row
		if a.Picked != 0 {
			source = int(a.Picks[row])
		}
		x, y := a.X[source*n:][:n], a.Y[row*n:][:n]
		by := normOf(x, a.Epsilon)
		for i, v := range x {
			y[i] = float32(float32(v*by) * a.Weights[i])
		}
	}
}

// pages is where the pages of agents are.
type pages struct {
	pool                    []float32
	frames                  []uint32
	frame                   int // values of a frame
	positions, layer, width int
}

func newPages(pool []byte, frames []uint32, frameBytes uint64, positions, layer, width uint32) *pages {
	return &pages{
		device.Of[float32](pool), frames, int(frameBytes / 4), int(positions), int(layer), int(width),
	}
}

// at returns the values of a position: keys with which of 0, values with 1.
func (p *pages) at(first uint32, position, which int) []float32 {
	frame := int(p.frames[int(first)+position/p.positions])
	return p.pool[frame*p.frame+((2*p.layer+which)*p.positions+position%p.positions)*p.width:][:p.width]
}

// rotate is the twin of rotate.cu.
func rotate(b *twins.Block, a *set.RotateBound) {
	heads, kv, head := int(a.Heads), int(a.KvHeads), int(a.Head)
	to := newPages(a.Pool, a.Frames, a.FrameBytes, a.Positions, a.Layer, a.KvHeads*a.Head)
	normed := make([]float32, head)
	from, end := b.Part(uint64(a.Count))
	for row := int(from); row < int(end); row++ {
		of := a.Rows[set.RowWords*row:][:set.RowWords]
		turns := a.Turns[int(of[1])*head:][:head]
		turn := func(to, from, weights []float32) {
			copy(normed, from)
			if a.Flags&set.RotateNorms != 0 {
				by := normOf(from, a.Epsilon)
				for i, v := range from {
					normed[i] = float32(float32(v*by) * weights[i])
				}
			}
			for pair := range head / 2 {
				x, y := pair, pair+head/2
				if a.Flags&set.RotatePairs != 0 {
					x, y = 2*pair, 2*pair+1
				}
				c, s := turns[2*pair], turns[2*pair+1]
				to[x] = float32(normed[x]*c) - float32(normed[y]*s)
				to[y] = float32(normed[y]*c) + float32(normed[x]*s)
			}
		}
		for h := range heads {
			q := a.Q[(row*heads+h)*head:][:head]
			turn(q, q, a.QNorm)
		}
		keys := to.at(of[2], int(of[1]), 0)
		for h := range kv {
			turn(keys[h*head:][:head], a.K[(row*kv+h)*head:][:head], a.KNorm)
		}
		copy(to.at(of[2], int(of[1]), 1), a.V[row*kv*head:])
	}
}

// gate is the twin of gate.cu.
func gate(b *twins.Block, a *set.GateBound) {
	from, to := b.Part(a.Count)
	for i, x := range a.Gate[from:to] {
		i := from + uint64(i)
		a.Gate[i] = float32(x / (1 + fmath.PowerOfE(0-x)) * a.Up[i])
	}
}
