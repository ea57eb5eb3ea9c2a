// Package expr compiles typed expressions over arrays into few kernels of a device.
//
// A Program is a graph of immutable nodes (package ir). The functions of build.go make nodes, and
// Parse makes them of a text. Compile plans the kernels (internal/plan) and writes them as CUDA C++
// (internal/codegen), and Compiled.Run launches them. A device that compiles nothing interprets the
// program on the cores of the host (internal/interpret); that is also what the results of other
// devices are compared with. Every operation is defined to the bit, the order of sums included, so
// that all devices give the same bits. Products of large matrices are the exception: their sums
// have the order of the library of the device.
//
// A program has lengths, but no values of them: one Compiled runs arrays of any number of rows.
package expr

import (
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Limits of a program.
const (
	MaxNodes  = 4096 // operations, equal ones counted once
	MaxInputs = 64   // as many as a chain has factors
	MaxOuts   = 64
	// MaxWidth bounds the elements of a row that is reduced.
	MaxWidth = ir.TileSize * ir.SuperTiles
	// MaxSide bounds the elements of other rows.
	MaxSide = 1 << 24
)

// Program is a graph of operations. It is built by one goroutine; afterwards it may be used by
// several. The first error of a builder function is kept, and Err and Compile return it; functions
// that are called after an error do nothing, so that a caller checks once, at the end.
type Program struct {
	g     ir.Graph
	known map[string]*ir.Node // by what makes a node equal to another
	err   error
	// expected is the length that is expected for the free one, 0 if nothing is known.
	expected int64
}

// New returns an empty program.
func New() *Program {
	return &Program{
		g:     ir.Graph{Symbols: []ir.Symbol{{Fixed: 1}, {Name: "n", Fixed: -1}}},
		known: map[string]*ir.Node{},
	}
}

// Err returns the first error of the program's construction.
func (p *Program) Err() error {
	if p.err == nil && len(p.g.Outputs) == 0 {
		return fmt.Errorf("expr: the program has no output: %w", ErrType)
	}
	return p.err
}

// Value is the result of an operation of a program. A value of one program is no operand of another
// one.
type Value struct {
	p *Program
	n *ir.Node
}

// Type returns the type of the value's elements, 0 after an error of the program.
func (v Value) Type() ir.Type {
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

// fail keeps the first error, and returns a value without a node, which all functions accept.
func (p *Program) fail(class error, format string, args ...any) Value {
	if p.err == nil {
		p.err = fmt.Errorf("expr: "+format+": %w", append(args, class)...)
	}
	return Value{p: p}
}

// add returns the node of the program that is equal to n, which it adds if there is none. Types and
// shapes are checked before.
func (p *Program) add(n ir.Node) Value {
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
