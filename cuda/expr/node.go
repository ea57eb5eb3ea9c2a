package expr

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

// Op is the operation of a node.
type Op uint8

const (
	OpInput Op = iota + 1
	OpConst
	OpIota   // the index of the row, as u32
	OpRandom // Philox: a u32 of the row index, with seed and stream in imm
	OpLength // the length of the argument's leading dimension, as f32
	OpCast
	OpNeg
	OpAbs
	OpSqrt
	OpExp
	OpLog
	OpTanh
	OpFloor
	OpNot // of bool
	OpInv // bits
	OpAdd
	OpSub
	OpMul
	OpDiv
	OpRem
	OpMin
	OpMax
	OpAnd // bits, and bool
	OpOr
	OpXor
	OpShl
	OpShr
	OpLess
	OpLessEqual
	OpEqual
	OpNotEqual
	OpSelect
	OpGather  // table, index
	OpReduce  // over all elements; kind in imm
	OpRows    // over the elements of each row; kind in imm
	OpScan    // inclusive sum along the leading dimension
	OpCompact // value, predicate
	OpMatMul
)

// opNames are the operations in messages; those of infix operators are the operators.
var opNames = map[Op]string{
	OpInput: "input", OpConst: "constant", OpIota: "index", OpRandom: "random", OpLength: "length", OpCast: "cast",
	OpNeg: "neg", OpAbs: "abs", OpSqrt: "sqrt", OpExp: "exp", OpLog: "log", OpTanh: "tanh", OpFloor: "floor",
	OpNot: "!", OpInv: "~", OpAdd: "+", OpSub: "-", OpMul: "*", OpDiv: "/", OpRem: "%", OpMin: "min", OpMax: "max",
	OpAnd: "&", OpOr: "|", OpXor: "^", OpShl: "<<", OpShr: ">>", OpLess: "<", OpLessEqual: "<=", OpEqual: "==",
	OpNotEqual: "!=", OpSelect: "select", OpGather: "gather", OpReduce: "reduce", OpRows: "rows", OpScan: "cumsum",
	OpCompact: "filter", OpMatMul: "matmul",
}

// String returns the name of the operation in messages.
func (o Op) String() string { return opNames[o] }

// Leaf reports whether a node of the operation has a value that nothing computes beforehand.
func (o Op) Leaf() bool { return o == OpInput || o == OpConst || o == OpIota || o == OpLength }

// Inlined reports whether the operation can be computed inside the kernel that uses its result.
func (o Op) Inlined() bool { return o < OpReduce }

// Fold is the operation of a reduction.
type Fold uint8

// The folds. Sums of integers wrap at 32 bits. A NaN among floats makes the result NaN. FoldMin and
// FoldMax of no element are the largest and the smallest value of the type.
const (
	FoldSum Fold = iota
	FoldMin
	FoldMax
)

func (f Fold) String() string { return [...]string{"sum", "min", "max"}[f] }

// Symbol is a leading length. Symbol 0 is that of values without one.
type Symbol struct {
	Name  string // of the input or the filter that it is the length of
	Fixed int64  // -1: an argument of a run
	Of    *Node  // the predicate of a filter, nil for others
}

// FreeLength is the symbol of all inputs without a length of their own.
const FreeLength = 1

// Node is one operation of a program. It is immutable, and equal nodes of a program are one.
type Node struct {
	ID    int // place in Program.nodes: arguments come before their users
	Op    Op
	Type  Type
	Lead  int   // symbol of the leading dimension, 0: none
	Width int64 // elements of a row, >= 1
	Args  []*Node
	Imm   uint64
}

// Scalar reports whether the node is one element.
func (n *Node) Scalar() bool { return n.Lead == 0 && n.Width == 1 }

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

type output struct {
	Name string
	Node *Node
}

// Graph is the form of a program that all later stages read. Nodes are in an order in which
// arguments come before their users.
type Graph struct {
	Nodes   []*Node
	Symbols []Symbol
	Inputs  []Input
	Outputs []output
}

// smallInner is the most columns of the factors of a small product.
const smallInner = 64

// SmallProduct reports whether the sums of a product are added one by one.
func (n *Node) SmallProduct() bool {
	return n.Args[0].Width <= smallInner && n.Width <= smallInner && n.Args[1].Op == OpInput
}
