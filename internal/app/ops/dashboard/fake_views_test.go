package dashboard

import (
	"context"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// Heat has cells in all states: shard 0 has values, shard 1 kept ones and pages elsewhere, and
// shard 2 does not answer.
func (f *fakeCluster) Heat(_ context.Context, id, variable, value string, size int) (cluster.Heat, error) {
	if err := f.ask(); err != nil {
		return cluster.Heat{}, err
	}
	if of := map[string]*cluster.Map{
		"s3": {Columns: 30, Width: 60, Height: 40}, "s4": {Columns: 30, Tick: 25, Per: 45},
	}[id]; of != nil {
		return mapped(id, of), nil
	}
	if id != "s1" {
		return cluster.Heat{
			Swarm: id, Variables: []string{}, Value: value, Cells: []byte{0}, States: [][2]int{{1, 5}},
			Parts: []cluster.HeatPart{{Cells: 1, Agents: 10, Per: 10, Error: "no agent serves it"}},
		}, nil
	}
	if variable == "" {
		variable = "hidden"
	}
	n := size * size / 2
	h := cluster.Heat{
		Swarm: id, Variable: variable, Variables: []string{"round", "hidden", "level"}, Value: value, Least: -0.5,
		Most: 2, States: [][2]int{{n, 0}, {n / 4, 1}, {n / 4, 2}, {n / 4, 3}, {n / 4, 4}, {1, 5}},
		Parts: []cluster.HeatPart{
			{Shard: 0, Holder: "g1", Cells: n, Agents: 100_000, Per: 4, At: time.Now(), Took: 2e6},
			{
				Shard: 1, Holder: "g1", First: n, Cells: n, Agent: 100_000, Agents: 100_000, Per: 4, At: time.Now(),
				Took: 1e6,
			},
			{
				Shard: 2, First: 2 * n, Cells: 1, Agent: 200_000, Agents: 100_000, Per: 100_000,
				Error: "no agent serves it",
			},
		},
	}
	for i := range 2*n + 1 {
		h.Cells = append(h.Cells, byte(i%size*255/size))
	}
	return h, nil
}

// mapped returns a picture of 20 rows. The first five columns of one over ticks have no value.
func mapped(id string, of *cluster.Map) cluster.Heat {
	h := cluster.Heat{
		Swarm: id, Variable: "places", Variables: []string{"state", "places"}, Most: 4, Map: of,
		Parts: []cluster.HeatPart{{Holder: "g1", Cells: 600, Agents: 900, Per: 1, At: time.Now(), Took: 1e6}},
	}
	if of.Width == 0 {
		h.Variable, h.Variables = "spikes", []string{"spike", "spikes"}
	}
	for i := range 600 {
		state := 0
		if of.Width == 0 && i%30 < 5 {
			state = 4
		}
		h.Cells = append(h.Cells, byte(max(0, i%7-3)*85))
		h.States = append(h.States, [2]int{1, state})
	}
	return h
}

// PageMaps has pages in all tiers.
func (f *fakeCluster) PageMaps(_ context.Context, id string, _ int) (cluster.PageMaps, error) {
	if err := f.ask(); err != nil {
		return cluster.PageMaps{}, err
	}
	return cluster.PageMaps{Swarm: id, Parts: []cluster.ShardMaps{
		{Shard: 0, Holder: "g1", PageMap: telemetry.PageMap{
			Pages: 1800, Per: 2, PageBytes: 2 << 20, Tiers: []string{"gpu", "cpu", "nvme", "ssd", "hdd"},
			Counts: []int{600, 300, 300, 200, 100}, At: time.Now(),
			Runs: [][3]int{
				{200, 0, 0}, {100, 0, 3}, {150, 1, 5}, {150, 2, 7}, {100, 3, 9}, {50, 4, 14}, {150, -1, -1},
			},
		}},
		{Shard: 1, Error: "nobody answers"},
	}}, nil
}

// Timeline has batches of two shards, one after the other.
func (f *fakeCluster) Timeline(_ context.Context, agent string, _ int) (cluster.Timeline, error) {
	if err := f.ask(); err != nil {
		return cluster.Timeline{}, err
	}
	if agent != "g1" {
		return cluster.Timeline{}, fmt.Errorf("agent %q: %w", agent, jobs.ErrNotFound)
	}
	now := time.Now()
	t := cluster.Timeline{
		Timeline: telemetry.Timeline{
			Agent: agent, At: now,
			Stages: []string{"fetch", "decode", "page", "upload", "kernel", "read back", "append"},
		},
		Names: map[string]string{"s1.x": "shops"},
	}
	for batch := range 40 {
		begin := now.Add(time.Duration(batch-41) * 200 * time.Millisecond)
		for stage := range 7 {
			t.Spans = append(t.Spans, telemetry.Span{
				Stage: stage, Swarm: "s1.x", Shard: batch % 2, First: uint64(batch) + 1, Last: uint64(batch) + 1,
				Bytes: int64(100 * batch), Begin: begin.UnixNano(), Took: int64(20 * time.Millisecond),
			})
			begin = begin.Add(20 * time.Millisecond)
		}
	}
	return t, nil
}
