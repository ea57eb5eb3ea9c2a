// Package expr compiles typed expressions over arrays into few kernels of a device.
//
// A Program is a graph of immutable nodes. The functions of build.go make nodes, and Parse makes
// them of a text. Compile makes a plan (plan.go), whose kernels are CUDA C++ (text.go). A device
// that compiles nothing interprets the program on the cores of the host (interp.go); that is also
// what the results of other devices are compared with. Every operation is defined to the bit, the
// order of sums included, so that all devices give the same bits.
package expr

import "fmt"

// Limits of a program.
const (
	MaxNodes  = 4096
	MaxInputs = 24
	MaxOuts   = 16
	// MaxWidth bounds the elements of a row that is reduced.
	MaxWidth = TileSize * SuperTiles
	// MaxSide bounds the elements of other rows.
	MaxSide = 1 << 24
)

// Program is a graph of operations. It is built by one goroutine; afterwards it may be used by
// several. The first error of a builder function is kept, and Err and Compile return it.
type Program struct {
	g     Graph
	known map[string]*Node // by what makes a node equal to another
	err   error
	// expected is the length that is expected for the free one, 0 if nothing is known.
	expected int64
}

// New returns an empty program.
func New() *Program {
	return &Program{
		g:     Graph{Symbols: []Symbol{{Fixed: 1}, {Name: "n", Fixed: -1}}},
		known: map[string]*Node{},
	}
}

// Err returns the first error of the program's construction.
func (p *Program) Err() error {
	if p.err == nil && len(p.g.Outputs) == 0 {
		return fmt.Errorf("expr: the program has no output: %w", ErrType)
	}
	return p.err
}

// Value is the result of an operation of a program.
type Value struct {
	p *Program
	n *Node
}

// Type returns the type of the value's elements, 0 after an error of the program.
func (v Value) Type() Type {
	if v.n == nil {
		return 0
	}
	return v.n.Type
}

// Width returns the number of elements of a row, and whether the value has a leading dimension.
func (v Value) Width() (width int64, rows bool) {
	if v.n == nil {
		return 0, false
	}
	return v.n.Width, v.n.Lead != 0
}

// fail keeps the first error.
func (p *Program) fail(class error, format string, args ...any) Value {
	if p.err == nil {
		p.err = fmt.Errorf("expr: "+format+": %w", append(args, class)...)
	}
	return Value{p: p}
}

// add returns the node of the program that is equal to n, which it adds if there is none.
func (p *Program) add(n Node) Value {
	key := make([]byte, 0, 64)
	key = fmt.Appendf(key, "%d %d %d %d %d", n.Op, n.Type, n.Lead, n.Width, n.Imm)
	for _, a := range n.Args {
		key = fmt.Appendf(key, " %d", a.ID)
	}
	if old := p.known[string(key)]; old != nil {
		return Value{p, old}
	}
	if len(p.g.Nodes) >= MaxNodes {
		return p.fail(ErrLimit, "a program has at most %d operations", MaxNodes)
	}
	n.ID = len(p.g.Nodes)
	p.g.Nodes = append(p.g.Nodes, &n)
	p.known[string(key)] = &n
	return Value{p, &n}
}
