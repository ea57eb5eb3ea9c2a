package codegen

import (
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// compactKernel writes a filter in one pass: a tile counts what it keeps, learns from the tiles
// before it how many elements they keep, and stores its own behind them. Tiles get their numbers in
// the order in which their blocks start, so that a tile waits only for tiles that run. The scratch
// memory is 0 before the launch: a counter of tiles, and from word 4 on the state of each.
func (w *writer) compactKernel() {
	t := w.t
	keep := t.Roots[0].Args[1]
	w.begin(t.Name, t.Reads, t.Roots, "unsigned long long *count", "unsigned *scratch", "unsigned long long n")
	wide := w.wide()
	w.aligned(wide, nil, false)
	w.line("__shared__ unsigned x_stage[%d];", CompactTile)
	w.line("__shared__ unsigned x_start[64];")
	w.line("__shared__ unsigned x_tile, x_total;")
	w.line("__shared__ u64 x_prefix;")
	// Other blocks write the states, so that each look must read memory.
	w.line("volatile u64 *const state = (u64 *)(scratch + 4);")
	w.line("if (threadIdx.x == 0) x_tile = atomicAdd(scratch, 1u);")
	w.line("__syncthreads();")
	w.line("const u64 tile = x_tile, base = tile * %du;", CompactTile)
	w.line("const bool full = vec && base + %du <= n;", CompactTile)
	w.line("unsigned mask = 0;")
	for _, r := range t.Roots {
		w.line("%s w%d[8][4];", inRegister[r.Type], w.id(r))
	}
	vectors := unroll(len(wide))
	w.line("#pragma unroll")
	w.line("for (int r0 = 0; r0 < 8; r0 += %d) {", vectors)
	for _, n := range wide {
		w.line("Four<%s> a%d[%d];", stored[n.Type], w.id(n), vectors)
	}
	// Loads of full tiles have no conditions.
	for _, full := range []bool{true, false} {
		vec, m := "true", "4"
		if full {
			w.line("if (full) {")
		} else {
			w.line("} else {")
			w.indent++
			vec, m = "false", "x_left(n, e0)"
		}
		w.line("#pragma unroll")
		w.line("for (int u = 0; u < %d; u++) {", vectors)
		w.line("const u64 e0 = base + (unsigned)(r0 + u) * 1024u + threadIdx.x * 4u;")
		for _, n := range wide {
			w.line("a%d[u] = x_load4(x%d + e0, %s, %s);", w.id(n), w.id(n), vec, m)
		}
		w.line("(void)e0;")
		w.line("}")
	}
	w.line("}")
	w.line("#pragma unroll")
	w.line("for (int u = 0; u < %d; u++) {", vectors)
	w.line("const u64 e0 = base + (unsigned)(r0 + u) * 1024u + threadIdx.x * 4u;")
	w.line("const int m = full ? 4 : x_left(n, e0);")
	w.places(true)
	w.line("#pragma unroll")
	w.line("for (int k = 0; k < 4; k++) {")
	for _, r := range t.Roots {
		w.line("w%d[r0 + u][k] = 0;", w.id(r))
	}
	w.line("if (k >= m) continue;")
	w.line("const u64 e = e0 + k;")
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
		w.line("if (%s != 0u) mask |= 1u << ((r0 + u) * 4 + k);", w.value(keep))
		for _, r := range t.Roots {
			w.line("w%d[r0 + u][k] = %s;", w.id(r), w.value(r.Args[0]))
		}
		w.source = nil
	})
	w.line("}")
	w.line("}")
	w.line("}")
	w.WriteString(compactRanks)
	// The kept elements are put together in shared memory, so that stores of a warp are to one
	// range.
	for _, r := range t.Roots {
		w.line("#pragma unroll")
		w.line("for (int r = 0; r < 8; r++) {")
		w.line(
			"const unsigned at = x_start[r * 8 + warp] + ((r < 4 ? low >> (8 * r) : high >> (8 * r - 32)) & 0xffu);",
		)
		w.line("#pragma unroll")
		w.line("for (int k = 0; k < 4; k++) {")
		w.line("const unsigned of = mask >> (4 * r);")
		bits := fmt.Sprintf("w%d[r][k]", w.id(r))
		if r.Type.Float() {
			bits = "x_word(" + bits + ")"
		}
		w.line("if (of >> k & 1u) x_stage[at + (unsigned)__popc(of & ((1u << k) - 1u))] = (unsigned)%s;", bits)
		w.line("}")
		w.line("}")
		w.line("__syncthreads();")
		w.line("for (unsigned i = threadIdx.x; i < x_total; i += %du) {", BlockThreads)
		value := "x_stage[i]"
		switch {
		case r.Type.Float():
			value = "x_bits(x_stage[i])"
		case r.Type == ir.I32:
			value = "(int)x_stage[i]"
		}
		w.line("y%d[x_prefix + i] = %s;", w.id(r), toStored(r.Type, value))
		w.line("}")
		w.line("__syncthreads();")
	}
	w.line("}")
}

// compactRanks finds the place of each kept element: counts of the eight vectors of a thread are
// bytes of two words, which are summed over the lanes of a warp (at most 128), then over 64 pairs
// of vector and warp.
const compactRanks = `  unsigned low = 0, high = 0;
#pragma unroll
  for (int r = 0; r < 4; r++) {
    low |= (unsigned)__popc(mask >> (4 * r) & 15u) << (8 * r);
    high |= (unsigned)__popc(mask >> (4 * r + 16) & 15u) << (8 * r);
  }
  const unsigned own_low = low, own_high = high;
#pragma unroll
  for (unsigned d = 1; d < 32; d *= 2) {
    const unsigned l = __shfl_up_sync(0xffffffffu, low, d), h = __shfl_up_sync(0xffffffffu, high, d);
    if (lane >= d) low += l, high += h;
  }
  if (lane == 31) {
#pragma unroll
    for (int r = 0; r < 4; r++) {
      x_start[r * 8 + warp] = low >> (8 * r) & 0xffu;
      x_start[r * 8 + 32 + warp] = high >> (8 * r) & 0xffu;
    }
  }
  low -= own_low, high -= own_high;
  __syncthreads();
  if (warp == 0) {
    const unsigned a = x_start[2 * lane], b = x_start[2 * lane + 1];
    unsigned sum = a + b;
#pragma unroll
    for (unsigned d = 1; d < 32; d *= 2) {
      const unsigned s = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += s;
    }
    x_start[2 * lane] = sum - a - b;
    x_start[2 * lane + 1] = sum - b;
    const unsigned total = __shfl_sync(0xffffffffu, sum, 31);
    const u64 before = x_before(state, tile, total);
    if (lane == 0) {
      x_prefix = before;
      x_total = total;
      if (tile == gridDim.x - 1) *count = before + total;
    }
  }
  __syncthreads();
`

// scanText is the part of a scan that all its kernels share: the sums of a thread, of the lanes of
// a warp, and of the warps, for a tile whose elements are in own.
const scanText = `  T sum = none;
#pragma unroll
  for (int k = 0; k < 16; k++) own[k] = sum = x_add(sum, own[k]);
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const T s = __shfl_up_sync(0xffffffffu, sum, d);
    if (lane >= (unsigned)d) sum = x_add(s, sum);
  }
  const T left = __shfl_up_sync(0xffffffffu, sum, 1);
  if (lane == 31) x_warps[warp] = sum;
  __syncthreads();
  T before = none;
  for (unsigned v = 0; v < warp; v++) before = x_add(before, x_warps[v]);
`

// Kernels of a scan: its name with these endings. The first two read what the part reads, the
// others read sums of tiles.
const (
	// ScanTotals writes the sum of each tile.
	ScanTotals = "_totals"
	// ScanApply writes the results, by the sums of all tiles before.
	ScanApply = "_apply"
	// ScanUp writes the sum of each tile of sums.
	ScanUp = "_up"
	// ScanDown scans sums in place, by the sums of all tiles before.
	ScanDown = "_down"
)

// scanKernels writes the four kernels of a scan. Float sums have a fixed order only if no tile
// waits for another one in a launch, so the sums of tiles are stored and scanned in launches of
// their own.
func (w *writer) scanKernels() {
	t := w.t
	root := t.Roots[0]
	of := root.Args[0]
	typ := inRegister[root.Type]
	none := constant(root.Type, ir.Identity(root.Type, ir.FoldSum))
	// head writes the declarations that all kernels have.
	head := func() {
		w.line("typedef %s T;", typ)
		w.line("const T none = %s;", none)
		w.line("__shared__ T x_warps[%d];", ir.ScanWarps)
		w.line("T own[%d];", ir.ScanThread)
		w.line("const u64 base = (u64)blockIdx.x * %du + threadIdx.x * %du;", ir.ScanTile, ir.ScanThread)
	}
	// total writes the sum of the tile to totals. What other kernels use of scanText is not used.
	total := func() {
		w.line("if (threadIdx.x == 0) {")
		w.line("T all = none;")
		w.line("for (unsigned v = 0; v < %du; v++) all = x_add(all, x_warps[v]);", ir.ScanWarps)
		w.line("totals[blockIdx.x] = all;")
		w.line("}")
		w.line("(void)left, (void)before;")
	}
	// load writes the computation of a thread's elements from what the part reads, and their sums.
	load := func() {
		wide := w.wide()
		w.aligned(wide, nil, false)
		w.line("#pragma unroll")
		w.line("for (int u = 0; u < 4; u++) {")
		w.line("const u64 e0 = base + 4 * u;")
		w.line("const int m = x_left(n, e0);")
		for _, n := range wide {
			w.line("const Four<%s> a%d = x_load4(x%d + e0, vec, m);", stored[n.Type], w.id(n), w.id(n))
		}
		w.places(true)
		w.line("#pragma unroll")
		w.line("for (int k = 0; k < 4; k++) {")
		w.line("own[4 * u + k] = none;")
		w.line("if (k >= m) continue;")
		w.line("const u64 e = e0 + k;")
		w.line("(void)e;")
		w.scope(func() {
			w.source = func(n *ir.Node) string {
				for _, x := range wide {
					if x == n {
						return fmt.Sprintf("a%d.v[k]", w.id(n))
					}
				}
				return ""
			}
			w.line("own[4 * u + k] = %s;", w.value(of))
			w.source = nil
		})
		w.line("}")
		w.line("}")
		w.WriteString(scanText)
	}
	// result writes the sums of the elements before a thread to those of the thread, from the
	// right: the lanes, the warps, and the tiles before it, in the order of package interpret.
	result := func(store string) {
		w.line("const T carry = blockIdx.x > 0 ? totals[blockIdx.x - 1] : none;")
		w.line("#pragma unroll")
		w.line("for (int k = 0; k < %d; k++) {", ir.ScanThread)
		w.line("if (base + k >= n) continue;")
		w.line("T v = own[k];")
		w.line("if (lane > 0) v = x_add(left, v);")
		w.line("if (warp > 0) v = x_add(before, v);")
		w.line("if (blockIdx.x > 0) v = x_add(carry, v);")
		w.line("%s", store)
		w.line("}")
		w.line("}")
	}
	bound := w.bound
	// kernel ends the text of a kernel and begins the next one.
	kernel := func(name string) {
		w.texts[name] = prelude + w.String()
		w.Reset()
		w.bound, w.indent = bound, 0
	}
	w.begin(t.Name+ScanTotals, t.Reads, nil, typ+" *totals", "unsigned long long n")
	head()
	load()
	total()
	w.line("}")
	kernel(ScanTotals)
	w.begin(t.Name+ScanApply, t.Reads, t.Roots, "const "+typ+" *totals", "unsigned long long n")
	head()
	load()
	result(fmt.Sprintf("y%d[base + k] = %s;", w.id(root), toStored(root.Type, "v")))
	kernel(ScanApply)
	for _, name := range []string{ScanUp, ScanDown} {
		w.line(
			`extern "C" __global__ void __launch_bounds__(%d) %s%s(%s *sums, %s *totals, unsigned long long n) {`,
			BlockThreads,
			t.Name,
			name,
			typ,
			typ,
		)
		w.line("const unsigned lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;")
		head()
		w.line("#pragma unroll")
		w.line("for (int k = 0; k < %d; k++) own[k] = base + k < n ? sums[base + k] : none;", ir.ScanThread)
		w.WriteString(scanText)
		if name == ScanUp {
			total()
			w.line("}")
		} else {
			result("sums[base + k] = v;")
		}
		kernel(name)
	}
}
