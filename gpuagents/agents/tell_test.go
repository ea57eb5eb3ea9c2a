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
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// groupTwin is what the agents of a swarm hear of their groups, by plain arithmetic over what the
// swarm answers.
type groupTwin struct {
	told    cells.Told
	bf16    bool  // agents hear values as bf16
	nodeOf  []int // by group: the node that it has a copy of
	nodes   [][]float32
	updates []uint64
	learned []bool   // by node
	since   []uint64 // by group: steps since the update of its node
}

// newGroupTwin returns the twin of a swarm with a number of groups and candidates.
func newGroupTwin(told cells.Told, groups, candidates int) *groupTwin {
	n := groups
	switch {
	case told.By == kernels.AgentByVote:
		n = candidates
	case told.Nodes > 0:
		n = told.Nodes
	}
	w := &groupTwin{told: told, updates: make([]uint64, n), learned: make([]bool, n), since: make([]uint64, groups)}
	for k := range n {
		w.nodes = append(w.nodes, make([]float32, told.Width))
		for len(w.nodeOf) < (k+1)*groups/n {
			w.nodeOf = append(w.nodeOf, k)
		}
	}
	return w
}

// of returns the node of agent i of groups of a size, by its vote; -1: it has none.
func (w *groupTwin) of(i, group int, vote uint8) int {
	switch w.told.By {
	case kernels.AgentByVote:
		if vote == 255 {
			return -1
		}
		return int(vote)
	case kernels.AgentByKey:
		return i % len(w.nodes)
	}
	return w.nodeOf[i/group]
}

// held returns a node as agents hear it.
func (w *groupTwin) held(k int) []float32 {
	all := slices.Clone(w.nodes[k])
	for u, v := range all {
		if w.bf16 {
			all[u] = device.FromBF16(device.ToBF16(v))
		}
	}
	return all
}

// weight returns the weight of an agent for the merge of a node that it has heard.
func (w *groupTwin) weight(units, node []float32) float64 {
	if w.told.Merge != kernels.AgentMergeAttention {
		return 1
	}
	far := 0.0
	for u, v := range node {
		n := math.RoundToEven(float64(v) * 4096)
		far += math.Abs(n)*16384 - n*math.RoundToEven(float64(units[u])*16384)
	}
	x := float32(far) * float32(w.told.Focus/math.Sqrt(float64(w.told.Width))/(1<<26))
	return max(1, math.RoundToEven(65536*float64(1/fmath.Exp(min(x, 16)))))
}

// learn merges values into nodes.
func (w *groupTwin) learn(nodes []uint32, values []float32, replace bool) {
	for i, k := range nodes {
		for u, v := range values[i*w.told.Width:][:w.told.Width] {
			old := w.nodes[k][u]
			switch {
			case replace || w.updates[k] == 0:
			case w.told.Merge == kernels.AgentMergeMax:
				v = max(old, v)
			case w.told.Merge == kernels.AgentMergeEMA:
				v = float32(math.FMA(float64(float32(w.told.Rate)), float64(v-old), float64(old)))
			default:
				v = float32(math.FMA(0.5, float64(v-old), float64(old)))
			}
			w.nodes[k][u] = v
		}
		w.updates[k]++
		w.learned[k] = true
		for g, of := range w.nodeOf {
			if of == int(k) {
				w.since[g] = 0
			}
		}
	}
}

// step updates the nodes by the states of all agents before a tick.
func (w *groupTwin) step(now *batch.AgentStates, group int) {
	of := make([][]int, len(w.nodes)) // the agents of each node that have stepped
	for i, v := range now.Vote {
		if k := w.of(i, group, v); v != 255 {
			of[k] = append(of[k], i)
		}
	}
	for k, node := range w.nodes {
		stepped, merges := of[k], len(of[k]) > 0 && !w.learned[k]
		for g, own := range w.nodeOf {
			switch {
			case own == k && merges:
				w.since[g] = 0
			case own == k:
				w.since[g]++
			}
		}
		if w.learned[k] = false; !merges {
			continue
		}
		before := w.held(k)
		for u := range node {
			sum, weights, largest := 0.0, 0.0, math.Inf(-1)
			for _, i := range stepped {
				v := math.RoundToEven(float64(now.State[i*now.Width+u]) * 16384)
				weight := w.weight(now.State[i*now.Width:][:len(node)], before)
				sum, weights, largest = sum+weight*v, weights+weight, max(largest, v)
			}
			mean := float32(sum / (weights * 16384))
			switch {
			case w.told.Merge == kernels.AgentMergeMax:
				node[u] = float32(largest / 16384)
			case w.told.Merge == kernels.AgentMergeEMA && w.updates[k] > 0:
				node[u] = float32(math.FMA(float64(float32(w.told.Rate)), float64(mean-node[u]), float64(node[u])))
			default:
				node[u] = mean
			}
		}
		w.updates[k]++
	}
}

// ages returns the ages of all nodes.
func (w *groupTwin) ages() []uint64 {
	all := make([]uint64, len(w.nodes))
	for g, k := range w.nodeOf {
		if all[k] = max(all[k], w.since[g]); w.updates[k] == 0 {
			all[k] = Never
		}
	}
	return all
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
	heard := make([]float32, len(ids)*hears)
	if w.told.Node >= 0 {
		w.step(now, group)
	}
	for g := range w.nodeOf {
		for i := g * group; i < (g+1)*group; i++ {
			k := w.of(i, group, now.Vote[i])
			to := heard[i*hears:][:hears]
			if d := of.Decision[g]; w.told.Decision >= 0 && d != 255 {
				to[w.told.Decision] = float32(d+1) / float32(C)
			}
			if w.told.Node >= 0 && k >= 0 {
				copy(to[w.told.Node:], w.nodes[k])
			}
		}
	}
	return heard
}

// tellSize is the size of a swarm of TestTell.
type tellSize struct{ agents, group, page int }

// TestTell compares agents that hear their groups with agents that observe the same values, which
// plain arithmetic has made, as features: units, votes, counts and nodes have the same bits after
// each tick, also where a tick has several steps, agents have never stepped, and pages are not all
// on the device. Ticks of large groups keep the sums of units for the next tick.
func TestTell(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	r := rand.New(rand.NewPCG(25, 10))
	small, large := tellSize{210, 7, 4096}, tellSize{2 * kernels.AgentSpan, kernels.AgentSpan, 1 << 17}
	many := tellSize{4000, 10, 1 << 15} // spans of several nodes
	for _, hidden := range []int{5, 8, 13, 32} {
		for _, bf16 := range []float64{0, 1} {
			for i := range 3 * (kernels.AgentMergeAttention + 1) {
				merge, by := i/3, i%3
				if hidden != 8 && (i+hidden)%4 != int(bf16) && !testkit.Long() {
					continue // the class of 8 units has all, others each way somewhere
				}
				t.Run(fmt.Sprintf("hidden %d bf16 %v merge %d by %d", hidden, bf16, merge, by), func(t *testing.T) {
					testTell(t, d, r, hidden, bf16, merge, by, small)
				})
				if hidden != 8 || i%2 != int(bf16) && !testkit.Long() {
					continue
				}
				t.Run(fmt.Sprintf("many, bf16 %v merge %d by %d", bf16, merge, by), func(t *testing.T) {
					testTell(t, d, r, hidden, bf16, merge, by, many)
				})
				t.Run(fmt.Sprintf("large, bf16 %v merge %d by %d", bf16, merge, by), func(t *testing.T) {
					testTell(t, d, r, hidden, bf16, merge, by, large)
				})
			}
		}
	}
}

// testTell is TestTell for one cell and one size.
func testTell(
	t *testing.T, d device.Device, r *rand.Rand, hidden int, bf16 float64, merge, by int, size tellSize,
) {
	const features, hears = 2, 5
	agents, group, candidates := size.agents, size.group, min(5, size.agents/size.group)
	told := cells.Told{Decision: 1, Node: 2, Width: 1 + r.IntN(3), Merge: merge, Rate: 0.1, Focus: 4 * r.Float64()}
	some := []int{1, agents / group, 1 + r.IntN(agents/group)}[r.IntN(3)]
	switch r.IntN(4) {
	case 0:
		told.Decision = -1
	case 1:
		if by == kernels.AgentByGroup {
			told.Node, told.Width = -1, 0
		}
	case 2:
		told.Nodes = some
	}
	if size.agents == 4000 && told.Node >= 0 {
		told.Nodes = []int{1, 7, 150, 333}[merge]
	}
	switch told.By = by; by {
	case kernels.AgentByVote:
		told.Nodes = 0
	case kernels.AgentByKey:
		told.Nodes = max(told.Nodes, 1+r.IntN(agents/group))
	}
	params := map[string]float64{"hidden": float64(hidden), "bf16": bf16}
	wide := address(t, "gru", params, group, features+hears, candidates)
	cell, err := address(t, "gru", params, group, features, candidates).Hearing(hears)
	if err != nil {
		t.Fatalf("Hearing: %v", err)
	}
	if cell, err = cell.Telling(told); err != nil {
		t.Fatalf("Telling: %v", err)
	}
	table, err := cell.Table(randomWeights(r, hidden, features+hears, candidates))
	if err != nil {
		t.Fatalf("Table: %v", err)
	}
	o := Options{Weights: table, PageBytes: size.page}
	observing := makeAgents(t, d, wide, int64(agents), o)
	if r.IntN(2) == 0 {
		o.PageMemory, o.HostPageMemory = 6*int64(size.page), 1<<20
	}
	hearing := makeAgents(t, d, cell, int64(agents), o)
	w := newGroupTwin(told, agents/group, candidates)
	w.bf16 = bf16 != 0
	held := make([]float32, agents*features)
	everyone := make([]uint32, agents)
	for i := range everyone {
		everyone[i] = uint32(i)
	}
	steps := 12
	if agents == 4000 {
		steps = 3
	}
	for step := range steps {
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
		touched := map[int]bool{}
		for _, id := range some {
			touched[int(id)/group] = true
		}
		for g := range touched {
			w.since[g]++
		}
		if told.Node >= 0 && r.IntN(2) == 0 {
			nodes, values, replace := randomLessons(r, len(w.nodes)), []float32(nil), r.IntN(2) == 0
			for range len(nodes) * told.Width {
				values = append(values, 2*r.Float32()-1)
			}
			if err := hearing.Learn(t.Context(), nodes, values, replace); err != nil {
				t.Fatalf("Learn: %v", err)
			}
			w.learn(nodes, values, replace)
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
		w.check(t, hearing)
	}
}

// randomLessons returns lessons for some of the nodes.
func randomLessons(r *rand.Rand, n int) (nodes []uint32) {
	for _, k := range r.Perm(n)[:1+r.IntN(n)] {
		nodes = append(nodes, uint32(k))
	}
	return nodes
}

// check compares the nodes of a swarm, and the copies that groups have, with the nodes of the twin.
func (w *groupTwin) check(t *testing.T, a *Agents) {
	t.Helper()
	var nodes []uint32
	for k := range w.nodes {
		nodes = append(nodes, uint32(k))
	}
	if first, n := a.KnowledgeNodes(); first != 0 || n != len(nodes) {
		t.Fatalf("KnowledgeNodes: %d from %d on, want %d", n, first, len(nodes))
	}
	got, err := a.Knowledge(t.Context(), nodes)
	if err != nil || !slices.Equal(got.Units, slices.Concat(w.nodes...)) || !slices.Equal(got.Updates, w.updates) ||
		!slices.Equal(got.Ages, w.ages()) {
		t.Fatalf("Knowledge: %+v, %v, want %v, %v, %v", got, err, w.nodes, w.updates, w.ages())
	}
	units, updates := device.Of[float32](column(t, a, kernels.AgentVarKnowledge)),
		device.Of[uint64](column(t, a, kernels.AgentVarUpdates))
	for g, k := range w.nodeOf {
		if copied := units[g*w.told.Width:][:w.told.Width]; !slices.Equal(copied, w.nodes[k]) ||
			updates[g] != w.updates[k] {
			t.Fatalf("group %d has node %d as %v, %d updates, want %v, %d", g, k, copied, updates[g], w.nodes[k],
				w.updates[k])
		}
	}
}

// TestAttention: weights equal a softmax of scaled dot products, as long as they are above 2^-16 of
// the largest possible weight.
func TestAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(26, 63))
	for range 2000 {
		w := groupTwin{told: cells.Told{
			Merge: kernels.AgentMergeAttention, Width: 1 + r.IntN(kernels.AgentMostNode),
			Focus: math.Exp2(8*r.Float64() - 4),
		}}
		units, node, x := make([]float32, w.told.Width), make([]float32, w.told.Width), 0.0
		for k := range units {
			units[k], node[k] = 2*r.Float32()-1, 2*r.Float32()-1
			x += math.Abs(float64(node[k])) - float64(node[k])*float64(units[k])
		}
		scale := w.told.Focus / math.Sqrt(float64(w.told.Width))
		got, want := w.weight(units, node), 65536*math.Exp(-x*scale)
		// The error of exp is 2e-4, and units of nodes are rounded to 2^-12, twice.
		if most := 1 + want*(2e-4+scale*float64(w.told.Width)/4096); math.Abs(got-want) > most || got < 1 {
			t.Fatalf("%+v, %v and %v: weight %v, want %v to %v", w.told, units, node, got, want, most)
		}
	}
}

// TestTellRefused: invalid nodes and values are refused.
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
		{Decision: 0, Node: -1, Merge: 4},
		{Decision: 0, Node: -1, By: 1},
		{Decision: -1, Node: 0, Width: 1, By: 3},
		{Decision: -1, Node: 0, Width: 1, By: 1, Nodes: 2},
		{Decision: -1, Node: 0, Width: 1, By: 2},
		{Decision: -1, Node: 0, Width: 1, Merge: 3},
		{Decision: -1, Node: 0, Width: 1, Merge: 3, Focus: 16.5},
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

// TestNodesRefused: nodes that the groups of a swarm or of a shard do not have are refused, and so
// are values that nodes do not take, which change nothing.
func TestNodesRefused(t *testing.T) {
	d := openNamed(t, "host")
	with := func(nodes int) *cells.Addressed {
		cell, err := address(t, "gru", nil, 5, 2, 2).Hearing(2)
		if err == nil {
			cell, err = cell.Telling(cells.Told{Decision: -1, Node: 0, Width: 2, Nodes: nodes})
		}
		if err != nil {
			t.Fatalf("Telling: %v", err)
		}
		return cell
	}
	if _, err := New(d, with(13), 60, Options{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("13 nodes of 12 groups: error %v, want an ErrInvalid", err)
	}
	for _, c := range []struct {
		nodes, first, groups int
		ok                   bool
	}{{4, 6, 6, true}, {12, 5, 3, true}, {5, 7, 5, true}, {4, 5, 7, false}, {4, 6, 5, false}, {1, 0, 6, false}} {
		a, err := NewShard(d, pages.NewBudget(0, 0), with(c.nodes), int64(5*c.groups), c.first, 12, Options{})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: error %v", c, err)
		}
		if err == nil {
			err = a.Close()
		}
		if c.ok && err != nil {
			t.Errorf("%+v: Close: %v", c, err)
		}
	}
	a := makeAgents(t, d, with(4), 60, Options{})
	nan := float32(math.NaN())
	for _, c := range []struct {
		nodes  []uint32
		values []float32
	}{
		{[]uint32{4}, []float32{0, 0}},
		{[]uint32{1, 1}, []float32{0, 0, 0, 0}},
		{[]uint32{1}, []float32{0}},
		{[]uint32{0, 1}, []float32{0, 1, 0, nan}},
		{[]uint32{1}, []float32{0, 1.01}},
	} {
		if err := a.Learn(t.Context(), c.nodes, c.values, true); !errors.Is(err, ErrInvalid) {
			t.Errorf("Learn of %v: error %v, want an ErrInvalid", c, err)
		}
	}
	if k, err := a.Knowledge(t.Context(), []uint32{0, 1}); err != nil || slices.Max(k.Updates) > 0 {
		t.Errorf("Knowledge: %+v, %v, want no updates", k, err)
	}
}
