package expr

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/fmath"
)

// interpretGraph executes a program on the cores of the host, and returns the stored form of its
// outputs, in their order. inputs has the stored form of each input.
func interpretGraph(ctx context.Context, g *Graph, lengths []int64, inputs [][]byte) ([][]byte, error) {
	m := &machine{ctx: ctx, g: g, lengths: lengths, inputs: inputs, done: map[*Node][]uint32{}}
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

// store returns the stored form of values.
func store(t Type, v []uint32) []byte {
	switch t {
	case U8, Bool:
		out := make([]byte, len(v))
		for i, x := range v {
			out[i] = byte(x)
		}
		return out
	case BF16:
		out := make([]uint16, len(v))
		for i, x := range v {
			out[i] = toBF16(math.Float32frombits(x))
		}
		return device.Bytes(out)
	case F32:
		for i, x := range device.Of[float32](device.Bytes(v)) {
			if x != x {
				v[i] = 0x7fc00000
			}
		}
	}
	return device.Bytes(v)
}

// machine is one execution on the host.
type machine struct {
	ctx     context.Context //nolint:containedctx // the context of one call
	g       *Graph
	lengths []int64
	inputs  [][]byte
	done    map[*Node][]uint32 // nodes that are computed as a whole, in registers' form
}

// whole returns all elements of a node in a slice of its own.
func (m *machine) whole(n *Node) []uint32 {
	m.prepare(n)
	if v, found := m.done[n]; found {
		return append([]uint32(nil), v...)
	}
	out := make([]uint32, m.lengths[n.Lead]*n.Width)
	m.blocks(int64(len(out)), TileSize, func(from, to int64) {
		b := m.block(n.Width, from, to)
		copy(out[from:to], b.value(n))
	})
	return out
}

// blocks calls f for blocks of n elements on all cores.
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

// prepare computes the nodes below n, and n, that elements of a block cannot be computed from.
func (m *machine) prepare(n *Node) {
	needed := map[*Node]bool{}
	var mark func(n *Node)
	mark = func(n *Node) {
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
		case OpReduce:
			m.done[n] = m.reduce(n)
		case OpRows:
			m.done[n] = m.rows(n)
		case OpScan:
			v := m.whole(n.Args[0])
			scanSums(n.Type, v, v)
			m.done[n] = v
		case OpCompact:
			m.done[n] = m.compact(n)
		case OpMatMul:
			m.done[n] = m.product(n)
		case OpGather:
			if t := n.Args[0]; m.done[t] == nil {
				m.done[t] = m.whole(t)
			}
		}
	}
}

func (m *machine) reduce(n *Node) []uint32 {
	of, f := n.Args[0], Fold(n.Imm)
	count := m.lengths[of.Lead] * of.Width
	partials := make([]uint32, max(1, (count+SuperSize-1)/SuperSize))
	partials[0] = Identity(n.Type, f)
	m.blocks(count, SuperSize, func(from, to int64) {
		var tiles [SuperTiles]uint32
		for j := range tiles {
			tiles[j] = Identity(n.Type, f)
			if at := from + int64(j)*TileSize; at < to {
				tiles[j] = foldTile(n.Type, f, m.block(of.Width, at, min(at+TileSize, to)).value(of))
			}
		}
		partials[from/SuperSize] = foldTiles(n.Type, f, tiles)
	})
	v := foldPartials(n.Type, f, partials)
	if count == 0 && f == FoldSum {
		v = 0
	}
	return []uint32{v}
}

func (m *machine) rows(n *Node) []uint32 {
	of, f := n.Args[0], Fold(n.Imm)
	width := of.Width
	out := make([]uint32, m.lengths[n.Lead])
	m.blocks(int64(len(out)), max(1, TileSize/width), func(from, to int64) {
		v := m.block(width, from*width, to*width).value(of)
		for row := from; row < to; row++ {
			out[row] = foldSuper(n.Type, f, v[(row-from)*width:(row-from+1)*width])
		}
	})
	return out
}

func (m *machine) compact(n *Node) []uint32 {
	keep := m.whole(n.Args[1])
	var out []uint32
	for from := 0; from < len(keep); from += TileSize {
		to := min(from+TileSize, len(keep))
		v := m.block(1, int64(from), int64(to)).value(n.Args[0])
		for i, k := range keep[from:to] {
			if k != 0 {
				out = append(out, v[i])
			}
		}
	}
	m.lengths[n.Lead] = int64(len(out))
	if out == nil {
		out = []uint32{}
	}
	return out
}

func (m *machine) product(n *Node) []uint32 {
	a, b := device.Of[float32](
		device.Bytes(m.whole(n.Args[0])),
	), device.Of[float32](
		device.Bytes(m.whole(n.Args[1])),
	)
	rows, inner, width := m.lengths[n.Lead], n.Args[0].Width, n.Width
	out := make([]float32, rows*width)
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

// block is the elements from..to of the domain of rows of a width, with the values of nodes there.
type block struct {
	m        *machine
	width    int64
	from, to int64
	values   map[*Node][]uint32
}

func (m *machine) block(width, from, to int64) *block {
	return &block{m: m, width: width, from: from, to: to, values: map[*Node][]uint32{}}
}

// value returns the elements of a node in the block; the caller does not change them.
func (b *block) value(n *Node) []uint32 {
	if v, found := b.values[n]; found {
		return v
	}
	v := make([]uint32, b.to-b.from)
	b.compute(n, v)
	b.values[n] = v
	return v
}

// place calls f with the index of the node's element for each element of the block.
func (b *block) place(n *Node, f func(i int, at int64)) {
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

func (b *block) compute(n *Node, out []uint32) {
	if whole, found := b.m.done[n]; found {
		b.place(n, func(i int, at int64) { out[i] = whole[at] })
		return
	}
	switch n.Op {
	case OpInput:
		b.load(n, out)
		return
	case OpConst:
		for i := range out {
			out[i] = uint32(n.Imm)
		}
		return
	case OpIota:
		b.place(n, func(i int, at int64) { out[i] = uint32(at) })
		return
	case OpRandom:
		b.place(n, func(i int, at int64) { out[i] = philox(uint64(at), uint32(n.Imm), uint32(n.Imm>>32)) })
		return
	case OpLength:
		for i := range out {
			out[i] = math.Float32bits(float32(b.m.lengths[n.Imm]))
		}
		return
	case OpGather:
		table, index := b.m.done[n.Args[0]], b.value(n.Args[1])
		for i, at := range index {
			if len(table) == 0 {
				out[i] = 0
				continue
			}
			last := int64(len(table) - 1)
			j := int64(at)
			if n.Args[1].Type == I32 {
				j = int64(int32(at))
			}
			out[i] = table[max(0, min(j, last))]
		}
		return
	}
	var v [3][]uint32
	for i, a := range n.Args {
		v[i] = b.value(a)
	}
	switch len(n.Args) {
	case 1:
		one(n, v[0], out)
	case 2:
		two(n, v[0], v[1], out)
	case 3:
		for i, c := range v[0] {
			out[i] = v[2][i]
			if c != 0 {
				out[i] = v[1][i]
			}
		}
	}
}

// load reads the elements of an input.
func (b *block) load(n *Node, out []uint32) {
	data := b.m.inputs[n.Imm]
	direct := n.Width == b.width && n.Lead != 0
	switch n.Type {
	case U8:
		b.place(n, func(i int, at int64) { out[i] = uint32(data[at]) })
	case Bool:
		b.place(n, func(i int, at int64) {
			if data[at] != 0 {
				out[i] = 1
			}
		})
	case BF16:
		b.place(n, func(i int, at int64) { out[i] = uint32(data[2*at])<<16 | uint32(data[2*at+1])<<24 })
	default:
		if direct {
			copy(device.Bytes(out), data[4*b.from:4*b.to])
			return
		}
		b.place(n, func(i int, at int64) { copy(device.Bytes(out[i:i+1]), data[4*at:4*at+4]) })
	}
}

// truth is 1 or 0.
func truth(v bool) uint32 {
	if v {
		return 1
	}
	return 0
}

// one computes an operation of one operand.
func one(n *Node, v, out []uint32) {
	if n.Op == OpCast {
		convert(n.Type, n.Args[0].Type, v, out)
		return
	}
	if n.Type == F32 {
		var fn func(float32) float32
		switch n.Op {
		case OpSqrt:
			fn = func(x float32) float32 { return float32(math.Sqrt(float64(x))) }
		case OpExp:
			fn = exp32
		case OpLog:
			fn = log32
		case OpTanh:
			fn = tanh32
		case OpFloor:
			fn = floor32
		case OpAbs:
			for i, x := range v {
				out[i] = x &^ (1 << 31)
			}
			return
		case OpNeg:
			for i, x := range v {
				out[i] = x ^ 1<<31
			}
			return
		}
		for i, x := range v {
			out[i] = math.Float32bits(fn(math.Float32frombits(x)))
		}
		return
	}
	for i, x := range v {
		switch n.Op {
		case OpNeg:
			x = -x
		case OpAbs:
			if int32(x) < 0 {
				x = -x
			}
		case OpNot:
			x ^= 1
		case OpInv:
			x = ^x
		}
		out[i] = narrow(n.Type, x)
	}
}

// narrow cuts the bits that a type does not have.
func narrow(t Type, v uint32) uint32 {
	if t == U8 {
		return v & 0xff
	}
	return v
}

func convert(to, from Type, v, out []uint32) {
	of := math.Float32frombits
	for i, x := range v {
		switch {
		case from.Float() && to == F32:
		case from.Float() && to == BF16:
			x = math.Float32bits(roundBF16(of(x)))
		case from.Float() && to == I32:
			x = uint32(toInt(of(x)))
		case from.Float() && to == U32:
			x = toUint(of(x))
		case from.Float() && to == U8:
			x = toByte(of(x))
		case from.Float():
			x = truth(of(x) != 0)
		case to == Bool:
			x = truth(x != 0)
		case to.Float():
			f := float32(x)
			if from == I32 {
				f = float32(int32(x))
			}
			if to == BF16 {
				f = roundBF16(f)
			}
			x = math.Float32bits(f)
		default:
			x = narrow(to, x)
		}
		out[i] = x
	}
}

// two computes an operation of two operands.
func two(n *Node, a, b, out []uint32) {
	switch t := n.Args[0].Type; t {
	case F32:
		twoFloats(n.Op, device.Of[float32](device.Bytes(a)), device.Of[float32](device.Bytes(b)), out)
	case I32:
		for i := range out {
			out[i] = twoInts(n.Op, int32(a[i]), int32(b[i]))
		}
	default:
		for i := range out {
			out[i] = narrow(t, twoUints(n.Op, a[i], b[i]))
		}
	}
}

func twoFloats(o Op, a, b []float32, out []uint32) {
	f := device.Of[float32](device.Bytes(out))
	switch o {
	case OpAdd:
		for i, x := range a {
			f[i] = x + b[i]
		}
	case OpSub:
		for i, x := range a {
			f[i] = x - b[i]
		}
	case OpMul:
		for i, x := range a {
			f[i] = x * b[i]
		}
	case OpDiv:
		for i, x := range a {
			f[i] = x / b[i]
		}
	case OpMin:
		for i, x := range a {
			f[i] = min32(x, b[i])
		}
	case OpMax:
		for i, x := range a {
			f[i] = max32(x, b[i])
		}
	default:
		for i, x := range a {
			y := b[i]
			out[i] = truth(o == OpLess && x < y || o == OpLessEqual && x <= y || o == OpEqual && x == y ||
				o == OpNotEqual && x != y)
		}
	}
}

func twoInts(o Op, a, b int32) uint32 {
	switch o {
	case OpDiv:
		return uint32(divInt(a, b))
	case OpRem:
		return uint32(remInt(a, b))
	case OpMin:
		return uint32(min(a, b))
	case OpMax:
		return uint32(max(a, b))
	case OpShr:
		return uint32(shrInt(a, b))
	case OpLess:
		return truth(a < b)
	case OpLessEqual:
		return truth(a <= b)
	}
	return twoUints(o, uint32(a), uint32(b))
}

func twoUints(o Op, a, b uint32) uint32 {
	switch o {
	case OpAdd:
		return a + b
	case OpSub:
		return a - b
	case OpMul:
		return a * b
	case OpDiv:
		return divUint(a, b)
	case OpRem:
		return remUint(a, b)
	case OpMin:
		return min(a, b)
	case OpMax:
		return max(a, b)
	case OpAnd:
		return a & b
	case OpOr:
		return a | b
	case OpXor:
		return a ^ b
	case OpShl:
		return shl(a, b)
	case OpShr:
		return shrUint(a, b)
	case OpLess:
		return truth(a < b)
	case OpLessEqual:
		return truth(a <= b)
	case OpEqual:
		return truth(a == b)
	}
	return truth(a != b)
}
