package codegen

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// smallKernel writes products by small matrices: a thread has a row, and keeps its values in
// registers; the matrices are in shared memory. All loops over a row have constant bounds and are
// unrolled, because only then are arrays registers.
func (w *writer) smallKernel() {
	t := w.t
	w.begin(t.Name, t.Reads, t.Roots, "unsigned long long rows")
	// All threads of a block read the same matrices.
	var factors []*ir.Node
	for _, n := range t.Inside {
		if n.Op == ir.OpMatMul && !slices.Contains(factors, n.Args[1]) {
			factors = append(factors, n.Args[1])
		}
	}
	for _, f := range factors {
		size := w.l.Graph.Symbols[f.Lead].Fixed * f.Width
		w.line("__shared__ __align__(16) float m%d[%d];", w.id(f), size)
		w.line("for (unsigned i = threadIdx.x; i < %du; i += %du) m%d[i] = %s;", size, BlockThreads, w.id(f),
			fromStored(f.Type, fmt.Sprintf("x%d[i]", w.id(f))))
	}
	w.line("__syncthreads();")
	w.line("const u64 row = (u64)blockIdx.x * %du + threadIdx.x;", BlockThreads)
	w.line("if (row >= rows) return;")
	w.row = "row"
	// Rows of the inputs are loaded at once.
	for _, n := range t.Reads {
		if n.Width == 1 || n.Lead != t.Lead || !w.elementwise(n) {
			continue
		}
		if len(t.Inside) == 1 && n.Width*t.Roots[0].Width > 1024 {
			continue // read element by element
		}
		w.line("%s i%d[%d];", inRegister[n.Type], w.id(n), n.Width)
		w.line("{")
		w.line("const bool vec = %d %% 4 == 0 && x_aligned(x%d, %d);", n.Width, w.id(n), 4*n.Type.Bytes())
		w.line("#pragma unroll")
		w.line("for (int j = 0; j < %d; j += 4) {", n.Width)
		w.line(
			"const Four<%s> f = x_load4(x%d + row * %dull + j, vec, %d - j);",
			stored[n.Type],
			w.id(n),
			n.Width,
			n.Width,
		)
		w.line("#pragma unroll")
		w.line(
			"for (int k = 0; k < 4; k++) if (j + k < %d) i%d[j + k] = %s;",
			n.Width,
			w.id(n),
			fromStored(n.Type, "f.v[k]"),
		)
		w.line("}")
		w.line("}")
		w.bound[n], w.arrays[n] = fmt.Sprintf("i%d", w.id(n)), true
	}
	// Values are computed in the order of the graph, each as an array of registers, or as one
	// register if a row has one element.
	for _, n := range t.Inside {
		if n.Width == 1 && n.Op != ir.OpMatMul && !n.Op.Leaf() && w.single(n) {
			w.flat, w.col = "row", "0"
			w.value(n)
			continue
		}
		if n.Op == ir.OpMatMul {
			w.productRow(n)
		} else if !n.Op.Leaf() {
			w.elementRow(n)
		}
	}
	// Rows are stored as vectors where they are aligned.
	for _, r := range t.Roots {
		w.line("{")
		w.line("const bool vec = %d %% 4 == 0 && x_aligned(y%d, %d);", r.Width, w.id(r), 4*r.Type.Bytes())
		w.line("#pragma unroll")
		w.line("for (int j = 0; j < %d; j += 4) {", r.Width)
		w.line("Four<%s> f;", stored[r.Type])
		w.line("#pragma unroll")
		w.line("for (int k = 0; k < 4; k++) if (j + k < %d) f.v[k] = %s;", r.Width,
			toStored(r.Type, w.rowElement(r, "j + k")))
		w.line("x_store4(y%d + row * %dull + j, f, vec, %d - j);", w.id(r), r.Width, r.Width)
		w.line("}")
		w.line("}")
	}
	w.line("}")
}

// single reports whether the arguments of a node have one element a row, too.
func (w *writer) single(n *ir.Node) bool {
	return !slices.ContainsFunc(n.Args, func(a *ir.Node) bool { return a.Width > 1 || w.arrays[a] })
}

// rowElement is the expression of element j of a row's value, where j is C++. Values that are not
// bound are in memory, or leaves.
func (w *writer) rowElement(n *ir.Node, j string) string {
	if name, found := w.bound[n]; found {
		switch {
		case !w.arrays[n]:
			return name
		case n.Width == 1:
			return name + "[0]"
		}
		return fmt.Sprintf("%s[%s]", name, j)
	}
	w.flat, w.col = "row", "("+j+")"
	if n.Op == ir.OpInput || w.l.Kept[n] && !slices.Contains(w.t.Roots, n) {
		index := "row"
		switch {
		case n.Scalar():
			index = "0"
		case n.Lead == 0:
			index = j
		case n.Width > 1:
			index = fmt.Sprintf("row * %dull + %s", n.Width, j)
		}
		return fromStored(n.Type, fmt.Sprintf("x%d[%s]", w.id(n), index))
	}
	return w.expression(n)
}

// productRow writes the product of a row and a matrix: sums by fused additions, from the first, as
// package interpret adds them.
func (w *writer) productRow(n *ir.Node) {
	a, b := n.Args[0], n.Args[1]
	w.line("float p%d[%d];", w.id(n), n.Width)
	w.line("#pragma unroll")
	w.line("for (int j = 0; j < %d; j++) p%d[j] = 0.0f;", n.Width, w.id(n))
	if !w.arrays[a] && a.Width*n.Width > 1024 {
		w.line("#pragma unroll 4") // the row comes of memory, so that the loop needs no registers for it
	} else {
		w.line("#pragma unroll")
	}
	w.line("for (int i = 0; i < %d; i++) {", a.Width)
	w.line("const float v = %s;", w.rowElement(a, "i"))
	w.line("#pragma unroll")
	w.line(
		"for (int j = 0; j < %d; j++) p%d[j] = __fmaf_rn(v, m%d[i * %d + j], p%d[j]);",
		n.Width,
		w.id(n),
		w.id(b),
		n.Width,
		w.id(n),
	)
	w.line("}")
	w.bound[n], w.arrays[n] = fmt.Sprintf("p%d", w.id(n)), true
}

// elementRow writes an element-wise operation on a row, element by element.
func (w *writer) elementRow(n *ir.Node) {
	v := make([]string, len(n.Args))
	for i, a := range n.Args {
		v[i] = w.rowElement(a, "j")
	}
	w.line("%s r%d[%d];", inRegister[n.Type], w.id(n), n.Width)
	w.line("#pragma unroll")
	w.line("for (int j = 0; j < %d; j++) {", n.Width)
	names := make([]string, len(v))
	for i, text := range v {
		names[i] = fmt.Sprintf("t%d", i)
		w.line("const %s t%d = %s;", inRegister[n.Args[i].Type], i, text)
	}
	text := ""
	if len(names) == 0 { // an index or a random number
		w.flat, w.col = "row", "j"
		text = w.expression(n)
	} else {
		text = operation(n, names)
		if n.Type == ir.U8 && n.Op != ir.OpSelect && n.Op != ir.OpCast {
			text = "(" + text + ") & 0xffu"
		}
	}
	w.line("r%d[j] = %s;", w.id(n), text)
	w.line("}")
	w.bound[n], w.arrays[n] = fmt.Sprintf("r%d", w.id(n)), true
}
