// Package expr compiles typed expressions over arrays into few kernels of a device.
//
// A Program is a graph of immutable nodes. The functions of build.go make nodes, and Parse makes
// them of a text. Compile makes a plan (plan.go), whose kernels are CUDA C++ (text.go). A device
// that compiles nothing interprets the program on the cores of the host (interp.go); that is also
// what the results of other devices are compared with. Every operation is defined to the bit, the
// order of sums included, so that all devices give the same bits.
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

// float reports whether values of the type are float32 in registers.
func (t Type) float() bool { return t == F32 || t == BF16 }

// op is the operation of a node.
type op uint8

const (
	opInput op = iota + 1
	opConst
	opIota   // the index of the row, as u32
	opRandom // Philox: a u32 of the row index, with seed and stream in imm
	opLength // the length of the argument's leading dimension, as f32
	opCast
	opNeg
	opAbs
	opSqrt
	opExp
	opLog
	opTanh
	opFloor
	opNot // of bool
	opInv // bits
	opAdd
	opSub
	opMul
	opDiv
	opRem
	opMin
	opMax
	opAnd // bits, and bool
	opOr
	opXor
	opShl
	opShr
	opLess
	opLessEqual
	opEqual
	opNotEqual
	opSelect
	opGather  // table, index
	opReduce  // over all elements; kind in imm
	opRows    // over the elements of each row; kind in imm
	opScan    // inclusive sum along the leading dimension
	opCompact // value, predicate
	opMatMul
)

var opNames = map[op]string{
	opInput: "input", opConst: "constant", opIota: "index", opRandom: "random", opLength: "length", opCast: "cast",
	opNeg: "neg", opAbs: "abs", opSqrt: "sqrt", opExp: "exp", opLog: "log", opTanh: "tanh", opFloor: "floor",
	opNot: "!", opInv: "~", opAdd: "+", opSub: "-", opMul: "*", opDiv: "/", opRem: "%", opMin: "min", opMax: "max",
	opAnd: "&", opOr: "|", opXor: "^", opShl: "<<", opShr: ">>", opLess: "<", opLessEqual: "<=", opEqual: "==",
	opNotEqual: "!=", opSelect: "select", opGather: "gather", opReduce: "reduce", opRows: "rows", opScan: "cumsum",
	opCompact: "filter", opMatMul: "matmul",
}

// leaf reports whether a node of the operation has a value that nothing computes beforehand.
func (o op) leaf() bool { return o == opInput || o == opConst || o == opIota || o == opLength }

// inlined reports whether the operation can be computed inside the kernel that uses its result.
func (o op) inlined() bool { return o < opReduce }

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

// symbol is a leading length. Symbol 0 is that of values without one.
type symbol struct {
	name  string // of the input or the filter that it is the length of
	fixed int64  // -1: an argument of a run
	of    *node  // the predicate of a filter, nil for others
}

// freeLength is the symbol of all inputs without a length of their own.
const freeLength = 1

// node is one operation of a program. It is immutable, and equal nodes of a program are one.
type node struct {
	id    int // place in Program.nodes: arguments come before their users
	op    op
	typ   Type
	lead  int   // symbol of the leading dimension, 0: none
	width int64 // elements of a row, >= 1
	args  []*node
	imm   uint64
}

// scalar reports whether the node is one element.
func (n *node) scalar() bool { return n.lead == 0 && n.width == 1 }

func (n *node) String() string {
	switch n.op {
	case opReduce:
		return Fold(n.imm).String()
	case opRows:
		return "row_" + Fold(n.imm).String()
	case opConst:
		return constText(n.typ, uint32(n.imm))
	case opCast:
		return n.typ.String()
	}
	return opNames[n.op]
}

// constText returns a constant as a text that Parse reads.
func constText(t Type, bits uint32) string {
	switch {
	case t.float():
		return fmt.Sprint(math.Float32frombits(bits))
	case t == I32:
		return fmt.Sprint(int32(bits))
	}
	return fmt.Sprint(bits)
}

// Limits of a program.
const (
	MaxNodes  = 4096
	MaxInputs = 24
	MaxOuts   = 16
	// MaxWidth bounds the elements of a row that is reduced.
	MaxWidth = tileSize * superTiles
	// MaxSide bounds the elements of other rows.
	MaxSide = 1 << 24
)

// input is an array or a scalar that a run gets.
type input struct {
	name   string
	scalar bool
	node   *node
}

type output struct {
	name string
	node *node
}

// Program is a graph of operations. It is built by one goroutine; afterwards it may be used by
// several. The first error of a builder function is kept, and Err and Compile return it.
type Program struct {
	nodes   []*node
	known   map[string]*node
	symbols []symbol
	inputs  []input
	outputs []output
	err     error
	// expected is the length that is expected for the free one, 0 if nothing is known.
	expected int64
}

// New returns an empty program.
func New() *Program {
	return &Program{known: map[string]*node{}, symbols: []symbol{{fixed: 1}, {name: "n", fixed: -1}}}
}

// Err returns the first error of the program's construction.
func (p *Program) Err() error {
	if p.err == nil && len(p.outputs) == 0 {
		return fmt.Errorf("expr: the program has no output: %w", ErrType)
	}
	return p.err
}

// Value is the result of an operation of a program.
type Value struct {
	p *Program
	n *node
}

// Type returns the type of the value's elements, 0 after an error of the program.
func (v Value) Type() Type {
	if v.n == nil {
		return 0
	}
	return v.n.typ
}

// Width returns the number of elements of a row, and whether the value has a leading dimension.
func (v Value) Width() (width int64, rows bool) {
	if v.n == nil {
		return 0, false
	}
	return v.n.width, v.n.lead != 0
}

// fail keeps the first error.
func (p *Program) fail(class error, format string, args ...any) Value {
	if p.err == nil {
		p.err = fmt.Errorf("expr: "+format+": %w", append(args, class)...)
	}
	return Value{p: p}
}

// add returns the node of the program that is equal to n, which it adds if there is none.
func (p *Program) add(n node) Value {
	key := make([]byte, 0, 64)
	key = fmt.Appendf(key, "%d %d %d %d %d", n.op, n.typ, n.lead, n.width, n.imm)
	for _, a := range n.args {
		key = fmt.Appendf(key, " %d", a.id)
	}
	if old := p.known[string(key)]; old != nil {
		return Value{p, old}
	}
	if len(p.nodes) >= MaxNodes {
		return p.fail(ErrLimit, "a program has at most %d operations", MaxNodes)
	}
	n.id = len(p.nodes)
	p.nodes = append(p.nodes, &n)
	p.known[string(key)] = &n
	return Value{p, &n}
}
