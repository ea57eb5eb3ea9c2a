// Program creates a swarm, feeds it two series, prints what is unusual, and asks the agents what
// they have learned. docs/tutorial-go.md explains it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"os/signal"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const spec = `
name: tutorial-go
groups: 2
agents_per_group: 32
features: [value]
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := os.Getenv("NATS_URL")
	if url == "" {
		url = "nats://127.0.0.1:4222"
	}
	if err := run(ctx, url, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run creates the swarm, uses it and deletes it.
func run(ctx context.Context, url string, out io.Writer) (err error) {
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: url, Name: "tutorial-go"})
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
	parsed, err := swarm.Parse("spec", []byte(spec))
	if err != nil {
		return err
	}
	series, err := client.Create(ctx, parsed, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Delete(context.WithoutCancel(ctx), series.ID(), nil)) }()

	// One observation of each group a minute. Number 450 of group 1 is a spike.
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	rows := &batch.Observations{Width: 1}
	for i := range 500 {
		for group := range 2 {
			value := math.Sin(float64(i)/5 + float64(group))
			if group == 1 && i == 450 {
				value = 40
			}
			at := begin.Add(time.Duration(i) * time.Minute)
			rows.Group = append(rows.Group, uint32(group))
			rows.Row = append(rows.Row, uint64(i+1))
			rows.Time = append(rows.Time, at.UnixNano())
			rows.Read = append(rows.Read, time.Now().UnixNano())
			rows.Features = append(rows.Features, float32(value))
			rows.Timestamp = append(rows.Timestamp, at.Format(time.RFC3339))
			rows.Value = append(rows.Value, value)
		}
	}
	_, err = series.ObserveGroups(ctx, rows, func(d *batch.Decisions) error {
		for i := range d.Len() {
			if name := series.Candidate(int(d.Decision[i])); name == "anomalous" {
				fmt.Fprintf(out, "group %d at %s: %s, value %g\n", d.Group[i], d.Timestamp[i], name, d.Value[i])
			}
		}
		return nil
	})
	if err != nil {
		return err
	}

	// What the agents of a group have learned, and one number about all agents.
	states, err := series.GroupVariables(ctx, []uint32{0, 1})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d groups, whose first variable is %s\n", len(states.Group), states.Vars[0].Name)
	fused, err := series.Fuse(ctx, swarms.Fuse{By: swarms.ByGroup})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d knowledge nodes of %d agents each\n", len(fused.Node), fused.Count[0])
	return nil
}
