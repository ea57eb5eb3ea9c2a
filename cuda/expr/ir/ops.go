package ir

import "math"

// Op is the operation of a node.
type Op uint8

// The operations. Their order has a meaning: Inlined compares with OpReduce. The operands are the
// arguments of the node, in the order of the operator or of the function.
const (
	OpInput  Op = iota + 1 // its place in Graph.Inputs in Imm
	OpConst                // its bits in Imm
	OpIota                 // the index of the row, as u32
	OpRandom               // Philox: a u32 of the row index, with Imm is stream << 32 | seed
	OpLength               // the length of the symbol in Imm, as f32; the argument is the filter that it waits for
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
	OpReduce  // over all elements; the Fold in Imm
	OpRows    // over the elements of each row; the Fold in Imm
	OpScan    // inclusive sum along the leading dimension
	OpCompact // value, predicate
	OpMatMul  // Transposed in Imm: by the transpose of the second factor
	OpOuter   // x' g: the products of each column of the first and each of the second, summed over the rows
	OpColumns // the sum of all rows, as one row
	OpScatter // the sums of the elements by index, as a table: value, index
	opEnd
)

// Transposed is the Imm of a product by the transpose of its second factor.
const Transposed = 1

// Operation is what all stages know of an operation. An element-wise operation is one row of the
// table and, if users call it, one function of package expr.
type Operation struct {
	// Name is the name in messages, and the operator of an infix operation.
	Name string
	// Arity is the number of operands of an element-wise operation, 0 for other operations.
	Arity int
	// Operands are the types that the operands may have. The operands have one type. It is 0 where
	// package expr has other rules.
	Operands Types
	// Result is the type of the result, 0 for the type of the operands.
	Result Type
	// Call reports whether texts call the operation, which has one operand, by its name.
	Call bool
	// Weight is the number of instructions for an element, 0 for one. Weights are counted in the text
	// that nvcc makes. They are not exact: they decide between memory and computation.
	Weight float64
	// The forms by the type of the first operand. Unsigned is the form of u32, u8 and bool.
	Float, Signed, Unsigned Form
}

// Form is an operation on values in registers, in CUDA C++ and in Go. The two give the same bits:
// intrinsics of one rounding keep the compilers from fusing, and signed sums are sums of unsigned
// numbers, because C++ does not define their overflow.
type Form struct {
	// CUDA is the expression, a format of the operands.
	CUDA string
	// One and Two compute an element. Block computes the elements of blocks of operands; it is set
	// where a loop without calls is faster, and where there are three operands.
	One   func(a uint32) uint32
	Two   func(a, b uint32) uint32
	Block func(v [3][]uint32, out []uint32)
}

// Compute computes the elements of a block.
func (f *Form) Compute(v [3][]uint32, out []uint32) {
	switch {
	case f.Block != nil:
		f.Block(v, out)
	case f.Two != nil:
		for i, a := range v[0] {
			out[i] = f.Two(a, v[1][i])
		}
	default:
		for i, a := range v[0] {
			out[i] = f.One(a)
		}
	}
}

// Types is a set of types.
type Types uint8

// Has reports whether the set has a type.
func (s Types) Has(t Type) bool { return s&(1<<t) != 0 }

// The sets of types of operands.
const (
	floats   Types = 1 << F32
	bools    Types = 1 << Bool
	integers Types = 1<<I32 | 1<<U32 | 1<<U8
	signed         = floats | 1<<I32
	numbers        = floats | integers
	bitwise        = integers | bools
	anyType        = numbers | bools
)

var operations = [opEnd]Operation{
	OpInput:  {Name: "input"},
	OpConst:  {Name: "constant"},
	OpIota:   {Name: "index"},
	OpRandom: {Name: "random", Weight: 80},
	OpLength: {Name: "length"},
	OpCast:   {Name: "cast", Arity: 1, Weight: 2}, // casts has the forms
	OpNeg: {
		Name: "neg", Arity: 1, Operands: signed,
		Float:  Form{CUDA: "x_neg(%s)", One: func(a uint32) uint32 { return a ^ 1<<31 }},
		Signed: Form{CUDA: "(int)(0u - (unsigned)%s)", One: func(a uint32) uint32 { return -a }},
	},
	OpAbs: {
		Name: "abs", Arity: 1, Operands: signed, Call: true,
		Float: Form{CUDA: "x_abs(%s)", One: func(a uint32) uint32 { return a &^ (1 << 31) }},
		Signed: Form{CUDA: "%[1]s < 0 ? (int)(0u - (unsigned)%[1]s) : %[1]s", One: func(a uint32) uint32 {
			if int32(a) < 0 {
				return -a
			}
			return a
		}},
	},
	OpSqrt: {
		Name: "sqrt", Arity: 1, Operands: floats, Call: true, Weight: 12,
		Float: Form{CUDA: "__fsqrt_rn(%s)", Block: eachFloat(sqrt32)},
	},
	OpExp: {
		Name: "exp", Arity: 1, Operands: floats, Call: true, Weight: 22,
		Float: Form{CUDA: "x_exp(%s)", Block: eachFloat(exp32)},
	},
	OpLog: {
		Name: "log", Arity: 1, Operands: floats, Call: true, Weight: 28,
		Float: Form{CUDA: "x_log(%s)", Block: eachFloat(log32)},
	},
	OpTanh: {
		Name: "tanh", Arity: 1, Operands: floats, Call: true, Weight: 40,
		Float: Form{CUDA: "x_tanh(%s)", Block: eachFloat(tanh32)},
	},
	OpFloor: {
		Name: "floor", Arity: 1, Operands: floats, Call: true, Weight: 6,
		Float: Form{CUDA: "x_floor(%s)", Block: eachFloat(floor32)},
	},
	OpNot: {
		Name: "!", Arity: 1, Operands: bools,
		Unsigned: Form{CUDA: "%s ^ 1u", One: func(a uint32) uint32 { return a ^ 1 }},
	},
	OpInv: both(Operation{Name: "~", Arity: 1, Operands: integers}, Form{
		CUDA: "~%s", One: func(a uint32) uint32 { return ^a },
	}),
	OpAdd: wraps(Operation{
		Name: "+", Arity: 2, Operands: numbers,
		Float: Form{CUDA: "__fadd_rn(%s, %s)", Two: onFloats(add), Block: addFloats},
	}, add),
	OpSub: wraps(Operation{
		Name: "-", Arity: 2, Operands: numbers, Float: Form{CUDA: "__fsub_rn(%s, %s)", Block: subFloats},
	}, func(a, b uint32) uint32 { return a - b }),
	OpMul: wraps(Operation{
		Name: "*", Arity: 2, Operands: numbers, Float: Form{CUDA: "__fmul_rn(%s, %s)", Block: mulFloats},
	}, func(a, b uint32) uint32 { return a * b }),
	OpDiv: {
		Name: "/", Arity: 2, Operands: numbers, Weight: 12,
		Float:    Form{CUDA: "__fdiv_rn(%s, %s)", Block: divFloats},
		Signed:   Form{CUDA: "x_div(%s, %s)", Two: onInts(divide)},
		Unsigned: Form{CUDA: "x_div(%s, %s)", Two: divide[uint32]},
	},
	OpRem: {
		Name: "%", Arity: 2, Operands: integers, Weight: 20,
		Signed:   Form{CUDA: "x_rem(%s, %s)", Two: onInts(remainder)},
		Unsigned: Form{CUDA: "x_rem(%s, %s)", Two: remainder[uint32]},
	},
	OpMin: {
		Name: "min", Arity: 2, Operands: numbers, Weight: 4,
		Float:    Form{CUDA: "x_min(%s, %s)", Two: onFloats(min32), Block: minFloats},
		Signed:   Form{CUDA: "x_min(%s, %s)", Two: onInts(smaller)},
		Unsigned: Form{CUDA: "x_min(%s, %s)", Two: smaller[uint32]},
	},
	OpMax: {
		Name: "max", Arity: 2, Operands: numbers, Weight: 4,
		Float:    Form{CUDA: "x_max(%s, %s)", Two: onFloats(max32), Block: maxFloats},
		Signed:   Form{CUDA: "x_max(%s, %s)", Two: onInts(larger)},
		Unsigned: Form{CUDA: "x_max(%s, %s)", Two: larger[uint32]},
	},
	OpAnd: both(Operation{Name: "&", Arity: 2, Operands: bitwise}, Form{
		CUDA: "%s & %s", Two: func(a, b uint32) uint32 { return a & b },
	}),
	OpOr: both(Operation{Name: "|", Arity: 2, Operands: bitwise}, Form{
		CUDA: "%s | %s", Two: func(a, b uint32) uint32 { return a | b },
	}),
	OpXor: both(Operation{Name: "^", Arity: 2, Operands: bitwise}, Form{
		CUDA: "%s ^ %s", Two: func(a, b uint32) uint32 { return a ^ b },
	}),
	OpShl: {
		Name: "<<", Arity: 2, Operands: integers,
		Signed:   Form{CUDA: "(int)x_shl((unsigned)%s, (unsigned)%s)", Two: shl},
		Unsigned: Form{CUDA: "x_shl(%s, %s)", Two: shl},
	},
	OpShr: {
		Name: ">>", Arity: 2, Operands: integers,
		Signed:   Form{CUDA: "x_shr(%s, %s)", Two: onInts(shrInt)},
		Unsigned: Form{CUDA: "x_shr(%s, %s)", Two: shrUint},
	},
	OpLess:      compares("<", numbers, less[float32], less[int32], less[uint32]),
	OpLessEqual: compares("<=", numbers, lessEqual[float32], lessEqual[int32], lessEqual[uint32]),
	OpEqual:     compares("==", anyType, equal[float32], equal[int32], equal[uint32]),
	OpNotEqual:  compares("!=", anyType, notEqual[float32], notEqual[int32], notEqual[uint32]),
	OpSelect:    {Name: "select", Arity: 3, Unsigned: Form{CUDA: "%s != 0u ? %s : %s", Block: choose}},
	OpGather:    {Name: "gather", Weight: 8},
	OpReduce:    {Name: "reduce"},
	OpRows:      {Name: "rows"},
	OpScan:      {Name: "cumsum"},
	OpCompact:   {Name: "filter"},
	OpMatMul:    {Name: "matmul"},
	OpOuter:     {Name: "x'g"},
	OpColumns:   {Name: "col_sum"},
	OpScatter:   {Name: "scatter"},
}

// casts has the forms of OpCast by the type of the result. Integers become narrower by their low
// bits.
var casts = [...]Operation{
	F32: {
		Float:    Form{CUDA: "%s", One: same},
		Signed:   Form{CUDA: "__int2float_rn(%s)", One: intToFloat},
		Unsigned: Form{CUDA: "__uint2float_rn(%s)", One: uintToFloat},
	},
	BF16: {
		Float: Form{CUDA: "x_round_bf16(%s)", One: roundBits},
		Signed: Form{CUDA: "x_round_bf16(__int2float_rn(%s))", One: func(a uint32) uint32 {
			return roundBits(intToFloat(a))
		}},
		Unsigned: Form{CUDA: "x_round_bf16(__uint2float_rn(%s))", One: func(a uint32) uint32 {
			return roundBits(uintToFloat(a))
		}},
	},
	I32: both(Operation{Float: Form{CUDA: "x_int(%s)", One: func(a uint32) uint32 {
		return uint32(toInt(math.Float32frombits(a)))
	}}}, Form{CUDA: "(int)%s", One: same}),
	U32: both(Operation{Float: Form{CUDA: "x_unsigned(%s)", One: func(a uint32) uint32 {
		return toUint(math.Float32frombits(a))
	}}}, Form{CUDA: "(unsigned)%s", One: same}),
	U8: both(Operation{Float: Form{CUDA: "x_byte(%s)", One: func(a uint32) uint32 {
		return toByte(math.Float32frombits(a))
	}}}, Form{CUDA: "(unsigned)%s & 0xffu", One: func(a uint32) uint32 { return a & 0xff }}),
	Bool: both(Operation{Float: Form{CUDA: "(unsigned)(%s != 0.0f)", One: func(a uint32) uint32 {
		return truth(math.Float32frombits(a) != 0)
	}}}, Form{CUDA: "(unsigned)(%s != 0)", One: func(a uint32) uint32 { return truth(a != 0) }}),
}

// Operation returns the row of the operation in the table.
func (o Op) Operation() *Operation { return &operations[o] }

// String returns the name of the operation in messages.
func (o Op) String() string {
	if o >= opEnd {
		return ""
	}
	return operations[o].Name
}

// Weight returns the number of instructions for an element.
func (o Op) Weight() float64 { return max(operations[o].Weight, 1) }

// Leaf reports whether a node of the operation has a value that nothing computes beforehand.
func (o Op) Leaf() bool { return o == OpInput || o == OpConst || o == OpIota || o == OpLength }

// SumsRows reports whether the operation adds up rows in the order of RunRows.
func (o Op) SumsRows() bool { return o >= OpOuter && o <= OpScatter }

// Inlined reports whether the operation can be computed inside the kernel that uses its result.
func (o Op) Inlined() bool { return o < OpReduce }

// Form returns the form of an element-wise node.
func (n *Node) Form() *Form {
	row := &operations[n.Op]
	if n.Op == OpCast {
		row = &casts[n.Type]
	}
	return row.form(n.Args[0].Type)
}

func (o *Operation) form(t Type) *Form {
	switch {
	case t.Float():
		return &o.Float
	case t == I32:
		return &o.Signed
	}
	return &o.Unsigned
}

// Cut reports whether the result of the form of a node is cut to 8 bits: integers of 8 bits are
// computed in 32 bits.
func (n *Node) Cut() bool { return n.Type == U8 && n.Op != OpSelect && n.Op != OpCast }

// Function returns the function of a fold on the bits of two elements.
func (f Fold) Function(t Type) func(a, b uint32) uint32 {
	return operations[[...]Op{FoldSum: OpAdd, FoldMin: OpMin, FoldMax: OpMax}[f]].form(t).Two
}

// both returns an operation with one form for all integers.
func both(o Operation, f Form) Operation {
	o.Signed, o.Unsigned = f, f
	return o
}

// wraps returns an operation whose integers wrap at 32 bits.
func wraps(o Operation, two func(a, b uint32) uint32) Operation {
	o.Signed = Form{CUDA: "(int)((unsigned)%s " + o.Name + " (unsigned)%s)", Two: two}
	o.Unsigned = Form{CUDA: "%s " + o.Name + " %s", Two: two}
	return o
}

func compares(name string, operands Types, f func(a, b float32) bool, i func(a, b int32) bool,
	u func(a, b uint32) bool,
) Operation {
	text := "(unsigned)(%s " + name + " %s)"
	return Operation{
		Name: name, Arity: 2, Operands: operands, Result: Bool,
		Float: Form{CUDA: text, Two: func(a, b uint32) uint32 {
			return truth(f(math.Float32frombits(a), math.Float32frombits(b)))
		}},
		Signed:   Form{CUDA: text, Two: func(a, b uint32) uint32 { return truth(i(int32(a), int32(b))) }},
		Unsigned: Form{CUDA: text, Two: func(a, b uint32) uint32 { return truth(u(a, b)) }},
	}
}
