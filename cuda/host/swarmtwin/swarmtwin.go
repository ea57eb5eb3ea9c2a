// Package swarmtwin has the Go twins of the kernels of package swarmset. Importing it registers them.
package swarmtwin

import (
	"math"
	"sort"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
)

func init() {
	twin.Raw(swarmset.Mark, mark)
	twin.Raw(swarmset.Clear, clearMarks)
	for _, width := range swarmset.Widths {
		twin.Raw(swarmset.Runs(width), func(b *twin.Block) {
			order, ordered := twin.Mem[uint32](b, 7), b.Uint32(8)
			runs(b, width, order, ordered, 9)
		})
		if width > 1 {
			twin.Raw(swarmset.Teams(width), func(b *twin.Block) { runs(b, width, nil, swarmset.OrderedNot, 7) })
		}
	}
	twin.Raw(swarmset.Fold, fold)
	for _, candidates := range []int{2, 6, kernels.AgentMostCandidates} {
		twin.Raw(swarmset.Votes(candidates), votes)
		twin.Raw(swarmset.Order(candidates), order)
	}
	twin.Raw(swarmset.Starts, starts)
	twin.Raw(swarmset.Gather, gather)
	twin.Raw(swarmset.Bids, bids)
}

// mark is the twin of mark.cu. An atomic operation decides which observation of an agent is the
// first, as on a GPU; the number of the others does not depend on it.
func mark(b *twin.Block) {
	ids, agents, per, pages := twin.Mem[uint32](b, 0), b.Uint32(2), b.Uint32(3), b.Uint32(4)
	seen, touched := twin.Mem[uint32](b, 5), twin.Mem[uint32](b, 6)
	first, end := b.Part(uint64(b.Uint32(1)))
	for _, id := range ids[first:end] {
		if id >= agents {
			continue
		}
		bit := uint32(1) << (id % 32)
		if atomic.OrUint32(&seen[id/32], bit)&bit != 0 {
			atomic.AddUint32(&touched[pages], 1)
		}
		atomic.StoreUint32(&touched[id/per], 1)
	}
	if !twin.LastBlock(b, twin.Mem[uint64](b, 7)) {
		return
	}
	result := twin.Mem[uint32](b, 9)
	copy(result[swarmset.MarkTouched:], touched[:pages])
	result[swarmset.MarkRepeated] = touched[pages]
	clear(touched[:pages+1])
	atomic.StoreUint32(&result[swarmset.MarkSequence], b.Uint32(8))
}

// clearMarks is the twin of clear.cu. Several blocks may clear the same word.
func clearMarks(b *twin.Block) {
	ids, agents, seen := twin.Mem[uint32](b, 0), b.Uint32(2), twin.Mem[uint32](b, 3)
	first, end := b.Part(uint64(b.Uint32(1)))
	for _, id := range ids[first:end] {
		if id < agents {
			atomic.StoreUint32(&seen[id/32], 0)
		}
	}
}

// swarm is the agents of a launch: the arguments that all kernels that read agents begin with.
type swarm struct {
	pages     []byte
	pageBytes uint64
	frames    []uint32
	per       int
	votes     uint32 // the offset of the votes in a page
}

// open reads the first arguments.
func open(b *twin.Block) *swarm {
	return &swarm{twin.Mem[byte](b, 0), b.Uint64(1), twin.Mem[uint32](b, 2), int(b.Uint32(3)), b.Uint32(4)}
}

// page returns the page of an agent and the index of the agent in it; nil: the page is not there.
func (s *swarm) page(agent int) (page []byte, at int) {
	frame := s.frames[agent/s.per]
	if frame>>kernels.AgentHostBit != 0 {
		return nil, 0
	}
	return s.pages[uint64(frame)*s.pageBytes:][:s.pageBytes], agent % s.per
}

// vote returns the vote of an agent, its candidate plus one; 0: it has none, or its page is not there.
func (s *swarm) vote(agent int) byte {
	page, at := s.page(agent)
	if page == nil {
		return 0
	}
	return page[int(s.votes)+at]
}

// embedding reads the embedding of an agent from the variable at offset rows of its page, and
// reports whether it counts: the agent has a vote, and all elements are finite.
func (s *swarm) embedding(agent int, rows uint32, bf16 bool, to []float32) bool {
	page, at := s.page(agent)
	if page == nil || page[int(s.votes)+at] == 0 {
		return false
	}
	if len(to) > 1 {
		at *= 2 * len(to)
	}
	for d := range to {
		if bf16 {
			to[d] = device.FromBF16(device.Of[uint16](page[int(rows)+2*(at+d):][:2])[0])
		} else {
			to[d] = device.Of[float32](page[int(rows)+4*(at+d):][:4])[0]
		}
		if !finite(to[d]) {
			return false
		}
	}
	return true
}

// finite reports whether a value is neither infinite nor NaN.
func finite(v float32) bool { return math.Float32bits(v)&0x7f800000 != 0x7f800000 }

// nodeOf returns the node of an item by the table of its level.
func nodeOf(firsts []uint32, count int, item uint32) int {
	return sort.Search(count, func(node int) bool { return firsts[node] > item }) - 1
}

// runs is the twin of runs.cu and, without an order, of teams.cu. The parameters behind the order begin at
// number from.
func runs(b *twin.Block, width int, order []uint32, ordered uint32, from int) {
	s, rows, bf16 := open(b), b.Uint32(5), b.Uint32(6) != 0
	nodes, firsts, count := twin.Mem[uint32](b, from), twin.Mem[uint32](b, from+1), int(b.Uint32(from+2))
	sums, counts := twin.Mem[float32](b, from+3), twin.Mem[uint32](b, from+4)
	row := make([]float32, width)
	begin, end := b.Part(uint64(firsts[count]))
	for i := int(begin); i < int(end); i++ {
		node := nodeOf(firsts, count, uint32(i))
		before := (i - int(firsts[node])) * swarmset.RunRows
		first, n := int(nodes[2*node])+before, min(int(nodes[2*node+1])-before, swarmset.RunRows)
		sum, added := sums[i*width:][:width], uint32(0)
		clear(sum)
		for agent := first; agent < first+n; agent++ {
			id := agent
			switch ordered {
			case swarmset.OrderedAgents:
				id = int(order[agent])
			case swarmset.OrderedEmbeddings:
				row[0] = math.Float32frombits(order[agent])
				id = -1
			}
			if id < 0 && !finite(row[0]) || id >= 0 && !s.embedding(id, rows, bf16, row) {
				continue
			}
			added++
			for d, v := range row {
				sum[d] += v
			}
		}
		counts[i] = added
	}
}

// fold is the twin of fold.cu.
func fold(b *twin.Block) {
	in, inCounts, inFirsts := twin.Mem[float32](b, 0), twin.Mem[uint32](b, 1), twin.Mem[uint32](b, 2)
	firsts, count, width := twin.Mem[uint32](b, 3), int(b.Uint32(4)), int(b.Uint32(5))
	sums, counts := twin.Mem[float32](b, 6), twin.Mem[uint32](b, 7)
	begin, end := b.Part(uint64(firsts[count]))
	for i := int(begin); i < int(end); i++ {
		node := nodeOf(firsts, count, uint32(i))
		first := int(inFirsts[node]) + (i-int(firsts[node]))*swarmset.RunRows
		n := min(int(inFirsts[node+1])-first, swarmset.RunRows)
		sum, added := sums[i*width:][:width], uint32(0)
		clear(sum)
		for item := first; item < first+n; item++ {
			for d, v := range in[item*width:][:width] {
				sum[d] += v
			}
			added += inCounts[item]
		}
		counts[i] = added
	}
}

// votes is the twin of votes.cu.
func votes(b *twin.Block) {
	s, n, candidates, tiles := open(b), int(b.Uint32(5)), int(b.Uint32(6)), int(b.Uint32(7))
	counts := twin.Mem[uint32](b, 8)
	begin, end := b.Part(uint64(tiles))
	for tile := int(begin); tile < int(end); tile++ {
		for c := range candidates {
			counts[c*tiles+tile] = 0
		}
		for agent := tile * swarmset.VoteTile; agent < min(n, (tile+1)*swarmset.VoteTile); agent++ {
			if v := int(s.vote(agent)); v >= 1 && v <= candidates {
				counts[(v-1)*tiles+tile]++
			}
		}
	}
}

// starts is the twin of starts.cu.
func starts(b *twin.Block) {
	counts, tiles, candidates := twin.Mem[uint32](b, 0), int(b.Uint32(1)), int(b.Uint32(2))
	levels, nodes, firsts := int(b.Uint32(3)), twin.Mem[uint32](b, 4), twin.Mem[uint32](b, 5)
	begin, end := b.Part(uint64(candidates))
	for c := int(begin); c < int(end); c++ {
		sum := uint32(0)
		for tile, n := range counts[c*tiles:][:tiles] {
			counts[c*tiles+tile] = sum
			sum += n
		}
		nodes[2*c+1] = sum
	}
	if !twin.LastBlock(b, twin.Mem[uint64](b, 6)) {
		return
	}
	for level := range levels {
		place, sum, to := uint32(0), uint32(0), firsts[level*swarmset.TableWords(candidates):]
		for c := range candidates {
			n := nodes[2*c+1]
			nodes[2*c] = place
			place += (n + swarmset.RunRows - 1) / swarmset.RunRows * swarmset.RunRows
			for range level + 1 {
				n = (n + swarmset.RunRows - 1) / swarmset.RunRows
			}
			if level == levels-1 {
				n = 1
			}
			to[c] = sum
			sum += n
		}
		to[candidates] = sum
	}
}

// order is the twin of order.cu.
func order(b *twin.Block) {
	s, rows, embeddings := open(b), int(b.Uint32(5)), b.Uint32(6) != 0
	n, candidates, tiles := int(b.Uint32(7)), int(b.Uint32(8)), int(b.Uint32(9))
	before, nodes, to := twin.Mem[uint32](b, 10), twin.Mem[uint32](b, 11), twin.Mem[uint32](b, 12)
	next := make([]uint32, candidates)
	begin, end := b.Part(uint64(tiles))
	for tile := int(begin); tile < int(end); tile++ {
		for c := range candidates {
			next[c] = nodes[2*c] + before[c*tiles+tile]
		}
		for agent := tile * swarmset.VoteTile; agent < min(n, (tile+1)*swarmset.VoteTile); agent++ {
			if v := int(s.vote(agent)); v >= 1 && v <= candidates {
				to[next[v-1]] = uint32(agent)
				if embeddings {
					page, at := s.page(agent)
					to[next[v-1]] = device.Of[uint32](page[rows+4*at:][:4])[0]
				}
				next[v-1]++
			}
		}
	}
}

// gather is the twin of gather.cu.
func gather(b *twin.Block) {
	s, offsets, width := open(b), [2]int{int(b.Uint32(5)), int(b.Uint32(6))}, int(b.Uint32(7))
	stride, bf16, ids := int(b.Uint32(8)), b.Uint32(9) != 0, twin.Mem[uint32](b, 10)
	values, votes, out := int(b.Uint32(12)), twin.Mem[byte](b, 13), twin.Mem[float32](b, 14)
	begin, end := b.Part(uint64(b.Uint32(11)))
	for i := int(begin); i < int(end); i++ {
		votes[i] = s.vote(int(ids[i])) - 1
		page, at := s.page(int(ids[i]))
		for k := range values {
			to, element := &out[i*values+k], at*stride+k%width
			switch {
			case page == nil:
				*to = 0
			case bf16:
				*to = device.FromBF16(device.Of[uint16](page[offsets[k/width]+2*element:][:2])[0])
			default:
				*to = device.Of[float32](page[offsets[k/width]+4*element:][:4])[0]
			}
		}
	}
}

// bids is the twin of bids.cu.
func bids(b *twin.Block) {
	s, first, count := open(b), int(b.Uint32(5)), int(b.Uint32(6))
	n, base, draw := int(b.Uint32(7)), b.Uint32(8), consensus.DrawOf(b.Uint32(9), b.Uint32(10))
	incumbent, candidates := b.Uint32(11), int(b.Uint32(12))
	lowest, highest := 1, candidates // vote bytes
	if only := int(b.Uint32(13)); only != 0 {
		lowest, highest = only, only
	}
	board, scratch, result := twin.Mem[uint64](b, 15), twin.Mem[uint64](b, 16), twin.Mem[uint64](b, 18)
	var best [swarmset.BidsBoard]uint64
	begin, end := b.Part(uint64(count))
	for number := first + int(begin); number < first+int(end); number++ {
		if s.frames[number]>>kernels.AgentHostBit != 0 {
			continue
		}
		from := number * s.per
		page, _ := s.page(from)
		for at, v := range page[s.votes:][:max(0, min(s.per, n-from))] {
			if uint32(from+at) == incumbent {
				best[0] = uint64(v)
			}
			if int(v) < lowest || int(v) > highest {
				continue
			}
			id := base + uint32(from+at)
			bid := uint64(draw.Priority(id))<<32 | uint64(^id)
			if bid > best[v] { // rarely: a store for each agent would wait for the one before it
				best[v] = bid
			}
		}
	}
	for v, bid := range best {
		for was := atomic.LoadUint64(&board[v]); bid > was; was = atomic.LoadUint64(&board[v]) {
			if atomic.CompareAndSwapUint64(&board[v], was, bid) {
				break
			}
		}
	}
	if !twin.LastBlock(b, scratch) {
		return
	}
	if b.Uint32(14) != 0 {
		copy(result[swarmset.BidsResult:], board[:swarmset.BidsBoard])
		clear(board[:swarmset.BidsBoard])
		copy(result[swarmset.BidsTally:], scratch[kernels.AgentTally:][:candidates])
	}
	atomic.StoreUint64(&result[swarmset.BidsSequence], uint64(b.Uint32(17)))
}
