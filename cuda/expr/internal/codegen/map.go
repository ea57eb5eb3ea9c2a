package codegen

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

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

// aligned writes the flag vec, which reports whether all arrays are whole vectors of four elements
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
// are not aligned, have a separate loop.
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
		w.line("const %s f%d = x_lanes<%s>(x_four<%s>(c_%d), 32);", inRegister[f.Type], w.id(f), foldName(f),
			foldName(f), w.id(f))
		w.line("if (lane == 0) part%d[t] = f%d;", w.id(f), w.id(f))
	}
	w.line("}")
	if len(all) > 0 {
		w.last(all)
	}
	w.line("}")
}

// mapTile writes the computation of one tile, full or not, with a number of vectors of each array
// in flight. Elements behind the end are neither folded nor stored; in a full tile the compiler
// sees that there are none.
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
