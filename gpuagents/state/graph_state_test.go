package state

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// graphText is an epidemic of three pages of testPage.
const graphText = "name: x\naddressed: agent\nagents: 9600\ncell: {kind: sir, params: {infection: 0.2}}\n" +
	"neighbours: {ring: {reach: 3, rewire: 0.1}}\nseed: 7\n"

// TestGraphState applies a log to an epidemic in one process, and in processes that end and go on
// from a checkpoint, with replays of the rest of the log. They agree, nobody is lost, and nobody
// becomes susceptible again.
func TestGraphState(t *testing.T) {
	d, r, disk := openNamed(t, *opentest.Name), rand.New(rand.NewPCG(4, 3)), newDisk()
	plain := openPaged(t, d, nil, graphText)
	testkit.Close(t, plain)
	s := openStored(t, d, disk, graphText)
	if s.Info().Digest != plain.Info().Digest || s.Info().Cell != "sir" || s.Info().Agents != 9600 {
		t.Errorf("%+v and %+v", s.Info(), plain.Info())
	}
	old, wasTick := make([]byte, 9600), false
	for i := range 30 {
		entry := func(f func(s State) []byte) { s.applyBoth(plain, f) }
		wasTick = false
		switch k := r.IntN(5); {
		case i == 0 || k < 1:
			ids, to := make([]uint32, 1+r.IntN(50)), []byte{1}
			for i := range ids {
				ids[i] = uint32(r.IntN(9600))
			}
			entry(func(s State) []byte { return mustApply(t, s, swarms.EntryObserve, alive(to, ids...)).Data })
		case k < 3:
			wasTick = true
			n := 1 + r.IntN(9)
			entry(func(s State) []byte {
				a := mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: n})
				if got := a.Ticked; got.Stepped != uint64(n)*9600 || got.Tally[0]+got.Tally[1]+got.Tally[2] != 9600 {
					t.Fatalf("%+v", got)
				}
				return a.Data
			})
		case k == 3:
			s.checkpoint()
		default:
			s.restart()
		}
		got := gridStates(t, s)
		if !slices.Equal(got, gridStates(t, plain)) {
			t.Fatal("the epidemics differ")
		}
		for id, state := range got {
			if wasTick && (state < old[id] || state > 2) {
				t.Fatalf("agent %d in state %d was in %d", id, state, old[id])
			}
		}
		old = got
	}
	var counts [3]int
	for _, state := range old {
		counts[state]++
	}
	if counts[1]+counts[2] < 500 {
		t.Errorf("%d agents in each state: too few for a comparison", counts)
	}
	s.end()
}

// TestGraphOfFile: agents hear the agents that a file names, in one direction or in both.
func TestGraphOfFile(t *testing.T) {
	for directed, want := range map[string][]byte{"false": {2, 1, 1, 0}, "true": {2, 1, 0, 0}} {
		text := "name: x\naddressed: agent\ncell: {kind: sir, params: {infection: 1, recovery: 1}}\n" +
			"neighbours: {graph: a.csv, directed: " + directed + "}\n"
		files := fstest.MapFS{"a.csv": {Data: []byte("from,to\n0,1\n2,0\n1,3\n")}}
		spec, err := swarm.ParseIn(files, "a.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		spec.PageSize = testPage
		s, err := newWhole(openHost(t), nil, spec, spec.Groups())
		if err != nil {
			t.Fatal(err)
		}
		mustApply(t, s, swarms.EntryObserve, alive([]byte{1}, 0))
		mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1})
		if got := gridStates(t, s); !slices.Equal(got, want) {
			t.Errorf("directed %s: %d, want %d", directed, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGraphRefuses: what an epidemic does not take is refused with the cure, and changes nothing.
func TestGraphRefuses(t *testing.T) {
	s := closed(t, openPaged(t, openHost(t), nil, graphText))
	observe := func(id uint32, f float32) []byte {
		return encoded(t, &batch.AgentObservations{Agent: []uint32{id}, Features: []float32{f}, Width: 1})
	}
	refusesAll(t, s, []refusal{
		{swarms.EntryObserve, observe(9600, 1), "observation 0 is for agent 9600 of 9600"},
		{
			swarms.EntryObserve, observe(1, 3),
			"observation 0: agent 1 has the state 3: use 0 for susceptible, 1 for infected or 2 for recovered",
		},
		{swarms.EntryObserve, observe(1, 0.5), "observation 0: agent 1 has the state 0.5"},
		{swarms.EntryObserve, observe(1, -1), "observation 0: agent 1 has the state -1"},
		{swarms.EntryObserve, observe(1, float32(math.NaN())), "observation 0: agent 1 has the state NaN"},
		{swarms.EntryQuery, []byte(`{"v":1,"groups":[1]}`), "query: groups on a graph do not vote"},
		{swarms.EntryVote, []byte(`{"v":1,"round":1}`), "vote: agents on a graph do not vote"},
		{swarms.EntryFuse, []byte(`{"v":1,"by":"all"}`), "fuse: agents on a graph have no embeddings"},
	})
}

// TestGraphRoom: links that the device has no room for are refused with the cure.
func TestGraphRoom(t *testing.T) {
	spec, err := swarm.Parse("test.yaml", []byte("name: x\naddressed: agent\nagents: 16777216\ncell: {kind: sir}\n"+
		"neighbours: {random: {degree: 1000000}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = newWhole(openHost(t), nil, spec, spec.Groups())
	var refused *jobs.Error
	if !errors.As(err, &refused) || refused.Code != jobs.CodeDevice ||
		!strings.Contains(refused.Message, "16777216000000 links takes 67108868194508 bytes") {
		t.Errorf("16 trillion links: %v, want a refusal", err)
	}
}

// TestGraphCompute: expressions count the agents in a state.
func TestGraphCompute(t *testing.T) {
	s := closed(t, openPaged(t, openHost(t), nil, graphText))
	mustApply(t, s, swarms.EntryObserve, alive([]byte{1}, 1, 2, 3, 9000))
	a := mustApply(t, s, swarms.EntryCompute, swarms.Compute{Version: jobs.Version, Text: "sum(state == 1)"})
	got, err := swarms.DecodeComputed(a.Data)
	if err != nil || got.Outputs[0].Bits[0] != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, vars := Variables(s); len(vars) == 0 || vars[0].Name != "state" {
		t.Errorf("the variables are %+v", vars)
	}
}

// spikingText is a network of three pages of testPage.
const spikingText = "name: x\naddressed: agent\nagents: 9600\n" +
	"cell: {kind: lif, params: {noise: 0.3, inhibitory: 0.2}}\nagents_per_group: 100\nneighbours: {random: {degree: " +
	"20}}\nfeatures: [current]\nseed: 7\n"

// izhikevichText is a specification with the cell izhikevich.
const izhikevichText = "name: x\naddressed: agent\nagents: 9600\n" +
	"cell: {kind: izhikevich, params: {noise: 9, inhibitory: 0.2}}\nagents_per_group: 80\nneighbours: {random: " +
	"{degree: 20}}\nfeatures: [current]\nseed: 7\n"

// TestSpikingState: a network that goes on from a checkpoint in another process, with a replay of
// the rest of the log, is the same as one that does not, to the spikes and potentials.
func TestSpikingState(t *testing.T) {
	for _, text := range []string{spikingText, izhikevichText} {
		testSpikingState(t, text)
		testSpikingState(t, strings.Replace(text, "{degree: 20}", "{degree: 20, delay: [1, 20]}", 1))
		testSpikingState(t, strings.Replace(text, "{degree: 20}", "{degree: 20, delay: 3}", 1))
	}
}

func testSpikingState(t *testing.T, text string) {
	t.Helper()
	d, disk := openNamed(t, *opentest.Name), newDisk()
	plain, store := openPaged(t, d, nil, text), disk.open(t)
	s := openPaged(t, d, pages.NewBudget(4<<20, 0), text)
	if err := s.Memory().Open(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	current := float32(0.3)
	if strings.Contains(text, "izhikevich") {
		current = 15
	}
	query := func(s State) []byte {
		q := swarms.Query{Version: jobs.Version}
		for i := range uint32(9600) {
			q.Agents = append(q.Agents, i)
		}
		return mustApply(t, s, swarms.EntryQuery, q).Data
	}
	apply := func(s State, seed uint64) (answers []byte) {
		r := rand.New(rand.NewPCG(6, seed))
		o := &batch.AgentObservations{Width: 1}
		for range 500 {
			o.Agent, o.Features = append(o.Agent, r.Uint32N(9600)), append(o.Features, r.Float32()*current)
		}
		a := mustApply(t, s, swarms.EntryObserve, o)
		if got, err := batch.DecodeAgentDecisions(a.Data); err != nil || got.Vote[3] != kernels.AgentNoVote {
			t.Fatalf("%+v, %v, want no votes", got, err)
		}
		b := mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1 + r.IntN(20)})
		if b.Ticked.Tally[0]+b.Ticked.Tally[1] != 9600 || b.Ticked.Tally[1] == 0 {
			t.Fatalf("%+v", b.Ticked)
		}
		return slices.Concat(a.Data, b.Data)
	}
	for seed := range uint64(6) {
		if seed == 3 {
			if err := s.Memory().Checkpoint(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(apply(s, seed), apply(plain, seed)) {
			t.Fatal("the answers differ")
		}
	}
	if err := errors.Join(s.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	s, store = openPaged(t, d, pages.NewBudget(4<<20, 0), text), disk.open(t)
	if err := errors.Join(s.Memory().Open(t.Context(), store), s.Restored(t.Context())); err != nil {
		t.Fatal(err)
	}
	for seed := uint64(3); seed < 6; seed++ {
		apply(s, seed)
	}
	if !slices.Equal(query(s), query(plain)) {
		t.Error("the networks differ")
	}
	_, err := s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryObserve, Data: encoded(t, &batch.AgentObservations{
		Agent: []uint32{5}, Features: []float32{float32(math.Inf(-1))}, Width: 1,
	})})
	if err == nil || !strings.Contains(err.Error(), "agent 5 has the current -Inf: use a number from -1e6 to 1e6") {
		t.Errorf("an infinite current: %v", err)
	}
	if err := errors.Join(s.Close(), plain.Close(), store.Close()); err != nil {
		t.Error(err)
	}
}
