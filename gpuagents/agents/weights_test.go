package agents

import (
	"errors"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestSetWeights: agents whose weights change after they have heard something step as agents that
// began with the weights, and both as agents of the seed of the weights.
func TestSetWeights(t *testing.T) {
	ctx := t.Context()
	d := openNamed(t, *opentest.Name)
	of, err := cells.Address("gru", nil, 4, 2, 3, cells.Voting{})
	testkit.NoError(t, "cells.Address", err)
	cell, err := of.Hearing(2)
	testkit.NoError(t, "Hearing", err)
	table := cell.Weights(9)
	var states [][]float32
	for _, begin := range []func(a *Agents) error{
		func(a *Agents) error { return errors.Join(a.Hear(ctx, []float32{1, -2}), a.SetWeights(ctx, table)) },
		func(a *Agents) error { return errors.Join(a.SetWeights(ctx, table), a.Hear(ctx, []float32{1, -2})) },
		func(a *Agents) error { return a.Hear(ctx, []float32{1, -2}) },
	} {
		seed := uint64(9)
		if len(states) < 2 {
			seed = 4
		}
		a, err := New(d, cell, 8, Options{Seed: seed})
		testkit.NoError(t, "New", err)
		testkit.Close(t, a)
		testkit.NoError(t, "begin", begin(a))
		if _, err := a.Observe(ctx, []uint32{1, 5}, []float32{1, 2, -3, 4}); err != nil {
			t.Fatalf("Observe: %v, want no error", err)
		}
		if _, err := a.Tick(ctx, 3); err != nil {
			t.Fatalf("Tick: %v, want no error", err)
		}
		s, err := a.AgentStates(ctx, []uint32{0, 1, 2, 3, 4, 5, 6, 7})
		testkit.NoError(t, "AgentStates", err)
		states = append(states, s.State)
		if err := a.SetWeights(ctx, table[1:]); !errors.Is(err, ErrInvalid) {
			t.Errorf("SetWeights of a short table: %v, want an ErrInvalid", err)
		}
	}
	for i, s := range states[:2] {
		if !slices.Equal(s, states[2]) {
			t.Errorf("agents %d are in the states %v, want %v", i, s, states[2])
		}
	}
}
