package swarmclient_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// A program creates a swarm of 1,000 leaky neurons, gives two of them currents, and steps all of
// them. In a cluster the server and the GPU agent are separate processes; here they are part of the
// program.
func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// agent 7: spike
	// agent 8: quiet
	// 1000 steps; 1 agents vote for spike
	// agent 7 holds 0.5
	// round 1: quiet
}

func run(ctx context.Context) error {
	url, stop, err := cluster(ctx)
	if err != nil {
		return err
	}
	defer stop()

	conn, err := natsq.Connect(ctx, natsconn.Options{URL: url, Name: "example"})
	if err != nil {
		return err
	}
	defer conn.Close()
	client, err := swarmclient.New(swarmclient.Options{
		Swarms: conn.Swarms, Agents: conn.Registry, Jobs: conn.Queue, Timeout: time.Minute,
	})
	if err != nil {
		return err
	}
	spec, err := swarm.Parse("neurons.yaml", []byte(`
name: neurons
addressed: agent
agents: 1000
agents_per_group: 100
shards: 2
page_size: 64KiB
cell: {kind: leaky, params: {decay: 0.9, threshold: 1}}
features: [current]
vote: {candidates: [quiet, spike], rule: majority}
`))
	if err != nil {
		return err
	}
	neurons, err := client.Create(ctx, spec, nil)
	if err != nil {
		return err
	}
	currents := &batch.AgentObservations{Agent: []uint32{7, 8}, Width: 1, Features: []float32{1.5, 0.25}}
	if _, err := neurons.Observe(ctx, currents, func(d *batch.AgentDecisions) error {
		for i, id := range d.Agent {
			fmt.Printf("agent %d: %s\n", id, neurons.Candidate(int(d.Vote[i])))
		}
		return nil
	}); err != nil {
		return err
	}
	states, err := neurons.AgentStates(ctx, []uint32{7})
	if err != nil {
		return err
	}
	held := states.State[0]
	ticked, err := neurons.Tick(ctx, 1)
	if err != nil {
		return err
	}
	fmt.Printf("%d steps; %d agents vote for spike\n", ticked.Stepped, ticked.Tally[1])
	fmt.Printf("agent 7 holds %g\n", held)
	vote, err := neurons.Vote(ctx, swarms.Vote{Rule: swarms.RuleMajority})
	if err != nil {
		return err
	}
	fmt.Printf("round %d: %s\n", vote.Round, neurons.Candidate(*vote.Winner))
	return client.Delete(ctx, neurons.ID(), nil)
}

// cluster starts a NATS server and a GPU agent without a GPU.
func cluster(ctx context.Context) (url string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "exoswarm-example-")
	if err != nil {
		return "", nil, err
	}
	srv, err := server.Start(ctx, server.Options{Dir: dir})
	if err != nil {
		return "", nil, err
	}
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: srv.URL(), Name: "gpuagent"})
	if err != nil {
		return "", nil, err
	}
	dev, err := cuda.Open(ctx, "host", cuda.Options{})
	if err != nil {
		return "", nil, err
	}
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "gpuagent", Device: dev, Queue: conn.Swarms, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return "", nil, err
	}
	return srv.URL(), func() {
		agent.Stop()
		_ = dev.Close()
		conn.Close()
		srv.Close()
		_ = os.RemoveAll(dir)
	}, nil
}
