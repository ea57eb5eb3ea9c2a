package swarmclient

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func agentsOf(s swarms.Swarm, perGroup, k int) uint64 {
	first, end := s.ShardGroups(k)
	return uint64(end-first) * uint64(perGroup)
}

// MergeTicked adds up the tallies of all shards after count ticks of each. Tokens stand in the order
// of the shards.
func MergeTicked(s swarms.Swarm, perGroup, candidates, count int, of []swarms.Ticked) (swarms.Ticked, error) {
	all := swarms.Ticked{Version: jobs.Version, Tally: make([]uint64, candidates), Decided: make([]uint64, candidates)}
	for k, t := range of {
		if want := uint64(count) * agentsOf(s, perGroup, k); t.Stepped != want || len(t.Tally) != candidates ||
			len(t.Decided) != candidates {
			return all, fmt.Errorf("shard %d: %d steps of agents, want %d, and %d and %d candidates of %d: %w", k,
				t.Stepped, want, len(t.Tally), len(t.Decided), candidates, errAnswer)
		}
		all.Stepped += t.Stepped
		all.Undecided += t.Undecided
		all.Tokens, all.Active = append(all.Tokens, t.Tokens...), all.Active+t.Active
		for c := range candidates {
			all.Tally[c] += t.Tally[c]
			all.Decided[c] += t.Decided[c]
		}
	}
	return all, nil
}

// MergeSums adds up the sums of knowledge nodes that every shard has, for Tick.Sums. merge is the
// merge of the nodes. The sums of a shard are its NodeSums.Words or Ticked.Sums.
func MergeSums(nodes, units int, merge string, of [][]byte) ([]byte, error) {
	all := make([]uint64, nodes*(units+1))
	for k, words := range of {
		if len(words) != 8*len(all) {
			return nil, fmt.Errorf("shard %d: sums of %d bytes, want %d nodes of %d units: %w", k, len(words),
				nodes, units, errAnswer)
		}
		swarms.AddSums(all, swarms.Words(words), units, merge)
	}
	return swarms.PutWords(all), nil
}

// MergeFused returns the means of all agents of the swarm from the sums of its shards. It adds
// sums in float64 and in the order of the shards, as fusion.Total says, and rounds the quotient
// once. A sum that is not finite is a fusion.ErrValue.
func MergeFused(s swarms.Swarm, perGroup, candidates int, want swarms.Fuse,
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
			return nil, fmt.Errorf("shard %d: sums of %d values, others have %d: %w", k, f.Width, width, errAnswer)
		}
		most := agentsOf(s, perGroup, k)
		for i, node := range f.Node {
			if int64(node) >= int64(n) || i > 0 && node <= f.Node[i-1] || f.Count[i] > most {
				return nil, fmt.Errorf("shard %d: node %d of %d, with %d agents of %d: %w", k, node, n, f.Count[i],
					most, errAnswer)
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
	}
	out := &batch.FusedNodes{Node: make([]uint32, n), Count: total.Counts, Mean: make([]float32, n*width), Width: width}
	for i := range out.Node {
		out.Node[i] = uint32(i)
	}
	return out, total.Means(out.Mean)
}

// MergeVotes returns the decision of all agents of the swarm from the tallies of its shards, and
// ignores the decisions of the shards. The leader is elected by the bids of the shards, or is the
// leader of a shard that beats the others.
func MergeVotes(s swarms.Swarm, perGroup, candidates int, want swarms.Vote, of []swarms.Voted) (swarms.Voted, error) {
	rule, err := swarm.VoteRule(want)
	if err != nil {
		return swarms.Voted{}, err
	}
	for k, v := range of {
		if v.Round != want.Round {
			return swarms.Voted{}, fmt.Errorf("shard %d: round %d, not %d: %w", k, v.Round, want.Round, errAnswer)
		}
	}
	if want.Priority == swarms.PriorityElected {
		return mergeElections(s, perGroup, candidates, rule, of)
	}
	sum, err := consensus.NewTally(candidates)
	if err != nil {
		return swarms.Voted{}, err
	}
	for k, v := range of {
		t := consensus.Tally{Counts: v.Counts, Abstentions: v.Abstentions, Total: agentsOf(s, perGroup, k)}
		if v.Leader == nil {
			return swarms.Voted{}, fmt.Errorf("shard %d: no leader: %w", k, errAnswer)
		}
		t.Leader = consensus.Leader{Agent: uint64(v.Leader.Agent), Priority: v.Leader.Priority, Elected: true}
		if err := sum.Merge(t); err != nil {
			return swarms.Voted{}, fmt.Errorf("shard %d: %w: %w", k, errAnswer, err)
		}
	}
	d, err := consensus.Decide(rule, sum)
	if err != nil {
		return swarms.Voted{}, err
	}
	d.Round = want.Round
	all := swarm.NewVoted(d)
	for _, v := range of {
		if v.Leader.Agent == all.Leader.Agent {
			all.Leader.Vote = v.Leader.Vote
		}
	}
	return all, nil
}

func mergeElections(
	s swarms.Swarm, perGroup, candidates int, rule consensus.Rule, of []swarms.Voted,
) (swarms.Voted, error) {
	sum, err := consensus.NewElection(candidates)
	if err != nil {
		return swarms.Voted{}, err
	}
	for k, v := range of {
		e := consensus.Election{
			Tally: consensus.Tally{Counts: v.Counts, Abstentions: v.Abstentions, Total: agentsOf(s, perGroup, k)},
			Bids:  make([]consensus.Leader, len(v.Bids)),
		}
		first, end := s.ShardGroups(k)
		for c, b := range v.Bids {
			if b == nil {
				continue
			}
			e.Bids[c] = consensus.Leader{Agent: uint64(b.Agent), Priority: b.Priority, Term: b.Term, Elected: true}
			if g := int(b.Agent) / perGroup; g < first || g >= end {
				return swarms.Voted{}, fmt.Errorf("shard %d: a bid of the foreign agent %d: %w", k, b.Agent, errAnswer)
			}
		}
		if err := sum.Merge(e); err != nil {
			return swarms.Voted{}, fmt.Errorf("shard %d: %w: %w", k, errAnswer, err)
		}
	}
	d, err := sum.Decide(rule)
	d.Round = of[0].Round
	return swarm.NewElected(d), err
}

// MergeComputed returns the results of the swarm from the answers of the shards that were asked, in
// their order. Nodes by group are concatenated. All other results are folded.
func MergeComputed(of []swarms.Computed) (swarms.Computed, error) {
	all := of[0]
	if len(of) == 1 {
		return all, nil
	}
	all.Outputs = nil
	if of[0].By == swarms.ByGroup {
		all.Nodes = 0
	}
	for k, o := range of[0].Outputs {
		f, err := expr.FoldOf(o.Fold, o.Type)
		if err != nil {
			return all, fmt.Errorf("output %.60q: %w: %w", o.Name, errAnswer, err)
		}
		sum := swarms.ComputedOutput{Name: o.Name, Fold: o.Fold, Type: o.Type}
		for shard, c := range of {
			if len(c.Outputs) != len(of[0].Outputs) || c.By != of[0].By || c.Outputs[k].Fold != o.Fold ||
				c.Outputs[k].Type != o.Type || c.By != swarms.ByGroup && c.Nodes != of[0].Nodes {
				return all, fmt.Errorf("shard %d: other outputs than shard 0: %w", shard, errAnswer)
			}
			if own := c.Outputs[k]; shard == 0 || c.By == swarms.ByGroup {
				sum.N, sum.Bits = append(sum.N, own.N...), append(sum.Bits, own.Bits...)
			} else {
				foldResults(f, sum, own)
			}
		}
		all.Outputs = append(all.Outputs, sum)
	}
	if all.By != swarms.ByGroup {
		return all, nil
	}
	first := true
	for _, c := range of {
		if c.Nodes == 0 {
			continue
		}
		if first {
			all.First, first = c.First, false
		}
		if c.First != all.First+all.Nodes {
			return all, fmt.Errorf("groups from number %d on behind group %d: %w", c.First, all.First+all.Nodes-1,
				errAnswer)
		}
		all.Nodes += c.Nodes
	}
	return all, nil
}

func foldResults(f expr.FoldText, sum, own swarms.ComputedOutput) {
	word := binary.LittleEndian
	for i := 0; i < len(sum.N); i += 8 {
		p := f.Merge(expr.PartialAt(sum.N, sum.Bits, i/8), expr.PartialAt(own.N, own.Bits, i/8))
		word.PutUint64(sum.N[i:], p.N)
		word.PutUint64(sum.Bits[i:], p.Bits)
	}
}
