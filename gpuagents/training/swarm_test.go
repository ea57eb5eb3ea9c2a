package training

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// cellOf is the cell of a swarm with a shape, of groups of one agent.
func cellOf(t testing.TB, s Shape) *cells.Addressed {
	t.Helper()
	candidates := max(2, s.Candidates)
	c, err := cells.Address("gru", map[string]float64{"hidden": float64(s.Hidden)}, 1, s.Inputs, candidates,
		cells.Voting{Rule: kernels.RuleMajority})
	testkit.NoError(t, "Address", err)
	if s.Rows > 0 {
		c, err = c.Embedding(s.Rows)
		testkit.NoError(t, "Embedding", err)
	}
	if s.Items > 0 {
		c, err = c.Asking(s.Items)
		testkit.NoError(t, "Asking", err)
	}
	return c
}

// TestSwarm: a swarm with the weights of a training has its tables, its states and, with items, its
// predictions as scores, to the bit.
func TestSwarm(t *testing.T) {
	for _, hidden := range []int{5, 16, 32} {
		for _, s := range shapes(hidden) {
			o := Options{Shape: s, Window: 30, Seed: uint64(hidden), Adam: Adam{Rate: 0.05}}
			tr := openTrainer(t, o, nil)
			train(t, tr, 0, 6)
			w, err := tr.Weights(t.Context())
			testkit.NoError(t, "Weights", err)
			cell := cellOf(t, s)
			table, err := cell.Table(w)
			testkit.NoError(t, "Table", err)
			compareTables(t, tr, cell, table)

			b := randomBatch(rand.New(rand.NewPCG(3, 1)), s, 12, 20, 0.1)
			for n := range b.Lengths {
				b.Lengths[n] = int32(b.Moments)
			}
			states := make([]float32, b.Sequences*s.Hidden)
			predictions := make([]float32, b.Sequences*b.Moments*s.elements())
			_, err = tr.Evaluate(t.Context(), b, states, predictions)
			testkit.NoError(t, "Evaluate", err)

			a, err := agents.New(opentest.Device(t), cell, int64(b.Sequences), agents.Options{Weights: table})
			testkit.NoError(t, "agents.New", err)
			testkit.Close(t, a)
			ids := make([]uint32, b.Sequences)
			for i := range ids {
				ids[i] = uint32(i)
			}
			for at := range b.Moments {
				first := at * b.Sequences
				values, asked := b.Inputs, []int32(nil)
				if s.Rows > 0 {
					values = nil
					for _, number := range b.Numbers[first:][:b.Sequences] {
						values = append(values, float32(number))
					}
				} else {
					values = values[first*s.Inputs:][:b.Sequences*s.Inputs]
				}
				if s.Items > 0 {
					asked = b.Items[first:][:b.Sequences]
				}
				out, _, err := a.ObserveParts(t.Context(), &gpubatch.Splitter{}, ids, values, asked,
					agents.Launches{Unknown: true})
				testkit.NoError(t, "ObserveParts", err)
				p := predictions[first*s.elements():][:b.Sequences*s.elements()]
				if s.Items > 0 && string(device.Bytes(out.Scores)) != string(device.Bytes(p)) {
					t.Fatalf("%d units, moment %d: scores %v, and predictions %v", hidden, at, out.Scores, p)
				}
				for n, vote := range out.Votes {
					if of := p[n*s.elements():][:s.elements()]; s.Items == 0 && of[vote] != slices.Max(of) {
						t.Fatalf("%d units, moment %d: agent %d votes %d with predictions %v", hidden, at, n, vote, of)
					}
				}
			}
			got, err := a.AgentStates(t.Context(), ids)
			testkit.NoError(t, "AgentStates", err)
			for n := range ids {
				of, want := got.State[n*got.Width:][:s.Hidden], states[n*s.Hidden:][:s.Hidden]
				if string(device.Bytes(of)) != string(device.Bytes(want)) {
					t.Fatalf("%d units: agent %d has the units %v, in training %v", hidden, n, of, want)
				}
			}
		}
	}
}

// compareTables compares the tables on the device of a trainer with the ones of a cell.
func compareTables(t *testing.T, tr *Trainer, cell *cells.Addressed, table []uint32) {
	t.Helper()
	s, P := tr.o.Shape, tr.o.class()
	got := make([]uint32, tableWords(P))
	testkit.NoError(t, "Read", tr.Model.gateTable.Read(0, device.Bytes(got)))
	votes := kernels.AgentTableReadoutBias(P)
	weights := kernels.AgentTableWeights(P)
	same := func(what string, got, want []uint32) {
		if !slices.Equal(got, want) {
			t.Errorf("%+v: the table of %s differs", s, what)
		}
	}
	same("logistic coefficients", got[:5], table[:5])
	same("biases", got[kernels.AgentTableBias:votes], table[kernels.AgentTableBias:votes])
	same("gates", got[weights:], table[weights:len(got)])
	if s.Items == 0 {
		return
	}
	first, words := cell.ItemWords()
	items := make([]uint32, words)
	testkit.NoError(t, "Read", tr.Model.readoutTable.Read(0, device.Bytes(items)))
	same("item coefficients", items[:5], table[first:][:5])
	same("items", items[8:], table[first+8:first+words])
}
