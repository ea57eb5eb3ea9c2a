package codegen

import (
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Filters and scans read their inputs once. A block takes a tile by a counter, publishes the count
// or the sum of the tile, and keeps the tile in shared memory. It stores a tile only after it has
// published the next one: the states of the tiles before are known by then, so that it hardly
// waits. Few large blocks are faster than many small ones, because blocks that wait read the states
// of others again and again.
//
// A block publishes a tile before it waits for anything but earlier tiles, and tiles are taken in
// their order. So the earliest tile that is not published is always in work, and no block waits
// forever, however many blocks run at a time.

const tileThreads = 32 * ir.ScanWarps

// stagedBytes returns the shared memory of a block that keeps two tiles of each of some arrays.
func stagedBytes(vectors, arrays int) int { return 2 * arrays * vectors * tileThreads * 16 }

// compactVectors returns the vectors of four elements that a thread of a filter has of each array.
// The values must fit the registers, and the kept ones the shared memory of a block.
func compactVectors(t *plan.Part, wide []*ir.Node, shared int) int {
	bytes := int64(0)
	for _, n := range wide {
		bytes += n.Type.Bytes()
	}
	vectors := ir.ScanRows
	for vectors > 1 && (int64(vectors)*bytes > 32 || vectors*len(t.Roots) > ir.ScanRows ||
		stagedBytes(vectors, len(t.Roots)) > shared) {
		vectors /= 2
	}
	return vectors
}

// takeTiles writes the declarations that filters and scans share, and takes the first tile. cur is
// the tile in work, and mid the one before it, which is published. They are tiles or more if there
// is none. The one before mid, called old, has its place.
func (w *writer) takeTiles(size int) {
	w.line("__shared__ unsigned x_next;")
	// Other blocks write the states, so that each look must read memory.
	w.line("volatile u64 *const state = (volatile u64 *)(scratch + 4);")
	w.line("const unsigned tiles = (unsigned)((n + %du) / %du);", size-1, size)
	w.line("if (threadIdx.x == 0) x_next = atomicAdd(scratch, 1u);")
	w.line("__syncthreads();")
	w.line("unsigned cur = x_next, mid = tiles;")
	w.line("unsigned parity = 0;")
}

// loadTile writes the loads of a thread's vectors of the tile cur. A warp has a range of the tile,
// and a row of 128 elements of it at a time. Loads of full tiles have no conditions. It sets full,
// first, which is the thread's first element, and a, the vectors of each array.
func (w *writer) loadTile(wide []*ir.Node, vectors int) {
	size := tileThreads * vectors * 4
	w.begins(size, vectors, "cur")
	for _, n := range wide {
		w.line("Four<%s> a%d[%d];", stored[n.Type], w.id(n), vectors)
	}
	for _, whole := range []bool{true, false} {
		if whole {
			w.line("if (full) {")
		} else {
			w.line("} else if (cur < tiles) {")
			w.indent++
		}
		w.line("#pragma unroll")
		w.line("for (int u = 0; u < %d; u++) {", vectors)
		for _, n := range wide {
			if whole {
				w.line("a%d[u] = x_once4(x%d + first + u * 128u);", w.id(n), w.id(n))
			} else {
				w.line("a%d[u] = x_load4(x%d + first + u * 128u, false, x_rest(here, place + u * 128u));", w.id(n),
					w.id(n))
			}
		}
		w.line("}")
	}
	w.line("}")
}

// begins writes where the elements of a thread are in a tile: first is the place of its first one
// in the array, place that in the tile, and here the elements of the tile.
func (w *writer) begins(size, vectors int, tile string) {
	w.line("const unsigned place = warp * %du + lane * 4u;", vectors*128)
	w.line("const u64 first = (u64)%s * %du + place;", tile, size)
	w.line("const unsigned here = %s + 1 < tiles ? %du : (unsigned)(n - (u64)%s * %du);", tile, size, tile, size)
	w.line("const bool full = vec && here == %du && %s < tiles;", size, tile)
}

// eachElement writes a loop over the elements of a thread that has loadTile's vectors, and calls f
// for the text of one, with the index [u][k]. The text is executed for elements behind the end too,
// for which k >= m, so that it has no branches; other loads for them read the last element.
func (w *writer) eachElement(wide []*ir.Node, vectors int, f func()) {
	w.line("#pragma unroll")
	w.line("for (int u = 0; u < %d; u++) {", vectors)
	w.line("const u64 e0 = first + u * 128u;")
	w.line("(void)e0;")
	w.line("const int m = full ? 4 : x_rest(here, place + u * 128u);")
	w.places(true)
	w.line("#pragma unroll")
	w.line("for (int k = 0; k < 4; k++) {")
	w.line("const u64 e = e0 + k < n ? e0 + k : n - 1;")
	w.line("(void)e;")
	w.scope(func() {
		w.source = func(n *ir.Node) string {
			for _, x := range wide {
				if x == n {
					return fmt.Sprintf("a%d[u].v[k]", w.id(n))
				}
			}
			return ""
		}
		f()
		w.source = nil
	})
	w.line("}")
	w.line("}")
}

// compactKernel writes a filter. The scratch memory is 0 before the launch: a counter of tiles, and
// from word 4 on the states of x_before.
func (w *writer) compactKernel() {
	t := w.t
	keep := t.Roots[0].Args[1]
	wide := w.wide()
	vectors := compactVectors(t, wide, w.shared)
	size := tileThreads * vectors * 4
	w.shape = plan.Shape{Threads: tileThreads, Tile: int64(size), Shared: stagedBytes(vectors, len(t.Roots))}
	w.begin(t.Name, t.Reads, t.Roots, "unsigned long long *count", "unsigned *scratch", "unsigned long long n")
	w.aligned(wide, nil, false)
	w.line("X_DYNAMIC(x_stage);")
	w.line("__shared__ unsigned x_counts[%d];", ir.ScanWarps)
	w.line("__shared__ u64 x_prefix;")
	w.takeTiles(size)
	w.line("unsigned kept = 0, kept_mid = 0, kept_old = 0;")
	w.line("for (;; parity ^= 1u) {")
	w.loadTile(wide, vectors)
	// While the loads are in flight, the elements of old are stored. A warp stores its elements to
	// one range.
	for i, r := range t.Roots {
		w.line("for (unsigned i = threadIdx.x; i < kept_old; i += %du) {", tileThreads)
		value := fmt.Sprintf("x_stage[(%du + parity) * %du + i]", 2*i, size)
		switch {
		case r.Type.Float():
			value = "x_bits(" + value + ")"
		case r.Type == ir.I32:
			value = "(int)" + value
		}
		w.line("y%d[x_prefix + i] = %s;", w.id(r), toStored(r.Type, value))
		w.line("}")
	}
	w.line("if (cur >= tiles && mid >= tiles) break;")
	for _, r := range t.Roots {
		w.line("%s w%d[%d][4];", inRegister[r.Type], w.id(r), vectors)
	}
	w.line("unsigned mask = 0, low = 0, high = 0, ticket = 0;")
	w.line("if (cur < tiles) {")
	w.line("if (threadIdx.x == 0) ticket = atomicAdd(scratch, 1u);")
	w.eachElement(wide, vectors, func() {
		w.line("if (%s != 0u && k < m) mask |= 1u << (u * 4 + k);", w.value(keep))
		for _, r := range t.Roots {
			w.line("w%d[u][k] = %s;", w.id(r), w.value(r.Args[0]))
		}
	})
	w.line("}")
	w.WriteString(compactCounts)
	w.line("if (cur < tiles) {")
	w.line("const unsigned own = lane < %du ? x_counts[lane] : 0, sums = x_steps(own);", ir.ScanWarps)
	w.line("unsigned before = __shfl_sync(0xffffffffu, sums - own, (int)warp);")
	w.line("kept = __shfl_sync(0xffffffffu, sums, 31);")
	w.line("if (threadIdx.x == 0) {")
	w.line("x_publish<u64>(state + cur, kept);")
	w.line("x_next = ticket;")
	w.line("}")
	// The kept elements are put together in shared memory, in their order.
	w.line("#pragma unroll")
	w.line("for (int u = 0; u < %d; u++) {", vectors)
	w.line("unsigned at = before + ((u < 4 ? low : high) >> (8 * (u & 3)) & 0xffu);")
	w.line("before += (u < 4 ? sum_low : sum_high) >> (8 * (u & 3)) & 0xffu;")
	w.line("#pragma unroll")
	w.line("for (int k = 0; k < 4; k++) {")
	w.line("if (!(mask >> (u * 4 + k) & 1u)) continue;")
	for i, r := range t.Roots {
		bits := fmt.Sprintf("w%d[u][k]", w.id(r))
		if r.Type.Float() {
			bits = "x_word(" + bits + ")"
		}
		w.line("x_stage[(%du + parity) * %du + at] = (unsigned)%s;", 2*i, size, bits)
	}
	w.line("at++;")
	w.line("}")
	w.line("}")
	w.line("if (warp == 0) x_upward<u64>(state, cur, tiles, kept);")
	w.line("}")
	w.line("if (mid < tiles && warp == %du) {", ir.ScanWarps-1)
	w.line("const u64 before = x_before<u64>(state, mid, tiles, 0);")
	w.line("if (lane == 0) x_prefix = before;")
	w.line("if (lane == 0 && mid == tiles - 1) *count = before + kept_mid;")
	w.line("}")
	w.line("__syncthreads();")
	w.line("kept_old = kept_mid, kept_mid = cur < tiles ? kept : 0;")
	w.line("mid = cur;")
	w.line("if (cur < tiles) cur = x_next;")
	w.line("}")
	w.line("}")
}

// compactCounts adds the kept elements of the vectors of a warp: the counts of eight vectors are
// bytes of two words, which are summed over the lanes, at most 128. low and high get the counts of
// the lanes before, and x_counts the counts of the warps. The elements of old have been stored at
// its end.
const compactCounts = `    if (cur < tiles) {
#pragma unroll
      for (int u = 0; u < 4; u++) {
        low |= (unsigned)__popc(mask >> (4 * u) & 15u) << (8 * u);
        high |= (unsigned)__popc(mask >> (4 * u + 16) & 15u) << (8 * u);
      }
    }
    const unsigned own_low = low, own_high = high;
    low = x_steps(low), high = x_steps(high);
    const unsigned sum_low = __shfl_sync(0xffffffffu, low, 31), sum_high = __shfl_sync(0xffffffffu, high, 31);
    low -= own_low, high -= own_high;
    const unsigned pairs = (sum_low & 0xff00ffu) + (sum_low >> 8 & 0xff00ffu) + (sum_high & 0xff00ffu) +
                           (sum_high >> 8 & 0xff00ffu);
    if (lane == 0) x_counts[warp] = (pairs & 0xffffu) + (pairs >> 16);
    __syncthreads();
`

// scanKernel writes the sums of elements and all before them, in the order of ir.ScanTile. Without
// enough shared memory for two tiles, a block waits for the tiles before its own and keeps its
// elements in registers. The scratch memory is laid out as in compactKernel.
func (w *writer) scanKernel() {
	t := w.t
	root := t.Roots[0]
	typ := inRegister[root.Type]
	none := constant(root.Type, ir.Identity(root.Type, ir.FoldSum))
	wide := w.wide()
	staged := stagedBytes(ir.ScanRows, 1)
	direct := staged > w.shared
	if direct {
		staged = 0
	}
	w.shape = plan.Shape{Threads: tileThreads, Tile: ir.ScanTile, Shared: staged}
	w.begin(t.Name, t.Reads, t.Roots, "unsigned *scratch", "unsigned long long n")
	w.line("typedef %s T;", typ)
	w.line("const T none = %s;", none)
	w.aligned(wide, t.Roots, false)
	if !direct {
		w.line("X_DYNAMIC(x_stage);")
	}
	w.line("__shared__ T x_warps[%d], x_prefix;", ir.ScanWarps)
	w.takeTiles(ir.ScanTile)
	w.line("unsigned old = tiles;")
	w.line("T before = none, before_mid = none, before_old = none;")
	w.line("for (;; parity ^= 1u) {")
	w.loadTile(wide, ir.ScanRows)
	// result writes the final sums of a tile, whose sums within a warp are in the expression from.
	result := func(tile, before, from string) {
		w.line("const T off = x_add(x_prefix, %s);", before)
		w.begins(ir.ScanTile, ir.ScanRows, tile)
		w.line("#pragma unroll")
		w.line("for (int u = 0; u < %d; u++) {", ir.ScanRows)
		w.line("const Four<T> f = %s;", from)
		w.line("Four<%s> z;", stored[root.Type])
		w.line("#pragma unroll")
		w.line("for (int k = 0; k < 4; k++) {")
		w.line("const T v = x_add(off, f.v[k]);")
		w.line("z.v[k] = %s;", toStored(root.Type, "v"))
		w.line("}")
		w.line("if (full) x_put4(y%d + first + u * 128u, z);", w.id(root))
		w.line("else x_store4(y%d + first + u * 128u, z, false, x_rest(here, place + u * 128u));", w.id(root))
		w.line("}")
	}
	slot := fmt.Sprintf("((Four<T> *)x_stage)[(parity * %du + u) * %du + threadIdx.x]", ir.ScanRows, tileThreads)
	if !direct {
		w.line("if (old < tiles) {")
		result("old", "before_old", slot)
		w.line("}")
	}
	if direct {
		w.line("if (cur >= tiles) break;")
	} else {
		w.line("if (cur >= tiles && mid >= tiles) break;")
	}
	w.line("unsigned ticket = 0;")
	w.line("Four<T> own[%d];", ir.ScanRows)
	w.line("if (cur < tiles) {")
	w.line("if (threadIdx.x == 0) ticket = atomicAdd(scratch, 1u);")
	w.eachElement(wide, ir.ScanRows, func() {
		w.line("const T v = %s;", w.value(root.Args[0]))
		w.line("own[u].v[k] = k < m ? v : none;")
	})
	w.WriteString(scanRows)
	if !direct {
		w.line("#pragma unroll")
		w.line("for (int u = 0; u < %d; u++) %s = own[u];", ir.ScanRows, slot)
	}
	w.line("}")
	w.line("__syncthreads();")
	w.line("if (cur < tiles) {")
	w.line("T all = none;")
	w.line("#pragma unroll")
	w.line("for (unsigned v = 0; v < %du; v++) {", ir.ScanWarps)
	w.line("if (v == warp) before = all;")
	w.line("all = x_add(all, x_warps[v]);")
	w.line("}")
	w.line("if (threadIdx.x == 0) {")
	w.line("x_publish(state + cur, all);")
	w.line("x_next = ticket;")
	w.line("}")
	w.line("if (warp == 0) x_upward(state, cur, tiles, all);")
	w.line("}")
	waits := "mid"
	if direct {
		waits = "cur"
	}
	w.line("if (%s < tiles && warp == %du) {", waits, ir.ScanWarps-1)
	w.line("const T sum = x_before(state, %s, tiles, none);", waits)
	w.line("if (lane == 0) x_prefix = sum;")
	w.line("}")
	w.line("__syncthreads();")
	if direct {
		w.line("{")
		result("cur", "before", "own[u]")
		w.line("}")
	}
	w.line("old = mid, before_old = before_mid;")
	w.line("mid = cur, before_mid = before;")
	w.line("if (cur < tiles) cur = x_next;")
	w.line("}")
	w.line("}")
}

// scanRows adds the elements of a warp: four in a row, the lanes of a row of vectors, and the rows.
const scanRows = `      T left[8];
#pragma unroll
      for (int u = 0; u < 8; u++) {
#pragma unroll
        for (int k = 1; k < 4; k++) own[u].v[k] = x_add(own[u].v[k - 1], own[u].v[k]);
        left[u] = own[u].v[3];
      }
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
#pragma unroll
        for (int u = 0; u < 8; u++) {
          const T v = __shfl_up_sync(0xffffffffu, left[u], d);
          if (lane >= (unsigned)d) left[u] = x_add(v, left[u]);
        }
      }
      T rows = none;
#pragma unroll
      for (int u = 0; u < 8; u++) {
        const T row = __shfl_sync(0xffffffffu, left[u], 31);
        T v = __shfl_up_sync(0xffffffffu, left[u], 1);
        if (lane == 0) v = none;
        v = x_add(rows, v);
        rows = x_add(rows, row);
#pragma unroll
        for (int k = 0; k < 4; k++) own[u].v[k] = x_add(v, own[u].v[k]);
      }
      if (lane == 0) x_warps[warp] = rows;
`
