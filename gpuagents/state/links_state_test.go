package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// opinionText is opinions over the links of a file.
var opinionText = "name: x\naddressed: agent\nagents: 900\nagents_per_group: 100\nseed: 12\ncell:\n  kind: custom\n" +
	"  state: {opinion: f32, loud: u8, heard: u32}\n  params: {trust: 0.25, doubt: 0.05}\n" +
	"  hear: {weighted: [opinion], mean: [opinion], sum: [opinion, heard], max: [opinion], min: [opinion], " +
	"count: [loud]}\n  step: |\n    " + strings.ReplaceAll(strings.TrimSpace(celltest.OpinionStep), "\n", "\n    ") +
	"\nneighbours: {graph: links.csv, directed: true}\nfeatures: [opinion]\n" +
	"vote: {by: loud, candidates: [quiet, loud]}\n"

// TestLatticeOnGraph: opinions over weighted links of a file equal the plain twin, also in a
// process that continues from a checkpoint.
func TestLatticeOnGraph(t *testing.T) {
	r, d, disk := rand.New(rand.NewPCG(6, 6)), openCompiling(t), newDisk()
	var links strings.Builder
	for range 3000 {
		fmt.Fprintf(&links, "%d,%d,%v\n", r.IntN(900), r.IntN(900), r.IntN(64)-32)
	}
	spec, err := swarm.ParseIn(fstest.MapFS{"links.csv": {Data: []byte(links.String())}}, "x.yaml", []byte(opinionText))
	if err != nil {
		t.Fatal(err)
	}
	spec.PageSize = testPage
	graph, err := spec.Links()
	if err != nil || !graph.Weighted() {
		t.Fatalf("links %+v, %v", graph, err)
	}
	rows := graph.Rows
	open := func() (State, func()) {
		s, err := newWhole(d, pages.NewBudget(1<<20, 0), spec, spec.Groups())
		if err != nil {
			t.Fatal(err)
		}
		store := disk.open(t)
		if err := errors.Join(s.Memory().Open(t.Context(), store), s.Restored(t.Context())); err != nil {
			t.Fatal(err)
		}
		return s, func() {
			if err := errors.Join(s.Close(), store.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, made := make([]celltest.OpinionAgent, 900), uint64(0)
	o, q := &batch.AgentObservations{Width: 1}, swarms.Query{Version: jobs.Version}
	for i := range want {
		want[i].Opinion = r.Float32()*2 - 1
		o.Agent, o.Features = append(o.Agent, uint32(i)), append(o.Features, want[i].Opinion)
		q.Agents = append(q.Agents, uint32(i))
	}
	tick := func(s State, n int) {
		mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: n})
		for range n {
			want = celltest.StepOpinion(rows, want, 12, made)
			made++
		}
	}
	s, end := open()
	mustApply(t, s, swarms.EntryObserve, o)
	tick(s, 3)
	if err := s.Memory().Checkpoint(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	end()
	s, end = open() // another process
	tick(s, 2)
	found, err := batch.DecodeAgentStates(mustApply(t, s, swarms.EntryQuery, q).Data)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range want {
		if found.State[i] != a.Opinion || found.Vote[i] != a.Loud {
			t.Fatalf("agent %d is %v, %d, the twin %+v", i, found.State[i], found.Vote[i], a)
		}
	}
	_, err = s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryVote, Data: []byte(`{"v":1,"round":1}`)})
	if err == nil || !strings.Contains(err.Error(), "vote: agents on a graph do not vote") {
		t.Errorf("a vote: %v", err)
	}
	end()
}
