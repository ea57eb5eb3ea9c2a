package codegen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// elementwise reports whether an array is read in the loop over elements, which a table of gather
// or the second factor of a product is not.
func (w *writer) elementwise(n *ir.Node) bool {
	if slices.Contains(w.t.Roots, n) && n.Op == ir.OpInput {
		return true
	}
	return slices.ContainsFunc(w.t.Inside, func(u *ir.Node) bool {
		i := slices.Index(u.Args, n)
		return i >= 0 && u.Op != ir.OpLength && (u.Op != ir.OpGather || i > 0 || u.Args[1] == n) &&
			(u.Op != ir.OpMatMul || i == 0)
	})
}

// fromStored converts what is in memory to what is in registers.
func fromStored(t ir.Type, text string) string {
	switch t {
	case ir.BF16:
		return "x_of_bf16(" + text + ")"
	case ir.U8:
		return "(unsigned)" + text
	case ir.Bool:
		return "(unsigned)(" + text + " != 0)"
	}
	return text
}

// toStored converts a value in a register to its stored form. A NaN gets the one pattern that all
// devices store.
func toStored(t ir.Type, text string) string {
	switch t {
	case ir.F32:
		return "x_pure(" + text + ")"
	case ir.BF16:
		return "x_to_bf16(" + text + ")"
	case ir.U8, ir.Bool:
		return "(unsigned char)" + text
	}
	return text
}

// constant is the text of a constant in registers. It has the bits, so that no text of a float is
// rounded.
func constant(t ir.Type, bits uint32) string {
	switch {
	case t.Float():
		return fmt.Sprintf("x_bits(0x%08xu)", bits)
	case t == ir.I32:
		return fmt.Sprintf("(int)0x%08xu", bits)
	}
	return fmt.Sprintf("0x%08xu", bits)
}

// zeroNone is the text of the identity of a fold.
func zeroNone(n *ir.Node) string { return constant(n.Type, ir.Identity(n.Type, ir.Fold(n.Imm))) }

// at is the index of an array of the shape of n at the present element. A value of one row meets
// all rows, and one element meets all elements of a row.
func (w *writer) at(n *ir.Node) string {
	switch {
	case n.Scalar():
		return "0"
	case n.Lead == 0:
		return w.col
	case n.Width == 1:
		return w.row
	}
	return w.flat
}

// value returns the name of a value, for which it writes statements unless it is bound. Each value
// of a scope is computed once, behind its arguments.
func (w *writer) value(n *ir.Node) string {
	if name, found := w.bound[n]; found {
		return name
	}
	text := w.expression(n)
	name := fmt.Sprintf("v%d%s", w.id(n), w.suffix)
	w.line("const %s %s = %s;", inRegister[n.Type], name, text)
	w.bound[n] = name
	return name
}

// expression returns C++ for a value that is not bound, for which it writes those below.
func (w *writer) expression(n *ir.Node) string {
	if n.Op == ir.OpInput || w.l.Kept(n) && !slices.Contains(w.t.Roots, n) {
		if w.source != nil {
			if text := w.source(n); text != "" {
				return fromStored(n.Type, text)
			}
		}
		return fromStored(n.Type, fmt.Sprintf("x%d[%s]", w.id(n), w.at(n)))
	}
	switch n.Op {
	case ir.OpConst:
		return constant(n.Type, uint32(n.Imm))
	case ir.OpIota:
		return "(unsigned)(" + w.row + ")"
	case ir.OpRandom:
		return fmt.Sprintf("x_philox(%s, 0x%xu, 0x%xu)", w.row, uint32(n.Imm), uint32(n.Imm>>32))
	case ir.OpLength:
		return fmt.Sprintf("l%d", w.id(n))
	case ir.OpGather:
		return w.gather(n)
	}
	v := make([]string, len(n.Args))
	for i, a := range n.Args {
		v[i] = w.value(a)
	}
	text := operation(n, v)
	// Integers of 8 bits are computed in 32 and cut.
	if n.Type == ir.U8 && n.Op != ir.OpSelect && n.Op != ir.OpCast {
		text = "(" + text + ") & 0xffu"
	}
	return text
}

// gather returns C++ for an element of a table. An index outside of it becomes the nearest one
// inside; an empty table has zeros.
func (w *writer) gather(n *ir.Node) string {
	t := n.Args[0]
	i := w.value(n.Args[1])
	name := fmt.Sprintf("g%d%s", w.id(n), w.suffix)
	if n.Args[1].Type == ir.I32 {
		w.line("const u64 %s = %s < 0 ? 0ull : (u64)%s;", name, i, i)
	} else {
		w.line("const u64 %s = %s;", name, i)
	}
	load := fromStored(t.Type, fmt.Sprintf("x%d[%s < n%d ? %s : n%d - 1]", w.id(t), name, w.id(t), name, w.id(t)))
	return fmt.Sprintf("n%d == 0 ? %s : %s", w.id(t), constant(t.Type, 0), load)
}

// operation is the text of an operation on values in registers. It must give the bits of package
// interpret: intrinsics of one rounding keep the compiler from fusing, and signed additions are
// those of unsigned numbers, because C++ does not define their overflow.
func operation(n *ir.Node, v []string) string {
	t := n.Args[0].Type
	call := func(name string) string { return name + "(" + strings.Join(v, ", ") + ")" }
	infix := func(o string) string { return v[0] + " " + o + " " + v[1] }
	unsigned := func(o string) string { // wraps
		if t == ir.I32 {
			return fmt.Sprintf("(int)((unsigned)%s %s (unsigned)%s)", v[0], o, v[1])
		}
		return infix(o)
	}
	compare := func(o string) string { return "(unsigned)(" + infix(o) + ")" }
	switch n.Op {
	case ir.OpCast:
		return cast(n.Type, t, v[0])
	case ir.OpNeg:
		if t == ir.F32 {
			return call("x_neg")
		}
		return "(int)(0u - (unsigned)" + v[0] + ")"
	case ir.OpAbs:
		if t == ir.F32 {
			return call("x_abs")
		}
		return fmt.Sprintf("%s < 0 ? (int)(0u - (unsigned)%s) : %s", v[0], v[0], v[0])
	case ir.OpSqrt:
		return call("__fsqrt_rn")
	case ir.OpExp, ir.OpLog, ir.OpTanh, ir.OpFloor:
		return call("x_" + n.Op.String())
	case ir.OpNot:
		return v[0] + " ^ 1u"
	case ir.OpInv:
		return "~" + v[0]
	case ir.OpAdd, ir.OpSub, ir.OpMul:
		if t == ir.F32 {
			return call(map[ir.Op]string{ir.OpAdd: "__fadd_rn", ir.OpSub: "__fsub_rn", ir.OpMul: "__fmul_rn"}[n.Op])
		}
		return unsigned(n.Op.String())
	case ir.OpDiv:
		if t == ir.F32 {
			return call("__fdiv_rn")
		}
		return call("x_div")
	case ir.OpRem:
		return call("x_rem")
	case ir.OpMin, ir.OpMax:
		return call("x_" + n.Op.String())
	case ir.OpAnd, ir.OpOr, ir.OpXor:
		return infix(n.Op.String())
	case ir.OpShl:
		if t == ir.I32 {
			return fmt.Sprintf("(int)x_shl((unsigned)%s, (unsigned)%s)", v[0], v[1])
		}
		return call("x_shl")
	case ir.OpShr:
		return call("x_shr")
	case ir.OpSelect:
		return fmt.Sprintf("%s != 0u ? %s : %s", v[0], v[1], v[2])
	}
	return compare(n.Op.String())
}

// cast is the text of a conversion.
func cast(to, from ir.Type, v string) string {
	switch {
	case from.Float() && to == ir.F32:
		return v
	case from.Float() && to == ir.BF16:
		return "x_round_bf16(" + v + ")"
	case from.Float() && to == ir.Bool:
		return "(unsigned)(" + v + " != 0.0f)"
	case from.Float():
		return map[ir.Type]string{ir.I32: "x_int", ir.U32: "x_unsigned", ir.U8: "x_byte"}[to] + "(" + v + ")"
	case to == ir.BF16:
		return "x_round_bf16(" + cast(ir.F32, from, v) + ")"
	case to == ir.F32 && from == ir.I32:
		return "__int2float_rn(" + v + ")"
	case to == ir.F32:
		return "__uint2float_rn(" + v + ")"
	case to == ir.Bool:
		return "(unsigned)(" + v + " != 0)"
	case to == ir.U8:
		return "(unsigned)" + v + " & 0xffu"
	case to == ir.I32:
		return "(int)" + v
	}
	return "(unsigned)" + v
}
