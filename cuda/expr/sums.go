package expr

import "github.com/exoswarm/exoswarm/cuda/expr/ir"

// SumColumns adds up the rows of a value, in the order of ir.RunRows, and returns one row of f32.
// Of a value without rows it returns the value, and of rows of one element their sum as Sum does.
// Columns up to 64 wide are computed in one kernel with the small products that make them.
func SumColumns(v Value) Value {
	p, fits := ok(v)
	if !fits {
		return Value{p: p}
	}
	v = Cast(ir.F32, v)
	switch {
	case v.n == nil || v.n.Lead == 0:
		return v
	case v.n.Width == 1:
		return Sum(v)
	}
	return p.add(ir.Node{Op: ir.OpColumns, Type: ir.F32, Width: v.n.Width, Args: []*ir.Node{v.n}})
}

// matMulTransposed returns the product of a, of rows, and the transpose of b.
func matMulTransposed(a Value, b *ir.Node) Value {
	return a.p.add(ir.Node{
		Op: ir.OpMatMul, Type: ir.F32, Lead: a.n.Lead, Width: a.p.g.Symbols[b.Lead].Fixed, Args: []*ir.Node{a.n, b},
		Imm: ir.Transposed,
	})
}

// outer returns a' b, summed over the rows that both have, in the shape of a matrix.
func outer(a *ir.Node, b Value, like *ir.Node) Value {
	return b.p.add(ir.Node{
		Op: ir.OpOuter, Type: ir.F32, Lead: like.Lead, Width: like.Width, Args: []*ir.Node{a, b.n},
	})
}

// scatter returns the sums of the elements of v by index, in the shape of a table.
func scatter(v Value, index, table *ir.Node) Value {
	return v.p.add(ir.Node{
		Op: ir.OpScatter, Type: ir.F32, Lead: table.Lead, Width: 1, Args: []*ir.Node{v.n, index},
	})
}
