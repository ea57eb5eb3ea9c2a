package agents

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// BenchmarkAgentsKnowledge is a tick of 10M agents that hear nothing, of agents that hear the
// decision of their group, of agents that hear its node, and of agents that hear one of 1,024
// nodes, of few large groups and of many small ones. The 1,024 nodes are an ema of runs of groups,
// attention over those, and an ema by key and attention by key; nodes by vote are five. All take
// turns; the times are medians until the result is in host memory. Two pages of nodes of groups are
// compared with the host device, and one node of each other swarm with plain arithmetic over its
// agents, but for those by vote.
func BenchmarkAgentsKnowledge(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	for _, group := range []int{4096, 256, 10} {
		n := scaled(d, 10_000_000) / int64(group) * int64(group)
		b.Run(fmt.Sprintf("gru/h8/f32/%d", n/int64(group)), func(b *testing.B) {
			deaf := address(b, "gru", nil, group, 2, 5)
			wide, err := deaf.Hearing(4)
			if err != nil {
				b.Fatalf("Hearing: %v", err)
			}
			telling := func(t cells.Told) *cells.Addressed {
				cell, err := wide.Telling(t)
				if err != nil {
					b.Fatalf("Telling: %v", err)
				}
				return cell
			}
			ctx := b.Context()
			names := []string{"deaf", "group", "node", "shared", "attention", "vote", "key", "key-attention"}
			told := make([]cells.Told, len(names))
			for i := range told {
				told[i] = cells.Told{
					Decision: -1, Node: 0, Width: 4, Merge: kernels.AgentMergeEMA, Rate: 0.1,
					Nodes: int(min(1024, n/int64(group))),
				}
			}
			told[1], told[2].Nodes = cells.Told{Node: -1}, 0
			told[4].Merge, told[4].Focus = kernels.AgentMergeAttention, 1
			told[5].By, told[5].Nodes = kernels.AgentByVote, 0
			told[6].By = kernels.AgentByKey
			told[7], told[7].By = told[4], kernels.AgentByKey
			swarms, took := make([]*Agents, len(names)), make([][]time.Duration, len(names))
			for i, t := range told {
				cell := deaf
				if i > 0 {
					cell = telling(t)
				}
				if swarms[i], err = New(d, cell, n, Options{}); err != nil {
					b.Fatalf("New: %v", err)
				}
				defer swarms[i].Close()
				fillPages(b, swarms[i])
			}
			twin := sampled(b, swarms[2])
			for i := range b.N + 3 {
				for k, a := range swarms {
					began := time.Now()
					if _, err := a.Tick(ctx, 1); err != nil {
						b.Fatalf("Tick: %v", err)
					}
					if i >= 3 {
						took[k] = append(took[k], time.Since(began))
					}
				}
				if _, err := twin.Tick(ctx, 1); err != nil {
					b.Fatalf("Tick of the twin: %v", err)
				}
			}
			twin.check(b, swarms[2])
			for k, name := range names {
				if k >= 3 && told[k].By != kernels.AgentByVote {
					checkNode(b, swarms[k], told[k], 1)
				}
				slices.Sort(took[k])
				b.ReportMetric(float64(took[k][b.N/2].Nanoseconds())/1e3, name+"-us")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// checkNode ticks agents once, and compares the update of a node of groups or by key with plain
// arithmetic over its agents.
func checkNode(b *testing.B, a *Agents, told cells.Told, node uint32) {
	b.Helper()
	first, end := a.groupsOf(int(node))
	group := a.cell.Agents
	var ids []uint32
	for id := first * group; id < end*group && told.By == kernels.AgentByGroup; id++ {
		ids = append(ids, uint32(id))
	}
	for id := int64(node); id < a.Len() && told.By == kernels.AgentByKey; id += int64(told.Nodes) {
		ids = append(ids, uint32(id))
	}
	now, err := a.AgentStates(b.Context(), ids)
	if err != nil {
		b.Fatalf("AgentStates: %v", err)
	}
	before, err := a.Knowledge(b.Context(), []uint32{node})
	if err != nil {
		b.Fatalf("Knowledge: %v", err)
	}
	told.Nodes, told.By = 1, kernels.AgentByGroup
	w := newGroupTwin(told, 1, 0)
	w.nodes[0], w.updates[0] = before.Units, before.Updates[0]
	w.step(now, len(ids))
	if _, err := a.Tick(b.Context(), 1); err != nil {
		b.Fatalf("Tick: %v", err)
	}
	after, err := a.Knowledge(b.Context(), []uint32{node})
	if err != nil || !slices.Equal(after.Units, w.nodes[0]) || after.Updates[0] != w.updates[0] || after.Ages[0] != 0 {
		b.Fatalf("node %d of %d agents is %+v, want %v: %v", node, len(ids), after, w.nodes[0], err)
	}
}
