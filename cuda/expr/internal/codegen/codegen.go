// Package codegen writes the CUDA C++ of the parts of a plan.
//
// Each kind of part has one frame of text: loads of vectors, loops, folds and stores, written once
// by hand. The expression of the part is filled into it, a statement for each node. The operations
// are those of prelude.cuh. The results have the bits of package interpret: a change of a frame
// that changes the order of a fold, or the rounding of an operation, is an error.
package codegen

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// prelude has the operations of all generated kernels. Its functions begin with x_, so that no name
// of a value is one of theirs.
//
//go:embed prelude.cuh
var prelude string

// The shape of launches, which the caller of a kernel must keep to.
const (
	// BlockThreads is the number of threads of a block of every kernel.
	BlockThreads = 256
	blockWarps   = BlockThreads / 32
	// MapTiles is the number of tiles of ir.TileSize elements of a block of a map without folds.
	// With folds, a block has a super tile.
	MapTiles = blockWarps
	// CompactTile is the number of elements of a block of a filter.
	CompactTile = 8192
)

// C types of values in memory and in registers. Operations are written for those in registers.
var (
	stored = map[ir.Type]string{
		ir.F32: "float", ir.BF16: "unsigned short", ir.I32: "int", ir.U32: "unsigned", ir.U8: "unsigned char",
		ir.Bool: "unsigned char",
	}
	inRegister = map[ir.Type]string{
		ir.F32:  "float",
		ir.BF16: "float",
		ir.I32:  "int",
		ir.U32:  "unsigned",
		ir.U8:   "unsigned",
		ir.Bool: "unsigned",
	}
)

// writer writes the text of one part. The names of the text have a letter for the role, and the
// number of the node: b and o are the array that is read and its first element, x the pointer to
// that, c, q and y the same for an array that is written, n the length of a table, s a scalar, l a
// length, and v a value in a register.
type writer struct {
	strings.Builder
	l      *plan.Plan
	t      *plan.Part
	texts  map[string]string // of the kernels, by their endings
	indent int
	// flat, row and col are C expressions of the present element: its place in the domain, its row
	// and its place in the row.
	flat, row, col string
	// bound has the names of values that are computed already, innermost scope last.
	bound map[*ir.Node]string
	// source returns an expression of the stored value of what the part reads, or "" for a load.
	source func(n *ir.Node) string
	// arrays are the values of kernels of small products that are arrays of registers.
	arrays map[*ir.Node]bool
	// numbers are those of nodes in names: equal kernels of different programs have equal texts.
	numbers map[*ir.Node]int
}

// id returns the number of a node in the names of the text. Numbers are given in the order of first
// use, which two equal kernels have in common.
func (w *writer) id(n *ir.Node) int {
	if w.numbers == nil {
		w.numbers = map[*ir.Node]int{}
	}
	if _, found := w.numbers[n]; !found {
		w.numbers[n] = len(w.numbers)
	}
	return w.numbers[n]
}

// line writes a line of text, indented by the braces before it.
func (w *writer) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if strings.HasPrefix(text, "}") {
		w.indent--
	}
	if text != "" {
		for range w.indent {
			w.WriteString("  ")
		}
	}
	w.WriteString(text + "\n")
	if strings.HasSuffix(text, "{") {
		w.indent++
	}
}

// scope calls f; what it binds is forgotten, because it is in a block of C++ that ends.
func (w *writer) scope(f func()) {
	old := w.bound
	w.bound = make(map[*ir.Node]string, len(old))
	for n, name := range old {
		w.bound[n] = name
	}
	f()
	w.bound = old
}

// Sources returns the texts of the kernels of a part by the endings of their names, which begin
// with the name of the part. A scan has the endings ScanTotals, ScanApply, ScanUp and ScanDown; a
// product of the library has no text, and other parts have one, with the ending "".
//
// The text depends on the operations of the part and on the shapes of their rows alone, not on
// lengths, names or other parts. The name of the part occurs in it only as the beginning of the
// name of a kernel.
//
// The parameters of a kernel are, in this order: for each of the part's Reads its scalar, or its
// array with the number of the first element and, for a table of gather, the length; for each of
// the Roots its array with the number of the first element; the value of each OpLength; and those
// of the frame of its kind. The last parameter is the number of elements or of rows. A frame has
// these parameters before it: a map the scratch memory, a filter the count of kept elements and the
// scratch memory, and a scan the sums of tiles.
func Sources(l *plan.Plan, t *plan.Part) map[string]string {
	if t.Kind == plan.KindGemm {
		return nil
	}
	w := &writer{
		l: l, t: t, texts: map[string]string{}, bound: map[*ir.Node]string{}, arrays: map[*ir.Node]bool{},
		numbers: map[*ir.Node]int{},
	}
	switch t.Kind {
	case plan.KindMap:
		w.mapKernel()
	case plan.KindRows:
		w.rowsKernel()
	case plan.KindCompact:
		w.compactKernel()
	case plan.KindScan:
		w.scanKernels()
	case plan.KindSmall:
		w.smallKernel()
	}
	if t.Kind != plan.KindScan {
		w.texts[""] = prelude + w.String()
	}
	return w.texts
}

// begin writes the head of a kernel: parameters, pointers to first elements, and what all elements
// meet. more are parameters behind the arrays.
func (w *writer) begin(name string, reads, writes []*ir.Node, more ...string) {
	var params []string
	for _, n := range reads {
		switch {
		case n.Op == ir.OpInput && w.l.Graph.Inputs[n.Imm].Scalar:
			params = append(params, fmt.Sprintf("%s s%d", inRegister[n.Type], w.id(n)))
		default:
			params = append(params, fmt.Sprintf("const %s *__restrict__ b%d", stored[n.Type], w.id(n)),
				fmt.Sprintf("unsigned o%d", w.id(n)))
			if w.t.Gathers(n) {
				params = append(params, fmt.Sprintf("unsigned long long n%d", w.id(n)))
			}
		}
	}
	for _, n := range writes {
		params = append(
			params,
			fmt.Sprintf("%s *__restrict__ c%d", stored[n.Type], w.id(n)),
			fmt.Sprintf("unsigned q%d", w.id(n)),
		)
	}
	for _, n := range w.t.Inside {
		if n.Op == ir.OpLength {
			params = append(params, fmt.Sprintf("float l%d", w.id(n)))
		}
	}
	params = append(params, more...)
	w.line(
		`extern "C" __global__ void __launch_bounds__(%d) %s(%s) {`,
		BlockThreads,
		name,
		strings.Join(params, ", "),
	)
	for _, n := range reads {
		if n.Op != ir.OpInput || !w.l.Graph.Inputs[n.Imm].Scalar {
			w.line("const %s *const x%d = b%d + o%d;", stored[n.Type], w.id(n), w.id(n), w.id(n))
		}
	}
	for _, n := range writes {
		w.line("%s *const y%d = c%d + q%d;", stored[n.Type], w.id(n), w.id(n), w.id(n))
	}
	w.line("const unsigned lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;")
	// What every element meets is loaded once, except for tables, which are read by index.
	for _, n := range reads {
		if !n.Scalar() || w.t.Gathers(n) {
			continue
		}
		if n.Op == ir.OpInput && w.l.Graph.Inputs[n.Imm].Scalar {
			w.bound[n] = fmt.Sprintf("s%d", w.id(n))
			continue
		}
		w.line(
			"const %s v%d = %s;",
			inRegister[n.Type],
			w.id(n),
			fromStored(n.Type, fmt.Sprintf("x%d[0]", w.id(n))),
		)
		w.bound[n] = fmt.Sprintf("v%d", w.id(n))
	}
}

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
	name := fmt.Sprintf("v%d", w.id(n))
	w.line("const %s %s = %s;", inRegister[n.Type], name, text)
	w.bound[n] = name
	return name
}

// expression returns C++ for a value that is not bound, for which it writes those below.
func (w *writer) expression(n *ir.Node) string {
	if n.Op == ir.OpInput || w.l.Kept[n] && !slices.Contains(w.t.Roots, n) {
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
	name := fmt.Sprintf("g%d", w.id(n))
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

// stores are the roots of the shape of the domain, which each element stores. The others are folds,
// and scalars that the last block computes.
func (w *writer) stores() (all []*ir.Node) {
	for _, r := range w.t.Roots {
		if r.Op != ir.OpReduce && !slices.Contains(w.t.After, r) {
			all = append(all, r)
		}
	}
	return all
}

// folders are the classes of the prelude for the folds.
var folders = [...]string{"x_sums", "x_mins", "x_maxs"}

func foldName(n *ir.Node) string { return folders[n.Imm] }

// unroll is the number of vectors of each array that a thread loads before it computes: enough
// loads in flight for few arrays, and no more registers than a thread has for many.
func unroll(arrays int) int {
	switch {
	case arrays <= 1:
		return 8
	case arrays <= 2:
		return 4
	case arrays <= 6:
		return 2
	}
	return 1
}

// aligned writes the flag vec, which says whether all arrays are whole vectors of four elements
// from their start on. An array of a run may start at any element. Where vectors begin with each
// row, rows must be whole vectors too.
func (w *writer) aligned(arrays []*ir.Node, writes []*ir.Node, byRow bool) {
	if byRow && w.t.Width%4 != 0 {
		w.line("const bool vec = false;")
		return
	}
	w.WriteString("  const bool vec = true")
	for _, n := range arrays {
		fmt.Fprintf(w, " && x_aligned(x%d, %d)", w.id(n), 4*n.Type.Bytes())
	}
	for _, n := range writes {
		fmt.Fprintf(w, " && x_aligned(y%d, %d)", w.id(n), 4*n.Type.Bytes())
	}
	w.WriteString(";\n")
}

// wide are the arrays that have an element for each element of the domain, which are loaded as
// vectors of four. Other arrays are loaded element by element, mostly from a cache.
func (w *writer) wide() (all []*ir.Node) {
	for _, n := range w.t.Reads {
		if n.Lead == w.t.Lead && n.Width == w.t.Width && !n.Scalar() && w.elementwise(n) {
			all = append(all, n)
		}
	}
	return all
}

// places sets the index of element "e" of the domain, in vectors from "e0" on. With vector it also
// writes the row and the column of the first element of a vector, once for four.
func (w *writer) places(vector bool) {
	w.flat, w.row, w.col = "e", "e", "0"
	if w.t.Lead == 0 {
		w.row, w.col = "0", "e"
		return
	}
	if w.t.Width == 1 {
		return
	}
	w.row, w.col = "row", "col"
	if vector {
		w.line("const u64 row0 = e0 / %dull;", w.t.Width)
		w.line("const unsigned col0 = (unsigned)(e0 %% %dull);", w.t.Width)
	}
}

// placesOf writes the row and the column of element k of a vector.
func (w *writer) placesOf() {
	if w.row != "row" {
		return
	}
	if w.t.Width%4 == 0 {
		w.line("const u64 row = row0;")
		w.line("const unsigned col = col0 + k;")
		return
	}
	w.line("const u64 row = e / %dull;", w.t.Width)
	w.line("const unsigned col = (unsigned)(e %% %dull);", w.t.Width)
}

// mapKernel writes element-wise results and folds of all elements. A warp has a tile, and a lane
// vectors of four elements, in the order of ir.TileSize. Tiles that are not full, and arrays that
// are not aligned, have a loop of their own.
func (w *writer) mapKernel() {
	t := w.t
	all, stores := t.Folds(), w.stores()
	w.begin(t.Name, t.Reads, t.Roots, "unsigned *scratch", "unsigned long long n")
	wide := w.wide()
	var direct []*ir.Node // stores of whole vectors
	for _, s := range stores {
		if !s.Scalar() || t.Lead == 0 {
			direct = append(direct, s)
		}
	}
	w.aligned(wide, direct, false)
	// A block with folds has a super tile, whose tiles it folds at the end.
	tiles := MapTiles
	if len(all) > 0 {
		tiles = ir.SuperTiles
	}
	for _, f := range all {
		w.line("__shared__ %s part%d[%d];", inRegister[f.Type], w.id(f), ir.SuperTiles)
	}
	w.line("for (unsigned t = warp; t < %du; t += %du) {", tiles, blockWarps)
	w.line("const u64 base = ((u64)blockIdx.x * %du + t) * %du;", tiles, ir.TileSize)
	for _, f := range all {
		none := zeroNone(f)
		w.line("%s c_%d[4] = {%s, %s, %s, %s};", inRegister[f.Type], w.id(f), none, none, none, none)
	}
	w.line("if (vec && base + %du <= n) {", ir.TileSize)
	w.mapTile(wide, direct, all, unroll(len(wide)), true)
	w.line("} else if (base < n) {")
	w.indent++
	w.mapTile(wide, direct, all, 1, false)
	w.line("}")
	for _, f := range all {
		w.line(
			"const %s f%d = x_lanes<%s>(x_four<%s>(c_%d), 32);",
			inRegister[f.Type],
			w.id(f),
			foldName(f),
			foldName(f),
			w.id(f),
		)
		w.line("if (lane == 0) part%d[t] = f%d;", w.id(f), w.id(f))
	}
	w.line("}")
	if len(all) > 0 {
		w.last(all)
	}
	w.line("}")
}

// mapTile writes the computation of one tile, full or not, with so many vectors of each array in
// flight. Elements behind the end are neither folded nor stored; in a full tile the compiler sees
// that there are none.
func (w *writer) mapTile(wide, stores, all []*ir.Node, vectors int, full bool) {
	w.line("#pragma unroll 1")
	w.line("for (int r = 0; r < 8; r += %d) {", vectors)
	for _, n := range wide {
		w.line("Four<%s> a%d[%d];", stored[n.Type], w.id(n), vectors)
	}
	w.line("#pragma unroll")
	w.line("for (int u = 0; u < %d; u++) {", vectors)
	w.line("const u64 e0 = base + (unsigned)(r + u) * 128u + lane * 4u;")
	vec, m := "true", "4"
	if !full {
		vec, m = "false", "x_left(n, e0)"
	}
	for _, n := range wide {
		w.line("a%d[u] = x_load4(x%d + e0, %s, %s);", w.id(n), w.id(n), vec, m)
	}
	w.line("}")
	w.line("#pragma unroll")
	w.line("for (int u = 0; u < %d; u++) {", vectors)
	w.line("const u64 e0 = base + (unsigned)(r + u) * 128u + lane * 4u;")
	w.line("const int m = %s;", m)
	w.places(true)
	for _, n := range stores {
		w.line("Four<%s> z%d;", stored[n.Type], w.id(n))
	}
	w.line("#pragma unroll")
	w.line("for (int k = 0; k < 4; k++) {")
	if !full {
		w.line("if (k >= m) continue;")
	}
	w.line("const u64 e = e0 + k;")
	w.placesOf()
	w.scope(func() {
		w.source = func(n *ir.Node) string {
			if slices.Contains(wide, n) {
				return fmt.Sprintf("a%d[u].v[k]", w.id(n))
			}
			return ""
		}
		for _, n := range stores {
			w.line("z%d.v[k] = %s;", w.id(n), w.store(n))
		}
		for _, f := range all {
			w.line("c_%d[k] = %s::fold(c_%d[k], %s);", w.id(f), foldName(f), w.id(f), w.value(f.Args[0]))
		}
		w.source = nil
	})
	w.line("}")
	for _, n := range stores {
		w.line("x_store4(y%d + e0, z%d, %s, m);", w.id(n), w.id(n), vec)
	}
	w.line("(void)m;")
	w.line("}")
	w.line("}")
}

// store is the stored form of a root, which may be a copy of an input. It writes the statements
// before.
func (w *writer) store(n *ir.Node) string {
	return toStored(n.Type, w.value(n))
}

// last writes the end of a kernel with folds: the last block to finish folds the results of all, in
// their order, and computes the scalars of After. The scratch memory starts with the counter of
// finished blocks, which is 0 before the launch, and has the results of each fold from word 4 on.
func (w *writer) last(all []*ir.Node) {
	w.line("__syncthreads();")
	w.line("if (warp == 0) {")
	for _, f := range all {
		w.line("const %s f = x_tiles<%s>(part%d, %s);", inRegister[f.Type], foldName(f), w.id(f), zeroNone(f))
		w.line("if (lane == 0) ((%s *)scratch)[4 + %dull * gridDim.x + blockIdx.x] = f;", inRegister[f.Type],
			slices.Index(all, f))
		if len(all) > 1 {
			w.line("}")
			w.line("if (warp == 0) {")
		}
	}
	w.line("}")
	w.line("__shared__ bool x_final;")
	w.line("if (threadIdx.x == 0) {")
	w.line("__threadfence();")
	w.line("x_final = atomicInc(scratch, gridDim.x - 1) == gridDim.x - 1;")
	w.line("}")
	w.line("__syncthreads();")
	w.line("if (!x_final) return;")
	w.line("__threadfence();")
	for i, f := range all {
		w.line("%s v%d = x_merge<%s>((%s *)scratch + (4 + %dull * gridDim.x), (u64)gridDim.x, %s, part%d);",
			inRegister[f.Type], w.id(f), foldName(f), inRegister[f.Type], i, zeroNone(f), w.id(f))
		if ir.Fold(f.Imm) == ir.FoldSum {
			w.line("if (n == 0) v%d = 0;", w.id(f))
		}
	}
	w.line("if (threadIdx.x == 0) {")
	w.scope(func() {
		for _, f := range all {
			w.bound[f] = fmt.Sprintf("v%d", w.id(f))
		}
		for _, r := range w.t.Roots {
			if r.Op == ir.OpReduce || slices.Contains(w.t.After, r) {
				w.line("*y%d = %s;", w.id(r), w.store(r))
			}
		}
	})
	w.line("}")
}
