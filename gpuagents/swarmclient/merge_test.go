package swarmclient

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestRefused: an answer that does not fit the request to its shard is an error, and is in no sum.
// TestShards tests that correct answers merge.
func TestRefused(t *testing.T) {
	s := swarms.Swarm{Groups: 4, Shards: 2} // of 10 agents: 20 a shard
	if _, err := SplitAgents(s, 10, []uint32{0, 40}); !errors.Is(err, errID) {
		t.Errorf("SplitAgents: %v, want %v", err, errID)
	}
	split, err := SplitAgents(s, 10, []uint32{39, 0, 20})
	if err != nil || !split.Has(0) || len(split.IDs(1)) != 2 {
		t.Fatalf("SplitAgents: %+v, %v, want shard 0 with some and shard 1 with 2 of the ids", split, err)
	}
	for _, of := range [][]uint32{{0, 0}, {1}, {}} {
		d := &batch.AgentDecisions{Agent: of, Vote: make([]uint8, len(of)), Decision: make([]uint8, len(of))}
		other := &batch.AgentDecisions{Agent: []uint32{39, 20}, Vote: make([]uint8, 2), Decision: make([]uint8, 2)}
		if _, err := split.Decisions([]*batch.AgentDecisions{d, other}); !errors.Is(err, errAnswer) {
			t.Errorf("decisions of %v: %v", of, err)
		}
	}
	scored := func(ids []uint32, scores ...float32) *batch.AgentDecisions {
		return &batch.AgentDecisions{
			Agent: ids, Vote: make([]uint8, len(ids)), Decision: make([]uint8, len(ids)), Score: scores,
		}
	}
	first, second := scored([]uint32{0}, 0.5), []uint32{39, 20}
	d, err := split.Decisions([]*batch.AgentDecisions{first, scored(second, 0.25, 0.75)})
	if err != nil || !slices.Equal(d.Score, []float32{0.25, 0.5, 0.75}) {
		t.Errorf("scores %v, %v, want the scores of both shards in the order of the list", d.Score, err)
	}
	if _, err := split.Decisions([]*batch.AgentDecisions{first, scored(second)}); !errors.Is(err, errAnswer) {
		t.Errorf("scores of one shard: %v, want %v", err, errAnswer)
	}
	if o := split.Observations(&batch.AgentObservations{
		Agent: []uint32{39, 0, 20}, Features: []float32{1, 2, 3}, Width: 1, Item: []int32{7, 8, 9},
	}, 1); !slices.Equal(o.Item, []int32{7, 9}) {
		t.Errorf("items %v of shard 1, want [7 9]", o.Item)
	}
	a, b := &batch.AgentStates{Agent: []uint32{0}, Vote: []uint8{1}, Width: 1, State: []float32{1}},
		&batch.AgentStates{Agent: []uint32{39, 20}, Vote: []uint8{1, 1}, Width: 2, State: []float32{1, 2, 3, 4}}
	if _, err := split.AgentStates([]*batch.AgentStates{a, b}); !errors.Is(err, errAnswer) {
		t.Errorf("split.AgentStates: %v, want %v", err, errAnswer)
	}
	if _, err := MergeSums(2, 1, "mean", [][]byte{make([]byte, 32), make([]byte, 24)}); !errors.Is(err, errAnswer) {
		t.Errorf("MergeSums: %v, want %v", err, errAnswer)
	}
	good := swarms.Ticked{Stepped: 60, Tally: []uint64{20, 0}, Decided: []uint64{2, 0}}
	for _, bad := range []swarms.Ticked{
		{Stepped: 120, Tally: good.Tally, Decided: good.Decided},
		{Stepped: 60, Tally: []uint64{1}, Decided: good.Decided},
	} {
		if _, err := MergeTicked(s, 10, 2, 3, []swarms.Ticked{good, bad}); !errors.Is(err, errAnswer) {
			t.Errorf("%+v: %v, want %v", bad, err, errAnswer)
		}
	}
	vote, voted := swarms.Vote{Version: 1, Round: 7}, swarms.Voted{
		Round: 7, Counts: []uint64{3, 4}, Abstentions: 13, Leader: &swarms.Leader{},
	}
	for _, bad := range []swarms.Voted{
		{Round: 6, Counts: voted.Counts, Abstentions: 13, Leader: voted.Leader},
		{Round: 7, Counts: []uint64{20, 20}, Leader: voted.Leader},
		{Round: 7, Counts: []uint64{20}, Leader: voted.Leader},
		{Round: 7, Counts: voted.Counts, Abstentions: 13},
	} {
		if _, err := MergeVotes(s, 10, 2, vote, []swarms.Voted{voted, bad}); !errors.Is(err, errAnswer) {
			t.Errorf("%+v: %v, want %v", bad, err, errAnswer)
		}
	}
	vote.Priority, voted.Bids = swarms.PriorityElected, []*swarms.Bid{{Agent: 3, Priority: 1}, {Agent: 0, Priority: 9}}
	for _, bids := range [][]*swarms.Bid{
		nil, {nil, {Agent: 20}}, {{Agent: 20}}, {{Agent: 20}, {Agent: 19}}, {{Agent: 40}, {Agent: 30}},
	} {
		bad := voted
		if bad.Bids = bids; bids == nil {
			bad.Counts, bad.Abstentions = []uint64{0, 0}, 20 // and as many bids as none
		}
		if _, err := MergeVotes(s, 10, 2, vote, []swarms.Voted{voted, bad}); !errors.Is(err, errAnswer) {
			t.Errorf("%+v: %v, want %v", bad, err, errAnswer)
		}
	}
	other := voted
	other.Bids = []*swarms.Bid{{Agent: 20, Priority: 9}, {Agent: 39, Priority: 2, Term: 4}}
	got, err := MergeVotes(s, 10, 2, vote, []swarms.Voted{voted, other})
	if err != nil || got.Leader == nil || got.Leader.Agent != 39 || *got.Leader.Vote != 1 || got.Bids != nil {
		t.Errorf("%+v, error %v; want agent 39 to lead, which does already", got, err)
	}
	sums := func(node uint32, count uint64, sum float32, width int) *batch.FusedSums {
		f := &batch.FusedSums{Node: []uint32{node}, Count: []uint64{count}, Width: width}
		for range width {
			f.Sum = append(f.Sum, sum)
		}
		return f
	}
	fuse := swarms.Fuse{Version: 1, By: swarms.ByGroup, Nodes: 3}
	for _, bad := range []*batch.FusedSums{
		sums(3, 1, 1, 2), sums(2, 21, 1, 2), sums(2, 1, 1, 3),
		{Node: []uint32{2, 2}, Count: []uint64{1, 1}, Sum: make([]float32, 4), Width: 2},
	} {
		if _, err := MergeFused(s, 10, 2, fuse, []*batch.FusedSums{sums(0, 1, 1, 2), bad}); !errors.Is(err, errAnswer) {
			t.Errorf("%+v: %v, want %v", bad, err, errAnswer)
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(-1)} {
		if _, err := MergeFused(s, 10, 2, fuse, []*batch.FusedSums{
			sums(0, 1, float32(bad), 2),
			sums(2, 1, 1, 2),
		}); !errors.Is(err, fusion.ErrValue) {
			t.Errorf("%v: MergeFused: %v, want %v", bad, err, fusion.ErrValue)
		}
	}
	all, err := MergeFused(s, 10, 2, fuse, []*batch.FusedSums{sums(1, 1, 1, 2), sums(1, 3, 4, 2)})
	if err != nil || all.Count[1] != 4 || all.Mean[2] != 1.25 || all.Mean[0] != 0 || len(all.Node) != 3 {
		t.Errorf("%+v, error %v; want three nodes, 4 agents in node 1, and the means 0 and 1.25", all, err)
	}
}

// TestNodesEverywhere: if each shard has all nodes, each is asked for all of them, and a copy that
// one shard has not updated yet is not in the answer.
func TestNodesEverywhere(t *testing.T) {
	s := swarms.Swarm{Groups: 9, Shards: 3}
	if _, err := SplitNodes(s, 2, true, []uint32{2}); !errors.Is(err, errID) {
		t.Errorf("SplitNodes: %v, want %v", err, errID)
	}
	split, err := SplitNodes(s, 2, true, []uint32{1, 0})
	if err != nil || !split.Has(2) || len(split.IDs(2)) != 2 {
		t.Fatalf("SplitNodes: %+v, %v, want both nodes of each shard", split, err)
	}
	of := func(updates, age uint64, unit float32) *batch.KnownNodes {
		return &batch.KnownNodes{
			Node: []uint32{1, 0}, Updates: []uint64{updates, 0}, Age: []uint64{age, math.MaxUint64},
			Units: []float32{unit, 0}, Width: 1,
		}
	}
	got, err := split.KnownNodes([]*batch.KnownNodes{of(6, 9, 0.5), of(7, 2, 0.25), of(7, 3, 0.25)})
	if err != nil || got.Updates[0] != 7 || got.Age[0] != 3 || got.Units[0] != 0.25 || got.Age[1] != math.MaxUint64 {
		t.Errorf("%+v, %v, want 7 updates, the age 3 and 0.25", got, err)
	}
}
