package expr

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// prelude has the operations of all generated kernels.
//
//go:embed prelude.cuh
var prelude string

// The shape of launches: blocks of 256 threads.
const (
	BlockThreads = 256
	blockWarps   = BlockThreads / 32
	MapTiles     = blockWarps // tiles of a block of a map without folds
	CompactTile  = 8192
)

// C types of values in memory and in registers.
var (
	stored = map[Type]string{
		F32: "float", BF16: "unsigned short", I32: "int", U32: "unsigned", U8: "unsigned char", Bool: "unsigned char",
	}
	inRegister = map[Type]string{
		F32:  "float",
		BF16: "float",
		I32:  "int",
		U32:  "unsigned",
		U8:   "unsigned",
		Bool: "unsigned",
	}
)

// writer writes the text of one part.
type writer struct {
	strings.Builder
	l      *Plan
	t      *Part
	indent int
	// index has C expressions of the present element: flat, row and column.
	flat, row, col string
	// bound has the names of values that are computed already, innermost scope last.
	bound map[*Node]string
	// source returns an expression of the stored value of what the part reads, or "" for a load.
	source func(n *Node) string
	// arrays are the values of kernels of small products that are arrays of registers.
	arrays map[*Node]bool
	// numbers are those of nodes in names: equal kernels of different programs have equal texts.
	numbers map[*Node]int
}

// id returns the number of a node in the names of the text.
func (w *writer) id(n *Node) int {
	if w.numbers == nil {
		w.numbers = map[*Node]int{}
	}
	if _, found := w.numbers[n]; !found {
		w.numbers[n] = len(w.numbers)
	}
	return w.numbers[n]
}

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

// scope calls f; what it binds is forgotten.
func (w *writer) scope(f func()) {
	old := w.bound
	w.bound = make(map[*Node]string, len(old))
	for n, name := range old {
		w.bound[n] = name
	}
	f()
	w.bound = old
}

// text writes the kernel of a part. Parts of the library have none.
func text(l *Plan, t *Part) {
	if t.Kind == KindGemm {
		return
	}
	t.Sources = map[string]string{}
	w := &writer{l: l, t: t, bound: map[*Node]string{}, arrays: map[*Node]bool{}, numbers: map[*Node]int{}}
	switch t.Kind {
	case KindMap:
		w.mapKernel()
	case KindRows:
		w.rowsKernel()
	case KindCompact:
		w.compactKernel()
	case KindScan:
		w.scanKernels()
	case KindSmall:
		w.smallKernel()
	}
	if t.Kind != KindScan {
		t.Sources[""] = prelude + w.String()
	}
}

// begin writes the head of a kernel. more are parameters behind the arrays.
func (w *writer) begin(name string, reads, writes []*Node, more ...string) {
	var params []string
	for _, n := range reads {
		switch {
		case n.Op == OpInput && w.l.Graph.Inputs[n.Imm].Scalar:
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
		if n.Op == OpLength {
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
		if n.Op != OpInput || !w.l.Graph.Inputs[n.Imm].Scalar {
			w.line("const %s *const x%d = b%d + o%d;", stored[n.Type], w.id(n), w.id(n), w.id(n))
		}
	}
	for _, n := range writes {
		w.line("%s *const y%d = c%d + q%d;", stored[n.Type], w.id(n), w.id(n), w.id(n))
	}
	w.line("const unsigned lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;")
	// What every element meets is loaded once.
	for _, n := range reads {
		if !n.Scalar() || w.t.Gathers(n) {
			continue
		}
		if n.Op == OpInput && w.l.Graph.Inputs[n.Imm].Scalar {
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

// elementwise reports whether the part reads elements of n by the index of the element.
func (w *writer) elementwise(n *Node) bool {
	if slices.Contains(w.t.Roots, n) && n.Op == OpInput {
		return true
	}
	return slices.ContainsFunc(w.t.Inside, func(u *Node) bool {
		i := slices.Index(u.Args, n)
		return i >= 0 && u.Op != OpLength && (u.Op != OpGather || i > 0 || u.Args[1] == n) &&
			(u.Op != OpMatMul || i == 0)
	})
}

// fromStored converts what is in memory to what is in registers.
func fromStored(t Type, text string) string {
	switch t {
	case BF16:
		return "x_of_bf16(" + text + ")"
	case U8:
		return "(unsigned)" + text
	case Bool:
		return "(unsigned)(" + text + " != 0)"
	}
	return text
}

// toStored is the opposite.
func toStored(t Type, text string) string {
	switch t {
	case F32:
		return "x_pure(" + text + ")"
	case BF16:
		return "x_to_bf16(" + text + ")"
	case U8, Bool:
		return "(unsigned char)" + text
	}
	return text
}

// constant is the text of a constant in registers.
func constant(t Type, bits uint32) string {
	switch {
	case t.Float():
		return fmt.Sprintf("x_bits(0x%08xu)", bits)
	case t == I32:
		return fmt.Sprintf("(int)0x%08xu", bits)
	}
	return fmt.Sprintf("0x%08xu", bits)
}

// zeroNone is the identity of a fold.
func zeroNone(n *Node) string { return constant(n.Type, Identity(n.Type, Fold(n.Imm))) }

// at is the index of an array of the shape of n at the present element.
func (w *writer) at(n *Node) string {
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

// value returns the name of a value, for which it writes statements.
func (w *writer) value(n *Node) string {
	if name, found := w.bound[n]; found {
		return name
	}
	text := w.expression(n)
	name := fmt.Sprintf("v%d", w.id(n))
	w.line("const %s %s = %s;", inRegister[n.Type], name, text)
	w.bound[n] = name
	return name
}

func (w *writer) expression(n *Node) string {
	if n.Op == OpInput || w.l.Kept[n] && !slices.Contains(w.t.Roots, n) {
		if w.source != nil {
			if text := w.source(n); text != "" {
				return fromStored(n.Type, text)
			}
		}
		return fromStored(n.Type, fmt.Sprintf("x%d[%s]", w.id(n), w.at(n)))
	}
	switch n.Op {
	case OpConst:
		return constant(n.Type, uint32(n.Imm))
	case OpIota:
		return "(unsigned)(" + w.row + ")"
	case OpRandom:
		return fmt.Sprintf("x_philox(%s, 0x%xu, 0x%xu)", w.row, uint32(n.Imm), uint32(n.Imm>>32))
	case OpLength:
		return fmt.Sprintf("l%d", w.id(n))
	case OpGather:
		return w.gather(n)
	}
	v := make([]string, len(n.Args))
	for i, a := range n.Args {
		v[i] = w.value(a)
	}
	text := operation(n, v)
	if n.Type == U8 && n.Op != OpSelect && n.Op != OpCast {
		text = "(" + text + ") & 0xffu"
	}
	return text
}

func (w *writer) gather(n *Node) string {
	t := n.Args[0]
	i := w.value(n.Args[1])
	name := fmt.Sprintf("g%d", w.id(n))
	if n.Args[1].Type == I32 {
		w.line("const u64 %s = %s < 0 ? 0ull : (u64)%s;", name, i, i)
	} else {
		w.line("const u64 %s = %s;", name, i)
	}
	load := fromStored(t.Type, fmt.Sprintf("x%d[%s < n%d ? %s : n%d - 1]", w.id(t), name, w.id(t), name, w.id(t)))
	return fmt.Sprintf("n%d == 0 ? %s : %s", w.id(t), constant(t.Type, 0), load)
}

// operation is the text of an operation on values in registers.
func operation(n *Node, v []string) string {
	t := n.Args[0].Type
	call := func(name string) string { return name + "(" + strings.Join(v, ", ") + ")" }
	infix := func(o string) string { return v[0] + " " + o + " " + v[1] }
	unsigned := func(o string) string { // wraps
		if t == I32 {
			return fmt.Sprintf("(int)((unsigned)%s %s (unsigned)%s)", v[0], o, v[1])
		}
		return infix(o)
	}
	compare := func(o string) string { return "(unsigned)(" + infix(o) + ")" }
	switch n.Op {
	case OpCast:
		return cast(n.Type, t, v[0])
	case OpNeg:
		if t == F32 {
			return call("x_neg")
		}
		return "(int)(0u - (unsigned)" + v[0] + ")"
	case OpAbs:
		if t == F32 {
			return call("x_abs")
		}
		return fmt.Sprintf("%s < 0 ? (int)(0u - (unsigned)%s) : %s", v[0], v[0], v[0])
	case OpSqrt:
		return call("__fsqrt_rn")
	case OpExp, OpLog, OpTanh, OpFloor:
		return call("x_" + n.Op.String())
	case OpNot:
		return v[0] + " ^ 1u"
	case OpInv:
		return "~" + v[0]
	case OpAdd, OpSub, OpMul:
		if t == F32 {
			return call(map[Op]string{OpAdd: "__fadd_rn", OpSub: "__fsub_rn", OpMul: "__fmul_rn"}[n.Op])
		}
		return unsigned(n.Op.String())
	case OpDiv:
		if t == F32 {
			return call("__fdiv_rn")
		}
		return call("x_div")
	case OpRem:
		return call("x_rem")
	case OpMin, OpMax:
		return call("x_" + n.Op.String())
	case OpAnd, OpOr, OpXor:
		return infix(n.Op.String())
	case OpShl:
		if t == I32 {
			return fmt.Sprintf("(int)x_shl((unsigned)%s, (unsigned)%s)", v[0], v[1])
		}
		return call("x_shl")
	case OpShr:
		return call("x_shr")
	case OpSelect:
		return fmt.Sprintf("%s != 0u ? %s : %s", v[0], v[1], v[2])
	}
	return compare(n.Op.String())
}

func cast(to, from Type, v string) string {
	switch {
	case from.Float() && to == F32:
		return v
	case from.Float() && to == BF16:
		return "x_round_bf16(" + v + ")"
	case from.Float() && to == Bool:
		return "(unsigned)(" + v + " != 0.0f)"
	case from.Float():
		return map[Type]string{I32: "x_int", U32: "x_unsigned", U8: "x_byte"}[to] + "(" + v + ")"
	case to == BF16:
		return "x_round_bf16(" + cast(F32, from, v) + ")"
	case to == F32 && from == I32:
		return "__int2float_rn(" + v + ")"
	case to == F32:
		return "__uint2float_rn(" + v + ")"
	case to == Bool:
		return "(unsigned)(" + v + " != 0)"
	case to == U8:
		return "(unsigned)" + v + " & 0xffu"
	case to == I32:
		return "(int)" + v
	}
	return "(unsigned)" + v
}

// stores are the roots of the shape of the domain.
func (w *writer) stores() (all []*Node) {
	for _, r := range w.t.Roots {
		if r.Op != OpReduce && !slices.Contains(w.t.After, r) {
			all = append(all, r)
		}
	}
	return all
}

var folders = [...]string{"x_sums", "x_mins", "x_maxs"}

func foldName(n *Node) string { return folders[n.Imm] }

// unroll is the number of vectors of each array that a thread loads before it computes.
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

// aligned writes a flag that says whether all arrays are whole vectors from their start on.
func (w *writer) aligned(arrays []*Node, writes []*Node) {
	w.WriteString("  const bool vec = true")
	for _, n := range arrays {
		fmt.Fprintf(w, " && x_aligned(x%d, %d)", w.id(n), 4*n.Type.Bytes())
	}
	for _, n := range writes {
		fmt.Fprintf(w, " && x_aligned(y%d, %d)", w.id(n), 4*n.Type.Bytes())
	}
	w.WriteString(";\n")
}

// wide are the arrays that have an element for each element of the domain.
func (w *writer) wide() (all []*Node) {
	for _, n := range w.t.Reads {
		if n.Lead == w.t.Lead && n.Width == w.t.Width && !n.Scalar() && w.elementwise(n) {
			all = append(all, n)
		}
	}
	return all
}

// places sets the index of element "e" of the domain, in vectors from "e0" on.
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

// mapKernel writes element-wise results and folds of all elements.
func (w *writer) mapKernel() {
	t := w.t
	all, stores := t.Folds(), w.stores()
	w.begin(t.Name, t.Reads, t.Roots, "unsigned *scratch", "unsigned long long n")
	wide := w.wide()
	var direct []*Node // stores of whole vectors
	for _, s := range stores {
		if !s.Scalar() || t.Lead == 0 {
			direct = append(direct, s)
		}
	}
	w.aligned(wide, direct)
	tiles := MapTiles
	if len(all) > 0 {
		tiles = SuperTiles
	}
	for _, f := range all {
		w.line("__shared__ %s part%d[%d];", inRegister[f.Type], w.id(f), SuperTiles)
	}
	w.line("for (unsigned t = warp; t < %du; t += %du) {", tiles, blockWarps)
	w.line("const u64 base = ((u64)blockIdx.x * %du + t) * %du;", tiles, TileSize)
	for _, f := range all {
		none := zeroNone(f)
		w.line("%s c_%d[4] = {%s, %s, %s, %s};", inRegister[f.Type], w.id(f), none, none, none, none)
	}
	w.line("if (vec && base + %du <= n) {", TileSize)
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

// mapTile writes the computation of one tile, full or not.
func (w *writer) mapTile(wide, stores, all []*Node, vectors int, full bool) {
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
		w.source = func(n *Node) string {
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

// store is the stored form of a root, which may be a copy of an input.
func (w *writer) store(n *Node) string {
	return toStored(n.Type, w.value(n))
}

// last writes the end of a kernel with folds: the last block folds the results of all.
func (w *writer) last(all []*Node) {
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
		if Fold(f.Imm) == FoldSum {
			w.line("if (n == 0) v%d = 0;", w.id(f))
		}
	}
	w.line("if (threadIdx.x == 0) {")
	w.scope(func() {
		for _, f := range all {
			w.bound[f] = fmt.Sprintf("v%d", w.id(f))
		}
		for _, r := range w.t.Roots {
			if r.Op == OpReduce || slices.Contains(w.t.After, r) {
				w.line("*y%d = %s;", w.id(r), w.store(r))
			}
		}
	})
	w.line("}")
}
