package launches

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Settle brings results that a launch may produce in any order into the order of the wanted memory.
// after is the memory of the parameters after the launch; Settle changes it in place. Results that
// are wrong in every order stay as they are.
func (f Fuse) Settle(after [][]byte) {
	switch f.Kernel {
	case "fuse_count":
		was, is := Named[kernels.FuseCountBound](f.Params, nil), Named[kernels.FuseCountBound](f.Params, after)
		settleNumbers(was.Members, device.Bytes(is.Numbers))
	case "fuse_starts":
		was, is := Named[kernels.FuseStartsBound](f.Params, nil), Named[kernels.FuseStartsBound](f.Params, after)
		settleStarts(was.Counts, device.Bytes(is.Counts))
	}
}

// settleNumbers renumbers the agents of each node 0, 1 and so on in the order of the agents, if
// these are the numbers that the agents have.
func settleNumbers(members []uint32, mem []byte) {
	numbers, have := words32(mem), map[uint32][]uint32{}
	for i, id := range members {
		have[id] = append(have[id], numbers[i])
	}
	next := map[uint32]uint32{}
	for id, all := range have {
		slices.Sort(all)
		for i, n := range all {
			if n != uint32(i) {
				next[id] = kernels.NoNode // not these: left as they are
				break
			}
		}
	}
	for i, id := range members {
		if next[id] != kernels.NoNode {
			binary.LittleEndian.PutUint32(mem[4*i:], next[id])
			next[id]++
		}
	}
}

// settleStarts puts the ranges of places of the nodes in the order of the nodes, if the ranges
// cover all places exactly once.
func settleStarts(counts []uint32, mem []byte) {
	starts := words32(mem)
	nodes := len(starts) - 1
	byPlace := make([]int, 0, nodes)
	for m := range nodes {
		if counts[m] > 0 {
			byPlace = append(byPlace, m)
		}
	}
	slices.SortFunc(byPlace, func(a, b int) int { return int(int64(starts[a]) - int64(starts[b])) })
	at := uint32(0)
	for _, m := range byPlace {
		if starts[m] != at {
			return
		}
		at += counts[m]
	}
	at = 0
	for m := range nodes {
		binary.LittleEndian.PutUint32(mem[4*m:], at) // a node without agents has no place, and any start
		at += counts[m]
	}
}

func words32(mem []byte) []uint32 { return slices.Clone(device.Of[uint32](bytes.Clone(mem))) }

// count returns the parameters of a launch that counts the agents of each node and numbers them.
// The wanted numbers are those in the order of the agents, see Settle.
func (f *fusion) count() []Param {
	members, counts, numbers := f.members(), make([]uint32, f.nodes+1), make([]uint32, f.agents)
	for i := range numbers {
		numbers[i] = f.r.Uint32() | 1<<31 // of agents without a node, before and after
	}
	before, none := bytes.Clone(device.Bytes(numbers)), bytes.Clone(device.Bytes(counts))
	for i, id := range members {
		switch {
		case id == kernels.NoNode:
			f.words[kernels.FuseNobody]++
		case int(id) >= f.nodes:
			f.words[kernels.FuseInvalid]++
		default:
			numbers[i] = counts[id]
			counts[id]++
		}
	}
	return []Param{
		constant(device.Bytes(members)), count(f.agents), count(f.nodes),
		{Mem: none, Want: device.Bytes(counts)},
		{Mem: before, Want: device.Bytes(numbers)},
		f.ends(f.earlier())[0],
	}
}

// starts returns the parameters of a launch that turns counts, many of them 0, into first places.
func (f *fusion) starts() []Param {
	counts, starts := make([]uint32, f.nodes+1), make([]uint32, f.nodes+1)
	most := 1 + f.r.IntN(1<<f.r.IntN(12))
	for m := range f.nodes {
		if f.r.IntN(3) > 0 {
			counts[m] = uint32(f.r.IntN(most))
		}
		starts[m+1] = starts[m] + counts[m]
	}
	return []Param{count(f.nodes), {Mem: device.Bytes(counts), Want: device.Bytes(starts)}}
}

// places sorts the agents by node, in a random order of nodes and agents. order has the agents by
// place, the first of each node marked; starts has the first place of each node and, as the last
// element, the number of places; numbers has the number of each agent in its node.
func (f *fusion) places(members []uint32) (order, starts, numbers []uint32) {
	starts, numbers = make([]uint32, f.nodes+1), make([]uint32, f.agents)
	agents := make([][]uint32, f.nodes)
	for _, i := range f.r.Perm(f.agents) {
		if id := members[i]; int(id) < f.nodes {
			numbers[i] = uint32(len(agents[id]))
			agents[id] = append(agents[id], uint32(i))
		}
	}
	for _, m := range f.r.Perm(f.nodes) {
		starts[m] = uint32(len(order))
		order = append(order, agents[m]...)
		if len(agents[m]) > 0 {
			order[starts[m]] |= kernels.FuseHead
		}
	}
	starts[f.nodes] = uint32(len(order))
	return order, starts, numbers
}

func (f *fusion) place() []Param {
	members := f.members()
	order, starts, numbers := f.places(members)
	before := bytes.Repeat([]byte{0xA5}, 4*f.agents)
	want := append(bytes.Clone(device.Bytes(order)), before[4*len(order):]...)
	return []Param{
		constant(device.Bytes(members)), count(f.agents), count(f.nodes), constant(device.Bytes(starts)),
		constant(device.Bytes(numbers)),
		{Mem: before, Want: want},
	}
}

// walk returns the parameters of a launch that sums sorted rows of small integers, whose sums are
// exact in every order.
func (f *fusion) walk() []Param {
	small := func() float32 { return float32(f.r.IntN(33) - 16) }
	rows := f.embed(small, true)
	weights := f.weigh(func() uint32 { return f.r.Uint32N(9) << 14 }) // quarters
	if f.r.IntN(2) == 0 {
		f.flags |= kernels.FuseLast
	}
	members := f.members()
	order, starts, _ := f.places(members)
	sums, tallies := f.before(small)
	for i, id := range members {
		if int(id) < f.nodes {
			f.take(f.sums[int(id)*f.dim:][:f.dim], f.tallies[2*id:][:2], i)
		}
	}
	params := []Param{
		constant(rows),
		constant(device.Bytes(members)),
		weights,
		constant(device.Bytes(order)),
		constant(device.Bytes(starts)),
		count(f.agents),
		count(f.nodes),
		count(f.dim),
		{Arg: device.Uint32(f.flags)},
		{Mem: sums, Want: device.Bytes(f.sums)},
		{Mem: tallies, Want: device.Bytes(f.tallies)},
	}
	return append(params, f.ends(f.earlier())...)
}
