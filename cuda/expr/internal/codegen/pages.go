package codegen

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// The inputs of kernels of pages that are no variables.
const (
	AgentInput = "agent"
	GroupInput = "group"
)

// Class is what a fold of pages does with each element. It decides the type of the sum.
type Class uint8

// The classes. Floats are added as f64, and integers modulo 2^64.
const (
	SumFloat Class = iota
	MinFloat
	MaxFloat
	SumInt
	MinInt
	MaxInt
	Count // elements that are not 0
)

// PageFold is a fold of the elements of agents for which a condition holds.
type PageFold struct {
	Value, Keep *ir.Node // Keep is nil for all elements
	Class       Class
	Width       int64 // elements of an agent
}

// The order of a fold over all agents, or by vote, is a part of its meaning. The agents of a page
// are cut into chunks of PageChunk, and chunk number q of the shard is block q modulo PageBlocks.
// Thread t of a block adds four agents from 4t, 1024+4t, ... on of its chunks, one by one. If the
// agents of a variable are far from each other (WideRows), it adds the agents t, 256+t, ... of its
// chunks, so that a warp reads rows that follow one another. The threads are folded t with t + 128,
// 64, ... 1, and then the blocks one by one. By group, agent a of a group is added by lane a modulo
// GroupLanes, and the lanes are folded in halves.
const (
	PageBlocks = 528
	PageChunk  = 4096
	pageRow    = 4 * BlockThreads
)

// wideRow is the least number of bytes from an agent to the next one at which a thread has one
// agent at a time. Four agents of a thread then have no vector in common.
const wideRow = 16

// WideRows reports whether one of the inputs of a graph has its agents far from each other in a
// page.
func WideRows(g *ir.Graph, l PageLayout) bool {
	return slices.ContainsFunc(g.Inputs, func(i ir.Input) bool {
		v, found := l.Vars[i.Name]
		return found && !v.Group && v.Unit >= wideRow
	})
}

// PageLane returns the thread of a block that adds an agent, by its index in the page. wide is the
// result of WideRows.
func PageLane(i int, wide bool) int {
	if wide {
		return i % BlockThreads
	}
	return i % pageRow / 4
}

// GroupLanes returns how many threads fold a group of n agents.
func GroupLanes(agents int) int {
	switch {
	case agents <= 64:
		return 8
	case agents <= 4096:
		return 32
	}
	return BlockThreads
}

// PageVar is where a variable is in a page: element c of unit u is at Off + u*Unit + c*Elem bytes.
type PageVar struct {
	Off, Unit, Elem int64
	// Bytes is the size of a stored element. Elements of 8 bytes are u64, which are read as u32 and
	// at most 2^32-1.
	Bytes int
	Group bool // units are groups and not agents
	Vote  bool // 1 is subtracted from what is stored, modulo 256
}

// PageLayout is the layout of pages: groups of Agents agents, Slots of them in a page.
type PageLayout struct {
	PageBytes     int64
	Agents, Slots int
	Vars          map[string]PageVar
}

// Absent is the entry of a page in frames that does not exist: its variables are zeros.
const Absent = 1 << 31

// Flags of a launch by vote or of all agents.
const (
	PageResume = 1 // the sums start with the stored sums
	PageFinish = 2 // the sums are folded and written to out; else they are stored
)

// register has the C types of the sums.
var register = [...]string{"double", "float", "float", "u64", "long long", "long long", "u64"}

// none has the sums of no element.
var none = [...]string{
	"0.0", "x_bits(0x7f800000u)", "x_bits(0xff800000u)", "0ull", "0x7fffffffffffffffll",
	"(-0x7fffffffffffffffll - 1)", "0ull",
}

// pageOps are the operations of kernels of pages. They follow the prelude.
const pageOps = `
__device__ __forceinline__ double x_double(u64 v) { return __longlong_as_double((long long)v); }
// x_sum has one form of all NaN.
__device__ __forceinline__ u64 x_sum(double v) {
  return v == v ? (u64)__double_as_longlong(v) : 0x7ff8000000000000ull;
}
__device__ __forceinline__ u64 x_sum(float v) { return x_sum((double)v); }
__device__ __forceinline__ u64 x_sum(u64 v) { return v; }
__device__ __forceinline__ u64 x_sum(long long v) { return (u64)v; }
__device__ __forceinline__ void x_take(u64 w, double &v) { v = x_double(w); }
__device__ __forceinline__ void x_take(u64 w, float &v) { v = (float)x_double(w); }
__device__ __forceinline__ void x_take(u64 w, u64 &v) { v = w; }
__device__ __forceinline__ void x_take(u64 w, long long &v) { v = (long long)w; }
__device__ __forceinline__ unsigned x_small(u64 v) { return v < 0xffffffffull ? (unsigned)v : 0xffffffffu; }
__device__ __forceinline__ double x_fold0(double a, double b) { return a + b; }
__device__ __forceinline__ float x_fold1(float a, float b) { return x_min(a, b); }
__device__ __forceinline__ float x_fold2(float a, float b) { return x_max(a, b); }
__device__ __forceinline__ u64 x_fold3(u64 a, u64 b) { return a + b; }
__device__ __forceinline__ long long x_fold4(long long a, long long b) { return b < a ? b : a; }
__device__ __forceinline__ long long x_fold5(long long a, long long b) { return b > a ? b : a; }
__device__ __forceinline__ u64 x_fold6(u64 a, u64 b) { return a + b; }
`

type pageWriter struct {
	writer
	layout PageLayout
	folds  []PageFold
	inputs []ir.Input
	nodes  int // of a fold by vote: the candidates; else 1
	group  bool
	// elements is the number of elements of an agent, and unroll the number of agents of a group
	// that a lane loads at once.
	elements int64
	unroll   int
	fours    bool // the agents u, u+1, u+2 and u+3 follow one another, for u a multiple of 4
}

// Pages returns the text of the kernel that folds the agents of pages: into one node, into a node
// for each vote, or, with group, into a node for each group. Its name is x_pages.
//
// The parameters are the frames of all pages, the frame of each page of the launch, the stored
// sums, the results, and numbers: the first page, the pages, the groups of the shard, the number of
// the shard's first group in the swarm, and two more, which are the flags and 0, or by group the
// first group of the launch and their number. A result has a word for the number of folded elements
// and a word for the sum, node by node; of the stored sums, and of the results of blocks, word w of
// thread or block t is at w times their number plus t.
func Pages(g *ir.Graph, l PageLayout, folds []PageFold, votes int, group bool) string {
	w := &pageWriter{layout: l, folds: folds, inputs: g.Inputs, nodes: max(votes, 1), group: group}
	w.writer = writer{
		l: &plan.Plan{Graph: g}, t: &plan.Part{}, bound: map[*ir.Node]string{}, numbers: map[*ir.Node]int{},
	}
	elements := int64(0)
	for _, i := range g.Inputs {
		elements += i.Node.Width
	}
	w.elements = elements
	w.unroll = 8
	for w.unroll > 1 && int64(w.unroll)*elements > 32 {
		w.unroll /= 2
	}
	w.WriteString(prelude + pageOps)
	bounds := "256"
	if w.nodes*len(folds) <= 4 {
		bounds = "256, 4"
	}
	w.line(`extern "C" __global__ void __launch_bounds__(%s) x_pages(const unsigned char *__restrict__ arena, `+
		`const unsigned *__restrict__ frames, unsigned long long *__restrict__ state, `+
		`unsigned long long *__restrict__ out, unsigned page0, unsigned pages, unsigned groups, unsigned first, `+
		`unsigned p, unsigned q) {`, bounds)
	w.line("__shared__ u64 part[256];")
	for s, f := range folds {
		w.line("unsigned n%d[%d];", s, w.nodes)
		w.line("%s a%d[%d];", register[f.Class], s, w.nodes)
		w.each(func(k string) {
			w.line("n%d[%s] = 0u;", s, k)
			w.line("a%d[%s] = %s;", s, k, none[f.Class])
		})
	}
	if group {
		w.byGroup()
	} else {
		w.overAll(votes > 0)
	}
	w.line("(void)part; (void)state; (void)pages; (void)groups; (void)first; (void)p; (void)q;")
	w.line("}")
	return w.String()
}

func (w *pageWriter) each(f func(k string)) {
	w.line("#pragma unroll")
	w.line("for (int k = 0; k < %d; k++) {", w.nodes)
	f("k")
	w.line("}")
}

// page writes the base of page number page, and whether it exists.
func (w *pageWriter) page() {
	w.line("const unsigned frame = frames[page - page0];")
	w.line("const bool here = frame != 0x%xu;", uint32(Absent))
	w.line("const unsigned char *const base = arena + (u64)(here ? frame : 0u) * %dull;", w.layout.PageBytes)
}

// overAll writes a kernel whose sums go over all pages.
func (w *pageWriter) overAll(votes bool) {
	per := w.layout.Agents * w.layout.Slots
	chunks := (per + PageChunk - 1) / PageChunk
	w.line("const u64 at = (u64)blockIdx.x * 256u + threadIdx.x, all = (u64)gridDim.x * 256u;")
	w.line("if (p & %du) {", PageResume)
	for s := range w.folds {
		w.each(func(k string) {
			w.line("n%d[%s] = (unsigned)state[((u64)%s * %d + %d) * 2 * all + at];", s, k, k, len(w.folds), s)
			w.line("x_take(state[(((u64)%s * %d + %d) * 2 + 1) * all + at], a%d[%s]);", k, len(w.folds), s, s, k)
		})
	}
	w.line("}")
	w.line("const u64 begin = (u64)page0 * %d, end = ((u64)page0 + pages) * %d;", chunks, chunks)
	w.line("for (u64 c = begin + (blockIdx.x + %du - (unsigned)(begin %% %du)) %% %du; c < end; c += %du) {",
		PageBlocks, PageBlocks, PageBlocks, PageBlocks)
	w.line("const unsigned page = (unsigned)(c / %d), chunk = (unsigned)(c %% %d) * %du;", chunks, chunks, PageChunk)
	w.page()
	w.line("const unsigned left = groups - page * %du, n = (left < %du ? left : %du) * %du;", w.layout.Slots,
		w.layout.Slots, w.layout.Slots, w.layout.Agents)
	if WideRows(w.l.Graph, w.layout) {
		w.wideChunk(votes)
	} else {
		w.chunk(votes)
	}
	w.line("}")
	w.line("if (!(p & %du)) {", PageFinish)
	for s := range w.folds {
		w.each(func(k string) {
			w.line("state[((u64)%s * %d + %d) * 2 * all + at] = n%d[%s];", k, len(w.folds), s, s, k)
			w.line("state[(((u64)%s * %d + %d) * 2 + 1) * all + at] = x_sum(a%d[%s]);", k, len(w.folds), s, s, k)
		})
	}
	w.line("return;")
	w.line("}")
	for s, f := range w.folds {
		w.each(func(k string) {
			w.tree(fmt.Sprintf("((u64)n%d[%s])", s, k), "u64", 6,
				fmt.Sprintf("out[((u64)%s * %d + %d) * 2 * gridDim.x + blockIdx.x]", k, len(w.folds), s))
			w.tree(fmt.Sprintf("a%d[%s]", s, k), register[f.Class], int(f.Class),
				fmt.Sprintf("out[(((u64)%s * %d + %d) * 2 + 1) * gridDim.x + blockIdx.x]", k, len(w.folds), s))
		})
	}
}

func (w *pageWriter) wideChunk(votes bool) {
	const index = "chunk + (unsigned)(r + u) * 256u + threadIdx.x"
	w.line("if (here && chunk + %du <= n) {", PageChunk)
	w.line("#pragma unroll 1")
	w.line("for (int r = 0; r < %d; r += %d) {", PageChunk/BlockThreads, w.unroll)
	w.agents(votes, index, "", w.unroll)
	w.line("}")
	w.line("} else {")
	w.line("#pragma unroll 1")
	w.line("for (int r = 0; r < %d; r++) {", PageChunk/BlockThreads)
	w.agents(votes, index, "i < n", 1)
	w.line("}")
	w.line("}")
}

func (w *pageWriter) chunk(votes bool) {
	index := fmt.Sprintf("chunk + (unsigned)(r + u / 4) * %du + threadIdx.x * 4u + (unsigned)(u %% 4)", pageRow)
	rows := PageChunk / pageRow
	for rows > 1 && int64(4*rows)*w.elements > 32 { // words of a thread in flight
		rows /= 2
	}
	w.line("if (here && chunk + %du <= n) {", PageChunk)
	w.line("#pragma unroll 1")
	w.line("for (int r = 0; r < %d; r += %d) {", PageChunk/pageRow, rows)
	if w.elements <= 12 {
		w.fours = true
		w.agents(votes, index, "", 4*rows)
		w.fours = false
	} else {
		w.line("#pragma unroll 1")
		w.line("for (int k = 0; k < 4; k++) {")
		w.agents(votes, fmt.Sprintf("chunk + (unsigned)r * %du + threadIdx.x * 4u + (unsigned)(u + k)", pageRow), "", 1)
		w.line("}")
	}
	w.line("}")
	w.line("} else {")
	w.line("#pragma unroll 1")
	w.line("for (int r = 0; r < %d; r++) {", PageChunk/pageRow)
	w.agents(votes, index, "i < n", 4)
	w.line("}")
	w.line("}")
}

// tree writes the fold of a value of all threads of a block.
func (w *pageWriter) tree(value, kind string, class int, to string) {
	w.line("{")
	w.line("__syncthreads();")
	w.line("part[threadIdx.x] = x_sum(%s);", value)
	w.line("for (unsigned h = 128u; h > 0u; h /= 2u) {")
	w.line("__syncthreads();")
	w.line("if (threadIdx.x < h) {")
	w.line("%s x, y;", kind)
	w.line("x_take(part[threadIdx.x], x);")
	w.line("x_take(part[threadIdx.x + h], y);")
	w.line("part[threadIdx.x] = x_sum(x_fold%d(x, y));", class)
	w.line("}")
	w.line("}")
	w.line("if (threadIdx.x == 0u) %s = part[0];", to)
	w.line("}")
}

// byGroup writes a kernel with a result for each group from number p on, q of them.
func (w *pageWriter) byGroup() {
	lanes := GroupLanes(w.layout.Agents)
	w.line("const unsigned mine = blockIdx.x * %du + threadIdx.x / %du, l = threadIdx.x %% %du;", 256/lanes, lanes,
		lanes)
	w.line("if (mine < q) {")
	w.line("const unsigned g = p + mine, page = g / %du, slot = g %% %du;", w.layout.Slots, w.layout.Slots)
	w.page()
	w.line("#pragma unroll 1")
	w.line("for (unsigned r = 0; r < %du; r += %du) {", w.layout.Agents, lanes*w.unroll)
	w.line("if (here && r + %du <= %du) {", lanes*w.unroll, w.layout.Agents)
	w.agents(false, fmt.Sprintf("slot * %du + r + (unsigned)u * %du + l", w.layout.Agents, lanes), "", w.unroll)
	w.line("} else {")
	w.line("#pragma unroll 1")
	w.line("for (int v = 0; v < %d; v++) {", w.unroll)
	w.agents(false, fmt.Sprintf("slot * %du + r + (unsigned)(u + v) * %du + l", w.layout.Agents, lanes),
		fmt.Sprintf("i < (slot + 1) * %du", w.layout.Agents), 1)
	w.line("}")
	w.line("}")
	w.line("}")
	w.line("}")
	for s, f := range w.folds {
		n, a := fmt.Sprintf("out[((u64)mine * %d + %d) * 2]", len(w.folds), s),
			fmt.Sprintf("out[((u64)mine * %d + %d) * 2 + 1]", len(w.folds), s)
		if lanes == BlockThreads {
			w.tree(fmt.Sprintf("((u64)n%d[0])", s), "u64", 6, n)
			w.tree(fmt.Sprintf("a%d[0]", s), register[f.Class], int(f.Class), a)
			continue
		}
		for h := lanes / 2; h > 0; h /= 2 {
			w.line("n%d[0] += __shfl_down_sync(0xffffffffu, n%d[0], %du);", s, s, h)
			w.line("a%d[0] = x_fold%d(a%d[0], __shfl_down_sync(0xffffffffu, a%d[0], %du));", s, f.Class, s, s, h)
		}
		w.line("if (mine < q && l == 0u) {")
		w.line("%s = n%d[0];", n, s)
		w.line("%s = x_sum(a%d[0]);", a, s)
		w.line("}")
	}
}

// address is the text of the address of element c of the agent i of a page.
func (w *pageWriter) address(v PageVar, c string) string {
	unit := "i"
	if v.Group {
		unit = fmt.Sprintf("(i / %du)", w.layout.Agents)
	}
	text := fmt.Sprintf("base + (u64)(%du + %s * %du", v.Off, unit, v.Unit)
	if c != "0" {
		text += fmt.Sprintf(" + (unsigned)%s * %du", c, v.Elem)
	}
	return text + ")"
}

func cell(v PageVar, kind, address string) string {
	if v.Bytes == 8 {
		return fmt.Sprintf("x_small(*(const u64 *)(%s))", address)
	}
	return fmt.Sprintf("*(const %s *)(%s)", kind, address)
}

// vote is the name of the input that says which node an agent of a fold by vote is in.
const vote = "vote"

// agents writes the computation of a number of agents of a page for each thread, whose index in the
// page is the text index of u. guard is a condition on their index i; with one, pages may not
// exist.
func (w *pageWriter) agents(votes bool, index, guard string, unroll int) {
	for _, in := range w.inputs {
		if _, found := w.layout.Vars[in.Name]; found {
			w.line("%s x%d[%d][%d];", stored[in.Node.Type], w.id(in.Node), unroll, in.Node.Width)
		}
	}
	if votes {
		w.line("unsigned char ballot[%d];", unroll)
	}
	ballots := w.layout.Vars[vote]
	alone := func(in ir.Input) bool { // of a load of its own
		v, found := w.layout.Vars[in.Name]
		return found && (!w.fours || !follows(v, in.Node.Width))
	}
	if w.fours {
		w.line("#pragma unroll")
		w.line("for (int u = 0; u < %d; u += 4) {", unroll)
		w.line("const unsigned i = %s;", index)
		for _, in := range w.inputs {
			if v, found := w.layout.Vars[in.Name]; found && follows(v, in.Node.Width) {
				w.four(stored[in.Node.Type], v, fmt.Sprintf("x%d[u + k][0]", w.id(in.Node)))
			}
		}
		if votes && follows(ballots, 1) {
			w.four("unsigned char", ballots, "ballot[u + k]")
		}
		w.line("(void)i;")
		w.line("}")
	}
	w.line("#pragma unroll")
	w.line("for (int u = 0; u < %d; u++) {", unroll)
	w.line("const unsigned i = %s;", index)
	present := "true"
	if guard != "" {
		present = "here && " + guard
	}
	w.line("const bool present = %s;", present)
	for _, in := range w.inputs {
		if alone(in) {
			w.load(in.Node, w.layout.Vars[in.Name])
		}
	}
	if votes && (!w.fours || !follows(ballots, 1)) {
		w.line("ballot[u] = present ? %s : (unsigned char)0;", cell(ballots, "unsigned char", w.address(ballots, "0")))
	}
	w.line("(void)present;")
	w.line("}")
	w.line("#pragma unroll")
	w.line("for (int u = 0; u < %d; u++) {", unroll)
	w.line("const unsigned i = %s;", index)
	if guard != "" {
		w.line("if (!(%s)) continue;", guard)
	}
	w.line("(void)i;")
	for s := range w.folds {
		w.fold(s, votes)
	}
	w.line("}")
}

// follows reports whether the elements of agents follow one another, so that four are a vector.
func follows(v PageVar, width int64) bool {
	return width == 1 && !v.Group && v.Bytes <= 4 && v.Unit == int64(v.Bytes) && v.Off%(4*v.Unit) == 0
}

func (w *pageWriter) four(kind string, v PageVar, to string) {
	w.line("{")
	w.line("const Four<%s> four = *(const Four<%s> *)(%s);", kind, kind, w.address(v, "0"))
	w.line("#pragma unroll")
	w.line("for (int k = 0; k < 4; k++) %s = four.v[k];", to)
	w.line("}")
}

// load writes the loads of an input of an agent: four elements at a time where they follow one
// another, in vectors.
func (w *pageWriter) load(n *ir.Node, v PageVar) {
	kind := stored[n.Type]
	vector := int64(4 * v.Bytes)
	if n.Width%4 == 0 && v.Bytes <= 4 && v.Elem == int64(v.Bytes) && v.Unit%vector == 0 && v.Off%vector == 0 {
		w.line("#pragma unroll")
		w.line("for (int c = 0; c < %d; c += 4) {", n.Width)
		w.line("Four<%s> four = {};", kind)
		w.line("if (present) four = *(const Four<%s> *)(%s);", kind, w.address(v, "c"))
		w.line("#pragma unroll")
		w.line("for (int k = 0; k < 4; k++) x%d[u][c + k] = four.v[k];", w.id(n))
		w.line("}")
		return
	}
	if n.Width == 1 {
		w.line("x%d[u][0] = present ? %s : (%s)0;", w.id(n), cell(v, kind, w.address(v, "0")), kind)
		return
	}
	w.line("#pragma unroll")
	w.line("for (int c = 0; c < %d; c++) x%d[u][c] = present ? %s : (%s)0;", n.Width, w.id(n),
		cell(v, kind, w.address(v, "c")), kind)
}

// fold writes the elements of an agent into the sum of a fold.
func (w *pageWriter) fold(s int, votes bool) {
	f := w.folds[s]
	if f.Width <= 64 {
		w.line("#pragma unroll")
	}
	w.line("for (int c = 0; c < %d; c++) {", f.Width)
	w.line("(void)c;")
	w.scope(func() {
		w.source = func(n *ir.Node) string {
			name := w.inputs[n.Imm].Name
			v, found := w.layout.Vars[name]
			at := "c"
			if n.Width == 1 {
				at = "0"
			}
			switch {
			case found && v.Vote:
				return fmt.Sprintf("((x%d[u][%s] + 255u) & 255u)", w.id(n), at)
			case found:
				return fmt.Sprintf("x%d[u][%s]", w.id(n), at)
			case name == GroupInput:
				return fmt.Sprintf("(first + page * %du + i / %du)", w.layout.Slots, w.layout.Agents)
			}
			return fmt.Sprintf("((first + page * %du) * %du + i)", w.layout.Slots, w.layout.Agents)
		}
		keep := "1u"
		if f.Keep != nil {
			keep = w.value(f.Keep)
		}
		v := w.value(f.Value)
		element := map[Class]string{
			SumFloat: "(double)" + v, MinFloat: v, MaxFloat: v, SumInt: "(u64)(long long)" + v,
			MinInt: "(long long)" + v,
			MaxInt: "(long long)" + v, Count: "(u64)(" + v + " != 0)",
		}[f.Class]
		if !votes {
			w.line("if (%s) {", keep)
			w.line("n%d[0]++;", s)
			w.line("a%d[0] = x_fold%d(a%d[0], %s);", s, f.Class, s, element)
			w.line("}")
			return
		}
		w.each(func(k string) {
			w.line("if (%s && ballot[u] == %s + 1) {", keep, k)
			w.line("n%d[%s]++;", s, k)
			w.line("a%d[%s] = x_fold%d(a%d[%s], %s);", s, k, f.Class, s, k, element)
			w.line("}")
		})
	})
	w.source = nil
	w.line("}")
}
