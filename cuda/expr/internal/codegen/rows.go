package codegen

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// rowLayout is how the elements of a row are spread over threads: short rows share a warp, so that
// no lane is idle, and rows of more than a tile have a block.
type rowLayout struct {
	lanes   int // lanes of a row, 32 for rows of a warp or of a block
	perWarp int // rows of a warp; 0: a block has one row
	vectors int // of a thread
}

// layout returns the layout for rows of a width. All layouts fold a row in the order of
// ir.TileSize: lanes beyond a short row would fold the identity.
func layout(width int64) rowLayout {
	switch {
	case width > ir.TileSize:
		tiles := (width + ir.TileSize - 1) / ir.TileSize
		return rowLayout{32, 0, 8 * int((tiles+blockWarps-1)/blockWarps)}
	case width > 64:
		return rowLayout{32, 1, int((width + 127) / 128)}
	}
	lanes := 1
	for int64(lanes)*4 < width {
		lanes *= 2
	}
	return rowLayout{lanes, 32 / lanes, 1}
}

// RowsPerBlock is the number of rows that a block computes.
func RowsPerBlock(width int64) int64 { return max(1, int64(layout(width).perWarp)*blockWarps) }

// held is the maximum of floats of a thread for arrays of a row, of the 255 registers that it has.
const held = 72

// rowsKernel writes folds of rows. The threads of a row keep its elements in registers, if there
// are few, and read them again for each fold, if not.
func (w *writer) rowsKernel() {
	t := w.t
	lay := layout(t.Width)
	level := levelsOf(w)
	w.begin(t.Name, t.Reads, t.Roots, "unsigned long long rows")
	wide := w.wide()
	if t.Width == 1 {
		wide = nil
	}
	var stores []*ir.Node
	for _, r := range t.Roots {
		if r.Width > 1 {
			stores = append(stores, r)
		}
	}
	w.aligned(wide, stores, true)
	hold := len(wide)*lay.vectors*4 <= held
	// Elements of arrays stay in registers if they fit; otherwise each phase reads them again.
	kept := w.expensive(level, len(wide), lay, hold)
	w.rowPlace(lay)
	for _, n := range wide {
		if hold {
			w.line("Four<%s> a%d[%d];", stored[n.Type], w.id(n), lay.vectors)
		}
	}
	if hold && len(wide) > 0 {
		w.line("#pragma unroll")
		w.vectorLoop(lay)
		for _, n := range wide {
			w.line("a%d[r] = x_load4(x%d + e0, vec, m);", w.id(n), w.id(n))
		}
		w.line("}")
	}
	for _, n := range kept {
		w.line("%s k%d[%d][4];", inRegister[n.Type], w.id(n), lay.vectors)
	}
	// Within the loops over elements, arrays are registers already.
	w.source = func(n *ir.Node) string {
		if slices.Contains(wide, n) {
			if hold {
				return fmt.Sprintf("a%d[r].v[k]", w.id(n))
			}
			return fmt.Sprintf("a%d.v[k]", w.id(n))
		}
		return ""
	}
	w.flat, w.row, w.col = "e", "row", "col"
	if t.Width == 1 {
		w.flat = "row"
	}
	most := 0
	for _, l := range level {
		most = max(most, l)
	}
	// A phase for each level of folds: the second one, as in softmax, needs the results of the
	// first.
	computed := map[*ir.Node]bool{}
	for p := 0; p <= most; p++ {
		// Values of a row have one element, which all its threads compute.
		for _, n := range t.Inside {
			if n.Width == 1 && level[n] == p && n.Op != ir.OpRows && w.forRow(n) {
				w.value(n)
			}
		}
		w.phase(p, level, lay, kept, computed, wide, stores, hold, p == most)
	}
	// One thread of a row stores its values of one element.
	w.line("if (live && %s) {", map[bool]string{true: "sub == 0", false: "threadIdx.x == 0"}[lay.perWarp > 0])
	for _, r := range t.Roots {
		if r.Width == 1 {
			w.line("y%d[row] = %s;", w.id(r), w.store(r))
		}
	}
	w.line("}")
	w.source = nil
	w.line("}")
}

// forRow reports whether a node of one element a row may be computed outside of the loops over
// elements.
func (w *writer) forRow(n *ir.Node) bool { return n.Width == 1 }

// levelsOf returns for each node how many folds of rows are below it, one after the other. A node
// can be computed in the phase of its level.
func levelsOf(w *writer) map[*ir.Node]int {
	level := map[*ir.Node]int{}
	for _, n := range w.t.Inside {
		for _, a := range n.Args {
			level[n] = max(level[n], level[a])
		}
		if n.Op == ir.OpRows {
			level[n]++
		}
	}
	return level
}

// rowPlace writes which row a thread has. Threads behind the last row are not live: they take part
// in the exchange between lanes and store nothing.
func (w *writer) rowPlace(lay rowLayout) {
	if lay.perWarp == 0 {
		w.line("__shared__ float x_parts[%d];", ir.SuperTiles)
		w.line("const u64 row = blockIdx.x;")
		w.line("const unsigned sub = lane;")
		w.line("const bool live = row < rows;")
		return
	}
	w.line("const unsigned sub = lane & %du;", lay.lanes-1)
	w.line("const u64 row = ((u64)blockIdx.x * %du + warp) * %du + lane / %du;", blockWarps, lay.perWarp, lay.lanes)
	w.line("const bool live = row < rows;")
}

// vectorLoop begins the loop over the vectors of a thread: r is the vector, col0 and e0 its first
// element in the row and in the array, and m the elements that it has.
func (w *writer) vectorLoop(lay rowLayout) {
	w.line("for (int r = 0; r < %d; r++) {", lay.vectors)
	if lay.perWarp == 0 {
		w.line(
			"const unsigned col0 = (warp + (unsigned)(r >> 3) * %du) * %du + (unsigned)(r & 7) * 128u + sub * 4u;",
			blockWarps,
			ir.TileSize,
		)
	} else {
		w.line("const unsigned col0 = (unsigned)r * 128u + sub * 4u;")
	}
	if w.t.Width%4 == 0 {
		w.line("const int m = live && col0 < %du ? 4 : 0;", w.t.Width)
	} else {
		w.line("const int m = live ? x_left(%dull, col0) : 0;", w.t.Width)
	}
	w.line("const u64 e0 = row * %dull + col0;", w.t.Width)
}

// expensive returns the values of elements that are kept for later phases instead of computed
// again, the first ones that have room.
func (w *writer) expensive(level map[*ir.Node]int, wide int, lay rowLayout, hold bool) (kept []*ir.Node) {
	if !hold {
		return nil
	}
	room := held/4/lay.vectors - wide
	for _, n := range w.t.Inside {
		if n.Op.Weight() < 12 || n.Width == 1 || room <= 0 {
			continue
		}
		later := slices.ContainsFunc(w.t.Inside, func(u *ir.Node) bool {
			return slices.Contains(u.Args, n) && (level[u] > level[n] || u.Op == ir.OpRows)
		})
		if later {
			kept = append(kept, n)
			room--
		}
	}
	return kept
}

// phase writes the folds of one level, or the results. Values below folds of earlier levels are
// computed again, unless they are kept.
func (w *writer) phase(p int, level map[*ir.Node]int, lay rowLayout, kept []*ir.Node, computed map[*ir.Node]bool,
	wide, stores []*ir.Node, hold, final bool,
) {
	var all []*ir.Node
	for _, n := range w.t.Inside {
		if n.Op == ir.OpRows && level[n] == p+1 {
			all = append(all, n)
		}
	}
	if len(all) == 0 && len(stores) == 0 {
		return
	}
	if !final {
		stores = nil
	}
	for _, f := range all {
		none := zeroNone(f)
		if lay.perWarp == 0 {
			w.line("%s c_%d[%d][4];", inRegister[f.Type], w.id(f), lay.vectors/8)
			w.line("for (int j = 0; j < %d; j++) for (int k = 0; k < 4; k++) c_%d[j][k] = %s;", lay.vectors/8,
				w.id(f), none)
		} else {
			w.line("%s c_%d[1][4] = {{%s, %s, %s, %s}};", inRegister[f.Type], w.id(f), none, none, none, none)
		}
	}
	w.line("#pragma unroll")
	w.vectorLoop(lay)
	if !hold {
		for _, n := range wide {
			w.line("const Four<%s> a%d = x_load4(x%d + e0, vec, m);", stored[n.Type], w.id(n), w.id(n))
		}
	}
	for _, n := range stores {
		w.line("Four<%s> z%d;", stored[n.Type], w.id(n))
	}
	w.line("#pragma unroll")
	w.line("for (int k = 0; k < 4; k++) {")
	w.line("if (k >= m) continue;")
	w.line("const u64 e = e0 + k;")
	w.line("const unsigned col = col0 + k;")
	w.scope(func() {
		for _, n := range kept {
			if computed[n] {
				w.bound[n] = fmt.Sprintf("k%d[r][k]", w.id(n))
			}
		}
		for _, f := range all {
			w.line("c_%d[%s][k] = %s::fold(c_%d[%s][k], %s);", w.id(f), tileOf(lay), foldName(f), w.id(f),
				tileOf(lay), w.value(f.Args[0]))
		}
		for _, n := range stores {
			w.line("z%d.v[k] = %s;", w.id(n), w.store(n))
		}
		for _, n := range kept {
			if name := w.bound[n]; name != "" && !computed[n] {
				w.line("k%d[r][k] = %s;", w.id(n), name)
				computed[n] = true
			}
		}
	})
	w.line("}")
	for _, n := range stores {
		w.line("x_store4(y%d + e0, z%d, vec, m);", w.id(n), w.id(n))
	}
	w.line("}")
	for _, f := range all {
		w.foldRow(f, lay)
		w.bound[f] = fmt.Sprintf("v%d", w.id(f))
	}
}

// tileOf is the index of a thread's tile. Rows of a block have several tiles.
func tileOf(lay rowLayout) string {
	if lay.perWarp == 0 {
		return "r >> 3"
	}
	return "0"
}

// foldRow writes the fold of a row over its threads; all of them get the result. Rows of a block
// exchange the results of tiles through shared memory, between two barriers that all threads reach.
func (w *writer) foldRow(f *ir.Node, lay rowLayout) {
	t, fn := inRegister[f.Type], foldName(f)
	if lay.perWarp > 0 {
		w.line(
			"const %s v%d = __shfl_sync(0xffffffffu, x_lanes<%s>(x_four<%s>(c_%d[0]), %d), (int)(lane & ~%du));",
			t,
			w.id(f),
			fn,
			fn,
			w.id(f),
			lay.lanes,
			lay.lanes-1,
		)
		return
	}
	w.line("%s *const parts%d = (%s *)x_parts;", t, w.id(f), t)
	w.line("#pragma unroll")
	w.line("for (int j = 0; j < %d; j++) {", ir.SuperTiles/blockWarps)
	none := zeroNone(f)
	w.line("const %s q = j < %d ? x_lanes<%s>(x_four<%s>(c_%d[j < %d ? j : 0]), 32) : %s;", t, lay.vectors/8,
		fn, fn, w.id(f), lay.vectors/8, none)
	w.line("if (lane == 0) parts%d[warp + j * %d] = q;", w.id(f), blockWarps)
	w.line("}")
	w.line("__syncthreads();")
	w.line("const %s v%d = __shfl_sync(0xffffffffu, x_tiles<%s>(parts%d, %s), 0);", t, w.id(f), fn, w.id(f), none)
	w.line("__syncthreads();")
}
