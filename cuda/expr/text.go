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
	blockThreads = 256
	blockWarps   = blockThreads / 32
	mapTiles     = blockWarps // tiles of a block of a map without folds
	compactTile  = 8192
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
	l      *plan
	t      *part
	indent int
	// index has C expressions of the present element: flat, row and column.
	flat, row, col string
	// bound has the names of values that are computed already, innermost scope last.
	bound map[*node]string
	// source returns an expression of the stored value of what the part reads, or "" for a load.
	source func(n *node) string
	// arrays are the values of kernels of small products that are arrays of registers.
	arrays map[*node]bool
	// numbers are those of nodes in names: equal kernels of different programs have equal texts.
	numbers map[*node]int
}

// id returns the number of a node in the names of the text.
func (w *writer) id(n *node) int {
	if w.numbers == nil {
		w.numbers = map[*node]int{}
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
	w.bound = make(map[*node]string, len(old))
	for n, name := range old {
		w.bound[n] = name
	}
	f()
	w.bound = old
}

// text writes the kernel of a part. Parts of the library have none.
func (l *plan) text(t *part) {
	if t.kind == kindGemm {
		return
	}
	t.sources = map[string]string{}
	w := &writer{l: l, t: t, bound: map[*node]string{}, arrays: map[*node]bool{}, numbers: map[*node]int{}}
	switch t.kind {
	case kindMap:
		w.mapKernel()
	case kindRows:
		w.rowsKernel()
	case kindCompact:
		w.compactKernel()
	case kindScan:
		w.scanKernels()
	case kindSmall:
		w.smallKernel()
	}
	if t.kind != kindScan {
		t.sources[""] = prelude + w.String()
	}
}

// begin writes the head of a kernel. more are parameters behind the arrays.
func (w *writer) begin(name string, reads, writes []*node, more ...string) {
	var params []string
	for _, n := range reads {
		switch {
		case n.op == opInput && w.l.p.inputs[n.imm].scalar:
			params = append(params, fmt.Sprintf("%s s%d", inRegister[n.typ], w.id(n)))
		default:
			params = append(params, fmt.Sprintf("const %s *__restrict__ b%d", stored[n.typ], w.id(n)),
				fmt.Sprintf("unsigned o%d", w.id(n)))
			if w.isTable(n) {
				params = append(params, fmt.Sprintf("unsigned long long n%d", w.id(n)))
			}
		}
	}
	for _, n := range writes {
		params = append(
			params,
			fmt.Sprintf("%s *__restrict__ c%d", stored[n.typ], w.id(n)),
			fmt.Sprintf("unsigned q%d", w.id(n)),
		)
	}
	for _, n := range w.t.inside {
		if n.op == opLength {
			params = append(params, fmt.Sprintf("float l%d", w.id(n)))
		}
	}
	params = append(params, more...)
	w.line(
		`extern "C" __global__ void __launch_bounds__(%d) %s(%s) {`,
		blockThreads,
		name,
		strings.Join(params, ", "),
	)
	for _, n := range reads {
		if n.op != opInput || !w.l.p.inputs[n.imm].scalar {
			w.line("const %s *const x%d = b%d + o%d;", stored[n.typ], w.id(n), w.id(n), w.id(n))
		}
	}
	for _, n := range writes {
		w.line("%s *const y%d = c%d + q%d;", stored[n.typ], w.id(n), w.id(n), w.id(n))
	}
	w.line("const unsigned lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;")
	// What every element meets is loaded once.
	for _, n := range reads {
		if !n.scalar() || w.isTable(n) {
			continue
		}
		if n.op == opInput && w.l.p.inputs[n.imm].scalar {
			w.bound[n] = fmt.Sprintf("s%d", w.id(n))
			continue
		}
		w.line(
			"const %s v%d = %s;",
			inRegister[n.typ],
			w.id(n),
			fromStored(n.typ, fmt.Sprintf("x%d[0]", w.id(n))),
		)
		w.bound[n] = fmt.Sprintf("v%d", w.id(n))
	}
}

// isTable reports whether the part gathers from what it reads.
func (w *writer) isTable(n *node) bool {
	return slices.ContainsFunc(w.t.inside, func(u *node) bool { return u.op == opGather && u.args[0] == n })
}

// elementwise reports whether the part reads elements of n by the index of the element.
func (w *writer) elementwise(n *node) bool {
	if slices.Contains(w.t.roots, n) && n.op == opInput {
		return true
	}
	return slices.ContainsFunc(w.t.inside, func(u *node) bool {
		i := slices.Index(u.args, n)
		return i >= 0 && u.op != opLength && (u.op != opGather || i > 0 || u.args[1] == n) &&
			(u.op != opMatMul || i == 0)
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
	case t.float():
		return fmt.Sprintf("x_bits(0x%08xu)", bits)
	case t == I32:
		return fmt.Sprintf("(int)0x%08xu", bits)
	}
	return fmt.Sprintf("0x%08xu", bits)
}

// zeroNone is the identity of a fold.
func zeroNone(n *node) string { return constant(n.typ, identity(n.typ, Fold(n.imm))) }

// at is the index of an array of the shape of n at the present element.
func (w *writer) at(n *node) string {
	switch {
	case n.scalar():
		return "0"
	case n.lead == 0:
		return w.col
	case n.width == 1:
		return w.row
	}
	return w.flat
}

// value returns the name of a value, for which it writes statements.
func (w *writer) value(n *node) string {
	if name, found := w.bound[n]; found {
		return name
	}
	text := w.expression(n)
	name := fmt.Sprintf("v%d", w.id(n))
	w.line("const %s %s = %s;", inRegister[n.typ], name, text)
	w.bound[n] = name
	return name
}

func (w *writer) expression(n *node) string {
	if n.op == opInput || w.l.kept[n] && !slices.Contains(w.t.roots, n) {
		if w.source != nil {
			if text := w.source(n); text != "" {
				return fromStored(n.typ, text)
			}
		}
		return fromStored(n.typ, fmt.Sprintf("x%d[%s]", w.id(n), w.at(n)))
	}
	switch n.op {
	case opConst:
		return constant(n.typ, uint32(n.imm))
	case opIota:
		return "(unsigned)(" + w.row + ")"
	case opRandom:
		return fmt.Sprintf("x_philox(%s, 0x%xu, 0x%xu)", w.row, uint32(n.imm), uint32(n.imm>>32))
	case opLength:
		return fmt.Sprintf("l%d", w.id(n))
	case opGather:
		return w.gather(n)
	}
	v := make([]string, len(n.args))
	for i, a := range n.args {
		v[i] = w.value(a)
	}
	text := operation(n, v)
	if n.typ == U8 && n.op != opSelect && n.op != opCast {
		text = "(" + text + ") & 0xffu"
	}
	return text
}

func (w *writer) gather(n *node) string {
	t := n.args[0]
	i := w.value(n.args[1])
	name := fmt.Sprintf("g%d", w.id(n))
	if n.args[1].typ == I32 {
		w.line("const u64 %s = %s < 0 ? 0ull : (u64)%s;", name, i, i)
	} else {
		w.line("const u64 %s = %s;", name, i)
	}
	load := fromStored(t.typ, fmt.Sprintf("x%d[%s < n%d ? %s : n%d - 1]", w.id(t), name, w.id(t), name, w.id(t)))
	return fmt.Sprintf("n%d == 0 ? %s : %s", w.id(t), constant(t.typ, 0), load)
}

// operation is the text of an operation on values in registers.
func operation(n *node, v []string) string {
	t := n.args[0].typ
	call := func(name string) string { return name + "(" + strings.Join(v, ", ") + ")" }
	infix := func(o string) string { return v[0] + " " + o + " " + v[1] }
	unsigned := func(o string) string { // wraps
		if t == I32 {
			return fmt.Sprintf("(int)((unsigned)%s %s (unsigned)%s)", v[0], o, v[1])
		}
		return infix(o)
	}
	compare := func(o string) string { return "(unsigned)(" + infix(o) + ")" }
	switch n.op {
	case opCast:
		return cast(n.typ, t, v[0])
	case opNeg:
		if t == F32 {
			return call("x_neg")
		}
		return "(int)(0u - (unsigned)" + v[0] + ")"
	case opAbs:
		if t == F32 {
			return call("x_abs")
		}
		return fmt.Sprintf("%s < 0 ? (int)(0u - (unsigned)%s) : %s", v[0], v[0], v[0])
	case opSqrt:
		return call("__fsqrt_rn")
	case opExp, opLog, opTanh, opFloor:
		return call("x_" + opNames[n.op])
	case opNot:
		return v[0] + " ^ 1u"
	case opInv:
		return "~" + v[0]
	case opAdd, opSub, opMul:
		if t == F32 {
			return call(map[op]string{opAdd: "__fadd_rn", opSub: "__fsub_rn", opMul: "__fmul_rn"}[n.op])
		}
		return unsigned(opNames[n.op])
	case opDiv:
		if t == F32 {
			return call("__fdiv_rn")
		}
		return call("x_div")
	case opRem:
		return call("x_rem")
	case opMin, opMax:
		return call("x_" + opNames[n.op])
	case opAnd, opOr, opXor:
		return infix(opNames[n.op])
	case opShl:
		if t == I32 {
			return fmt.Sprintf("(int)x_shl((unsigned)%s, (unsigned)%s)", v[0], v[1])
		}
		return call("x_shl")
	case opShr:
		return call("x_shr")
	case opSelect:
		return fmt.Sprintf("%s != 0u ? %s : %s", v[0], v[1], v[2])
	}
	return compare(opNames[n.op])
}

func cast(to, from Type, v string) string {
	switch {
	case from.float() && to == F32:
		return v
	case from.float() && to == BF16:
		return "x_round_bf16(" + v + ")"
	case from.float() && to == Bool:
		return "(unsigned)(" + v + " != 0.0f)"
	case from.float():
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

// folds are the roots that fold all elements.
func folds(roots []*node) (all []*node) {
	for _, r := range roots {
		if r.op == opReduce {
			all = append(all, r)
		}
	}
	return all
}

// stores are the roots of the shape of the domain.
func (w *writer) stores() (all []*node) {
	for _, r := range w.t.roots {
		if r.op != opReduce && !slices.Contains(w.t.after, r) {
			all = append(all, r)
		}
	}
	return all
}

var folders = [...]string{"x_sums", "x_mins", "x_maxs"}

func foldName(n *node) string { return folders[n.imm] }

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
func (w *writer) aligned(arrays []*node, writes []*node) {
	w.WriteString("  const bool vec = true")
	for _, n := range arrays {
		fmt.Fprintf(w, " && x_aligned(x%d, %d)", w.id(n), 4*n.typ.Bytes())
	}
	for _, n := range writes {
		fmt.Fprintf(w, " && x_aligned(y%d, %d)", w.id(n), 4*n.typ.Bytes())
	}
	w.WriteString(";\n")
}

// wide are the arrays that have an element for each element of the domain.
func (w *writer) wide() (all []*node) {
	for _, n := range w.t.reads {
		if n.lead == w.t.lead && n.width == w.t.width && !n.scalar() && w.elementwise(n) {
			all = append(all, n)
		}
	}
	return all
}

// places sets the index of element "e" of the domain, in vectors from "e0" on.
func (w *writer) places(vector bool) {
	w.flat, w.row, w.col = "e", "e", "0"
	if w.t.lead == 0 {
		w.row, w.col = "0", "e"
		return
	}
	if w.t.width == 1 {
		return
	}
	w.row, w.col = "row", "col"
	if vector {
		w.line("const u64 row0 = e0 / %dull;", w.t.width)
		w.line("const unsigned col0 = (unsigned)(e0 %% %dull);", w.t.width)
	}
}

// placesOf writes the row and the column of element k of a vector.
func (w *writer) placesOf() {
	if w.row != "row" {
		return
	}
	if w.t.width%4 == 0 {
		w.line("const u64 row = row0;")
		w.line("const unsigned col = col0 + k;")
		return
	}
	w.line("const u64 row = e / %dull;", w.t.width)
	w.line("const unsigned col = (unsigned)(e %% %dull);", w.t.width)
}

// mapKernel writes element-wise results and folds of all elements.
func (w *writer) mapKernel() {
	t := w.t
	all, stores := folds(t.roots), w.stores()
	w.begin(t.name, t.reads, t.roots, "unsigned *scratch", "unsigned long long n")
	wide := w.wide()
	var direct []*node // stores of whole vectors
	for _, s := range stores {
		if !s.scalar() || t.lead == 0 {
			direct = append(direct, s)
		}
	}
	w.aligned(wide, direct)
	tiles := mapTiles
	if len(all) > 0 {
		tiles = superTiles
	}
	for _, f := range all {
		w.line("__shared__ %s part%d[%d];", inRegister[f.typ], w.id(f), superTiles)
	}
	w.line("for (unsigned t = warp; t < %du; t += %du) {", tiles, blockWarps)
	w.line("const u64 base = ((u64)blockIdx.x * %du + t) * %du;", tiles, tileSize)
	for _, f := range all {
		none := zeroNone(f)
		w.line("%s c_%d[4] = {%s, %s, %s, %s};", inRegister[f.typ], w.id(f), none, none, none, none)
	}
	w.line("if (vec && base + %du <= n) {", tileSize)
	w.mapTile(wide, direct, all, unroll(len(wide)), true)
	w.line("} else if (base < n) {")
	w.indent++
	w.mapTile(wide, direct, all, 1, false)
	w.line("}")
	for _, f := range all {
		w.line(
			"const %s f%d = x_lanes<%s>(x_four<%s>(c_%d), 32);",
			inRegister[f.typ],
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
func (w *writer) mapTile(wide, stores, all []*node, vectors int, full bool) {
	w.line("#pragma unroll 1")
	w.line("for (int r = 0; r < 8; r += %d) {", vectors)
	for _, n := range wide {
		w.line("Four<%s> a%d[%d];", stored[n.typ], w.id(n), vectors)
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
		w.line("Four<%s> z%d;", stored[n.typ], w.id(n))
	}
	w.line("#pragma unroll")
	w.line("for (int k = 0; k < 4; k++) {")
	if !full {
		w.line("if (k >= m) continue;")
	}
	w.line("const u64 e = e0 + k;")
	w.placesOf()
	w.scope(func() {
		w.source = func(n *node) string {
			if slices.Contains(wide, n) {
				return fmt.Sprintf("a%d[u].v[k]", w.id(n))
			}
			return ""
		}
		for _, n := range stores {
			w.line("z%d.v[k] = %s;", w.id(n), w.store(n))
		}
		for _, f := range all {
			w.line("c_%d[k] = %s::fold(c_%d[k], %s);", w.id(f), foldName(f), w.id(f), w.value(f.args[0]))
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
func (w *writer) store(n *node) string {
	return toStored(n.typ, w.value(n))
}

// last writes the end of a kernel with folds: the last block folds the results of all.
func (w *writer) last(all []*node) {
	w.line("__syncthreads();")
	w.line("if (warp == 0) {")
	for _, f := range all {
		w.line("const %s f = x_tiles<%s>(part%d, %s);", inRegister[f.typ], foldName(f), w.id(f), zeroNone(f))
		w.line("if (lane == 0) ((%s *)scratch)[4 + %dull * gridDim.x + blockIdx.x] = f;", inRegister[f.typ],
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
			inRegister[f.typ], w.id(f), foldName(f), inRegister[f.typ], i, zeroNone(f), w.id(f))
		if Fold(f.imm) == FoldSum {
			w.line("if (n == 0) v%d = 0;", w.id(f))
		}
	}
	w.line("if (threadIdx.x == 0) {")
	w.scope(func() {
		for _, f := range all {
			w.bound[f] = fmt.Sprintf("v%d", w.id(f))
		}
		for _, r := range w.t.roots {
			if r.op == opReduce || slices.Contains(w.t.after, r) {
				w.line("*y%d = %s;", w.id(r), w.store(r))
			}
		}
	})
	w.line("}")
}
