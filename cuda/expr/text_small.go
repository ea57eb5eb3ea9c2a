package expr

import (
	"fmt"
	"slices"
)

// smallKernel writes products by small matrices: a thread has a row, and keeps its values in
// registers; the matrices are in shared memory.
func (w *writer) smallKernel() {
	t := w.t
	w.begin(t.name, t.reads, t.roots, "unsigned long long rows")
	var factors []*node
	for _, n := range t.inside {
		if n.op == opMatMul && !slices.Contains(factors, n.args[1]) {
			factors = append(factors, n.args[1])
		}
	}
	for _, f := range factors {
		size := w.l.p.symbols[f.lead].fixed * f.width
		w.line("__shared__ __align__(16) float m%d[%d];", w.id(f), size)
		w.line("for (unsigned i = threadIdx.x; i < %du; i += %du) m%d[i] = %s;", size, blockThreads, w.id(f),
			fromStored(f.typ, fmt.Sprintf("x%d[i]", w.id(f))))
	}
	w.line("__syncthreads();")
	w.line("const u64 row = (u64)blockIdx.x * %du + threadIdx.x;", blockThreads)
	w.line("if (row >= rows) return;")
	w.row = "row"
	// Rows of the inputs are loaded at once.
	for _, n := range t.reads {
		if n.width == 1 || n.lead != t.lead || !w.elementwise(n) {
			continue
		}
		if len(t.inside) == 1 && n.width*t.roots[0].width > 1024 {
			continue // read element by element
		}
		w.line("%s i%d[%d];", inRegister[n.typ], w.id(n), n.width)
		w.line("{")
		w.line("const bool vec = %d %% 4 == 0 && x_aligned(x%d, %d);", n.width, w.id(n), 4*n.typ.Bytes())
		w.line("#pragma unroll")
		w.line("for (int j = 0; j < %d; j += 4) {", n.width)
		w.line(
			"const Four<%s> f = x_load4(x%d + row * %dull + j, vec, %d - j);",
			stored[n.typ],
			w.id(n),
			n.width,
			n.width,
		)
		w.line("#pragma unroll")
		w.line(
			"for (int k = 0; k < 4; k++) if (j + k < %d) i%d[j + k] = %s;",
			n.width,
			w.id(n),
			fromStored(n.typ, "f.v[k]"),
		)
		w.line("}")
		w.line("}")
		w.bound[n], w.arrays[n] = fmt.Sprintf("i%d", w.id(n)), true
	}
	for _, n := range t.inside {
		if n.width == 1 && n.op != opMatMul && !n.op.leaf() && w.single(n) {
			w.flat, w.col = "row", "0"
			w.value(n)
			continue
		}
		if n.op == opMatMul {
			w.productRow(n)
		} else if !n.op.leaf() {
			w.elementRow(n)
		}
	}
	for _, r := range t.roots {
		w.line("{")
		w.line("const bool vec = %d %% 4 == 0 && x_aligned(y%d, %d);", r.width, w.id(r), 4*r.typ.Bytes())
		w.line("#pragma unroll")
		w.line("for (int j = 0; j < %d; j += 4) {", r.width)
		w.line("Four<%s> f;", stored[r.typ])
		w.line("#pragma unroll")
		w.line("for (int k = 0; k < 4; k++) if (j + k < %d) f.v[k] = %s;", r.width,
			toStored(r.typ, w.rowElement(r, "j + k")))
		w.line("x_store4(y%d + row * %dull + j, f, vec, %d - j);", w.id(r), r.width, r.width)
		w.line("}")
		w.line("}")
	}
	w.line("}")
}

// single reports whether the arguments of a node have one element a row, too.
func (w *writer) single(n *node) bool {
	return !slices.ContainsFunc(n.args, func(a *node) bool { return a.width > 1 || w.arrays[a] })
}

// rowElement is the expression of an element of a row's value.
func (w *writer) rowElement(n *node, j string) string {
	if name, found := w.bound[n]; found {
		switch {
		case !w.arrays[n]:
			return name
		case n.width == 1:
			return name + "[0]"
		}
		return fmt.Sprintf("%s[%s]", name, j)
	}
	w.flat, w.col = "row", "("+j+")"
	if n.op == opInput || w.l.kept[n] && !slices.Contains(w.t.roots, n) {
		index := "row"
		switch {
		case n.scalar():
			index = "0"
		case n.lead == 0:
			index = j
		case n.width > 1:
			index = fmt.Sprintf("row * %dull + %s", n.width, j)
		}
		return fromStored(n.typ, fmt.Sprintf("x%d[%s]", w.id(n), index))
	}
	return w.expression(n)
}

// productRow writes the product of a row and a matrix: sums by fused additions, from the first.
func (w *writer) productRow(n *node) {
	a, b := n.args[0], n.args[1]
	w.line("float p%d[%d];", w.id(n), n.width)
	w.line("#pragma unroll")
	w.line("for (int j = 0; j < %d; j++) p%d[j] = 0.0f;", n.width, w.id(n))
	if !w.arrays[a] && a.width*n.width > 1024 {
		w.line("#pragma unroll 4") // the row comes of memory, so that the loop needs no registers for it
	} else {
		w.line("#pragma unroll")
	}
	w.line("for (int i = 0; i < %d; i++) {", a.width)
	w.line("const float v = %s;", w.rowElement(a, "i"))
	w.line("#pragma unroll")
	w.line(
		"for (int j = 0; j < %d; j++) p%d[j] = __fmaf_rn(v, m%d[i * %d + j], p%d[j]);",
		n.width,
		w.id(n),
		w.id(b),
		n.width,
		w.id(n),
	)
	w.line("}")
	w.bound[n], w.arrays[n] = fmt.Sprintf("p%d", w.id(n)), true
}

// elementRow writes an element-wise operation on a row.
func (w *writer) elementRow(n *node) {
	v := make([]string, len(n.args))
	for i, a := range n.args {
		v[i] = w.rowElement(a, "j")
	}
	w.line("%s r%d[%d];", inRegister[n.typ], w.id(n), n.width)
	w.line("#pragma unroll")
	w.line("for (int j = 0; j < %d; j++) {", n.width)
	names := make([]string, len(v))
	for i, text := range v {
		names[i] = fmt.Sprintf("t%d", i)
		w.line("const %s t%d = %s;", inRegister[n.args[i].typ], i, text)
	}
	text := ""
	if len(names) == 0 { // an index or a random number
		w.flat, w.col = "row", "j"
		text = w.expression(n)
	} else {
		text = operation(n, names)
		if n.typ == U8 && n.op != opSelect && n.op != opCast {
			text = "(" + text + ") & 0xffu"
		}
	}
	w.line("r%d[j] = %s;", w.id(n), text)
	w.line("}")
	w.bound[n], w.arrays[n] = fmt.Sprintf("r%d", w.id(n)), true
}
