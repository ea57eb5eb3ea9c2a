package codegen

import (
	"fmt"
	"slices"

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

func zeroNone(n *ir.Node) string { return constant(n.Type, ir.Identity(n.Type, ir.Fold(n.Imm))) }

// at is the index of an array of the shape of n at the present element. A value of one row is
// repeated for all rows, and one element for all elements of a row.
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
	return operation(n, v)
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

func operation(n *ir.Node, v []string) string {
	operands := make([]any, len(v))
	for i, text := range v {
		operands[i] = text
	}
	text := fmt.Sprintf(n.Form().CUDA, operands...)
	if n.Cut() {
		text = "(" + text + ") & 0xffu"
	}
	return text
}
