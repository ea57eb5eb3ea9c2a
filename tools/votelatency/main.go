// Command votelatency measures the time of votes of a swarm over a running cluster, from the call
// to the decision, and of a question in turns with it:
//
//	exoswarm nats --data-dir nats &
//	gpuagent --nats nats://127.0.0.1:4222 --device cuda:0 &
//	exoswarm swarm create -f swarm.yaml --nats nats://127.0.0.1:4222
//	go run -C tools ./votelatency NAME
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func main() {
	url := flag.String("nats", "nats://127.0.0.1:4222", "URL of the NATS server")
	count := flag.Int("votes", 300, "votes, after 20 that are not measured")
	priority := flag.String("priority", swarms.PriorityElected, "who leads: elected, seeded or uniform")
	flag.Parse()
	if *count < 1 || flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run(ctx, *url, flag.Arg(0), *priority, *count); err != nil {
		log.Fatal("votelatency: ", err)
	}
}

// run measures and prints.
func run(ctx context.Context, url, name, priority string, count int) error {
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: url, Name: "votelatency"})
	if err != nil {
		return fmt.Errorf("connect to %s: %w", url, err)
	}
	defer conn.Close()
	client, err := swarmclient.New(swarmclient.Options{Swarms: conn.Swarms, Agents: conn.Registry, Jobs: conn.Queue})
	if err != nil {
		return err
	}
	s, err := client.Open(ctx, name)
	if err != nil {
		return err
	}
	if _, err := s.Tick(ctx, 1); err != nil { // so that all agents vote
		return err
	}
	const warm = 20
	var votes, questions []time.Duration
	for i := range warm + count {
		began := time.Now()
		if _, err := s.Vote(ctx, swarms.Vote{Priority: priority}); err != nil {
			return fmt.Errorf("vote %d: %w", i, err)
		}
		voted := time.Now()
		if _, err := s.Outcome(ctx); err != nil {
			return fmt.Errorf("question %d: %w", i, err)
		}
		if i >= warm {
			votes, questions = append(votes, voted.Sub(began)), append(questions, time.Since(voted))
		}
	}
	slices.Sort(votes)
	slices.Sort(questions)
	for _, p := range []float64{0.1, 0.5, 0.9, 0.99} {
		i := int(p * float64(count-1))
		fmt.Printf("p%-3.0f vote %8v  question %8v\n", 100*p, votes[i].Round(time.Microsecond),
			questions[i].Round(time.Microsecond))
	}
	return nil
}
