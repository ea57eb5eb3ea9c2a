package expr

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// RowBytes returns the bytes of a row of an output, 0 if there is none of the name. Rows have no
// gaps between them.
func RowBytes(p *Program, name string) int64 {
	i := slices.IndexFunc(p.g.Outputs, func(o ir.Output) bool { return o.Name == name })
	if i < 0 {
		return 0
	}
	return p.g.Outputs[i].Node.Width * p.g.Outputs[i].Node.Type.Bytes()
}

// Output describes a result of a program.
type Output struct {
	Name  string
	Type  ir.Type
	Width int64
	// Scalar: one element. It has one row.
	Scalar bool
}

// Outputs returns the results of a program, in the order in which they were added.
func (p *Program) Outputs() (all []Output) {
	for _, o := range p.g.Outputs {
		all = append(all, Output{o.Name, o.Node.Type, o.Node.Width, o.Node.Scalar()})
	}
	return all
}

// Inputs returns the names of the inputs of a program, in the order in which they were added, and
// whether each is a scalar.
func (p *Program) Inputs() (names []string, scalar []bool) {
	for _, i := range p.g.Inputs {
		names, scalar = append(names, i.Name), append(scalar, i.Scalar)
	}
	return names, scalar
}

// Text returns a program as a list of its operations, for messages.
func Text(p *Program) string {
	var b strings.Builder
	for _, n := range p.g.Nodes {
		fmt.Fprintf(&b, "%%%d = %v", n.ID, n)
		if n.Op == ir.OpInput {
			fmt.Fprintf(&b, " %s", p.g.Inputs[n.Imm].Name)
		}
		for _, a := range n.Args {
			fmt.Fprintf(&b, " %%%d", a.ID)
		}
		fmt.Fprintf(&b, " : %v, length %d, rows of %d\n", n.Type, n.Lead, n.Width)
	}
	for _, o := range p.g.Outputs {
		fmt.Fprintf(&b, "%s = %%%d\n", o.Name, o.Node.ID)
	}
	return b.String()
}

// SameLength reports whether two values have the same leading length, or one value has none.
func SameLength(a, b Value) bool {
	return a.n != nil && b.n != nil && (a.n.Lead == b.n.Lead || a.n.Lead == 0 || b.n.Lead == 0)
}

// Order returns the products that make an output, as "((m1 m2) m3)".
func Order(p *Program, name string) string {
	var text func(n *ir.Node) string
	text = func(n *ir.Node) string {
		switch n.Op {
		case ir.OpInput:
			return p.g.Inputs[n.Imm].Name
		case ir.OpMatMul:
			return "(" + text(n.Args[0]) + " " + text(n.Args[1]) + ")"
		}
		return n.String()
	}
	for _, o := range p.g.Outputs {
		if o.Name == name {
			return text(o.Node)
		}
	}
	return ""
}

// Products returns an upper bound of the bytes of all matrix products of a program, for a number of
// rows of the free length. They are in memory, even if they are no outputs.
func Products(p *Program, rows int64) (bytes int64) {
	for _, n := range p.g.Nodes {
		if n.Op != ir.OpMatMul {
			continue
		}
		r := rows
		if fixed := p.g.Symbols[n.Lead].Fixed; fixed >= 0 {
			r = fixed
		}
		if r > 0 && n.Width > math.MaxInt64/64/r {
			return math.MaxInt64 / 4
		}
		bytes = min(bytes+4*r*n.Width, math.MaxInt64/4)
	}
	return bytes
}
