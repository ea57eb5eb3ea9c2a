package agents_test

import (
	"context"
	"fmt"
	"log"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// Two groups of four neurons; one neuron gets a current that makes it spike in every second step.
func ExampleAgents() {
	ctx := context.Background()
	d, err := cuda.Open(ctx, "host", cuda.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	cell, err := cells.Address("leaky", map[string]float64{"decay": 0.5}, 4, 1, 2, cells.Voting{})
	if err != nil {
		log.Fatal(err)
	}
	agents, err := agents.New(d, cell, 8, agents.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer agents.Close()
	out, err := agents.Observe(ctx, []uint32{5}, []float32{0.8})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("observed:", out.Stepped, "vote", out.Votes[0], "tally", out.Tally)
	for range 3 {
		report, err := agents.Tick(ctx, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("tick:", report.Stepped, "tally", report.Tally)
	}
	// Output:
	// observed: 1 vote 0 tally [1 0]
	// tick: 8 tally [7 1]
	// tick: 8 tally [8 0]
	// tick: 8 tally [7 1]
}
