package twins

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// One twin serves the kernels for rows of any length; the names are the kernels of short and of
// wide rows.
func init() {
	for _, dim := range []int{8, 512} {
		Register(kernels.FuseName("fuse_sorted", device.F32, dim), fuseSorted[float32])
		Register(kernels.FuseName("fuse_sorted", device.BF16, dim), fuseSorted[uint16])
		Register(kernels.FuseName("fuse_walk", device.F32, dim), fuseWalk[float32])
		Register(kernels.FuseName("fuse_walk", device.BF16, dim), fuseWalk[uint16])
		Register(kernels.FuseName("fuse_unsorted", device.F32, dim), fuseUnsorted[float32])
		Register(kernels.FuseName("fuse_unsorted", device.BF16, dim), fuseUnsorted[uint16])
	}
	Register("fuse_count", fuseCount)
	Register("fuse_starts", fuseStarts)
	Register("fuse_place", fusePlace)
	Register("fuse_means", fuseMeans)
}

// embedding is an element of an agent's row: a float, or the bits of a bf16.
type embedding interface{ float32 | uint16 }

// Widened returns a row as float32: the row itself, or for bf16 its values in memory, which is as
// long as the row.
func Widened[E embedding](row []E, memory []float32) []float32 {
	switch row := any(row).(type) {
	case []float32:
		return row
	case []uint16:
		for d, v := range row {
			memory[d] = device.FromBF16(v)
		}
	}
	return memory
}

// WholeRow reports whether a row has neither NaN nor infinity. These, and no other values, have an
// exponent of ones.
func WholeRow(row []float32) bool {
	const exponent = 0x7f800000
	for _, v := range row {
		if math.Float32bits(v)&exponent == exponent {
			return false
		}
	}
	return true
}

// addRow adds weight times row to the sums, with a rounding after each operation.
func addRow(sums, row []float32, weight uint32) {
	by := fuseFactor(uint64(weight))
	sums = sums[:len(row)]
	for d, v := range row {
		product := by * v
		sums[d] += product
	}
}

// fuseFactor returns a weight, in units of 1/kernels.FuseOne, as a factor.
func fuseFactor(weight uint64) float32 { return float32(weight) * (1.0 / kernels.FuseOne) }

// fuseWeight returns the weight of an agent: its own, or one if the launch has no weights.
func fuseWeight(weights []uint32, flags uint32, agent int) uint32 {
	if flags&kernels.FuseWeighted == 0 {
		return kernels.FuseOne
	}
	return weights[agent]
}

// fuseTotals are the totals of a fusion, by kernels.FuseFused and so on, that one block has
// counted.
type fuseTotals [kernels.FuseWords]uint64

// finish adds the totals of a block to the scratch memory. The last block of the last launch of a
// fusion moves them to the result.
func (t *fuseTotals) finish(b *Block, flags uint32, scratch []uint64, sequence uint32, result []uint64) {
	// All words but the ticket are sums.
	for i := kernels.FuseTicket + 1; i < kernels.FuseWords; i++ {
		atomic.AddUint64(&scratch[i], t[i])
	}
	if flags&kernels.FuseLast == 0 || atomic.AddUint64(&scratch[kernels.FuseTicket], 1) != uint64(b.Grid) {
		return
	}
	copy(result, scratch)
	result[kernels.FuseTicket] = uint64(sequence)
	clear(scratch)
}

// add adds the row of an agent to the sums and the tally of its node, or counts it as refused.
func (t *fuseTotals) add(sums []float32, tally []uint64, row []float32, weight uint32) {
	if !WholeRow(row) {
		t[kernels.FuseRefused]++
		return
	}
	addRow(sums, row, weight)
	tally[0]++
	tally[1] += uint64(weight)
	t[kernels.FuseFused]++
	t[kernels.FuseWeight] += uint64(weight)
}

// outside counts an agent whose node does not exist.
func (t *fuseTotals) outside(id uint32) {
	if id == kernels.NoNode {
		t[kernels.FuseNobody]++
	} else {
		t[kernels.FuseInvalid]++
	}
}

// fuseSorted is the twin of fuse_sorted.cuh: each block sums its share of the runs, row by row. A
// run is a range of rows of one node, or a part of one, whose sum is fused later.
func fuseSorted[E embedding](b *Block, a *kernels.FuseSortedBound) {
	rows, runs, dim, flags := device.Of[E](a.Rows), device.Of[uint32](a.Runs), uint64(a.Dim), a.Flags
	parts := flags&kernels.FuseParts != 0
	var totals fuseTotals
	total, memory := make([]float32, dim), make([]float32, dim)
	first, end := b.Part(uint64(a.Count))
	for r := first; r < end; r++ {
		run := runs[4*r:][:4]
		// A run is {first row, rows, target, kind}; its target is a node, or the number of a part.
		isPart := run[3] == kernels.FuseRunPart
		if !isPart && run[1] == 0 && flags&kernels.FuseFresh == 0 {
			continue
		}
		clear(total)
		var agents, refused, weight uint64
		for k := run[0]; k < run[0]+run[1]; k++ {
			at := uint64(k)
			if flags&kernels.FuseOrder != 0 {
				at = uint64(a.Order[k])
			}
			if parts { // the rows are the sums of parts, which have tallies
				for d, v := range device.Of[float32](a.Rows)[at*dim:][:dim] {
					total[d] += v
				}
				agents += a.PartTallies[2*at]
				weight += a.PartTallies[2*at+1]
				continue
			}
			row := Widened(rows[at*dim:][:dim], memory)
			if !WholeRow(row) {
				refused++
				continue
			}
			w := fuseWeight(a.Weights, flags, int(at))
			addRow(total, row, w)
			agents++
			weight += uint64(w)
		}
		if !parts {
			totals[kernels.FuseFused] += agents
			totals[kernels.FuseRefused] += refused
			totals[kernels.FuseWeight] += weight
		}
		target := uint64(run[2])
		if isPart {
			copy(a.PartSums[target*dim:], total)
			a.PartTallies[2*target], a.PartTallies[2*target+1] = agents, weight
			continue
		}
		node, tally := a.Sums[target*dim:][:dim], a.Tallies[2*target:][:2]
		if flags&kernels.FuseFresh != 0 { // what the node has is of an earlier fusion
			clear(node)
			clear(tally)
		}
		for d, v := range total {
			node[d] += v
		}
		tally[0] += agents
		tally[1] += weight
	}
	totals.finish(b, flags, a.Scratch, a.Sequence, a.Result)
}

// fuseUnsorted is the twin of fuse_unsorted.cuh. Each block owns a share of the nodes and searches
// all members for their agents. That is cheap compared with adding rows, and no two blocks add to
// the same sum.
func fuseUnsorted[E embedding](b *Block, a *kernels.FuseUnsortedBound) {
	rows, members, dim, flags := device.Of[E](a.Rows), a.Members[:a.Agents], uint64(a.Dim), a.Flags
	var totals fuseTotals
	memory := make([]float32, dim)
	if flags&kernels.FuseFirst != 0 { // once for all launches of a fusion
		lo, hi := b.Part(uint64(a.Agents))
		for _, id := range members[lo:hi] {
			if id >= a.Nodes {
				totals.outside(id)
			}
		}
	}
	from, to := b.Part(uint64(a.High - a.Low))
	mine, span := a.Low+uint32(from), uint32(to-from)
	for i, id := range members {
		if id-mine >= span { // also below mine: the difference is then huge
			continue
		}
		totals.add(a.Sums[uint64(id)*dim:][:dim], a.Tallies[2*uint64(id):][:2],
			Widened(rows[uint64(i)*dim:][:dim], memory), fuseWeight(a.Weights, flags, i))
	}
	totals.finish(b, flags, a.Scratch, a.Sequence, a.Result)
}

// fuseCount is the twin of fuse_count.cu: it counts the agents of each node and numbers them. The
// numbers depend on the order of the blocks.
func fuseCount(b *Block, a *kernels.FuseCountBound) {
	var totals fuseTotals
	lo, hi := b.Part(uint64(a.Agents))
	for i := lo; i < hi; i++ {
		if id := a.Members[i]; id < a.Nodes {
			a.Numbers[i] = atomic.AddUint32(&a.Counts[id], 1) - 1
		} else {
			totals.outside(id)
		}
	}
	totals.finish(b, 0, a.Scratch, 0, nil)
}

// fuseStarts is the twin of fuse_starts.cu: each block reserves places for all its nodes at once,
// and turns their counts into first places.
func fuseStarts(b *Block, a *kernels.FuseStartsBound) {
	counts := a.Counts
	lo, hi := b.Part(uint64(a.Nodes))
	sum := uint32(0)
	for _, n := range counts[lo:hi] {
		sum += n
	}
	if sum == 0 { // a block without nodes leaves the number of places alone
		clear(counts[lo:hi])
		return
	}
	start := atomic.AddUint32(&counts[a.Nodes], sum) - sum
	for m := lo; m < hi; m++ {
		counts[m], start = start, start+counts[m]
	}
}

// fusePlace is the twin of fuse_place.cu: it writes every agent to its place and marks the first of
// each node.
func fusePlace(b *Block, a *kernels.FusePlaceBound) {
	lo, hi := b.Part(uint64(a.Agents))
	for i := lo; i < hi; i++ {
		if id := a.Members[i]; id < a.Nodes {
			entry := uint32(i)
			if a.Numbers[i] == 0 {
				entry |= kernels.FuseHead
			}
			a.Order[a.Starts[id]+a.Numbers[i]] = entry
		}
	}
}

// fuseWalk is the twin of fuse_walk.cuh. Each block goes from the first node that starts in its
// share of the places to the end of the last one, so no two blocks add to the same sum.
func fuseWalk[E embedding](b *Block, a *kernels.FuseWalkBound) {
	rows, order, dim, flags := device.Of[E](a.Rows), a.Order, uint64(a.Dim), a.Flags
	var totals fuseTotals
	memory := make([]float32, dim)
	places := uint64(a.Starts[a.Nodes])
	k, end := b.Part(places)
	// The agents before the first head belong to a node of the block before.
	for k < end && order[k]&kernels.FuseHead == 0 {
		k++
	}
	if k == end {
		places = 0 // no node starts here: the block before has them all
	}
	for ; k < places && (k < end || order[k]&kernels.FuseHead == 0); k++ {
		agent := uint64(order[k] &^ kernels.FuseHead)
		id := uint64(a.Members[agent])
		totals.add(a.Sums[id*dim:][:dim], a.Tallies[2*id:][:2], Widened(rows[agent*dim:][:dim], memory),
			fuseWeight(a.Weights, flags, int(agent)))
	}
	totals.finish(b, flags, a.Scratch, a.Sequence, a.Result)
}

// fuseMeans is the twin of fuse_means.cu: it divides the sums of each node by its weight. A node
// without weight gets zeros.
func fuseMeans(b *Block, a *kernels.FuseMeansBound) {
	dim := uint64(a.Dim)
	lo, hi := b.Part(uint64(a.Nodes))
	for m := lo; m < hi; m++ {
		weight := a.Tallies[2*m+1]
		by := fuseFactor(weight)
		for d := m * dim; d < (m+1)*dim; d++ {
			a.Means[d] = 0
			if weight > 0 {
				a.Means[d] = a.Sums[d] / by
			}
		}
	}
}
