package partition

import (
	"encoding/binary"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Computed returns the results of all shards as those of the swarm. By group the nodes of the
// shards follow one another; otherwise results are folded in the order of the shards. of has the
// answers of all shards that were asked, in their order.
func Computed(of []swarms.Computed) (swarms.Computed, error) {
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
			return all, fmt.Errorf("output %.60q: %w: %w", o.Name, ErrAnswer, err)
		}
		sum := swarms.ComputedOutput{Name: o.Name, Fold: o.Fold, Type: o.Type}
		for shard, c := range of {
			if len(c.Outputs) != len(of[0].Outputs) || c.By != of[0].By || c.Outputs[k].Fold != o.Fold ||
				c.Outputs[k].Type != o.Type || c.By != swarms.ByGroup && c.Nodes != of[0].Nodes {
				return all, fmt.Errorf("shard %d: other outputs than those of shard 0: %w", shard, ErrAnswer)
			}
			if own := c.Outputs[k]; shard == 0 || c.By == swarms.ByGroup {
				sum.N, sum.Bits = append(sum.N, own.N...), append(sum.Bits, own.Bits...)
			} else {
				merge(f, sum, own)
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
			return all, fmt.Errorf(
				"groups from number %d on behind group %d: %w",
				c.First,
				all.First+all.Nodes-1,
				ErrAnswer,
			)
		}
		all.Nodes += c.Nodes
	}
	return all, nil
}

// merge folds the results of a shard into those of the shards before it.
func merge(f expr.FoldText, sum, own swarms.ComputedOutput) {
	word := binary.LittleEndian
	for i := 0; i < len(sum.N); i += 8 {
		p := f.Merge(expr.PartialAt(sum.N, sum.Bits, i/8), expr.PartialAt(own.N, own.Bits, i/8))
		word.PutUint64(sum.N[i:], p.N)
		word.PutUint64(sum.Bits[i:], p.Bits)
	}
}
