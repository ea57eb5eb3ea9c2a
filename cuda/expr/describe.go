package expr

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// RowBytes returns the bytes of a row of an output, 0 if there is none of the name.
func RowBytes(p *Program, name string) int64 {
	i := slices.IndexFunc(p.outputs, func(o output) bool { return o.name == name })
	if i < 0 {
		return 0
	}
	return p.outputs[i].node.width * p.outputs[i].node.typ.Bytes()
}

// Output describes a result of a program.
type Output struct {
	Name  string
	Type  Type
	Width int64
	// Scalar: one element. It has one row.
	Scalar bool
}

// Outputs returns the results of a program.
func (p *Program) Outputs() (all []Output) {
	for _, o := range p.outputs {
		all = append(all, Output{o.name, o.node.typ, o.node.width, o.node.scalar()})
	}
	return all
}

// Inputs returns the names of the inputs of a program, and whether each is a scalar.
func (p *Program) Inputs() (names []string, scalar []bool) {
	for _, i := range p.inputs {
		names, scalar = append(names, i.name), append(scalar, i.scalar)
	}
	return names, scalar
}

// Text returns a program as a list of its operations, for messages.
func Text(p *Program) string {
	var b strings.Builder
	for _, n := range p.nodes {
		fmt.Fprintf(&b, "%%%d = %v", n.id, n)
		if n.op == opInput {
			fmt.Fprintf(&b, " %s", p.inputs[n.imm].name)
		}
		for _, a := range n.args {
			fmt.Fprintf(&b, " %%%d", a.id)
		}
		fmt.Fprintf(&b, " : %v, length %d, rows of %d\n", n.typ, n.lead, n.width)
	}
	for _, o := range p.outputs {
		fmt.Fprintf(&b, "%s = %%%d\n", o.name, o.node.id)
	}
	return b.String()
}

// SameLength reports whether two values have one leading length, or one of them has none.
func SameLength(a, b Value) bool {
	return a.n != nil && b.n != nil && (a.n.lead == b.n.lead || a.n.lead == 0 || b.n.lead == 0)
}

// Order returns the products that make an output, as "((m1 m2) m3)".
func Order(p *Program, name string) string {
	var text func(n *node) string
	text = func(n *node) string {
		switch n.op {
		case opInput:
			return p.inputs[n.imm].name
		case opMatMul:
			return "(" + text(n.args[0]) + " " + text(n.args[1]) + ")"
		}
		return n.String()
	}
	for _, o := range p.outputs {
		if o.name == name {
			return text(o.node)
		}
	}
	return ""
}

// Products returns an upper bound of the bytes of all matrix products of a program, for a number of
// rows of the free length. They are in memory, even if they are no outputs.
func Products(p *Program, rows int64) (bytes int64) {
	for _, n := range p.nodes {
		if n.op != opMatMul {
			continue
		}
		r := rows
		if fixed := p.symbols[n.lead].fixed; fixed >= 0 {
			r = fixed
		}
		if r > 0 && n.width > math.MaxInt64/64/r {
			return math.MaxInt64 / 4
		}
		bytes = min(bytes+4*r*n.width, math.MaxInt64/4)
	}
	return bytes
}
