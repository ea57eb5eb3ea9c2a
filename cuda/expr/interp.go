package expr

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/fmath"
)

// Array is an array in the memory of the host: elements of the type that the program says, row
// after row, in the order of bytes of the machine.
type Array struct {
	Data []byte
	Rows int64
}

// Scalar returns the array of a scalar input of f32.
func Scalar(v float32) Array { return Array{Data: device.Bytes([]float32{v}), Rows: 1} }

// Interpret executes a program on the cores of the host, and returns its outputs by name. It does
// not change the inputs. Cancelling ctx ends it between blocks of elements.
func Interpret(ctx context.Context, p *Program, in map[string]Array) (map[string]Array, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	lengths, err := p.lengths(func(name string) (rows, bytes int64, found bool) {
		a, found := in[name]
		return a.Rows, int64(len(a.Data)), found
	})
	if err != nil {
		return nil, err
	}
	m := &machine{
		ctx:     ctx,
		p:       p,
		lengths: lengths,
		inputs:  make([][]byte, len(p.inputs)),
		done:    map[*node][]uint32{},
	}
	for i, input := range p.inputs {
		m.inputs[i] = in[input.name].Data
	}
	out := map[string]Array{}
	for _, o := range p.outputs {
		v := m.whole(o.node)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("expr: interpret: %w", context.Cause(ctx))
		}
		out[o.name] = Array{Data: store(o.node.typ, v), Rows: lengths[o.node.lead]}
	}
	return out, nil
}

// lengths returns the length of each symbol of the program, 0 for those of filters. array says what
// a run has for an input.
func (p *Program) lengths(array func(name string) (rows, bytes int64, found bool)) ([]int64, error) {
	lengths := make([]int64, len(p.symbols))
	for s := range lengths {
		lengths[s] = -1
		if p.symbols[s].of != nil {
			lengths[s] = 0
		}
	}
	lengths[0] = 1
	for _, in := range p.inputs {
		rows, bytes, found := array(in.name)
		if !found {
			return nil, fmt.Errorf("expr: input %q is missing: %w", in.name, ErrArgs)
		}
		if in.node.lead == 0 {
			rows = 1
		}
		size := in.node.width * in.node.typ.Bytes()
		if rows < 0 || rows > math.MaxInt64/size || bytes < rows*size {
			return nil, fmt.Errorf(
				"expr: input %q: %d bytes for %d rows of %d %v: %w",
				in.name,
				bytes,
				rows,
				in.node.width,
				in.node.typ,
				ErrArgs,
			)
		}
		s := in.node.lead
		if fixed := p.symbols[s].fixed; fixed >= 0 && fixed != rows {
			return nil, fmt.Errorf(
				"expr: input %q: %d rows, the program has %d: %w",
				in.name,
				rows,
				fixed,
				ErrArgs,
			)
		}
		if lengths[s] >= 0 && lengths[s] != rows {
			return nil, fmt.Errorf(
				"expr: input %q: %d rows, other inputs have %d: %w",
				in.name,
				rows,
				lengths[s],
				ErrArgs,
			)
		}
		lengths[s] = rows
	}
	if rows, _, found := array(""); found && lengths[freeLength] < 0 {
		lengths[freeLength] = rows // of a program without inputs of that length
	}
	for _, n := range p.nodes {
		if n.lead == freeLength && lengths[freeLength] < 0 {
			return nil, fmt.Errorf(
				`expr: the length is not known: give an input, or Rows of the input "": %w`,
				ErrArgs,
			)
		}
	}
	return lengths, nil
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
	p       *Program
	lengths []int64
	inputs  [][]byte
	done    map[*node][]uint32 // nodes that are computed as a whole, in registers' form
}

// whole returns all elements of a node in a slice of its own.
func (m *machine) whole(n *node) []uint32 {
	m.prepare(n)
	if v, found := m.done[n]; found {
		return append([]uint32(nil), v...)
	}
	out := make([]uint32, m.lengths[n.lead]*n.width)
	m.blocks(int64(len(out)), tileSize, func(from, to int64) {
		b := m.block(n.width, from, to)
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
func (m *machine) prepare(n *node) {
	needed := map[*node]bool{}
	var mark func(n *node)
	mark = func(n *node) {
		if needed[n] || m.done[n] != nil {
			return
		}
		needed[n] = true
		for _, a := range n.args {
			mark(a)
		}
		if s := m.p.symbols[n.lead]; s.of != nil { // its length comes of the filter
			mark(s.of)
		}
	}
	mark(n)
	for _, n := range m.p.nodes { // arguments come first
		if !needed[n] {
			continue
		}
		switch n.op {
		case opReduce:
			m.done[n] = m.reduce(n)
		case opRows:
			m.done[n] = m.rows(n)
		case opScan:
			v := m.whole(n.args[0])
			scanSums(n.typ, v, v)
			m.done[n] = v
		case opCompact:
			m.done[n] = m.compact(n)
		case opMatMul:
			m.done[n] = m.product(n)
		case opGather:
			if t := n.args[0]; m.done[t] == nil {
				m.done[t] = m.whole(t)
			}
		}
	}
}

func (m *machine) reduce(n *node) []uint32 {
	of, f := n.args[0], Fold(n.imm)
	count := m.lengths[of.lead] * of.width
	partials := make([]uint32, max(1, (count+superSize-1)/superSize))
	partials[0] = identity(n.typ, f)
	m.blocks(count, superSize, func(from, to int64) {
		var tiles [superTiles]uint32
		for j := range tiles {
			tiles[j] = identity(n.typ, f)
			if at := from + int64(j)*tileSize; at < to {
				tiles[j] = foldTile(n.typ, f, m.block(of.width, at, min(at+tileSize, to)).value(of))
			}
		}
		partials[from/superSize] = foldTiles(n.typ, f, tiles)
	})
	v := foldPartials(n.typ, f, partials)
	if count == 0 && f == FoldSum {
		v = 0
	}
	return []uint32{v}
}

func (m *machine) rows(n *node) []uint32 {
	of, f := n.args[0], Fold(n.imm)
	width := of.width
	out := make([]uint32, m.lengths[n.lead])
	m.blocks(int64(len(out)), max(1, tileSize/width), func(from, to int64) {
		v := m.block(width, from*width, to*width).value(of)
		for row := from; row < to; row++ {
			out[row] = foldSuper(n.typ, f, v[(row-from)*width:(row-from+1)*width])
		}
	})
	return out
}

func (m *machine) compact(n *node) []uint32 {
	keep := m.whole(n.args[1])
	var out []uint32
	for from := 0; from < len(keep); from += tileSize {
		to := min(from+tileSize, len(keep))
		v := m.block(1, int64(from), int64(to)).value(n.args[0])
		for i, k := range keep[from:to] {
			if k != 0 {
				out = append(out, v[i])
			}
		}
	}
	m.lengths[n.lead] = int64(len(out))
	if out == nil {
		out = []uint32{}
	}
	return out
}

func (m *machine) product(n *node) []uint32 {
	a, b := device.Of[float32](
		device.Bytes(m.whole(n.args[0])),
	), device.Of[float32](
		device.Bytes(m.whole(n.args[1])),
	)
	rows, inner, width := m.lengths[n.lead], n.args[0].width, n.width
	out := make([]float32, rows*width)
	small := smallProduct(n)
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
	values   map[*node][]uint32
}

func (m *machine) block(width, from, to int64) *block {
	return &block{m: m, width: width, from: from, to: to, values: map[*node][]uint32{}}
}

// value returns the elements of a node in the block; the caller does not change them.
func (b *block) value(n *node) []uint32 {
	if v, found := b.values[n]; found {
		return v
	}
	v := make([]uint32, b.to-b.from)
	b.compute(n, v)
	b.values[n] = v
	return v
}

// place calls f with the index of the node's element for each element of the block.
func (b *block) place(n *node, f func(i int, at int64)) {
	for i := range int(b.to - b.from) {
		e := b.from + int64(i)
		switch {
		case n.lead == 0 && n.width == 1:
			e = 0
		case n.lead == 0:
			e %= b.width
		case n.width == 1:
			e /= b.width
		}
		f(i, e)
	}
}

func (b *block) compute(n *node, out []uint32) {
	if whole, found := b.m.done[n]; found {
		b.place(n, func(i int, at int64) { out[i] = whole[at] })
		return
	}
	switch n.op {
	case opInput:
		b.load(n, out)
		return
	case opConst:
		for i := range out {
			out[i] = uint32(n.imm)
		}
		return
	case opIota:
		b.place(n, func(i int, at int64) { out[i] = uint32(at) })
		return
	case opRandom:
		b.place(n, func(i int, at int64) { out[i] = philox(uint64(at), uint32(n.imm), uint32(n.imm>>32)) })
		return
	case opLength:
		for i := range out {
			out[i] = math.Float32bits(float32(b.m.lengths[n.imm]))
		}
		return
	case opGather:
		table, index := b.m.done[n.args[0]], b.value(n.args[1])
		for i, at := range index {
			if len(table) == 0 {
				out[i] = 0
				continue
			}
			last := int64(len(table) - 1)
			j := int64(at)
			if n.args[1].typ == I32 {
				j = int64(int32(at))
			}
			out[i] = table[max(0, min(j, last))]
		}
		return
	}
	var v [3][]uint32
	for i, a := range n.args {
		v[i] = b.value(a)
	}
	switch len(n.args) {
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
func (b *block) load(n *node, out []uint32) {
	data := b.m.inputs[n.imm]
	direct := n.width == b.width && n.lead != 0
	switch n.typ {
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
func one(n *node, v, out []uint32) {
	if n.op == opCast {
		convert(n.typ, n.args[0].typ, v, out)
		return
	}
	if n.typ == F32 {
		var fn func(float32) float32
		switch n.op {
		case opSqrt:
			fn = func(x float32) float32 { return float32(math.Sqrt(float64(x))) }
		case opExp:
			fn = exp32
		case opLog:
			fn = log32
		case opTanh:
			fn = tanh32
		case opFloor:
			fn = floor32
		case opAbs:
			for i, x := range v {
				out[i] = x &^ (1 << 31)
			}
			return
		case opNeg:
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
		switch n.op {
		case opNeg:
			x = -x
		case opAbs:
			if int32(x) < 0 {
				x = -x
			}
		case opNot:
			x ^= 1
		case opInv:
			x = ^x
		}
		out[i] = narrow(n.typ, x)
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
		case from.float() && to == F32:
		case from.float() && to == BF16:
			x = math.Float32bits(roundBF16(of(x)))
		case from.float() && to == I32:
			x = uint32(toInt(of(x)))
		case from.float() && to == U32:
			x = toUint(of(x))
		case from.float() && to == U8:
			x = toByte(of(x))
		case from.float():
			x = truth(of(x) != 0)
		case to == Bool:
			x = truth(x != 0)
		case to.float():
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
func two(n *node, a, b, out []uint32) {
	switch t := n.args[0].typ; t {
	case F32:
		twoFloats(n.op, device.Of[float32](device.Bytes(a)), device.Of[float32](device.Bytes(b)), out)
	case I32:
		for i := range out {
			out[i] = twoInts(n.op, int32(a[i]), int32(b[i]))
		}
	default:
		for i := range out {
			out[i] = narrow(t, twoUints(n.op, a[i], b[i]))
		}
	}
}

func twoFloats(o op, a, b []float32, out []uint32) {
	f := device.Of[float32](device.Bytes(out))
	switch o {
	case opAdd:
		for i, x := range a {
			f[i] = x + b[i]
		}
	case opSub:
		for i, x := range a {
			f[i] = x - b[i]
		}
	case opMul:
		for i, x := range a {
			f[i] = x * b[i]
		}
	case opDiv:
		for i, x := range a {
			f[i] = x / b[i]
		}
	case opMin:
		for i, x := range a {
			f[i] = min32(x, b[i])
		}
	case opMax:
		for i, x := range a {
			f[i] = max32(x, b[i])
		}
	default:
		for i, x := range a {
			y := b[i]
			out[i] = truth(o == opLess && x < y || o == opLessEqual && x <= y || o == opEqual && x == y ||
				o == opNotEqual && x != y)
		}
	}
}

func twoInts(o op, a, b int32) uint32 {
	switch o {
	case opDiv:
		return uint32(divInt(a, b))
	case opRem:
		return uint32(remInt(a, b))
	case opMin:
		return uint32(min(a, b))
	case opMax:
		return uint32(max(a, b))
	case opShr:
		return uint32(shrInt(a, b))
	case opLess:
		return truth(a < b)
	case opLessEqual:
		return truth(a <= b)
	}
	return twoUints(o, uint32(a), uint32(b))
}

func twoUints(o op, a, b uint32) uint32 {
	switch o {
	case opAdd:
		return a + b
	case opSub:
		return a - b
	case opMul:
		return a * b
	case opDiv:
		return divUint(a, b)
	case opRem:
		return remUint(a, b)
	case opMin:
		return min(a, b)
	case opMax:
		return max(a, b)
	case opAnd:
		return a & b
	case opOr:
		return a | b
	case opXor:
		return a ^ b
	case opShl:
		return shl(a, b)
	case opShr:
		return shrUint(a, b)
	case opLess:
		return truth(a < b)
	case opLessEqual:
		return truth(a <= b)
	case opEqual:
		return truth(a == b)
	}
	return truth(a != b)
}
