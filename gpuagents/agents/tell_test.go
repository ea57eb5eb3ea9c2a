package agents

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// groupTwin is what the agents of a swarm hear of their groups, by plain arithmetic over what the swarm
// answers.
type groupTwin struct {
	told    cells.Told
	nodes   [][]float32
	updates []uint64
}

// heard returns the values of the inputs that are heard, by agent, before a step.
func (w *groupTwin) heard(t *testing.T, a *Agents, hears int) []float32 {
	t.Helper()
	group, C := a.Cell().Agents, a.Cell().Candidates
	all := make([]uint32, a.Groups())
	for i := range all {
		all[i] = uint32(i)
	}
	of, err := a.GroupStates(t.Context(), all)
	if err != nil {
		t.Fatalf("GroupStates: %v", err)
	}
	ids := make([]uint32, a.Len())
	for i := range ids {
		ids[i] = uint32(i)
	}
	now, err := a.AgentStates(t.Context(), ids)
	if err != nil {
		t.Fatalf("AgentStates: %v", err)
	}
	if w.nodes == nil {
		w.updates = make([]uint64, a.Groups())
		for range all {
			w.nodes = append(w.nodes, make([]float32, w.told.Width))
		}
	}
	heard := make([]float32, len(ids)*hears)
	for g, node := range w.nodes {
		for k := range node {
			var units []float64
			for i := g * group; i < (g+1)*group; i++ {
				if now.Vote[i] != 255 {
					units = append(units, math.RoundToEven(float64(now.State[i*now.Width+k])*16384))
				}
			}
			if len(units) == 0 || w.told.Node < 0 {
				continue
			}
			sum := 0.0
			for _, u := range units {
				sum += u
			}
			mean := float32(sum / (float64(len(units)) * 16384))
			switch {
			case w.told.Merge == kernels.AgentMergeMax:
				node[k] = float32(slices.Max(units) / 16384)
			case w.told.Merge == kernels.AgentMergeEMA && w.updates[g] > 0:
				node[k] = float32(math.FMA(float64(float32(w.told.Rate)), float64(mean-node[k]), float64(node[k])))
			default:
				node[k] = mean
			}
		}
		stepped := slices.ContainsFunc(now.Vote[g*group:][:group], func(v uint8) bool { return v != 255 })
		if stepped {
			w.updates[g]++
		}
		for i := g * group; i < (g+1)*group; i++ {
			to := heard[i*hears:][:hears]
			if d := of.Decision[g]; w.told.Decision >= 0 && d != 255 {
				to[w.told.Decision] = float32(d+1) / float32(C)
			}
			if w.told.Node >= 0 {
				copy(to[w.told.Node:], node)
			}
		}
	}
	return heard
}

// tellSize is the size of a swarm of TestTell.
type tellSize struct{ agents, group, page int }

// TestTell compares agents that hear their groups with agents that observe the same values, which plain
// arithmetic has made, as features: units, votes, counts and nodes have the same bits after each tick,
// also where a tick has several steps, agents have never stepped, and pages are not all on the device.
// Ticks of large groups keep the sums of units for the next tick.
func TestTell(t *testing.T) {
	d := openNamed(t, *deviceName)
	r := rand.New(rand.NewPCG(25, 10))
	small, large := tellSize{210, 7, 4096}, tellSize{2 * kernels.AgentSpan, kernels.AgentSpan, 1 << 17}
	for _, hidden := range []int{5, 8, 13, 32} {
		for _, bf16 := range []float64{0, 1} {
			for merge := range kernels.AgentMergeEMA + 1 {
				t.Run(fmt.Sprintf("hidden %d bf16 %v merge %d", hidden, bf16, merge), func(t *testing.T) {
					testTell(t, d, r, hidden, bf16, merge, small)
				})
				if hidden != 8 {
					continue
				}
				t.Run(fmt.Sprintf("large, bf16 %v merge %d", bf16, merge), func(t *testing.T) {
					testTell(t, d, r, hidden, bf16, merge, large)
				})
			}
		}
	}
}

// testTell is TestTell for one cell and one size.
func testTell(t *testing.T, d device.Device, r *rand.Rand, hidden int, bf16 float64, merge int, size tellSize) {
	const features, hears = 2, 5
	agents, group := size.agents, size.group
	told := cells.Told{Decision: 1, Node: 2, Width: 1 + r.IntN(3), Merge: merge, Rate: 0.1}
	switch r.IntN(4) {
	case 0:
		told.Decision = -1
	case 1:
		told.Node, told.Width = -1, 0
	}
	params := map[string]float64{"hidden": float64(hidden), "bf16": bf16}
	wide := address(t, "gru", params, group, features+hears, 5)
	cell, err := address(t, "gru", params, group, features, 5).Hearing(hears)
	if err != nil {
		t.Fatalf("Hearing: %v", err)
	}
	if cell, err = cell.Telling(told); err != nil {
		t.Fatalf("Telling: %v", err)
	}
	table, err := cell.Table(randomWeights(r, hidden, features+hears, 5))
	if err != nil {
		t.Fatalf("Table: %v", err)
	}
	o := Options{Weights: table, PageBytes: size.page}
	observing := makeAgents(t, d, wide, int64(agents), o)
	if r.IntN(2) == 0 {
		o.PageMemory, o.HostPageMemory = 6*int64(size.page), 1<<20
	}
	hearing := makeAgents(t, d, cell, int64(agents), o)
	w := &groupTwin{told: told}
	held := make([]float32, agents*features)
	everyone := make([]uint32, agents)
	for i := range everyone {
		everyone[i] = uint32(i)
	}
	for step := range 12 {
		// Some agents observe, and hear 0 in that step.
		some := everyone[:0:0]
		for i := range everyone {
			if step%3 < 2 && r.IntN(3) == 0 { // none before some of the ticks
				some = append(some, uint32(i))
			}
		}
		var part, all []float32
		for _, id := range some {
			x := held[id*features:][:features]
			for k := range x {
				x[k] = float32(r.NormFloat64())
			}
			part = append(part, x...)
			all = append(append(all, x...), make([]float32, hears)...)
		}
		if _, err := hearing.Observe(t.Context(), some, part); err != nil {
			t.Fatalf("hearing.Observe: %v", err)
		}
		if _, err := observing.Observe(t.Context(), some, all); err != nil {
			t.Fatalf("observing.Observe: %v", err)
		}
		n := []int{1, 2, 3}[r.IntN(3)]
		if _, err := hearing.Tick(t.Context(), n); err != nil {
			t.Fatalf("hearing.Tick: %v", err)
		}
		for range n {
			heard := w.heard(t, observing, hears)
			all = all[:0]
			for i := range everyone {
				all = append(append(all, held[i*features:][:features]...), heard[i*hears:][:hears]...)
			}
			if _, err := observing.Observe(t.Context(), everyone, all); err != nil {
				t.Fatalf("observing.Observe: %v", err)
			}
		}
		got, want := units(t, hearing), units(t, observing)
		for i := range want {
			if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
				t.Fatalf("step %d: unit %d is %v, want %v", step, i, got[i], want[i])
			}
		}
		for _, v := range []int{kernels.AgentVarVote, kernels.AgentVarCounts} {
			if !bytes.Equal(column(t, hearing, v), column(t, observing, v)) {
				t.Fatalf("step %d: %s differs", step, cell.Vars()[v].Name)
			}
		}
		if told.Node < 0 {
			continue
		}
		if got := device.Of[float32](column(t, hearing, kernels.AgentVarKnowledge)); !slices.Equal(
			got[:agents/group*told.Width], slices.Concat(w.nodes...)) {
			t.Fatalf("step %d: nodes %v, want %v", step, got, w.nodes)
		}
		if got := device.Of[uint64](column(t, hearing, kernels.AgentVarUpdates)); !slices.Equal(
			got[:agents/group], w.updates) {
			t.Fatalf("step %d: updates %v, want %v", step, got, w.updates)
		}
	}
}

// TestTellRefused: what cannot be told is refused.
func TestTellRefused(t *testing.T) {
	cell, err := address(t, "gru", nil, 5, 2, 2).Hearing(4)
	if err != nil {
		t.Fatalf("Hearing: %v", err)
	}
	for _, told := range []cells.Told{
		{Decision: -1, Node: -1},
		{Decision: 4, Node: -1},
		{Decision: 0, Node: 0, Width: 1},
		{Decision: -1, Node: 1, Width: 4},
		{Decision: -1, Node: 0},
		{Decision: 0, Node: -1, Merge: 3},
		{Decision: -1, Node: 0, Width: 1, Merge: 2},
	} {
		if _, err := cell.Telling(told); !errors.Is(err, cells.ErrParameter) {
			t.Errorf("%+v: error %v, want an ErrParameter", told, err)
		}
	}
	if _, err := address(t, "leaky", nil, 5, 1, 2).Telling(cells.Told{Node: -1}); !errors.Is(err, cells.ErrParameter) {
		t.Errorf("leaky: error %v, want an ErrParameter", err)
	}
}
