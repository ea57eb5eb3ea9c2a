package agents

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// TestGather: gathered states equal states that are read one by one, for many agents, some of them
// repeated and some on pages that were never addressed.
func TestGather(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct {
		cell     string
		values   map[string]float64
		features int
	}{
		{"leaky", nil, 2},
		{"gru", map[string]float64{"hidden": 7}, 3},
		{"gru", map[string]float64{"hidden": 12, "bf16": 1}, 5},
	} {
		t.Run(fmt.Sprint(c.cell, c.values), func(t *testing.T) {
			const n = 20 * 400
			a := makeAgents(t, openNamed(t, *opentest.Name), address(t, c.cell, c.values, 20, c.features, 2), n,
				Options{PageBytes: 16 << 10})
			ids, inputs := randomObservations(r, n/2, 1000, c.features)
			if _, err := a.Observe(t.Context(), ids, inputs); err != nil {
				t.Fatalf("a.Observe: %v, want no error", err)
			}
			for i := range ids {
				ids[i] = r.Uint32N(n)
			}
			got, err := a.AgentStates(t.Context(), ids)
			testkit.NoError(t, "a.AgentStates", err)
			if a.gathering.host == nil {
				t.Fatal("the device has not gathered the states")
			}
			want := &batch.AgentStates{Agent: ids, Width: got.Width}
			for _, id := range ids {
				one, err := a.AgentStates(t.Context(), []uint32{id})
				testkit.NoError(t, "a.AgentStates", err)
				want.Vote, want.State = append(want.Vote, one.Vote...), append(want.State, one.State...)
			}
			if !reflect.DeepEqual(got, want) {
				t.Error("other states than one by one")
			}
			if made := a.memory.Made(); made[len(made)-1] {
				t.Error("the question has made a page")
			}
		})
	}
}
