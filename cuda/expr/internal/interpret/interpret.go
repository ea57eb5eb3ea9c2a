// Package interpret computes the graph of a program on the cores of the host.
//
// It is what a device does that compiles nothing, and the oracle that the kernels of other devices
// are compared with: it defines the bits of every operation and the order of every fold. Values are
// in the form of registers, 32 bits for each element: floats as their bits, bf16 as f32, bools as 0
// or 1.
package interpret

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// Run executes a graph and returns the stored form of its outputs, in their order. lengths has the
// length of each symbol. Lengths of filters are 0, and Run sets them. inputs has the stored form of
// each input, with at least as many bytes as its length says; scalars are stored as their type
// says. Run does not change the inputs, and the outputs are new memory. It uses all cores, and
// returns when its goroutines have ended. An error is the cause of the end of ctx, which is checked
// between blocks.
func Run(ctx context.Context, g *ir.Graph, lengths []int64, inputs [][]byte) ([][]byte, error) {
	m := &machine{ctx: ctx, g: g, lengths: lengths, inputs: inputs, done: map[*ir.Node][]uint32{}}
	out := make([][]byte, len(g.Outputs))
	for i, o := range g.Outputs {
		v := m.whole(o.Node)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		out[i] = store(o.Node.Type, v)
	}
	return out, nil
}

// store returns the stored form of values, for which it may use their memory. All NaN of f32 get
// one pattern.
func store(t ir.Type, v []uint32) []byte {
	switch t {
	case ir.U8, ir.Bool:
		out := make([]byte, len(v))
		for i, x := range v {
			out[i] = byte(x)
		}
		return out
	case ir.BF16:
		out := make([]uint16, len(v))
		for i, x := range v {
			out[i] = uint16(math.Float32bits(ir.RoundBF16(math.Float32frombits(x))) >> 16)
		}
		return device.Bytes(out)
	case ir.F32:
		for i, x := range device.Of[float32](device.Bytes(v)) {
			if x != x {
				v[i] = 0x7fc00000
			}
		}
	}
	return device.Bytes(v)
}

// machine is one execution on the host. Nodes that need whole arrays (folds, scans, filters,
// products and tables) are computed one after the other, in the order of the graph. All others are
// computed for blocks of elements by several goroutines, which only read the machine.
type machine struct {
	ctx     context.Context //nolint:containedctx // the context of one call
	g       *ir.Graph
	lengths []int64
	inputs  [][]byte
	done    map[*ir.Node][]uint32 // nodes that are computed as a whole, in registers' form
}

// whole returns all elements of a node in a new slice. Only the goroutine of Run calls it.
func (m *machine) whole(n *ir.Node) []uint32 {
	m.prepare(n)
	if v, found := m.done[n]; found {
		return append([]uint32(nil), v...)
	}
	out := make([]uint32, m.lengths[n.Lead]*n.Width)
	m.blocks(int64(len(out)), ir.TileSize, func(from, to int64) {
		b := m.block(n.Width, from, to)
		copy(out[from:to], b.value(n))
	})
	return out
}

// blocks calls f for blocks of n elements on all cores, each block once and in no order, and
// returns when all calls have. f is not called any more when the context has ended.
func (m *machine) blocks(n, size int64, f func(from, to int64)) {
	var next atomic.Int64
	work := func() {
		for {
			from := (next.Add(1) - 1) * size
			if from >= n || m.ctx.Err() != nil {
				return
			}
			f(from, min(from+size, n))
		}
	}
	// Small arrays are computed by the caller alone.
	workers := min(int64(runtime.GOMAXPROCS(0)), (n+size-1)/size)
	if workers <= 1 {
		work()
		return
	}
	var wait sync.WaitGroup
	for range workers {
		wait.Go(work)
	}
	wait.Wait()
}

// prepare computes the nodes below n, and n, that elements of a block cannot be computed from. A
// filter is computed before anything that has its length.
func (m *machine) prepare(n *ir.Node) {
	needed := map[*ir.Node]bool{}
	var mark func(n *ir.Node)
	mark = func(n *ir.Node) {
		if needed[n] || m.done[n] != nil {
			return
		}
		needed[n] = true
		for _, a := range n.Args {
			mark(a)
		}
		if s := m.g.Symbols[n.Lead]; s.Of != nil { // its length comes of the filter
			mark(s.Of)
		}
	}
	mark(n)
	for _, n := range m.g.Nodes { // arguments come first
		if !needed[n] {
			continue
		}
		switch n.Op {
		case ir.OpReduce:
			m.done[n] = m.reduce(n)
		case ir.OpRows:
			m.done[n] = m.rows(n)
		case ir.OpScan:
			v := m.whole(n.Args[0])
			scanSums(n.Type, v, v)
			m.done[n] = v
		case ir.OpCompact:
			m.done[n] = m.compact(n)
		case ir.OpMatMul:
			m.done[n] = m.product(n)
		case ir.OpOuter:
			m.done[n] = m.outer(n)
		case ir.OpColumns:
			m.done[n] = m.columns(n)
		case ir.OpScatter:
			m.done[n] = m.scatter(n)
		case ir.OpGather:
			if t := n.Args[0]; m.done[t] == nil {
				m.done[t] = m.whole(t)
			}
		}
	}
}

// reduce folds all elements. A block is a super tile, so that the order does not depend on the
// cores.
func (m *machine) reduce(n *ir.Node) []uint32 {
	of, f := n.Args[0], ir.Fold(n.Imm)
	count := m.lengths[of.Lead] * of.Width
	partials := make([]uint32, max(1, (count+ir.SuperSize-1)/ir.SuperSize))
	// The fold of no element.
	partials[0] = ir.Identity(n.Type, f)
	m.blocks(count, ir.SuperSize, func(from, to int64) {
		var tiles [ir.SuperTiles]uint32
		for j := range tiles {
			tiles[j] = ir.Identity(n.Type, f)
			if at := from + int64(j)*ir.TileSize; at < to {
				tiles[j] = foldTile(n.Type, f, m.block(of.Width, at, min(at+ir.TileSize, to)).value(of))
			}
		}
		partials[from/ir.SuperSize] = foldTiles(n.Type, f, tiles)
	})
	v := foldPartials(n.Type, f, partials)
	// The identity of float sums is -0.
	if count == 0 && f == ir.FoldSum {
		v = 0
	}
	return []uint32{v}
}

// rows folds each row, which has at most ir.SuperSize elements.
func (m *machine) rows(n *ir.Node) []uint32 {
	of, f := n.Args[0], ir.Fold(n.Imm)
	width := of.Width
	out := make([]uint32, m.lengths[n.Lead])
	m.blocks(int64(len(out)), max(1, ir.TileSize/width), func(from, to int64) {
		v := m.block(width, from*width, to*width).value(of)
		for row := from; row < to; row++ {
			out[row] = foldSuper(n.Type, f, v[(row-from)*width:(row-from+1)*width])
		}
	})
	return out
}

// compact returns the elements that the predicate keeps, and sets the length of their symbol.
// Filters of one predicate set it to the same.
func (m *machine) compact(n *ir.Node) []uint32 {
	keep := m.whole(n.Args[1])
	var out []uint32
	for from := 0; from < len(keep); from += ir.TileSize {
		to := min(from+ir.TileSize, len(keep))
		v := m.block(1, int64(from), int64(to)).value(n.Args[0])
		for i, k := range keep[from:to] {
			if k != 0 {
				out = append(out, v[i])
			}
		}
	}
	m.lengths[n.Lead] = int64(len(out))
	// An empty result is known, too: done has no entry for what is not.
	if out == nil {
		out = []uint32{}
	}
	return out
}

// product multiplies matrices. Sums are in order. Small products are sums of fused multiplications
// and additions, as in their kernels. On a device the library computes larger products, so results
// may differ in the last bits.
func (m *machine) product(n *ir.Node) []uint32 {
	a, b := device.Of[float32](device.Bytes(m.whole(n.Args[0]))), device.Of[float32](device.Bytes(m.whole(n.Args[1])))
	rows, inner, width := m.lengths[n.Lead], n.Args[0].Width, n.Width
	if n.Imm == ir.Transposed {
		b = transpose(b, width, inner)
	}
	out := make([]float32, rows*width)
	// The sums of a row are added factor by factor, so that the loop inside reads rows of b.
	small := n.SmallProduct()
	m.blocks(rows, 16, func(from, to int64) {
		for row := from; row < to; row++ {
			sums := out[row*width : (row+1)*width]
			for k := range inner {
				x, line := a[row*inner+k], b[k*width:(k+1)*width]
				for j, y := range line {
					if small {
						sums[j] = fmath.FMA(x, y, sums[j])
					} else {
						sums[j] += float32(x * y)
					}
				}
			}
		}
	})
	return append([]uint32{}, device.Of[uint32](device.Bytes(out))...)
}

// transpose returns the transpose of a matrix.
func transpose(v []float32, rows, columns int64) []float32 {
	out := make([]float32, len(v))
	for i := range rows {
		for j := range columns {
			out[j*rows+i] = v[i*columns+j]
		}
	}
	return out
}

// block has the elements from..to of the domain of rows of a width, with the values of nodes there.
type block struct {
	m        *machine
	width    int64
	from, to int64
	values   map[*ir.Node][]uint32 // of nodes in the block, each computed once
}

func (m *machine) block(width, from, to int64) *block {
	return &block{m: m, width: width, from: from, to: to, values: map[*ir.Node][]uint32{}}
}

// value returns the elements of a node in the block; the caller does not change them. A block
// belongs to one goroutine.
func (b *block) value(n *ir.Node) []uint32 {
	if v, found := b.values[n]; found {
		return v
	}
	v := make([]uint32, b.to-b.from)
	b.compute(n, v)
	b.values[n] = v
	return v
}

// place calls f with the index of the node's element for each element of the block. Values without
// a leading dimension are repeated for every row, and values of one element a row for every element
// of it.
func (b *block) place(n *ir.Node, f func(i int, at int64)) {
	for i := range int(b.to - b.from) {
		e := b.from + int64(i)
		switch {
		case n.Lead == 0 && n.Width == 1:
			e = 0
		case n.Lead == 0:
			e %= b.width
		case n.Width == 1:
			e /= b.width
		}
		f(i, e)
	}
}

// compute puts the elements of a node into out, which is 0. Nodes below it that need whole arrays
// are done.
func (b *block) compute(n *ir.Node, out []uint32) {
	if whole, found := b.m.done[n]; found {
		b.place(n, func(i int, at int64) { out[i] = whole[at] })
		return
	}
	switch n.Op {
	case ir.OpInput:
		b.load(n, out)
		return
	case ir.OpConst:
		for i := range out {
			out[i] = uint32(n.Imm)
		}
		return
	case ir.OpIota:
		b.place(n, func(i int, at int64) { out[i] = uint32(at) })
		return
	case ir.OpRandom:
		b.place(n, func(i int, at int64) { out[i] = ir.Philox(uint64(at), uint32(n.Imm), uint32(n.Imm>>32)) })
		return
	case ir.OpLength:
		for i := range out {
			out[i] = math.Float32bits(float32(b.m.lengths[n.Imm]))
		}
		return
	case ir.OpGather:
		table, index := b.m.done[n.Args[0]], b.value(n.Args[1])
		// An index outside of the table is the nearest one inside; an empty table has zeros.
		for i, at := range index {
			if len(table) == 0 {
				out[i] = 0
				continue
			}
			out[i] = table[nearest(n.Args[1].Type, at, len(table))]
		}
		return
	}
	var v [3][]uint32
	for i, a := range n.Args {
		v[i] = b.value(a)
	}
	n.Form().Compute(v, out)
	if n.Cut() {
		for i := range out {
			out[i] &= 0xff
		}
	}
}

// load reads the elements of an input. Inputs may start at any byte, so that no element is read as
// a word.
func (b *block) load(n *ir.Node, out []uint32) {
	data := b.m.inputs[n.Imm]
	// Arrays of the shape of the block are copied at once.
	direct := n.Width == b.width && n.Lead != 0
	switch n.Type {
	case ir.U8:
		b.place(n, func(i int, at int64) { out[i] = uint32(data[at]) })
	case ir.Bool:
		b.place(n, func(i int, at int64) {
			if data[at] != 0 {
				out[i] = 1
			}
		})
	case ir.BF16:
		b.place(n, func(i int, at int64) { out[i] = uint32(data[2*at])<<16 | uint32(data[2*at+1])<<24 })
	default:
		if direct {
			copy(device.Bytes(out), data[4*b.from:4*b.to])
			return
		}
		b.place(n, func(i int, at int64) { copy(device.Bytes(out[i:i+1]), data[4*at:4*at+4]) })
	}
}
