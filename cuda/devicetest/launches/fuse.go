package launches

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Fuse is one launch of a fusion kernel.
type Fuse struct {
	Kernel string
	Params []Param // in the kernel's order
	about  string  // the sizes, for failures
}

// String names the launch in a failure.
func (f Fuse) String() string { return f.Kernel + " " + f.about }

// FuseKernels are the kernels that RandomFuse knows.
var FuseKernels = []string{
	"fuse_sorted_f32", "fuse_sorted_f32_wide", "fuse_sorted_bf16", "fuse_sorted_bf16_wide",
	"fuse_unsorted_f32", "fuse_unsorted_f32_wide", "fuse_unsorted_bf16", "fuse_unsorted_bf16_wide", "fuse_means",
	"fuse_count", "fuse_starts", "fuse_place", "fuse_walk_f32", "fuse_walk_f32_wide", "fuse_walk_bf16",
	"fuse_walk_bf16_wide",
}

// fuseDims returns numbers of columns that a kernel is for: numbers that fill the lanes of a team,
// that leave lanes idle, and that take several vectors a lane.
func fuseDims(kernel string) []int {
	bf16, wide := strings.Contains(kernel, "bf16"), strings.Contains(kernel, "wide")
	switch {
	case bf16 && wide:
		return []int{264, 376, 512}
	case wide:
		return []int{136, 192, 256, 264, 512}
	case bf16:
		return []int{8, 16, 24, 64, 200, 256}
	}
	return []int{8, 16, 24, 64, 72, 128}
}

// fuseValues is the greatest number of values of a launch; a plain loop over them takes
// milliseconds.
const fuseValues = 200_000

// RandomFuse returns a launch of one of FuseKernels over about n agents, or fewer if their rows are
// long.
func RandomFuse(r *rand.Rand, kernel string, n int) Fuse {
	dims := fuseDims(kernel)
	dim := dims[r.IntN(len(dims))]
	f := fusion{
		r: r, dim: dim, agents: min(n, fuseValues/dim), nodes: 1 + r.IntN(1<<r.IntN(16)),
		bf16: strings.Contains(kernel, "bf16"), sequence: r.Uint32(),
	}
	f.nodes = min(f.nodes, 1+fuseValues/dim)
	about := fmt.Sprintf("of %d agents, %d nodes", f.agents, f.nodes)
	switch {
	case kernel == "fuse_count":
		return Fuse{kernel, f.count(), about}
	case kernel == "fuse_starts":
		return Fuse{kernel, f.starts(), about}
	case kernel == "fuse_place":
		return Fuse{kernel, f.place(), about}
	case strings.HasPrefix(kernel, "fuse_walk"):
		return Fuse{kernel, f.walk(), fmt.Sprintf("%s of %d, flags %#x", about, dim, f.flags)}
	case kernel == "fuse_means":
		return Fuse{kernel, f.means(), fmt.Sprintf("of %d nodes of %d", f.nodes, dim)}
	case strings.HasPrefix(kernel, "fuse_unsorted"):
		return Fuse{kernel, f.unsorted(), fmt.Sprintf("of %d agents, %d nodes of %d, flags %#x", f.agents, f.nodes, dim,
			f.flags)}
	}
	return Fuse{kernel, f.sorted(), fmt.Sprintf("of %d rows, %d nodes of %d, flags %#x", f.agents, f.nodes, dim,
		f.flags)}
}

// fusion makes the parameters of a launch and what must come of it.
type fusion struct {
	r *rand.Rand
	// dim is the number of columns of a row. Each agent has a row, each node a sum and a tally.
	dim, agents, nodes int
	bf16               bool // the rows are bf16, else float32
	flags, sequence    uint32
	rows               []float32 // as the kernel sees them
	weights            []uint32  // of the agents; nil: none
	sums               []float32 // of the nodes, before and then after the launch
	// tallies are the number and the weight of the agents of each node, likewise.
	tallies []uint64
	words   [kernels.FuseWords]uint64 // the totals of the launch
}

// embed makes the embeddings of all agents with value, and returns them as they are in memory. If
// hostile, one row in 40 has a value that is not finite.
func (f *fusion) embed(value func() float32, hostile bool) []byte {
	f.rows = make([]float32, f.agents*f.dim)
	var mem []byte
	if f.bf16 {
		mem = make([]byte, 0, 2*len(f.rows))
	}
	for i := range f.rows {
		f.rows[i] = value()
	}
	for i := 0; hostile && i < f.agents; i++ {
		if f.r.IntN(40) == 0 {
			odd := []uint32{0x7f800000, 0xff800000, 0x7fc00000, 0xffc10000, 0x7f810000}
			f.rows[i*f.dim+f.r.IntN(f.dim)] = math.Float32frombits(odd[f.r.IntN(len(odd))])
		}
	}
	if !f.bf16 {
		return append(mem, device.Bytes(f.rows)...)
	}
	for i, v := range f.rows {
		half := uint16(math.Float32bits(v) >> 16) // the value cut off is as good as the rounded one
		f.rows[i] = device.FromBF16(half)
		mem = append(mem, byte(half), byte(half>>8))
	}
	return mem
}

// before makes the sums and the tallies of the nodes before the launch, and returns copies of them
// as memory. The caller then brings sums and tallies to what they must be after the launch.
func (f *fusion) before(value func() float32) (sums, tallies []byte) {
	f.sums, f.tallies = make([]float32, f.nodes*f.dim), make([]uint64, 2*f.nodes)
	for i := range f.sums {
		f.sums[i] = value()
	}
	for i := range f.tallies {
		f.tallies[i] = f.r.Uint64N(1 << 40)
	}
	return bytes.Clone(device.Bytes(f.sums)), bytes.Clone(device.Bytes(f.tallies))
}

// weigh returns the parameter of the weights. One launch of two has weights, made with value.
func (f *fusion) weigh(value func() uint32) Param {
	if f.r.IntN(2) == 0 {
		return constant(nil)
	}
	f.flags |= kernels.FuseWeighted
	f.weights = make([]uint32, f.agents)
	for i := range f.weights {
		f.weights[i] = value()
	}
	return constant(device.Bytes(f.weights))
}

// weight returns the weight of an agent: its own, or one without weights.
func (f *fusion) weight(agent int) uint32 {
	if f.weights == nil {
		return kernels.FuseOne
	}
	return f.weights[agent]
}

// take adds the row of an agent to sums and tally, or counts it as refused if it is not finite.
func (f *fusion) take(sums []float32, tally []uint64, agent int) {
	row := f.rows[agent*f.dim:][:f.dim]
	for _, v := range row {
		if v-v != 0 { // NaN or infinite
			f.words[kernels.FuseRefused]++
			return
		}
	}
	w := f.weight(agent)
	by := float32(w) / 65536
	for d, v := range row {
		product := by * v
		sums[d] += product
	}
	tally[0]++
	tally[1] += uint64(w)
	f.words[kernels.FuseFused]++
	f.words[kernels.FuseWeight] += uint64(w)
}

// ends returns the last parameters of a launch: scratch memory, in which earlier launches have left
// the totals old, the sequence number and the result.
func (f *fusion) ends(old [kernels.FuseWords]uint64) []Param {
	old[kernels.FuseTicket] = 0
	for i := range f.words {
		f.words[i] += old[i]
	}
	after, result := f.words, Poisoned(8*kernels.FuseWords)
	want := bytes.Clone(result)
	if f.flags&kernels.FuseLast != 0 {
		f.words[kernels.FuseTicket] = uint64(f.sequence)
		want = device.Bytes(f.words[:])
		after = [kernels.FuseWords]uint64{}
	}
	return []Param{
		{Mem: bytes.Clone(device.Bytes(old[:])), Want: bytes.Clone(device.Bytes(after[:]))},
		{Arg: device.Uint32(f.sequence)},
		{Mem: result, Want: want},
	}
}

// earlier returns totals that earlier launches of the fusion may have left.
func (f *fusion) earlier() (old [kernels.FuseWords]uint64) {
	for i := range old {
		old[i] = f.r.Uint64N(1 << 30)
	}
	return old
}

func constant(mem []byte) Param {
	return Param{Mem: append([]byte{}, mem...), Want: append([]byte{}, mem...)}
}

func count(v int) Param { return Param{Arg: device.Uint32(uint32(v))} }

// sorted returns the parameters of a launch over runs of many lengths. The sums of some runs go to
// nodes, the sums of other runs are parts, which a later launch fuses; some launches fuse such
// parts.
func (f *fusion) sorted() []Param {
	r := f.r
	parts := !f.bf16 && r.IntN(3) == 0
	value := func() float32 {
		v := float32(r.NormFloat64()) * float32(int64(1)<<r.IntN(20))
		switch r.IntN(20) {
		case 0:
			v = math.Float32frombits(r.Uint32() & 0x807fffff) // subnormal
		case 1:
			v = 0
		}
		return v
	}
	rows := f.embed(value, !parts)
	// Without an order the rows of a run are consecutive in memory.
	order := constant(nil)
	weights := order
	var place []int // the agent of each row
	for range f.agents {
		place = append(place, len(place))
	}
	if parts {
		f.flags |= kernels.FuseParts
	} else {
		weights = f.weigh(func() uint32 { return r.Uint32() >> r.IntN(32) })
		if r.IntN(2) == 0 {
			f.flags |= kernels.FuseOrder
			place = r.Perm(f.agents)
			numbers := make([]uint32, f.agents)
			for i, p := range place {
				numbers[i] = uint32(p)
			}
			order = constant(device.Bytes(numbers))
		}
	}
	if r.IntN(2) == 0 {
		f.flags |= kernels.FuseFresh
	}
	if r.IntN(2) == 0 {
		f.flags |= kernels.FuseLast
	}
	sums, tallies := f.before(value)
	partTallies := make([]uint64, 2*(f.agents+1))
	for i := range partTallies {
		partTallies[i] = r.Uint64N(1 << 20)
	}
	oldPartTallies := bytes.Clone(device.Bytes(partTallies))
	partSums := make([]float32, len(partTallies)/2*f.dim)
	oldPartSums := bytes.Clone(device.Bytes(partSums))
	// Each node has one run at most, and the runs are in a random order of nodes.
	var runs []uint32
	nodes := r.Perm(f.nodes)
	fresh := len(partTallies) / 2 // sums of runs are written from the end down, and read below
	for at := 0; len(nodes) > 0; {
		n := min(r.IntN(1<<r.IntN(10)), f.agents-at)
		target, kind := nodes[0], kernels.FuseRunNode
		if !parts && r.IntN(2) == 0 && fresh > 0 {
			fresh--
			target, kind = fresh, kernels.FuseRunPart
		} else {
			nodes = nodes[1:]
		}
		runs = append(runs, uint32(at), uint32(n), uint32(target), uint32(kind))
		total, tally := make([]float32, f.dim), make([]uint64, 2)
		for k := at; k < at+n; k++ {
			if !parts {
				f.take(total, tally, place[k])
				continue
			}
			for d := range total {
				total[d] += f.rows[k*f.dim+d]
			}
			tally[0] += partTallies[2*k]
			tally[1] += partTallies[2*k+1]
		}
		switch {
		case kind == kernels.FuseRunPart:
			copy(partSums[target*f.dim:], total)
			copy(partTallies[2*target:], tally)
		case f.flags&kernels.FuseFresh != 0: // 0 + v turns -0 into 0, as the kernel does
			for d, v := range total {
				f.sums[target*f.dim+d] = 0 + v
			}
			copy(f.tallies[2*target:], tally)
		case n > 0:
			for d, v := range total {
				f.sums[target*f.dim+d] += v
			}
			f.tallies[2*target] += tally[0]
			f.tallies[2*target+1] += tally[1]
		}
		at += n
		if len(runs) > 40_000 {
			break
		}
	}
	params := []Param{
		constant(rows),
		order,
		weights,
		constant(device.Bytes(runs)),
		count(len(runs) / 4),
		count(f.dim),
		{Arg: device.Uint32(f.flags)},
		{Mem: sums, Want: device.Bytes(f.sums)},
		{Mem: tallies, Want: device.Bytes(f.tallies)},
		{Mem: oldPartSums, Want: device.Bytes(partSums)},
		{Mem: oldPartTallies, Want: device.Bytes(partTallies)},
	}
	return append(params, f.ends(f.earlier())...)
}

// members returns the node of each agent. The nodes are uniform, all of few, sorted, or nearly all
// one. Some agents have no node, and some a node that does not exist.
func (f *fusion) members() []uint32 {
	members, character, heavy := make([]uint32, f.agents), f.r.IntN(4), f.r.IntN(f.nodes)
	for i := range members {
		node := f.r.IntN(f.nodes)
		switch {
		case character == 0 && f.r.IntN(100) != 0:
			node = heavy
		case character == 1:
			node = (heavy + f.r.IntN(4)) % f.nodes
		case character == 2:
			node = i * f.nodes / f.agents
		}
		members[i] = uint32(node)
		switch f.r.IntN(30) {
		case 0:
			members[i] = kernels.NoNode
		case 1:
			members[i] = uint32(f.nodes) + f.r.Uint32N(10)
		}
	}
	return members
}

// unsorted returns the parameters of a launch over small integers, whose sums are exact in every
// order. The launch fuses the agents of the nodes from low to high only.
func (f *fusion) unsorted() []Param {
	r := f.r
	small := func() float32 { return float32(r.IntN(33) - 16) }
	rows := f.embed(small, true)
	weights := f.weigh(func() uint32 { return r.Uint32N(9) << 14 }) // quarters
	for _, flag := range []uint32{kernels.FuseFirst, kernels.FuseLast} {
		if r.IntN(2) == 0 {
			f.flags |= flag
		}
	}
	members := f.members()
	low, high := 0, f.nodes
	if r.IntN(2) == 0 {
		low = r.IntN(f.nodes)
		high = low + r.IntN(f.nodes-low+1)
	}
	sums, tallies := f.before(small)
	for i, id := range members {
		switch {
		case int(id) >= low && int(id) < high:
			f.take(f.sums[int(id)*f.dim:][:f.dim], f.tallies[2*id:][:2], i)
		case f.flags&kernels.FuseFirst == 0:
		case id == kernels.NoNode:
			f.words[kernels.FuseNobody]++
		case int(id) >= f.nodes:
			f.words[kernels.FuseInvalid]++
		}
	}
	params := []Param{
		constant(rows), constant(device.Bytes(members)), weights, count(f.agents), count(low), count(high),
		count(f.nodes), count(f.dim),
		{Arg: device.Uint32(f.flags)},
		{Mem: sums, Want: device.Bytes(f.sums)},
		{Mem: tallies, Want: device.Bytes(f.tallies)},
	}
	return append(params, f.ends(f.earlier())...)
}

func (f *fusion) means() []Param {
	sums, _ := f.before(func() float32 { return float32(f.r.NormFloat64()) * float32(int64(1)<<f.r.IntN(40)) })
	means := make([]float32, len(f.sums))
	for m := range f.nodes {
		f.tallies[2*m+1] >>= f.r.IntN(41)
		f.tallies[2*m+1] <<= f.r.IntN(24)
		for d := m * f.dim; d < (m+1)*f.dim && f.tallies[2*m+1] > 0; d++ {
			means[d] = f.sums[d] / (float32(f.tallies[2*m+1]) / 65536)
		}
	}
	return []Param{
		constant(sums), constant(device.Bytes(f.tallies)), count(f.nodes), count(f.dim),
		{Mem: Poisoned(len(sums)), Want: device.Bytes(means)},
	}
}
