package expr

import (
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Grad returns the derivative of a loss, one number, by each of some inputs of f32: values of the
// shape of the inputs, made of further operations of the same program. A value that the forward
// pass has is not computed again, and a kernel may have parts of both passes.
//
// Conditions and Floor have the derivative 0, Abs 0 at 0. Min and Max of two values give it to the
// second one where both are equal, so that relu has 0 at 0; folds share it between equal elements.
// Sums over rows have the order of ir.RunRows.
//
// Filters, Scan, casts to integers and derivatives themselves have no derivative: they are ErrType,
// and so is a loss that does not depend on an input.
func Grad(loss Value, inputs ...Value) []Value {
	out := make([]Value, len(inputs))
	p, fits := ok(append([]Value{loss}, inputs...)...)
	if fits && (loss.n.Type != ir.F32 || !loss.n.Scalar()) {
		fits = false
		p.fail(ErrType, "grad: the loss is %v with rows of %d: use one number of f32, as in mean(...)", loss.n.Type,
			loss.n.Width)
	}
	b := backward{p: p, active: map[*ir.Node]bool{}, adjoints: map[*ir.Node]Value{}}
	for i, v := range inputs {
		out[i] = Value{p: p}
		if fits && (v.n.Op != ir.OpInput || v.n.Type != ir.F32) {
			fits = false
			p.fail(ErrType, "grad by %v of %v: use an input of f32", v.n, v.n.Type)
		}
		if fits {
			b.active[v.n] = true
		}
	}
	if !fits {
		return out
	}
	b.run(loss)
	for i, v := range inputs {
		g, found := b.adjoints[v.n]
		if !found {
			p.fail(ErrType, "grad: the loss does not depend on input %q", p.g.Inputs[v.n.Imm].Name)
		}
		if p.err == nil {
			out[i] = spread(g, v.n)
		}
	}
	return out
}

// backward is one walk from a loss to its inputs.
type backward struct {
	p *Program
	// active are the nodes whose derivative by an input is not known to be 0.
	active map[*ir.Node]bool
	// adjoints have the derivative of the loss by a node. A value without rows, or of one element a
	// row, stands for equal elements.
	adjoints map[*ir.Node]Value
}

// run computes the adjoints of all active nodes below the loss.
func (b *backward) run(loss Value) {
	nodes := b.p.g.Nodes[:loss.n.ID+1] // arguments come before their users
	for _, n := range nodes {
		if n.Type != ir.Bool && slices.ContainsFunc(n.Args, func(a *ir.Node) bool { return b.active[a] }) {
			b.active[n] = true
		}
	}
	b.adjoints[loss.n] = b.p.F32Const(1)
	for _, n := range slices.Backward(nodes) {
		if g, found := b.adjoints[n]; found && b.active[n] && n.Op != ir.OpInput && b.p.err == nil {
			b.node(n, g)
		}
	}
}

// add adds a part of the adjoint of argument i of a node. g has an element for each element of the
// domain, rows of a symbol and a width, or stands for equal ones.
func (b *backward) add(n *ir.Node, i, lead int, width int64, g Value) {
	a := n.Args[i]
	if !b.active[a] || b.p.err != nil {
		return
	}
	g = b.summed(g, lead, width, a)
	if before, found := b.adjoints[a]; found {
		g = Add(before, g)
	}
	b.adjoints[a] = g
}

// summed returns the sums of the elements of a domain that share an element of a node.
func (b *backward) summed(g Value, lead int, width int64, to *ir.Node) Value {
	if g.n == nil {
		return g
	}
	overRows, overWidth := to.Lead == 0 && lead != 0, to.Width == 1 && width > 1
	rows := g.n.Lead != 0
	if overWidth {
		switch {
		case g.n.Width == 1:
			g = Mul(g, b.p.F32Const(float32(width)))
		case rows && !overRows:
			return ReduceRows(ir.FoldSum, g)
		default:
			g = Sum(g)
		}
	}
	switch {
	case !overRows || g.n == nil:
		return g
	case !rows:
		return Mul(g, b.p.length(lead))
	case g.n.Lead == 0: // Sum has added all elements
		return g
	}
	return SumColumns(g)
}

// spread returns a value in the shape of a node: with a row for each of its rows, and its width.
func spread(v Value, like *ir.Node) Value {
	if v.n == nil || v.n.Lead == like.Lead && v.n.Width == like.Width {
		return v
	}
	to := Value{v.p, like}
	return Select(Equal(to, to), v, v)
}

// node adds the parts of the adjoints of the arguments of a node, whose adjoint is g.
func (b *backward) node(n *ir.Node, g Value) {
	p := b.p
	arg := func(i int) Value { return Value{p, n.Args[i]} }
	y := Value{p, n}
	zero := p.F32Const(0)
	each := func(i int, part func() Value) {
		if b.active[n.Args[i]] {
			b.add(n, i, n.Lead, n.Width, part())
		}
	}
	switch n.Op {
	case ir.OpAdd:
		each(0, func() Value { return g })
		each(1, func() Value { return g })
	case ir.OpSub:
		each(0, func() Value { return g })
		each(1, func() Value { return Neg(g) })
	case ir.OpMul:
		each(0, func() Value { return Mul(g, arg(1)) })
		each(1, func() Value { return Mul(g, arg(0)) })
	case ir.OpDiv:
		each(0, func() Value { return Div(g, arg(1)) })
		each(1, func() Value { return Neg(Div(Mul(g, y), arg(1))) })
	case ir.OpNeg:
		each(0, func() Value { return Neg(g) })
	case ir.OpAbs:
		each(0, func() Value {
			return Select(Less(arg(0), zero), Neg(g), Select(Less(zero, arg(0)), g, zero))
		})
	case ir.OpSqrt:
		each(0, func() Value { return Div(g, Add(y, y)) })
	case ir.OpExp:
		each(0, func() Value { return Mul(g, y) })
	case ir.OpLog:
		each(0, func() Value { return Div(g, arg(0)) })
	case ir.OpTanh:
		each(0, func() Value { return Mul(g, Sub(p.F32Const(1), Mul(y, y))) })
	case ir.OpFloor:
		each(0, func() Value { return zero })
	case ir.OpMin:
		each(0, func() Value { return Select(Less(arg(0), arg(1)), g, zero) })
		each(1, func() Value { return Select(Less(arg(0), arg(1)), zero, g) })
	case ir.OpMax:
		each(0, func() Value { return Select(Less(arg(1), arg(0)), g, zero) })
		each(1, func() Value { return Select(Less(arg(1), arg(0)), zero, g) })
	case ir.OpSelect:
		each(1, func() Value { return Select(arg(0), g, zero) })
		each(2, func() Value { return Select(arg(0), zero, g) })
	case ir.OpCast:
		if t := n.Args[0].Type; !t.Float() {
			p.fail(ErrType, "grad: a cast to %v has no derivative: use floats between the loss and the input", t)
			return
		}
		each(0, func() Value { return g })
	case ir.OpReduce, ir.OpRows:
		b.fold(n, g)
	case ir.OpColumns:
		b.add(n, 0, n.Args[0].Lead, n.Width, g)
	case ir.OpMatMul:
		b.product(n, g)
	case ir.OpGather:
		if b.active[n.Args[1]] {
			p.fail(ErrType, "grad: the index of gather has no derivative: use one that the input does not change")
			return
		}
		b.add(n, 0, n.Args[0].Lead, 1, scatter(spread(g, n), n.Args[1], n.Args[0]))
	default:
		p.fail(ErrType, "grad: %v has no derivative here: use it on values that the input does not change", n)
	}
}

// fold gives the adjoint of a fold to what is folded: of a sum to all elements, of a minimum or a
// maximum in equal parts to the elements that have it.
func (b *backward) fold(n *ir.Node, g Value) {
	of := Value{b.p, n.Args[0]}
	if ir.Fold(n.Imm) != ir.FoldSum {
		has := Cast(ir.F32, Equal(of, Value{b.p, n}))
		count := Sum
		if n.Op == ir.OpRows {
			count = func(v Value) Value { return ReduceRows(ir.FoldSum, v) }
		}
		g = Mul(has, Div(g, count(has)))
	}
	b.add(n, 0, of.n.Lead, of.n.Width, g)
}

// product gives g b' to the first factor, and a' g to the second.
func (b *backward) product(n *ir.Node, g Value) {
	left, right := n.Args[0], n.Args[1]
	if n.Imm == ir.Transposed {
		b.p.fail(ErrType, "grad: a derivative of a product has no derivative here")
		return
	}
	g = spread(g, n)
	if g.n == nil {
		return
	}
	if b.active[left] {
		b.add(n, 0, left.Lead, left.Width, matMulTransposed(g, right))
	}
	if b.active[right] {
		b.add(n, 1, right.Lead, right.Width, outer(left, g, right))
	}
}
