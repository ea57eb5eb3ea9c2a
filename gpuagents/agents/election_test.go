package agents

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestElect: bids and decisions equal a loop over all agents, for agents of several cells, groups,
// pages, launch shapes and numbers of frames, and for a swarm and a shard.
func TestElect(t *testing.T) {
	d, r := openNamed(t, *opentest.Name), rand.New(rand.NewPCG(61, 2))
	for _, c := range []struct {
		cell                        string
		group, features, candidates int
		n                           int64
	}{
		{"leaky", 1, 2, 2, 1},
		{"leaky", 7, 2, 2, 7 * 3000},
		{"gru", 1, 3, 16, 4001},
		{"gru", 64, 2, 5, 64 * 300},
		{"gru", 15, 2, 3, 15 * 500},
	} {
		for _, frames := range []int64{0, 3} {
			t.Run(fmt.Sprint(c, frames), func(t *testing.T) {
				cell := address(t, c.cell, nil, c.group, c.features, c.candidates)
				first, groups := 1000, int(c.n)/c.group
				shape := device.Geometry{Grid: 1 + r.IntN(9), Block: 32 * (1 + r.IntN(4))}
				a, err := NewShard(d, pages.NewBudget(frames*8192, 1<<30), cell, c.n, first, first+groups+5, Options{
					Seed: 9, PageBytes: 8192, Geometry: shape,
				})
				testkit.NoError(t, "NewShard", err)
				defer a.Close()
				testkit.NoError(t, "Open", a.memory.Open(t.Context(), nil))
				checkElection(t, a, 1) // nobody votes
				for round := range uint64(4) {
					ids, inputs := randomObservations(r, int(c.n), 1+r.IntN(min(int(c.n), 200)), c.features)
					if _, err := a.Observe(t.Context(), ids, inputs); err != nil {
						t.Fatalf("Observe: %v, want no error", err)
					}
					checkElection(t, a, round)
				}
				if _, err := a.Tick(t.Context(), 2); err != nil {
					t.Fatalf("Tick: %v, want no error", err)
				}
				checkElection(t, a, 5)
				before, err := a.Bids(t.Context(), 5, consensus.Leader{})
				testkit.NoError(t, "Bids", err)
				base, end := uint64(first*c.group), uint64(first*c.group)+uint64(c.n)
				for _, agent := range []uint64{0, base - 1, base, (base + end) / 2, end - 1, end} {
					e, err := a.Bids(t.Context(), 5, consensus.Leader{Agent: agent, Term: 4, Elected: true})
					testkit.NoError(t, "Bids", err)
					own := 0
					for c, bid := range e.Bids {
						if bid.Term == 4 && bid.Agent == agent {
							own++
						} else if bid != before.Bids[c] {
							t.Errorf("incumbent %d: bid %+v, want %+v", agent, bid, before.Bids[c])
						}
					}
					checkDecision(t, a, e, consensus.Leader{Agent: agent, Term: 4, Elected: true})
					if want := agent >= base && agent < end; (own == 1) != want {
						t.Errorf("incumbent %d of %d to %d bids %d times", agent, base, end-1, own)
					}
				}
			})
		}
	}
}

// checkDecision compares the decisions of Elect in round 5 with an election of all agents.
func checkDecision(t *testing.T, a *Agents, e consensus.Election, incumbent consensus.Leader) {
	t.Helper()
	for _, kind := range []consensus.Kind{consensus.Plurality, consensus.Majority, consensus.Unanimous} {
		rule := consensus.Rule{Kind: kind}
		want, err := e.Decide(rule)
		testkit.NoError(t, "Decide", err)
		want.Round = 5
		got, err := a.Elect(t.Context(), rule, 5, incumbent)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v, incumbent %+v: %+v, error %v, want %+v", kind, incumbent, got, err, want)
		}
	}
}

// TestElectAfterFailure: agents between two steps elect nobody.
func TestElectAfterFailure(t *testing.T) {
	a := makeAgents(t, openNamed(t, "host"), address(t, "leaky", nil, 5, 2, 2), 10, Options{})
	a.inconsistent = gpubatch.ErrDevice
	if _, err := a.Bids(t.Context(), 1, consensus.Leader{}); !errors.Is(err, gpubatch.ErrDevice) {
		t.Errorf("Bids: error %v, want an ErrDevice", err)
	}
	if _, err := a.Elect(t.Context(), consensus.Rule{}, 1, consensus.Leader{}); !errors.Is(err, gpubatch.ErrDevice) {
		t.Errorf("Elect: error %v, want an ErrDevice", err)
	}
}
