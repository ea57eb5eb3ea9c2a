// Consensus-signal compares agents that decide together with the same agents, each for itself. All
// of them observe one signal, which changes from time to time, through their own noise. A rule of
// the swarm emits each change that they have decided:
//
//	exoswarm swarm create -f examples/consensus-signal/swarm.yaml
//	go run -C examples ./consensus-signal
//	exoswarm swarm emitted consensus-signal
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const (
	steps = 120 // observations of each agent
	hold  = 15  // steps for which the signal stays the same
)

func main() {
	url := flag.String("nats", "nats://127.0.0.1:4222", "URL of the NATS server")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: *url, Name: "consensus-signal"})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if err := run(ctx, conn, os.Stdout); err != nil {
		log.Print(err)
		conn.Close()
		os.Exit(1)
	}
}

// run shows the signal to the agents of a swarm that is there, and prints how often they are right.
func run(ctx context.Context, conn *natsq.Conn, w io.Writer) error {
	client, err := swarmclient.New(swarmclient.Options{Swarms: conn.Swarms, Agents: conn.Registry, Jobs: conn.Queue})
	if err != nil {
		return err
	}
	s, err := client.Open(ctx, "consensus-signal")
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 2))
	size := int(s.Spec().Agents)
	seen := &batch.AgentObservations{Agent: make([]uint32, size), Features: make([]float32, size), Width: 1}
	alone, together := 0, 0
	for step := range steps {
		signal := step / hold % 2 // 0 or 1; half way between is the threshold of the agents
		for i := range size {
			seen.Agent[i], seen.Features[i] = uint32(i), float32(signal)+float32(r.NormFloat64())
		}
		if _, err := s.Observe(ctx, seen, func(d *batch.AgentDecisions) error {
			for _, v := range d.Vote {
				if int(v) == signal {
					alone++
				}
			}
			return nil
		}); err != nil {
			return err
		}
		of, err := s.Vote(ctx, swarms.Vote{Rule: swarms.RuleMajority})
		if err != nil {
			return err
		}
		if of.Winner != nil && *of.Winner == signal {
			together++
		}
	}
	_, err = fmt.Fprintf(w,
		"right decisions of agents alone:    %.1f %%\nright decisions of agents together: %.1f %%\n",
		100*float64(alone)/float64(steps*size), 100*float64(together)/steps)
	return err
}
