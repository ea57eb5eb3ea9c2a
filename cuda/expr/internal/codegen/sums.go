package codegen

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// sumsPrelude has the loops of sums of rows.
//
//go:embed sums.cuh
var sumsPrelude string

// sumThreads is the number of threads of a block of sums, one for each row of a run. With 64
// threads a step of an autoencoder took 2.40 ms in place of 2.14, and with two rows of a thread
// 3.06 (H200).
const sumThreads = ir.RunRows

// twoBlocks is the maximum of shared memory of a block with which two blocks fit a multiprocessor.
const twoBlocks = 100 << 10

// sum is one sum of rows of a kernel: the place of its elements among all sums of the kernel, and
// the columns of its operands in shared memory.
type sum struct {
	n           *ir.Node
	first, size int64
	left, right int64 // of x' g; left is the only operand of a sum of columns
}

// sums returns the sums of a part, the columns of its operands, and the number of columns.
func (w *writer) sums() (all []sum, staged map[*ir.Node]int64, columns int64) {
	staged = map[*ir.Node]int64{}
	for _, n := range w.t.Staged() {
		staged[n] = columns
		columns += n.Width
	}
	at := int64(0)
	for _, r := range w.t.Roots {
		s := sum{n: r, first: at, size: r.Width, left: staged[r.Args[0]]}
		if r.Op == ir.OpOuter {
			s.size *= r.Args[0].Width
			s.right = staged[r.Args[1]]
		}
		at += s.size
		all = append(all, s)
	}
	w.shape.Sums = at
	return all, staged, columns
}

// sumsKernel writes x' g and sums of columns. A thread computes the values of a row and writes the
// operands of the sums to shared memory, a column each. Then threads add up the rows of the run,
// each for tiles of 4 x 4 elements of x' g, and for some columns.
func (w *writer) sumsKernel() {
	t := w.t
	w.shape.Threads = sumThreads
	all, staged, columns := w.sums()
	factors, bytes := w.factors()
	// Tiles may read up to three columns behind the last.
	batch := sumThreads
	size := func() int { return int(columns+3) * (batch + 4) * 4 }
	for batch > 16 && size()+bytes > min(w.shared, twoBlocks) {
		batch /= 2
	}
	w.shape.Shared = size()
	stride := batch + 4
	w.begin(t.Name, t.Reads, t.Roots, "float *partial", "unsigned *counters", "unsigned chunk",
		"unsigned long long rows")
	w.line("X_DYNAMIC(x_stage);")
	w.line("float *const stage = (float *)x_stage;")
	w.line("__shared__ bool x_last;")
	w.loadFactors(factors)
	var outers, sums []sum
	tiles, cols := int64(0), int64(0)
	for _, s := range all {
		if s.n.Op == ir.OpOuter {
			outers = append(outers, s)
			tiles += tilesOf(s.n.Args[0].Width) * tilesOf(s.n.Width)
			continue
		}
		sums = append(sums, s)
		cols += s.size
	}
	each, ends := (tiles+sumThreads-1)/sumThreads, (cols+sumThreads-1)/sumThreads
	w.beginRuns()
	if each > 0 {
		w.line("float tile[%d][16];", each)
		w.line("#pragma unroll")
		w.line("for (int q = 0; q < %d; q++)", each)
		w.line("#pragma unroll")
		w.line("  for (int i = 0; i < 16; i++) tile[q][i] = 0.0f;")
	}
	if ends > 0 {
		w.line("float column[%d];", ends)
		w.line("#pragma unroll")
		w.line("for (int q = 0; q < %d; q++) column[q] = 0.0f;", ends)
	}
	w.line("for (unsigned batch = 0; batch < %du; batch += %du) {", ir.RunRows, batch)
	w.line("const u64 begin = run * %du + batch;", ir.RunRows)
	w.line("if (begin >= rows) break;")
	w.line("const unsigned here = rows - begin < %du ? (unsigned)(rows - begin) : %du;", batch, batch)
	w.line("if (threadIdx.x < here) {")
	w.scope(func() {
		w.line("const u64 row0 = begin + threadIdx.x;")
		w.rowValues(1)
		for _, n := range t.Staged() {
			w.line("#pragma unroll")
			w.line("for (int j = 0; j < %d; j++) stage[(%d + j) * %d + threadIdx.x] = %s;", n.Width, staged[n], stride,
				w.rowElement(n, "j"))
		}
	})
	w.arrays = map[*ir.Node]bool{}
	w.line("}")
	w.line("__syncthreads();")
	if each > 0 {
		w.line("#pragma unroll")
		w.line("for (int q = 0; q < %d; q++) {", each)
		w.line("unsigned at = threadIdx.x + q * %du;", sumThreads)
		// Where a thread's tile begins is found first, so that threads with tiles of different sums
		// stay together.
		w.line("unsigned left = 0, x = 0, right = 0, g = 0;")
		for _, s := range outers {
			x, g := tilesOf(s.n.Args[0].Width), tilesOf(s.n.Width)
			w.line("if (at < %du) left = %d + at / %d, x = %d, right = %d + at %% %d, g = %d;", x*g, s.left, g, x,
				s.right, g, g)
			w.line("at -= %du;", x*g)
		}
		w.line("if (threadIdx.x + q * %du < %du)", sumThreads, tiles)
		w.line("  x_tile(stage + left * %d, x * %d, stage + right * %d, g * %d, here, tile[q]);", stride, stride,
			stride, stride)
		w.line("}")
	}
	if ends > 0 {
		// Threads of the last warps have columns: the first ones have tiles.
		w.line("#pragma unroll")
		w.line("for (int q = 0; q < %d; q++) {", ends)
		w.line("unsigned at = %du - threadIdx.x + q * %du, left = 0;", sumThreads-1, sumThreads)
		for _, s := range sums {
			w.line("if (at < %du) left = %d + at;", s.size, s.left)
			w.line("at -= %du;", s.size)
		}
		w.line("if (%du - threadIdx.x + q * %du < %du) column[q] = x_column(stage + left * %d, here, column[q]);",
			sumThreads-1, sumThreads, cols, stride)
		w.line("}")
	}
	w.line("__syncthreads();")
	w.line("}")
	w.line("float *const mine = partial + run * %dull;", w.shape.Sums)
	if each > 0 {
		w.line("#pragma unroll")
		w.line("for (int q = 0; q < %d; q++) {", each)
		w.line("unsigned at = threadIdx.x + q * %du;", sumThreads)
		for _, s := range outers {
			left, right := s.n.Args[0].Width, s.n.Width
			x, g := tilesOf(left), tilesOf(right)
			w.line("if (at < %du) {", x*g)
			w.line("#pragma unroll")
			w.line("for (int i = 0; i < 16; i++) {")
			w.line("const unsigned row = at / %d + i / 4 * %d, col = at %% %d + i %% 4 * %d;", g, x, g, g)
			w.line("if (row < %du && col < %du) mine[%d + row * %d + col] = tile[q][i];", left, right, s.first, right)
			w.line("}")
			w.line("}")
			w.line("at -= %du;", x*g)
		}
		w.line("}")
	}
	if ends > 0 {
		w.line("#pragma unroll")
		w.line("for (int q = 0; q < %d; q++) {", ends)
		w.line("unsigned at = %du - threadIdx.x + q * %du;", sumThreads-1, sumThreads)
		for _, s := range sums {
			w.line("if (at < %du) mine[%d + at] = column[q];", s.size, s.first)
			w.line("at -= %du;", s.size)
		}
		w.line("}")
	}
	w.finishSums(all)
}

func tilesOf(columns int64) int64 { return (columns + 3) / 4 }

// beginRuns writes the begin of the loop over runs. A block has a chunk of runs at a time, which is
// 1, 2, 4 and so on up to 128 and has a part of one run of the next level.
func (w *writer) beginRuns() {
	w.line("const u64 runs = (rows + %du) / %du;", ir.RunRows-1, ir.RunRows)
	w.line("for (u64 first = (u64)blockIdx.x * chunk; first < runs; first += (u64)gridDim.x * chunk) {")
	w.line("const u64 end = first + chunk < runs ? first + chunk : runs;")
	w.line("for (u64 run = first; run < end; run++) {")
}

// finishSums writes the end of the loop over runs, and of the kernel: the block that adds up the
// last runs stores the results.
func (w *writer) finishSums(all []sum) {
	w.line("}")
	w.line("const volatile float *const done =")
	w.line("    x_runs(partial, counters, runs, first, (unsigned)(end - first), %du, &x_last);", w.shape.Sums)
	w.line("if (done != 0) {")
	for _, s := range all {
		w.line("for (unsigned e = threadIdx.x; e < %du; e += %du) y%d[e] = %s;", s.size, w.shape.Threads, w.id(s.n),
			toStored(s.n.Type, fmt.Sprintf("done[%d + e]", s.first)))
	}
	w.line("}")
	w.line("__syncthreads();")
	w.line("}")
	w.line("}")
}

// columnsKernel writes sums of wide columns: a thread adds up the rows of a run for some columns.
func (w *writer) columnsKernel() {
	t := w.t
	var all []sum
	for i, r := range t.Roots {
		all = append(all, sum{n: r, first: int64(i) * t.Width, size: t.Width})
	}
	w.shape.Sums = int64(len(all)) * t.Width
	w.begin(t.Name, t.Reads, t.Roots, "float *partial", "unsigned *counters", "unsigned chunk",
		"unsigned long long rows")
	w.line("__shared__ bool x_last;")
	w.beginRuns()
	w.line("const u64 last = (run + 1) * %du < rows ? (run + 1) * %du : rows;", ir.RunRows, ir.RunRows)
	w.line("for (unsigned col = threadIdx.x; col < %du; col += %du) {", t.Width, w.shape.Threads)
	for _, s := range all {
		w.line("float sum%d = 0.0f;", w.id(s.n))
	}
	w.line("#pragma unroll 4")
	w.line("for (u64 row = run * %du; row < last; row++) {", ir.RunRows)
	w.line("const u64 e = row * %dull + col;", t.Width)
	w.line("(void)e;")
	w.flat, w.row, w.col = "e", "row", "col"
	w.scope(func() {
		for _, s := range all {
			w.line("sum%d = x_add(sum%d, %s);", w.id(s.n), w.id(s.n), w.value(s.n.Args[0]))
		}
	})
	w.line("}")
	for _, s := range all {
		w.line("partial[run * %dull + %d + col] = sum%d;", w.shape.Sums, s.first, w.id(s.n))
	}
	w.line("}")
	w.finishSums(all)
}

// scatterLevels is the number of levels of runs of a sum by index, for up to 2^35 elements.
const scatterLevels = 5

// scatterKernel writes sums by index. A thread has an element of the table and looks at all
// indices, which the block reads together. It adds up its runs as they end, level by level.
func (w *writer) scatterKernel() {
	t := w.t
	n := t.Roots[0]
	value, index := n.Args[0], n.Args[1]
	w.begin(t.Name, t.Reads, t.Roots, "unsigned long long table", "unsigned long long n")
	w.line("__shared__ u64 x_at[%d];", BlockThreads)
	w.line("__shared__ float x_value[%d];", BlockThreads)
	w.line("const u64 mine = (u64)blockIdx.x * %du + threadIdx.x;", BlockThreads)
	w.line("float s[%d] = {};", scatterLevels)
	w.line("unsigned c[%d] = {};", scatterLevels)
	w.line("for (u64 base = 0; base < n; base += %du) {", BlockThreads)
	w.line("const unsigned here = n - base < %du ? (unsigned)(n - base) : %du;", BlockThreads, BlockThreads)
	w.line("if (threadIdx.x < here) {")
	w.line("const u64 e = base + threadIdx.x;")
	w.line("const u64 row = e / %dull, col = e %% %dull;", t.Width, t.Width)
	w.line("(void)row;")
	w.line("(void)col;")
	w.flat, w.row, w.col = "e", "row", "col"
	w.scope(func() {
		i := w.value(index)
		if index.Type == ir.I32 {
			w.line("const u64 i = %s < 0 ? 0ull : (u64)%s;", i, i)
		} else {
			w.line("const u64 i = %s;", i)
		}
		w.line("x_at[threadIdx.x] = i < table ? i : table - 1;")
		w.line("x_value[threadIdx.x] = %s;", w.value(value))
	})
	w.line("}")
	w.line("__syncthreads();")
	w.line("for (unsigned i = 0; i < here; i++) {")
	w.line("if (x_at[i] != mine) continue;")
	w.line("s[0] = x_add(s[0], x_value[i]);")
	w.line("c[0]++;")
	w.line("#pragma unroll")
	w.line("for (int l = 0; l + 1 < %d; l++) {", scatterLevels)
	w.line("if (c[l] < %du) break;", ir.RunRows)
	w.nextLevel()
	w.line("}")
	w.line("}")
	w.line("__syncthreads();")
	w.line("}")
	w.line("#pragma unroll")
	w.line("for (int l = 0; l + 1 < %d; l++) {", scatterLevels)
	w.line("if (c[l] == 0) continue;")
	w.nextLevel()
	w.line("}")
	w.line("if (mine < table) y%d[mine] = %s;", w.id(n), toStored(n.Type, fmt.Sprintf("s[%d]", scatterLevels-1)))
	w.line("}")
}

// nextLevel writes the end of a run of level l: its sum is an element of the level above.
func (w *writer) nextLevel() {
	w.line("s[l + 1] = x_add(s[l + 1], s[l]);")
	w.line("c[l + 1]++;")
	w.line("s[l] = 0.0f;")
	w.line("c[l] = 0;")
}

// factor is the second factor of small products of a kernel.
type factor struct {
	n          *ir.Node
	transposed bool
}

func (f factor) name(w *writer) string {
	if f.transposed {
		return fmt.Sprintf("mt%d", w.id(f.n))
	}
	return fmt.Sprintf("m%d", w.id(f.n))
}

func factorOf(n *ir.Node) factor { return factor{n.Args[1], n.Imm == ir.Transposed} }

// factors returns the second factors of the products of the part, each once, and their bytes.
func (w *writer) factors() (all []factor, bytes int) {
	for _, n := range w.t.Inside {
		if n.Op == ir.OpMatMul && !slices.Contains(all, factorOf(n)) {
			all = append(all, factorOf(n))
			bytes += 4 * int(n.Args[0].Width*n.Width)
		}
	}
	return all, bytes
}

// loadFactors writes the loads of factors into shared memory, which all threads of a block read. A
// transposed factor is stored as its transpose.
func (w *writer) loadFactors(all []factor) {
	for _, f := range all {
		rows, width := w.l.Graph.Symbols[f.n.Lead].Fixed, f.n.Width
		size := rows * width
		to := "i"
		if f.transposed {
			to = fmt.Sprintf("i %% %du * %du + i / %du", width, rows, width)
		}
		w.line("__shared__ __align__(16) float %s[%d];", f.name(w), size)
		w.line("for (unsigned i = threadIdx.x; i < %du; i += %du) %s[%s] = %s;", size, w.shape.Threads, f.name(w), to,
			fromStored(f.n.Type, fmt.Sprintf("x%d[i]", w.id(f.n))))
	}
	w.line("__syncthreads();")
}

// rowValues writes the values of a number of rows of a thread, whose places are row0 and so on.
// Each row has its own names. It returns a function that calls another one for each row.
func (w *writer) rowValues(count int) (each func(f func(r int))) {
	bound := make([]map[*ir.Node]string, count)
	for r := range bound {
		bound[r] = maps.Clone(w.bound)
	}
	each = func(f func(r int)) {
		for r := range count {
			w.row, w.suffix, w.bound = fmt.Sprintf("row%d", r), fmt.Sprintf("_%d", r), bound[r]
			f(r)
		}
	}
	each(func(int) { w.loadRow() })
	// Values are computed in the order of the graph, each as an array of registers, or as one
	// register if a row has one element.
	for _, n := range w.t.Inside {
		switch {
		case n.Op == ir.OpMatMul:
			w.productRow(n, each)
		case n.Op.Leaf(), n.Op.SumsRows():
		case n.Width == 1 && w.single(n):
			each(func(int) {
				w.flat, w.col = w.row, "0"
				w.value(n)
			})
		default:
			each(func(int) { w.elementRow(n) })
		}
	}
	return each
}
