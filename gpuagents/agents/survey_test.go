package agents

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestSurvey: a Survey names the observations that are not the first of their agent, with how many
// are before them, and the pages of the agents that exist, whatever was surveyed before.
func TestSurvey(t *testing.T) {
	const n = 20_000
	a := makeAgents(t, openNamed(t, "host"), address(t, "leaky", nil, 2, 1, 2), n, Options{PageBytes: 4 << 10})
	s := NewSurveyor(a)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		ids := make([]uint32, r.IntN(600))
		within := 1 + r.Uint32N(n+1000)
		for i := range ids {
			ids[i] = r.Uint32N(within)
		}
		got := s.Survey(ids)
		want := &Survey{n: len(ids)}
		before, pages := map[uint32]uint32{}, map[uint64]bool{}
		for i, id := range ids {
			if id >= n {
				continue
			}
			if before[id] > 0 {
				want.repeats = append(want.repeats, repeat{i, before[id]})
			}
			before[id]++
			pages[uint64(a.page(id))] = true
		}
		for page := range pages {
			want.pages = append(want.pages, page)
		}
		if slices.Sort(want.pages); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: the survey is %+v, want %+v", seed, got, want)
		}
	}
}

// TestSurveyed: observations after a Survey have the outcomes, the reports and the state of those
// after a Ranking, in host memory and through memory of the device, with agents that are there
// several times, ids of no agent and inputs that are refused.
func TestSurveyed(t *testing.T) {
	const n, features = 20 * 60, 3
	cell, o := address(t, "gru", nil, 20, features, 4), Options{PageBytes: 16 << 10}
	a, other := makeAgents(t, openNamed(t, *opentest.Name), cell, n, o), makeAgents(t, openNamed(t, "host"), cell, n, o)
	surveyor := NewSurveyor(a)
	SurveyFrom(a, 1)
	r := rand.New(rand.NewPCG(21, 12))
	for round := range 24 {
		if round == 12 {
			testkit.NoError(t, "a.StageAll", a.StageAll())
		}
		ids, inputs := randomObservations(r, n, 1+r.IntN(n/4), features)
		spoil(r, n, ids, inputs, 30, 5)
		want, err := other.Observe(t.Context(), ids, inputs)
		testkit.NoError(t, "other.Observe", err)
		var got Outcome
		if round%3 == 0 { // as batches do
			got, _, err = a.ObserveParts(t.Context(), &gpubatch.Splitter{}, ids, inputs, nil,
				Launches{Survey: surveyor.Survey(ids)})
			got.Report = want.Report
		} else {
			got, err = a.Observe(t.Context(), ids, inputs)
		}
		if err != nil {
			t.Fatalf("round %d: %v, want no error", round, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d: the outcomes differ from a Ranking: %+v, want %+v", round, got.Report, want.Report)
		}
		if !bytes.Equal(pagesOf(t, a, a.pages), pagesOf(t, other, other.pages)) {
			t.Fatalf("round %d: the state differs from a Ranking", round)
		}
		if !slices.Equal(a.memory.Dirty(), other.memory.Dirty()) ||
			!slices.Equal(a.memory.Made(), other.memory.Made()) {
			t.Fatalf("round %d: other pages are made or changed", round)
		}
	}
	if a.ranking != nil {
		t.Error("a Ranking has looked at observations")
	}
}

// TestSurveyedPart: a part with all observations of an entry is in the order of groups, and its
// Survey is another than the entry's.
func TestSurveyedPart(t *testing.T) {
	const features = 2
	cell, d := address(t, "gru", nil, 20, features, 3), openNamed(t, *opentest.Name)
	a, other := makeAgents(t, d, cell, 40, Options{}), makeAgents(t, openNamed(t, "host"), cell, 40, Options{})
	SurveyFrom(a, 1)
	r := rand.New(rand.NewPCG(8, 9))
	var ids []uint32
	for range 39 { // of one group, many several times
		ids = append(ids, 20+r.Uint32N(20))
	}
	ids = append(ids, 3) // of the group before it
	inputs := make([]float32, features*len(ids))
	for i := range inputs {
		inputs[i] = 2*r.Float32() - 1
	}
	want, err := other.Observe(t.Context(), ids, inputs)
	testkit.NoError(t, "other.Observe", err)
	got, _, err := a.ObserveParts(t.Context(), &gpubatch.Splitter{Reduced: true}, ids, inputs, nil,
		Launches{Survey: NewSurveyor(a).Survey(ids)})
	testkit.NoError(t, "a.ObserveParts", err)
	if !slices.Equal(got.Votes, want.Votes) || !slices.Equal(got.Decisions, want.Decisions) {
		t.Errorf("votes %v and decisions %v, want %v and %v", got.Votes, got.Decisions, want.Votes, want.Decisions)
	}
	all := make([]uint32, 40)
	for i := range all {
		all[i] = uint32(i)
	}
	one, err := a.AgentStates(t.Context(), all)
	testkit.NoError(t, "AgentStates", err)
	two, err := other.AgentStates(t.Context(), all)
	testkit.NoError(t, "AgentStates", err)
	if !slices.Equal(one.State, two.State) {
		t.Error("other states than after a Ranking")
	}
}
