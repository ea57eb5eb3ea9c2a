// Package ir is the form that a program has between the stages of the compiler of expressions: a
// graph of typed nodes, with the lengths that they share.
//
// Package expr builds graphs, internal/plan divides them into kernels, internal/codegen writes the
// text of the kernels, and internal/interpret computes them on the host. What these stages must
// agree on to give the same bits is here: the types, the order of folds and scans, and the products
// whose sums have an order.
package ir

import (
	"fmt"
	"math"
)

// Type is the type of the elements of a value.
type Type uint8

// The types. Values of BF16 become F32 by the first operation, so BF16 is a type of storage.
const (
	F32 Type = iota + 1
	BF16
	I32
	U32
	U8
	Bool // stored as a byte, 0 or 1; any other byte counts as 1
)

// String returns the name of the type in texts.
func (t Type) String() string {
	if t >= F32 && t <= Bool {
		return [...]string{"f32", "bf16", "i32", "u32", "u8", "bool"}[t-1]
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// Bytes returns the size of a stored element.
func (t Type) Bytes() int64 {
	switch t {
	case BF16:
		return 2
	case U8, Bool:
		return 1
	}
	return 4
}

// Float reports whether values of the type are float32 in registers.
func (t Type) Float() bool { return t == F32 || t == BF16 }

// Fold is the operation of a reduction.
type Fold uint8

// The folds. Sums of integers wrap at 32 bits. A NaN among floats makes the result NaN. FoldMin and
// FoldMax of no element are the largest and the smallest value of the type.
const (
	FoldSum Fold = iota
	FoldMin
	FoldMax
)

// String returns the name of the fold in texts.
func (f Fold) String() string { return [...]string{"sum", "min", "max"}[f] }

// Symbol is a leading length: the number of rows of all values that have it. Two values are
// combined element by element only if they have one symbol, so that no length is compared when a
// plan runs. Values without a leading dimension have symbol 0.
type Symbol struct {
	Name  string // of the input or the filter that it is the length of
	Fixed int64  // -1: an argument of a run
	Of    *Node  // the predicate of a filter, nil for others
}

// FreeLength is the symbol of all inputs that share the length of the run.
const FreeLength = 1

// Node is one operation of a program. It is immutable, and equal nodes of a program are one, so
// that pointers compare as values do. A node is an array of rows: Lead says how many, Width how
// long they are. An argument without a leading dimension is repeated for every row, and an argument
// of width 1 for every element of its row.
type Node struct {
	ID    int // place in Graph.Nodes: arguments come before their users
	Op    Op
	Type  Type
	Lead  int   // place in Graph.Symbols of the leading dimension, 0: none
	Width int64 // elements of a row, >= 1
	Args  []*Node
	Imm   uint64 // what the operation says
}

// Scalar reports whether the node is one element.
func (n *Node) Scalar() bool { return n.Lead == 0 && n.Width == 1 }

// String returns the operation with its fold, type or value, for messages.
func (n *Node) String() string {
	switch n.Op {
	case OpReduce:
		return Fold(n.Imm).String()
	case OpRows:
		return "row_" + Fold(n.Imm).String()
	case OpConst:
		return constText(n.Type, uint32(n.Imm))
	case OpCast:
		return n.Type.String()
	}
	return n.Op.String()
}

// constText returns a constant as a text that Parse reads.
func constText(t Type, bits uint32) string {
	switch {
	case t.Float():
		return fmt.Sprint(math.Float32frombits(bits))
	case t == I32:
		return fmt.Sprint(int32(bits))
	}
	return fmt.Sprint(bits)
}

// Input is an array or a scalar that a run gets.
type Input struct {
	Name   string
	Scalar bool
	Node   *Node
}

// Output is a result. A node may be the result of several names.
type Output struct {
	Name string
	Node *Node
}

// Graph is the form of a program that all later stages read. The builder of package expr makes it
// and checks types and shapes; later stages neither check nor change it, so that several goroutines
// may read one graph. Nodes may have some that no output needs.
type Graph struct {
	Nodes   []*Node  // arguments before their users
	Symbols []Symbol // of lengths; the first two are 0 and FreeLength
	Inputs  []Input
	Outputs []Output
}

// SmallSide is the maximum of columns of the factors of a small product.
const SmallSide = 64

// SmallProduct reports whether the sums of a product are added one by one, from the first. The
// device's library decides the order of larger products.
func (n *Node) SmallProduct() bool {
	return n.Args[0].Width <= SmallSide && n.Width <= SmallSide && n.Args[1].Op == OpInput
}

// SmallOuter reports whether the sums of x' g have the order of RunRows. The device's library
// decides the order of larger ones.
func (n *Node) SmallOuter() bool { return n.Args[0].Width <= SmallSide && n.Width <= SmallSide }
