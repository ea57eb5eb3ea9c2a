package gpuprocess

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestCustomCellOnGrid: an agent that allows custom cells, on a device that compiles for the
// processor, serves a forest of three dimensions from its log: its answers are the same as of the
// built-in cell.
func TestCustomCellOnGrid(t *testing.T) {
	forest := celltest.Grid{Width: 16, Height: 12, Depth: 9, Faces: true}
	text := "name: x\naddressed: agent\nseed: 5\npage_size: 64KiB\ncell:\n  kind: custom\n  state: {state: u8}\n" +
		"  params: {growth: 0.25, lightning: 0.0625}\n  hear: {max: [state]}\n  step: |\n    " +
		strings.ReplaceAll(strings.TrimSpace(celltest.FireStep), "\n", "\n    ") + "\n" +
		"neighbours: {width: 16, height: 12, depth: 9, faces: true}\nvote: {candidates: [empty, tree, fire]}\n"
	host, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatalf("cuda.Open: %v, want no error", err)
	}
	r := newRig(t)
	a, err := gpuagents.Start(gpuagents.Options{
		Name: "agent", Device: emulation.NewDevice(t, host), Queue: r.conn.Swarms, LeaseTTL: time.Minute,
		Logger: slog.New(slog.NewTextHandler(r, nil)), CustomCells: true,
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v, want no error", err)
	}
	t.Cleanup(func() {
		a.Stop()
		if err := host.Close(); err != nil {
			t.Errorf("host.Close: %v, want no error", err)
		}
	})
	want := make([]byte, forest.Len())
	var entries []swarms.Entry
	add := func(kind string, data []byte, err error) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, swarms.Entry{Kind: kind, Data: data})
	}
	o := &batch.AgentObservations{Width: 1}
	for i := range 300 {
		want[7*i%len(want)] = byte(i % 3)
		o.Agent, o.Features = append(o.Agent, uint32(7*i%len(want))), append(o.Features, float32(i%3))
	}
	data, err := o.Encode()
	add(swarms.EntryObserve, data, err)
	tick := func(n int) {
		data, err := json.Marshal(swarms.Tick{Version: jobs.Version, Count: n})
		add(swarms.EntryTick, data, err)
	}
	tick(3)
	tick(2)
	counts := make([]uint64, 3)
	for i := range 5 {
		want = forest.StepFire(want, 5, uint64(i))
	}
	q := swarms.Query{Version: jobs.Version}
	for i, state := range want {
		q.Agents = append(q.Agents, uint32(i))
		counts[state]++
	}
	data, err = json.Marshal(q)
	add(swarms.EntryQuery, data, err)
	if err := r.conn.Swarms.Log("forest", 0, swarms.In).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.conn.Swarms.Log("forest", 0, swarms.Out).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.putAll(t, "forest", text, forest.Len())
	for i, e := range entries {
		e.Ref = uint64(i) + 1
		if err := r.conn.Swarms.Log("forest", 0, swarms.In).Append(t.Context(), uint64(i), e); err != nil {
			t.Fatal(err)
		}
		got := r.reply(t, "forest", i+1)
		switch got.Kind {
		case swarms.EntryDecide:
		case swarms.EntryTicked:
			var ticked swarms.Ticked
			if err := json.Unmarshal(got.Data, &ticked); err != nil {
				t.Fatal(err)
			}
			if i == 2 && !slices.Equal(ticked.Tally, counts) {
				t.Errorf("the last tick counts %v, want %v", ticked.Tally, counts)
			}
		case swarms.EntryState:
			states, err := batch.DecodeAgentStates(got.Data)
			if err != nil || !bytes.Equal(states.Vote, want) {
				t.Errorf("the forest differs from the plain one: %v", err)
			}
		default:
			t.Fatalf("answer %d is %s %s", i+1, got.Kind, got.Data)
		}
	}
}
