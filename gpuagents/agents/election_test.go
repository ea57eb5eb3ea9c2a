package agents

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// TestElect: elections in agents of several cells, groups, pages, launch shapes and numbers of frames,
// of a swarm or of a shard, are those of a loop over all agents.
func TestElect(t *testing.T) {
	d, r := openNamed(t, *deviceName), rand.New(rand.NewPCG(61, 2))
	for _, c := range []struct {
		cell                        string
		group, features, candidates int
		n                           int64
	}{
		{"leaky", 1, 2, 2, 1}, {"leaky", 7, 2, 2, 7 * 3000}, {"gru", 1, 3, 16, 4001}, {"gru", 64, 2, 5, 64 * 300},
		{"gru", 15, 2, 3, 15 * 500},
	} {
		for _, frames := range []int64{0, 3} {
			t.Run(fmt.Sprint(c, frames), func(t *testing.T) {
				cell := address(t, c.cell, nil, c.group, c.features, c.candidates)
				first, groups := 1000, int(c.n)/c.group
				a, err := NewShard(d, pages.NewBudget(frames*8192, 1<<30), cell, c.n, first, first+groups+5, Options{
					Seed: 9, PageBytes: 8192, Geometry: device.Geometry{Grid: 1 + r.IntN(9), Block: 32 * (1 + r.IntN(4))},
				})
				if err != nil {
					t.Fatalf("NewShard: %v, want no error", err)
				}
				defer a.Close()
				if err := a.memory.Open(t.Context(), nil); err != nil {
					t.Fatalf("Open: %v, want no error", err)
				}
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
				before, err := a.Elect(t.Context(), 5, consensus.Leader{})
				if err != nil {
					t.Fatalf("Elect: %v, want no error", err)
				}
				base := uint64(first * c.group)
				for _, agent := range []uint64{0, base - 1, base, base + uint64(c.n)/2, base + uint64(c.n) - 1, base + uint64(c.n)} {
					e, err := a.Elect(t.Context(), 5, consensus.Leader{Agent: agent, Term: 4, Elected: true})
					if err != nil {
						t.Fatalf("Elect: %v, want no error", err)
					}
					own := 0
					for c, bid := range e.Bids {
						if bid.Term == 4 && bid.Agent == agent {
							own++
						} else if bid != before.Bids[c] {
							t.Errorf("incumbent %d: bid %+v, want %+v", agent, bid, before.Bids[c])
						}
					}
					if want := agent >= base && agent < base+uint64(c.n); (own == 1) != want {
						t.Errorf("incumbent %d bids %d times, want it only of %d agents from %d on", agent, own, c.n, base)
					}
				}
			})
		}
	}
}

// TestElectAfterFailure: agents between two steps elect nobody.
func TestElectAfterFailure(t *testing.T) {
	a := makeAgents(t, openNamed(t, "host"), address(t, "leaky", nil, 5, 2, 2), 10, Options{})
	a.inconsistent = fault.ErrDevice
	if _, err := a.Elect(t.Context(), 1, consensus.Leader{}); !errors.Is(err, fault.ErrDevice) {
		t.Errorf("error %v, want an ErrDevice", err)
	}
}
