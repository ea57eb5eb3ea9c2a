package expr

import (
	"cmp"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Shape is the shape of an input.
type Shape struct {
	// Scalar: one number, which a run passes by value.
	Scalar bool
	// Rows is the number of rows; 0: the free length of the program, which all such inputs share.
	Rows int64
	// Own: the length is free, and only this input has it, as a table of Gather.
	Own bool
	// One: no leading dimension. The input is one row, which is combined with every row.
	One bool
	// Width is the number of elements of a row; 0: 1.
	Width int64
}

// In adds an input. Without a shape it is a vector of the free length. Names of inputs differ; a
// run gives an array or a number for each.
func (p *Program) In(name string, t ir.Type, shape ...Shape) Value {
	var s Shape
	if len(shape) > 0 {
		s = shape[0]
	}
	s.Width = max(s.Width, 1)
	if t < ir.F32 || t > ir.Bool || s.Rows < 0 || s.Width > MaxSide || s.Rows > math.MaxInt64/s.Width/8 {
		return p.fail(ErrType, "input %q: %v of %d rows of %d", name, t, s.Rows, s.Width)
	}
	if slices.ContainsFunc(p.g.Inputs, func(i ir.Input) bool { return i.Name == name }) {
		return p.fail(ErrType, "input %q: there is another of this name", name)
	}
	if len(p.g.Inputs) >= MaxInputs {
		return p.fail(ErrLimit, "a program has at most %d inputs", MaxInputs)
	}
	n := ir.Node{Op: ir.OpInput, Type: t, Lead: ir.FreeLength, Width: s.Width, Imm: uint64(len(p.g.Inputs))}
	switch {
	case s.Scalar:
		n.Lead, n.Width = 0, 1
	case s.One:
		n.Lead = 0
	case s.Own || s.Rows > 0:
		fixed := s.Rows
		if s.Own {
			fixed = -1
		}
		n.Lead = len(p.g.Symbols)
		p.g.Symbols = append(p.g.Symbols, ir.Symbol{Name: name, Fixed: fixed})
	}
	v := p.add(n)
	p.g.Inputs = append(p.g.Inputs, ir.Input{Name: name, Scalar: s.Scalar, Node: v.n})
	return v
}

// Out makes a value a result of the program. A result has at least one name; names differ. A value
// of bf16 is stored as bf16, and bools as bytes of 0 and 1.
func (p *Program) Out(name string, v Value) {
	switch {
	case v.n == nil || p.err != nil:
		p.fail(ErrType, "output %q has no value", name)
	case v.p != p:
		p.fail(ErrType, "output %q is a value of another program", name)
	case len(p.g.Outputs) >= MaxOuts:
		p.fail(ErrLimit, "a program has at most %d outputs", MaxOuts)
	case slices.ContainsFunc(p.g.Outputs, func(o ir.Output) bool { return o.Name == name }):
		p.fail(ErrType, "output %q: there is another of this name", name)
	default:
		p.g.Outputs = append(p.g.Outputs, ir.Output{Name: name, Node: v.n})
	}
}

// F32Const returns a constant.
func (p *Program) F32Const(v float32) Value {
	if v != v {
		v = float32(math.NaN())
	}
	return p.constant(ir.F32, math.Float32bits(v))
}

// I32Const returns a constant.
func (p *Program) I32Const(v int32) Value { return p.constant(ir.I32, uint32(v)) }

// U32Const returns a constant.
func (p *Program) U32Const(v uint32) Value { return p.constant(ir.U32, v) }

// BoolConst returns a constant.
func (p *Program) BoolConst(v bool) Value {
	if v {
		return p.constant(ir.Bool, 1)
	}
	return p.constant(ir.Bool, 0)
}

func (p *Program) constant(t ir.Type, bits uint32) Value {
	return p.add(ir.Node{Op: ir.OpConst, Type: t, Width: 1, Imm: uint64(bits)})
}

// Index returns the numbers of the rows of the free length, from 0, as u32; they wrap.
func (p *Program) Index() Value {
	return p.add(ir.Node{Op: ir.OpIota, Type: ir.U32, Lead: ir.FreeLength, Width: 1})
}

// Random returns a random u32 for each row of the free length: the first word of Philox 4x32-10
// with the key {seed, 0} and the counter {row, row >> 32, stream, 0}.
func (p *Program) Random(seed, stream uint32) Value {
	imm := uint64(stream)<<32 | uint64(seed)
	return p.add(ir.Node{Op: ir.OpRandom, Type: ir.U32, Lead: ir.FreeLength, Width: 1, Imm: imm})
}

// Uniform returns a random float32 in [0, 1) for each row: the upper 24 bits of Random.
func (p *Program) Uniform(seed, stream uint32) Value {
	return Mul(Cast(ir.F32, Shr(p.Random(seed, stream), p.U32Const(8))), p.F32Const(0x1p-24))
}

// ok reports whether values can be operands, which they are not after an error.
func ok(values ...Value) (*Program, bool) {
	p := values[0].p
	if p == nil {
		return &Program{err: ErrType}, false // a zero Value
	}
	for _, v := range values {
		if v.n == nil || v.p != p || p.err != nil {
			p.fail(ErrType, "an operand has no value, or is of another program")
			return p, false
		}
	}
	return p, true
}

// join returns the shape of an element-wise operation: values without a leading dimension are
// repeated for every row, and values of one element a row for every element. Other shapes must be
// the same.
func join(p *Program, what ir.Op, values ...*ir.Node) (lead int, width int64, fits bool) {
	width = 1
	for _, v := range values {
		switch {
		case lead == 0:
			lead = v.Lead
		case v.Lead != 0 && v.Lead != lead:
			p.fail(ErrType, "%s: the lengths of %s and %s differ", what.String(), p.symbolName(lead),
				p.symbolName(v.Lead))
			return 0, 0, false
		}
		switch {
		case width == 1:
			width = v.Width
		case v.Width != 1 && v.Width != width:
			p.fail(ErrType, "%s: rows of %d and of %d elements", what.String(), width, v.Width)
			return 0, 0, false
		}
	}
	return lead, width, true
}

func (p *Program) symbolName(s int) string { return p.g.Symbols[s].Name }

// each adds an element-wise node. The types are checked before; the shapes are checked here.
func each(o ir.Op, t ir.Type, values ...Value) Value {
	p := values[0].p
	args := make([]*ir.Node, len(values))
	for i, v := range values {
		args[i] = v.n
	}
	lead, width, fits := join(p, o, args...)
	if !fits {
		return Value{p: p}
	}
	return p.add(ir.Node{Op: o, Type: t, Lead: lead, Width: width, Args: args})
}

// widen makes f32 of bf16, because operations compute with f32.
func widen(v Value) Value {
	if v.n.Type == ir.BF16 {
		return Cast(ir.F32, v)
	}
	return v
}

// Cast converts. Floats become integers toward zero and saturate, NaN becomes 0. Integers become
// narrower ones by their low bits; to bool everything but 0, NaN included, is true.
func Cast(t ir.Type, v Value) Value {
	p, fits := ok(v)
	if !fits {
		return Value{p: p}
	}
	if t < ir.F32 || t > ir.Bool {
		return p.fail(ErrType, "cast to %v", t)
	}
	if t == v.n.Type {
		return v
	}
	return each(ir.OpCast, t, v)
}

func unary(o ir.Op, v Value) Value {
	p, fits := ok(v)
	if !fits {
		return Value{p: p}
	}
	v = widen(v)
	if !o.Operation().Operands.Has(v.n.Type) {
		return p.fail(ErrType, "%s of %v: cast it", o.String(), v.n.Type)
	}
	return each(o, v.n.Type, v)
}

// Neg returns -v.
func Neg(v Value) Value { return unary(ir.OpNeg, v) }

// Abs returns v without its sign; the result for the smallest i32 is the smallest i32.
func Abs(v Value) Value { return unary(ir.OpAbs, v) }

// Sqrt returns the square root, rounded to nearest.
func Sqrt(v Value) Value { return unary(ir.OpSqrt, v) }

// Exp returns e to the power of v, within 2 units in the last place.
func Exp(v Value) Value { return unary(ir.OpExp, v) }

// Log returns the natural logarithm, within 2 units in the last place.
func Log(v Value) Value { return unary(ir.OpLog, v) }

// Tanh returns the hyperbolic tangent, within 3 units in the last place.
func Tanh(v Value) Value { return unary(ir.OpTanh, v) }

// Floor returns the largest whole number not above v.
func Floor(v Value) Value { return unary(ir.OpFloor, v) }

// Not negates a bool.
func Not(v Value) Value { return unary(ir.OpNot, v) }

// Inv inverts the bits of an integer.
func Inv(v Value) Value { return unary(ir.OpInv, v) }

func binary(o ir.Op, a, b Value) Value {
	p, fits := ok(a, b)
	if !fits {
		return Value{p: p}
	}
	a, b = widen(a), widen(b)
	if a.n.Type != b.n.Type {
		return p.fail(ErrType, "%s of %v and %v: cast one", o.String(), a.n.Type, b.n.Type)
	}
	row := o.Operation()
	if !row.Operands.Has(a.n.Type) {
		return p.fail(ErrType, "%s of %v: cast it", o.String(), a.n.Type)
	}
	return each(o, cmp.Or(row.Result, a.n.Type), a, b)
}

// Add returns a + b; integers wrap.
func Add(a, b Value) Value { return binary(ir.OpAdd, a, b) }

// Sub returns a - b.
func Sub(a, b Value) Value { return binary(ir.OpSub, a, b) }

// Mul returns a * b.
func Mul(a, b Value) Value { return binary(ir.OpMul, a, b) }

// Div returns a / b. Integers are divided toward zero, and by 0 to 0.
func Div(a, b Value) Value { return binary(ir.OpDiv, a, b) }

// Rem returns the rest of the division of integers, with the sign of a, and 0 for b = 0.
func Rem(a, b Value) Value { return binary(ir.OpRem, a, b) }

// Min returns the smaller one, NaN if one is NaN, and a if they are equal.
func Min(a, b Value) Value { return binary(ir.OpMin, a, b) }

// Max returns the larger one, NaN if one is NaN, and a if they are equal.
func Max(a, b Value) Value { return binary(ir.OpMax, a, b) }

// And is the conjunction of bits or of bools; both operands are computed.
func And(a, b Value) Value { return binary(ir.OpAnd, a, b) }

// Or is the disjunction of bits or of bools; both operands are computed.
func Or(a, b Value) Value { return binary(ir.OpOr, a, b) }

// Xor is the exclusive disjunction of bits or of bools.
func Xor(a, b Value) Value { return binary(ir.OpXor, a, b) }

// Shl shifts left; by the number of bits or more, or by a negative number, it gives 0.
func Shl(a, b Value) Value { return binary(ir.OpShl, a, b) }

// Shr shifts right, i32 with its sign; by 32 or more, or a negative number, it gives 0 or the sign.
func Shr(a, b Value) Value { return binary(ir.OpShr, a, b) }

// Less returns a < b.
func Less(a, b Value) Value { return binary(ir.OpLess, a, b) }

// LessEqual returns a <= b.
func LessEqual(a, b Value) Value { return binary(ir.OpLessEqual, a, b) }

// Equal returns a == b.
func Equal(a, b Value) Value { return binary(ir.OpEqual, a, b) }

// NotEqual returns a != b.
func NotEqual(a, b Value) Value { return binary(ir.OpNotEqual, a, b) }

// Select returns a where c is true, and b elsewhere. Both are computed for all elements; c is of
// bool, and a and b are of one type.
func Select(c, a, b Value) Value {
	p, fits := ok(c, a, b)
	if !fits {
		return Value{p: p}
	}
	a, b = widen(a), widen(b)
	if c.n.Type != ir.Bool || a.n.Type != b.n.Type {
		return p.fail(ErrType, "select of %v, %v and %v: use a bool and two of one type", c.n.Type, a.n.Type,
			b.n.Type)
	}
	return each(ir.OpSelect, a.n.Type, c, a, b)
}

// Gather returns the elements of a table, a vector, by the index of each place. An index beyond an
// end takes the element at that end; of an empty table the elements are 0.
func Gather(table, index Value) Value {
	p, fits := ok(table, index)
	if !fits {
		return Value{p: p}
	}
	t, i := table.n, index.n
	if t.Lead == 0 || t.Width != 1 || i.Type != ir.I32 && i.Type != ir.U32 {
		return p.fail(ErrType, "gather: use a vector as table, and an index of i32 or u32")
	}
	return p.add(ir.Node{Op: ir.OpGather, Type: t.Type, Lead: i.Lead, Width: i.Width, Args: []*ir.Node{t, i}})
}

func folded(v Value) Value {
	if t := v.n.Type; t == ir.U8 || t == ir.Bool {
		return Cast(ir.U32, v)
	}
	return widen(v)
}

// Reduce folds all elements of a value into one. Sums of u8 and bool are u32.
func Reduce(f ir.Fold, v Value) Value {
	p, fits := ok(v)
	if !fits {
		return Value{p: p}
	}
	if f > ir.FoldMax || v.n.Scalar() {
		return p.fail(ErrType, "%s of a single number", "reduction")
	}
	v = folded(v)
	return p.add(ir.Node{Op: ir.OpReduce, Type: v.n.Type, Width: 1, Args: []*ir.Node{v.n}, Imm: uint64(f)})
}

// Sum adds all elements, in the order of ir.TileSize. The sum of no element is 0.
func Sum(v Value) Value { return Reduce(ir.FoldSum, v) }

// Length returns the number of elements of a value as f32.
func Length(v Value) Value {
	p, fits := ok(v)
	if !fits {
		return Value{p: p}
	}
	n := p.length(v.n.Lead)
	if v.n.Width == 1 {
		return n
	}
	return Mul(n, p.F32Const(float32(v.n.Width)))
}

// length returns the length of a symbol.
func (p *Program) length(lead int) Value {
	length := ir.Node{Op: ir.OpLength, Type: ir.F32, Width: 1, Imm: uint64(lead)}
	if p.g.Symbols[lead].Of != nil { // the length is known when a filter has run
		i := slices.IndexFunc(p.g.Nodes, func(n *ir.Node) bool { return n.Op == ir.OpCompact && n.Lead == lead })
		length.Args = []*ir.Node{p.g.Nodes[i]}
	}
	return p.add(length)
}

// Mean returns the sum of all elements, as f32, by their number.
func Mean(v Value) Value {
	if p, fits := ok(v); !fits {
		return Value{p: p}
	}
	return Div(Sum(Cast(ir.F32, v)), Length(v))
}

// ReduceRows folds each row of at most MaxWidth elements into a vector. Sums of u8 and bool are
// u32.
func ReduceRows(f ir.Fold, v Value) Value {
	p, fits := ok(v)
	if !fits {
		return Value{p: p}
	}
	if f > ir.FoldMax || v.n.Lead == 0 || v.n.Width > MaxWidth {
		return p.fail(ErrType, "a fold of rows of %d elements: use rows of at most %d", v.n.Width, MaxWidth)
	}
	v = folded(v)
	if v.n.Width == 1 {
		return v
	}
	args := []*ir.Node{v.n}
	return p.add(ir.Node{Op: ir.OpRows, Type: v.n.Type, Lead: v.n.Lead, Width: 1, Args: args, Imm: uint64(f)})
}

// Softmax works on rows of floats. It returns exp(v - m) by its sum over the row, where m is the
// largest element of the row.
func Softmax(v Value) Value {
	if p, fits := ok(v); !fits {
		return Value{p: p}
	}
	e := Exp(Sub(v, ReduceRows(ir.FoldMax, v)))
	return Div(e, ReduceRows(ir.FoldSum, e))
}

// Normalize returns the rows with a mean of 0 and a variance of 1: (v - mean) / sqrt(variance +
// eps).
func Normalize(v Value, eps float32) Value {
	p, fits := ok(v)
	if !fits {
		return Value{p: p}
	}
	width := p.F32Const(float32(v.n.Width))
	d := Sub(v, Div(ReduceRows(ir.FoldSum, v), width))
	variance := Div(ReduceRows(ir.FoldSum, Mul(d, d)), width)
	return Mul(d, Div(p.F32Const(1), Sqrt(Add(variance, p.F32Const(eps)))))
}

// Scan returns the sums of each element of a vector and all before it, in the order of ir.ScanTile.
// Integers wrap at 32 bits.
func Scan(v Value) Value {
	p, fits := ok(v)
	if !fits {
		return Value{p: p}
	}
	if v.n.Lead == 0 || v.n.Width != 1 {
		return p.fail(ErrType, "cumsum: use a vector")
	}
	v = folded(v)
	return p.add(ir.Node{Op: ir.OpScan, Type: v.n.Type, Lead: v.n.Lead, Width: 1, Args: []*ir.Node{v.n}})
}

// Filter returns the elements of a vector where keep is true, in their order. Values that are
// filtered by the same predicate have the same length.
func Filter(v, keep Value) Value {
	p, fits := ok(v, keep)
	if !fits {
		return Value{p: p}
	}
	lead, width, fits := join(p, ir.OpCompact, v.n, keep.n)
	if !fits {
		return Value{p: p}
	}
	if keep.n.Type != ir.Bool || width != 1 || lead == 0 || keep.n.Lead == 0 {
		return p.fail(ErrType, "filter: use vectors, the second one of bool")
	}
	s := slices.IndexFunc(p.g.Symbols, func(s ir.Symbol) bool { return s.Of == keep.n })
	if s < 0 {
		s = len(p.g.Symbols)
		p.g.Symbols = append(p.g.Symbols, ir.Symbol{Name: "filter", Fixed: -1, Of: keep.n})
	}
	return p.add(ir.Node{Op: ir.OpCompact, Type: v.n.Type, Lead: s, Width: 1, Args: []*ir.Node{v.n, keep.n}})
}

// MatMul returns the product of a, of rows, and b, of a known number of rows: the width of a. Sums
// of small products, of at most 64 columns each, are fused multiplications and additions one by one
// from the first; others are in an order of the device.
func MatMul(a, b Value) Value {
	p, fits := ok(a, b)
	if !fits {
		return Value{p: p}
	}
	a, b = widen(a), widen(b)
	if a.n.Type != ir.F32 || b.n.Type != ir.F32 || a.n.Lead == 0 || b.n.Lead == 0 ||
		p.g.Symbols[b.n.Lead].Fixed != a.n.Width {
		return p.fail(ErrType,
			"matmul: use f32, and a second factor with as many rows as the first has columns")
	}
	return p.add(ir.Node{Op: ir.OpMatMul, Type: ir.F32, Lead: a.n.Lead, Width: b.n.Width, Args: []*ir.Node{a.n, b.n}})
}
