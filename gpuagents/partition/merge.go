package partition

import (
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// agentsOf is how many agents a shard has, in groups of perGroup.
func agentsOf(s swarms.Swarm, perGroup, k int) uint64 {
	first, end := s.ShardGroups(k)
	return uint64(end-first) * uint64(perGroup)
}

// Ticked sums what the shards are after count ticks each.
func Ticked(s swarms.Swarm, perGroup, candidates, count int, of []swarms.Ticked) (swarms.Ticked, error) {
	all := swarms.Ticked{Version: jobs.Version, Tally: make([]uint64, candidates), Decided: make([]uint64, candidates)}
	for k, t := range of {
		if want := uint64(count) * agentsOf(s, perGroup, k); t.Stepped != want || len(t.Tally) != candidates ||
			len(t.Decided) != candidates {
			return all, fmt.Errorf("shard %d: %d steps of agents, want %d, and %d and %d candidates of %d: %w", k,
				t.Stepped, want, len(t.Tally), len(t.Decided), candidates, ErrAnswer)
		}
		all.Stepped += t.Stepped
		all.Undecided += t.Undecided
		for c := range candidates {
			all.Tally[c] += t.Tally[c]
			all.Decided[c] += t.Decided[c]
		}
	}
	return all, nil
}

// Sums adds up the sums of knowledge nodes that each shard has all of, as nodes with that merge are merged.
// The result is that of Tick.Sums. Those of shards are NodeSums.Words, or Ticked.Sums. Sums of another number
// of nodes or units are an ErrAnswer.
func Sums(nodes, units int, merge string, of [][]byte) ([]byte, error) {
	all := make([]uint64, nodes*(units+1))
	for k, words := range of {
		if len(words) != 8*len(all) {
			return nil, fmt.Errorf("shard %d: sums of %d bytes, want those of %d nodes of %d units: %w", k, len(words),
				nodes, units, ErrAnswer)
		}
		swarms.AddSums(all, swarms.Words(words), units, merge)
	}
	return swarms.PutWords(all), nil
}

// Fused is the means of all agents of the swarm by the sums of its shards, which are added up as a
// fusion.Merger does: in float64, in the order of shards. The quotient is rounded once. A sum that
// is not finite is a fusion.ErrValue.
func Fused(s swarms.Swarm, perGroup, candidates int, want swarms.Fuse,
	of []*batch.FusedSums,
) (*batch.FusedNodes, error) {
	n := map[string]int{swarms.ByAll: 1, swarms.ByVote: candidates, swarms.ByGroup: want.Nodes}[want.By]
	if want.By == swarms.ByGroup && n == 0 {
		n = s.Groups
	}
	width := of[0].Width
	total := fusion.Total{
		Dim: width, Sums: make([]float64, n*width), Weights: make([]uint64, n),
		Counts: make([]uint64, n),
	}
	for k, f := range of {
		if f.Width != width {
			return nil, fmt.Errorf("shard %d: sums of %d values, others have %d: %w", k, f.Width, width, ErrAnswer)
		}
		most := agentsOf(s, perGroup, k)
		for i, node := range f.Node {
			if int64(node) >= int64(n) || i > 0 && node <= f.Node[i-1] || f.Count[i] > most {
				return nil, fmt.Errorf("shard %d: node %d of %d, with %d agents of %d: %w", k, node, n, f.Count[i],
					most, ErrAnswer)
			}
			total.Counts[node] += f.Count[i]
			total.Weights[node] += f.Count[i] * consensus.One
			for d, v := range f.Sum[i*width:][:width] {
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
					return nil, fmt.Errorf("shard %d: node %d: a sum is %v: %w", k, node, v, fusion.ErrValue)
				}
				total.Sums[int(node)*width+d] += float64(v)
			}
		}
		total.Shards++
	}
	out := &batch.FusedNodes{Node: make([]uint32, n), Count: total.Counts, Mean: make([]float32, n*width), Width: width}
	for i := range out.Node {
		out.Node[i] = uint32(i)
	}
	return out, total.Means(out.Mean)
}
