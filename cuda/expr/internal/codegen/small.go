package codegen

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// smallRows returns the rows of a thread of a kernel of small products. Each element of a matrix is
// read from shared memory once for all rows of a thread, which is what bounds the kernel with one
// row; the values of two rows must fit the registers.
func (w *writer) smallRows() int {
	live := int64(0)
	for _, n := range w.t.Inside {
		all := n.Width // an element-wise result takes the registers of its argument
		if n.Op == ir.OpMatMul {
			all += n.Args[0].Width
		}
		live = max(live, all)
	}
	if live > 48 || len(w.t.Inside) > 16 {
		return 1
	}
	return 2
}

// smallKernel writes products by small matrices: a thread has one or two rows, and keeps their
// values in registers; the matrices are in shared memory. All loops over a row have constant bounds
// and are unrolled, because only then are arrays registers.
func (w *writer) smallKernel() {
	t := w.t
	count := w.smallRows()
	w.shape.Tile = int64(BlockThreads * count)
	w.begin(t.Name, t.Reads, t.Roots, "unsigned long long rows")
	factors, _ := w.factors()
	w.loadFactors(factors)
	w.line("const u64 begin = (u64)blockIdx.x * %du + threadIdx.x;", BlockThreads*count)
	w.line("if (begin >= rows) return;")
	// A row behind the end is computed as the last one, and not stored.
	for r := range count {
		at := fmt.Sprintf("begin + %du", r*BlockThreads)
		w.line("const u64 row%d = %s < rows ? %s : rows - 1;", r, at, at)
	}
	each := w.rowValues(count)
	// Rows are stored as vectors where they are aligned.
	each(func(r int) {
		w.line("if (begin + %du < rows) {", r*BlockThreads)
		for _, n := range t.Roots {
			w.storeRow(n)
		}
		w.line("}")
	})
	w.line("}")
}

func (w *writer) loadRow() {
	t := w.t
	for _, n := range t.Reads {
		if n.Width == 1 || n.Lead != t.Lead || !w.elementwise(n) {
			continue
		}
		if len(t.Inside) == 1 && n.Width*t.Roots[0].Width > 1024 {
			continue // read element by element
		}
		name := fmt.Sprintf("i%d%s", w.id(n), w.suffix)
		w.line("%s %s[%d];", inRegister[n.Type], name, n.Width)
		w.line("{")
		w.line("const bool vec = %d %% 4 == 0 && x_aligned(x%d, %d);", n.Width, w.id(n), 4*n.Type.Bytes())
		w.line("#pragma unroll")
		w.line("for (int j = 0; j < %d; j += 4) {", n.Width)
		w.line("const Four<%s> f = x_load4(x%d + %s * %dull + j, vec, %d - j);", stored[n.Type], w.id(n), w.row,
			n.Width, n.Width)
		w.line("#pragma unroll")
		w.line("for (int k = 0; k < 4; k++) if (j + k < %d) %s[j + k] = %s;", n.Width, name,
			fromStored(n.Type, "f.v[k]"))
		w.line("}")
		w.line("}")
		w.bound[n], w.arrays[n] = name, true
	}
}

func (w *writer) storeRow(n *ir.Node) {
	w.line("{")
	w.line("const bool vec = %d %% 4 == 0 && x_aligned(y%d, %d);", n.Width, w.id(n), 4*n.Type.Bytes())
	w.line("#pragma unroll")
	w.line("for (int j = 0; j < %d; j += 4) {", n.Width)
	w.line("Four<%s> f;", stored[n.Type])
	w.line("#pragma unroll")
	w.line("for (int k = 0; k < 4; k++) if (j + k < %d) f.v[k] = %s;", n.Width,
		toStored(n.Type, w.rowElement(n, "j + k")))
	w.line("x_store4(y%d + %s * %dull + j, f, vec, %d - j);", w.id(n), w.row, n.Width, n.Width)
	w.line("}")
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
	w.flat, w.col = w.row, "("+j+")"
	if n.Op == ir.OpInput || w.l.Kept(n) && !slices.Contains(w.t.Roots, n) {
		index := w.row
		switch {
		case n.Scalar():
			index = "0"
		case n.Lead == 0:
			index = j
		case n.Width > 1:
			index = fmt.Sprintf("%s * %dull + %s", w.row, n.Width, j)
		}
		return fromStored(n.Type, fmt.Sprintf("x%d[%s]", w.id(n), index))
	}
	return w.expression(n)
}

// productRow writes the products of the rows and a matrix: sums by fused additions, from the first,
// as package interpret adds them. each calls a function for each row.
func (w *writer) productRow(n *ir.Node, each func(func(r int))) {
	a := n.Args[0]
	var names []string
	each(func(int) {
		name := fmt.Sprintf("p%d%s", w.id(n), w.suffix)
		names = append(names, name)
		w.line("float %s[%d];", name, n.Width)
		w.line("#pragma unroll")
		w.line("for (int j = 0; j < %d; j++) %s[j] = 0.0f;", n.Width, name)
	})
	if !w.arrays[a] && a.Width*n.Width > 1024 {
		w.line("#pragma unroll 4") // the row comes from memory, so that the loop needs no registers for it
	} else {
		w.line("#pragma unroll")
	}
	w.line("for (int i = 0; i < %d; i++) {", a.Width)
	each(func(r int) { w.line("const float f%d = %s;", r, w.rowElement(a, "i")) })
	w.line("#pragma unroll")
	w.line("for (int j = 0; j < %d; j++) {", n.Width)
	w.line("const float g = %s[i * %d + j];", factorOf(n).name(w), n.Width)
	for r, name := range names {
		w.line("%s[j] = __fmaf_rn(f%d, g, %s[j]);", name, r, name)
	}
	w.line("}")
	w.line("}")
	each(func(r int) { w.bound[n] = names[r] })
	w.arrays[n] = true
}

func (w *writer) elementRow(n *ir.Node) {
	v := make([]string, len(n.Args))
	for i, a := range n.Args {
		v[i] = w.rowElement(a, "j")
	}
	name := fmt.Sprintf("r%d%s", w.id(n), w.suffix)
	w.line("%s %s[%d];", inRegister[n.Type], name, n.Width)
	w.line("#pragma unroll")
	w.line("for (int j = 0; j < %d; j++) {", n.Width)
	names := make([]string, len(v))
	for i, text := range v {
		names[i] = fmt.Sprintf("t%d", i)
		w.line("const %s t%d = %s;", inRegister[n.Args[i].Type], i, text)
	}
	text := ""
	if len(names) == 0 { // an index or a random number
		w.flat, w.col = w.row, "j"
		text = w.expression(n)
	} else {
		text = operation(n, names)
	}
	w.line("%s[j] = %s;", name, text)
	w.line("}")
	w.bound[n], w.arrays[n] = name, true
}
