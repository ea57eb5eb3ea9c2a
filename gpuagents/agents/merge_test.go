package agents

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// TestTickWith: shards that tick with the sums of all are the agents of one swarm, bit for bit,
// whether their pages fit on the device or not. The twin ticks all agents at once.
func TestTickWith(t *testing.T) {
	for name, told := range map[string]cells.Told{
		"vote":      {By: kernels.AgentByVote, Merge: kernels.AgentMergeMean},
		"max":       {By: kernels.AgentByVote, Merge: kernels.AgentMergeMax},
		"attention": {By: kernels.AgentByVote, Merge: kernels.AgentMergeAttention, Focus: 3},
		"key":       {By: kernels.AgentByKey, Nodes: 10, Merge: kernels.AgentMergeEMA, Rate: 0.25},
		"keys":      {By: kernels.AgentByKey, Nodes: 200, Merge: kernels.AgentMergeAttention, Focus: 1},
	} {
		for _, frames := range []int64{0, 3} {
			t.Run(fmt.Sprintf("%s/%d", name, frames), func(t *testing.T) { testTickWith(t, told, frames) })
		}
	}
}

// testTickWith is TestTickWith for some nodes. frames are the pages of each shard on the device; 0:
// all.
func testTickWith(t *testing.T, told cells.Told, frames int64) {
	const group, groups, features, candidates = 5, 1200, 3, 3
	ends := []int{0, 400, 1200} // first groups of shards; the number of groups is a multiple of the number of nodes
	told.Decision, told.Width = -1, 3
	cell, err := address(t, "gru", map[string]float64{"hidden": 8}, group, features, candidates).Hearing(3)
	if err == nil {
		cell, err = cell.Telling(told)
	}
	if err != nil {
		t.Fatalf("Telling: %v", err)
	}
	d := openNamed(t, *opentest.Name)
	whole := makeAgents(t, d, cell, group*groups, Options{Seed: 9, PageBytes: 8192})
	var shards []*Agents
	for k, first := range ends[:len(ends)-1] {
		a, err := NewShard(d, pages.NewBudget(frames*8192, 1<<30), cell, int64(group*(ends[k+1]-first)), first, groups,
			Options{Seed: 9, PageBytes: 8192})
		if err == nil {
			defer a.Close()
			err = a.Memory().Open(t.Context(), nil)
		}
		if err != nil {
			t.Fatalf("NewShard: %v", err)
		}
		shards = append(shards, a)
	}
	r := rand.New(rand.NewPCG(25, 43))
	for step := range 6 {
		if step%2 == 0 { // observations are between ticks, or a tick follows a tick
			ids, inputs := randomObservations(r, group*groups, 900, features)
			see(t, whole, ids, inputs)
			for k, a := range shards {
				var own []uint32
				var of []float32
				for i, id := range ids {
					if g := int(id) / group; g >= ends[k] && g < ends[k+1] {
						own = append(own, id-uint32(group*ends[k]))
						of = append(of, inputs[i*features:][:features]...)
					}
				}
				see(t, a, own, of)
			}
		}
		var sums []uint64
		for k, a := range shards {
			own, err := a.Sums(t.Context())
			if err != nil {
				t.Fatalf("Sums: %v", err)
			}
			if k == 0 {
				sums = make([]uint64, len(own))
			}
			for i, w := range own {
				if told.Merge == kernels.AgentMergeMax && i%4 < 3 {
					sums[i] = max(sums[i], w)
				} else {
					sums[i] += w
				}
			}
		}
		if _, err := whole.Tick(t.Context(), 1); err != nil {
			t.Fatalf("Tick: %v", err)
		}
		want := everyState(t, whole)
		nodes := allNodes(t, whole)
		for k, a := range shards {
			if _, err := a.TickWith(t.Context(), t.Context(), sums); err != nil {
				t.Fatalf("TickWith: %v", err)
			}
			got, from := everyState(t, a), group*ends[k]
			if n := int(a.Len()); !slices.Equal(got.Vote, want.Vote[from:][:n]) ||
				!slices.Equal(got.State, want.State[from*want.Width:][:n*want.Width]) {
				t.Fatalf("step %d: the agents of shard %d differ from the agents of the swarm", step, k)
			}
			own := allNodes(t, a)
			if !slices.Equal(own.Units, nodes.Units) || !slices.Equal(own.Updates, nodes.Updates) {
				t.Fatalf("step %d: nodes of shard %d are %+v, want %+v", step, k, own, nodes)
			}
		}
	}
	if _, err := shards[0].TickWith(t.Context(), t.Context(), make([]uint64, 1)); !errors.Is(err, ErrInvalid) {
		t.Errorf("TickWith of one word: %v, want an ErrInvalid", err)
	}
}

// allNodes returns all knowledge nodes.
func allNodes(t *testing.T, a *Agents) Knowledge {
	t.Helper()
	var ids []uint32
	_, n := a.KnowledgeNodes()
	for k := range n {
		ids = append(ids, uint32(k))
	}
	all, err := a.Knowledge(t.Context(), ids)
	if err != nil {
		t.Fatalf("Knowledge: %v", err)
	}
	return all
}

// see has agents observe.
func see(t *testing.T, a *Agents, ids []uint32, inputs []float32) {
	t.Helper()
	if _, err := a.Observe(t.Context(), ids, inputs); err != nil {
		t.Fatalf("Observe: %v", err)
	}
}

// everyState returns the states of all agents.
func everyState(t *testing.T, a *Agents) *batch.AgentStates {
	t.Helper()
	ids := make([]uint32, a.Len())
	for i := range ids {
		ids[i] = uint32(i)
	}
	all, err := a.AgentStates(t.Context(), ids)
	if err != nil {
		t.Fatalf("AgentStates: %v", err)
	}
	return all
}
