// Consensus compares agents that hear the decision of their swarm with the same agents that hear
// nothing. All agents observe one signal through their own noise, and vote for what it is. The
// signal changes from time to time.
//
//	go run -C examples ./consensus
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

const (
	size  = 400 // agents
	steps = 600 // observations of each agent
	hold  = 150 // steps for which the signal stays the same
	level = 0.3 // the signal is level or -level; the noise has a deviation of 1
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run prints which part of the votes of each swarm was right.
func run(ctx context.Context, w io.Writer) error {
	alone, err := share(ctx, false)
	if err != nil {
		return err
	}
	together, err := share(ctx, true)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "right votes of agents that hear nothing:      %.1f %%\n"+
		"right votes of agents that hear the decision: %.1f %%\n", 100*alone, 100*together)
	return err
}

// share returns the part of all votes that was right. The observations are the same for both.
func share(ctx context.Context, hear bool) (right float64, err error) {
	d, err := cuda.Open(ctx, "host", cuda.Options{})
	if err != nil {
		return 0, err
	}
	defer d.Close()
	cell, err := cells.Address("gru", map[string]float64{"hidden": 1}, size, 1, 2, cells.Voting{})
	if err == nil {
		cell, err = cell.Hearing(1)
	}
	if err != nil {
		return 0, err
	}
	weights, err := cell.Table(network())
	if err != nil {
		return 0, err
	}
	a, err := agents.New(d, cell, size, agents.Options{Weights: weights})
	if err != nil {
		return 0, err
	}
	defer a.Close()
	r := rand.New(rand.NewPCG(1, 2))
	ids, seen := make([]uint32, size), make([]float32, size)
	for i := range ids {
		ids[i] = uint32(i)
	}
	heard := []float32{undecided}
	for step := range steps {
		signal := step / hold % 2
		for i := range seen {
			seen[i] = float32(level*float64(2*signal-1) + r.NormFloat64())
		}
		if err := a.Hear(ctx, heard); err != nil {
			return 0, err
		}
		if _, err := a.Observe(ctx, ids, seen); err != nil {
			return 0, err
		}
		of, err := a.Vote(ctx, consensus.Rule{Kind: consensus.Majority}, uint64(step+1), false)
		if err != nil {
			return 0, err
		}
		right += float64(of.Counts[signal]) / (size * steps)
		if heard[0] = undecided; hear && of.Winner != consensus.None {
			heard[0] = float32(of.Winner+1) / 2 // as hear: [decision] has it
		}
	}
	return right, nil
}

// undecided is half way between what is heard of the two candidates, 0.5 and 1.
const undecided = 0.75

// network returns a unit that is a running mean of what an agent sees and hears. Its sign is the
// vote: below 0 for candidate 0, above 0 for candidate 1.
func network() cells.GRUWeights {
	const see, trust, keep = 0.5, 0.45, 1.4 // keep: the unit holds 0.8 of itself in a step
	return cells.GRUWeights{
		InputHidden:  []float32{0, 0, 0, 0, see, trust}, // by gate (r, z, n): of the signal, of the decision
		HiddenHidden: []float32{0, 0, 0},
		InputBias:    []float32{0, keep, -undecided * trust},
		HiddenBias:   []float32{0, 0, 0},
		Readout:      []float32{-1, 1},
		ReadoutBias:  []float32{0, 0},
	}
}
