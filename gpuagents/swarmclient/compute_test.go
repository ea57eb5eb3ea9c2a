package swarmclient_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// cells is a swarm of three groups, in two shards.
const cells = `name: cells
addressed: agent
cell: {kind: leaky}
agents: 192
agents_per_group: 64
shards: 2
page_size: 64KiB
features: [a]
vote: {candidates: [calm, busy], rule: plurality}
seed: 3
`

// open starts a server, a GPU agent on the host device, and the swarm cells. It returns a Computer
// over its swarms.
func open(t *testing.T) *swarmclient.Computer {
	t.Helper()
	s := jobstest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess})
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "a", Device: dev, Queue: jobstest.Open(t, s, natsq.Connect).Swarms, Logger: slog.New(slog.DiscardHandler),
		PageMemory: 64 << 20, LeaseTTL: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { agent.Stop() })
	conn := jobstest.Open(t, s, natsq.Connect)
	client, err := swarmclient.New(swarmclient.Options{Swarms: conn.Swarms})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := swarm.Parse("swarm.yaml", []byte(cells))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	c, err := swarmclient.NewComputer(conn.Swarms)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCompute: a text is computed over all shards of a swarm, and its answer as JSON has a node for
// each group, candidate or the swarm. What cannot be computed is refused with place and cure.
func TestCompute(t *testing.T) {
	c := open(t)
	for _, r := range []struct {
		request swarmclient.ComputeRequest
		want    string
	}{
		{
			swarmclient.ComputeRequest{
				Text: "n = count(agent % 2 == 0); least = min(agent); none = max(agent) where agent < 0",
			},
			`{"nodes":[{"values":{"least":0,"n":96,"none":null}}]}`,
		},
		{
			swarmclient.ComputeRequest{Text: "sum(i32(agent) - 100) by group", First: 1},
			`{"by":"group","nodes":[{"group":1,"values":{"out":-288}},{"group":2,"values":{"out":3808}}]}`,
		},
		{
			swarmclient.ComputeRequest{Text: "any(agent == 70) by group", First: 1, Groups: 1},
			`{"by":"group","nodes":[{"group":1,"values":{"out":true}}]}`,
		},
		{
			swarmclient.ComputeRequest{Text: "count(agent >= 0) by vote"},
			`{"by":"vote","nodes":[{"candidate":"calm","values":{"out":0}},{"candidate":"busy","values":{"out":0}}]}`,
		},
	} {
		got, err := c.Compute(t.Context(), "cells", r.request)
		if err != nil {
			t.Fatalf("%s: %v", r.request.Text, err)
		}
		if text, err := json.Marshal(got); err != nil || string(text) != r.want {
			t.Errorf("%s: %s, %v, want %s", r.request.Text, text, err, r.want)
		}
	}
	for _, r := range []struct {
		request swarmclient.ComputeRequest
		want    string
	}{
		{swarmclient.ComputeRequest{}, "the text is empty"},
		{swarmclient.ComputeRequest{Text: "mean(potential"}, "column"},
		{swarmclient.ComputeRequest{Text: "mean(nothing)"}, "nothing"},
		{swarmclient.ComputeRequest{Text: "mean(potential) by group", First: 3}, "the swarm has 3 groups"},
		{
			swarmclient.ComputeRequest{
				Text: "x = mean(potential) by group; y = max(potential) by group", Groups: 30_000,
			},
			"at most 40000",
		},
		{swarmclient.ComputeRequest{Text: strings.Repeat("x", swarms.MaxExpression+1)}, "use at most"},
	} {
		_, err := c.Compute(t.Context(), "cells", r.request)
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != jobs.CodeInvalid || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%.60s: %v, want an error of the request with %q", r.request.Text, err, r.want)
		}
	}
	_, err := c.Compute(t.Context(), "other", swarmclient.ComputeRequest{Text: "mean(potential)"})
	if !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("of a swarm that is not there: %v", err)
	}
	tooMany(t, c)
}

// tooMany sends more requests at the same time than are answered: those beyond MostAtOnce are
// refused at once, and all others answered.
func tooMany(t *testing.T, c *swarmclient.Computer) {
	t.Helper()
	const n = 10 * swarmclient.MaxComputations
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			_, errs[i] = c.Compute(t.Context(), "cells", swarmclient.ComputeRequest{Text: "mean(potential)"})
		})
	}
	all.Wait()
	done, refused := 0, 0
	for _, err := range errs {
		switch {
		case err == nil:
			done++
		case errors.Is(err, jobs.ErrUnavailable):
			refused++
		default:
			t.Error(err)
		}
	}
	if done < swarmclient.MaxComputations || refused == 0 {
		t.Errorf("of %d requests at a time %d were answered and %d refused", n, done, refused)
	}
}
