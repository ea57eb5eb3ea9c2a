package twins

import (
	"math"
	"sort"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
)

func init() {
	Register(swarmset.Mark, markObservation)
	Register(swarmset.Clear, clearMarks)
	for _, width := range swarmset.Widths {
		Register(swarmset.Runs(width), func(b *Block, a *swarmset.RunsBound) {
			runs(b, width, swarm{&a.SwarmBound}, a.Rows, a.BF16, a.Order, a.Ordered, &a.LevelBound)
		})
		if width > 1 {
			Register(swarmset.Teams(width), func(b *Block, a *swarmset.TeamsBound) {
				runs(b, width, swarm{&a.SwarmBound}, a.Rows, a.BF16, nil, swarmset.OrderedNot, &a.LevelBound)
			})
		}
	}
	Register(swarmset.Fold, foldSwarm)
	for _, candidates := range []int{2, 6, kernels.AgentMostCandidates} {
		Register(swarmset.Votes(candidates), votes)
		Register(swarmset.Order(candidates), order)
	}
	Register(swarmset.Starts, swarmStarts)
	Register(swarmset.Gather, gatherSwarm)
	Register(swarmset.Bids, bids)
}

// markObservation is the twin of mark.cu. An atomic operation decides which observation of an agent
// is the first, as on a GPU; the number of the others does not depend on it.
func markObservation(b *Block, a *swarmset.MarkBound) {
	first, end := b.Part(uint64(a.N))
	for _, id := range a.IDs[first:end] {
		if id >= a.Agents {
			continue
		}
		bit := uint32(1) << (id % 32)
		if atomic.OrUint32(&a.Seen[id/32], bit)&bit != 0 {
			atomic.AddUint32(&a.Touched[a.Pages], 1)
		}
		atomic.StoreUint32(&a.Touched[id/a.Per], 1)
	}
	if !LastBlock(b, a.Scratch) {
		return
	}
	copy(a.Result[swarmset.MarkTouched:], a.Touched[:a.Pages])
	a.Result[swarmset.MarkRepeated] = a.Touched[a.Pages]
	clear(a.Touched[:a.Pages+1])
	atomic.StoreUint32(&a.Result[swarmset.MarkSequence], a.Sequence)
}

// clearMarks is the twin of clear.cu. Several blocks may clear the same word.
func clearMarks(b *Block, a *swarmset.ClearBound) {
	first, end := b.Part(uint64(a.N))
	for _, id := range a.IDs[first:end] {
		if id < a.Agents {
			atomic.StoreUint32(&a.Seen[id/32], 0)
		}
	}
}

type swarm struct{ *swarmset.SwarmBound }

// page returns the page of an agent and the index of the agent in it; nil: the page is not there.
func (s swarm) page(agent int) (page []byte, at int) {
	per := int(s.Per)
	frame := s.Frames[agent/per]
	if frame>>kernels.AgentHostBit != 0 {
		return nil, 0
	}
	return s.Pages[uint64(frame)*s.PageBytes:][:s.PageBytes], agent % per
}

// vote returns the vote of an agent, its candidate plus one; 0: it has none, or its page is not
// there.
func (s swarm) vote(agent int) byte {
	page, at := s.page(agent)
	if page == nil {
		return 0
	}
	return page[int(s.Votes)+at]
}

// embedding reads the embedding of an agent from the variable at offset rows of its page, and
// reports whether it counts: the agent has a vote, and all elements are finite.
func (s swarm) embedding(agent int, rows uint32, bf16 bool, to []float32) bool {
	page, at := s.page(agent)
	if page == nil || page[int(s.Votes)+at] == 0 {
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

func finite(v float32) bool { return math.Float32bits(v)&0x7f800000 != 0x7f800000 }

// nodeOf returns the node of an item by the table of its level.
func nodeOf(firsts []uint32, count int, item uint32) int {
	return sort.Search(count, func(node int) bool { return firsts[node] > item }) - 1
}

// runs is the twin of runs.cu and, without an order, of teams.cu.
func runs(b *Block, width int, s swarm, rows, bf16 uint32, order []uint32, ordered uint32,
	l *swarmset.LevelBound,
) {
	row := make([]float32, width)
	begin, end := b.Part(uint64(l.Firsts[l.Count]))
	for i := int(begin); i < int(end); i++ {
		node := nodeOf(l.Firsts, int(l.Count), uint32(i))
		before := (i - int(l.Firsts[node])) * swarmset.RunRows
		first, n := int(l.Nodes[2*node])+before, min(int(l.Nodes[2*node+1])-before, swarmset.RunRows)
		sum, added := l.Sums[i*width:][:width], uint32(0)
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
			if id < 0 && !finite(row[0]) || id >= 0 && !s.embedding(id, rows, bf16 != 0, row) {
				continue
			}
			added++
			for d, v := range row {
				sum[d] += v
			}
		}
		l.Counts[i] = added
	}
}

func foldSwarm(b *Block, a *swarmset.FoldBound) {
	width := int(a.Width)
	begin, end := b.Part(uint64(a.Firsts[a.Count]))
	for i := int(begin); i < int(end); i++ {
		node := nodeOf(a.Firsts, int(a.Count), uint32(i))
		first := int(a.InFirsts[node]) + (i-int(a.Firsts[node]))*swarmset.RunRows
		n := min(int(a.InFirsts[node+1])-first, swarmset.RunRows)
		sum, added := a.Sums[i*width:][:width], uint32(0)
		clear(sum)
		for item := first; item < first+n; item++ {
			for d, v := range a.In[item*width:][:width] {
				sum[d] += v
			}
			added += a.InCounts[item]
		}
		a.Counts[i] = added
	}
}

func votes(b *Block, a *swarmset.VotesBound) {
	s, n, candidates, tiles, counts := swarm{&a.SwarmBound}, int(a.N), int(a.Candidates), int(a.Tiles), a.Counts
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

func swarmStarts(b *Block, a *swarmset.StartsBound) {
	counts, tiles, candidates, levels, nodes := a.Counts, int(a.Tiles), int(a.Candidates), int(a.Levels), a.Nodes
	begin, end := b.Part(uint64(candidates))
	for c := int(begin); c < int(end); c++ {
		sum := uint32(0)
		for tile, n := range counts[c*tiles:][:tiles] {
			counts[c*tiles+tile] = sum
			sum += n
		}
		nodes[2*c+1] = sum
	}
	if !LastBlock(b, a.Scratch) {
		return
	}
	for level := range levels {
		place, sum, to := uint32(0), uint32(0), a.Firsts[level*swarmset.TableWords(candidates):]
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

func order(b *Block, a *swarmset.OrderBound) {
	s, n, candidates, tiles := swarm{&a.SwarmBound}, int(a.N), int(a.Candidates), int(a.Tiles)
	next := make([]uint32, candidates)
	begin, end := b.Part(uint64(tiles))
	for tile := int(begin); tile < int(end); tile++ {
		for c := range candidates {
			next[c] = a.Nodes[2*c] + a.Before[c*tiles+tile]
		}
		for agent := tile * swarmset.VoteTile; agent < min(n, (tile+1)*swarmset.VoteTile); agent++ {
			if v := int(s.vote(agent)); v >= 1 && v <= candidates {
				a.Order[next[v-1]] = uint32(agent)
				if a.Embeddings != 0 {
					page, at := s.page(agent)
					a.Order[next[v-1]] = device.Of[uint32](page[int(a.Rows)+4*at:][:4])[0]
				}
				next[v-1]++
			}
		}
	}
}

func gatherSwarm(b *Block, a *swarmset.GatherBound) {
	s, offsets, width, values := swarm{&a.SwarmBound}, [2]uint32{a.First, a.Second}, int(a.Width), int(a.Values)
	begin, end := b.Part(uint64(a.N))
	for i := int(begin); i < int(end); i++ {
		a.OutVotes[i] = s.vote(int(a.IDs[i])) - 1
		page, at := s.page(int(a.IDs[i]))
		for k := range values {
			to, element := &a.Out[i*values+k], at*int(a.Stride)+k%width
			switch {
			case page == nil:
				*to = 0
			case a.BF16 != 0:
				*to = device.FromBF16(device.Of[uint16](page[int(offsets[k/width])+2*element:][:2])[0])
			default:
				*to = device.Of[float32](page[int(offsets[k/width])+4*element:][:4])[0]
			}
		}
	}
}

func bids(b *Block, a *swarmset.BidsBound) {
	s, first, per, n, draw := swarm{&a.SwarmBound}, int(a.First), int(a.Per), int(a.N), consensus.DrawOf(a.Key, a.Salt)
	lowest, highest := 1, int(a.Candidates) // vote bytes
	if only := int(a.Only); only != 0 {
		lowest, highest = only, only
	}
	var best [swarmset.BidsBoard]uint64
	begin, end := b.Part(uint64(a.Count))
	for number := first + int(begin); number < first+int(end); number++ {
		if a.Frames[number]>>kernels.AgentHostBit != 0 {
			continue
		}
		from := number * per
		page, _ := s.page(from)
		for at, v := range page[a.Votes:][:max(0, min(per, n-from))] {
			if uint32(from+at) == a.Incumbent {
				best[0] = uint64(v)
			}
			if int(v) < lowest || int(v) > highest {
				continue
			}
			id := a.Base + uint32(from+at)
			bid := uint64(draw.Priority(id))<<32 | uint64(^id)
			if bid > best[v] { // rarely: a store for each agent would wait for the one before it
				best[v] = bid
			}
		}
	}
	for v, bid := range best {
		for was := atomic.LoadUint64(&a.Board[v]); bid > was; was = atomic.LoadUint64(&a.Board[v]) {
			if atomic.CompareAndSwapUint64(&a.Board[v], was, bid) {
				break
			}
		}
	}
	if !LastBlock(b, a.Scratch) {
		return
	}
	if a.Publish != 0 {
		copy(a.Result[swarmset.BidsResult:], a.Board[:swarmset.BidsBoard])
		clear(a.Board[:swarmset.BidsBoard])
		copy(a.Result[swarmset.BidsTally:], a.Scratch[kernels.AgentTally:][:a.Candidates])
	}
	atomic.StoreUint64(&a.Result[swarmset.BidsSequence], uint64(a.Sequence))
}
