package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaks(m)
}

// TestConsensusSignal: agents that decide together are right in every step, where those alone are
// wrong in three of ten, and the swarm emits each change of the signal once.
func TestConsensusSignal(t *testing.T) {
	_, conn := jobstest.InProcess(t, natsq.Connect)
	ctx := t.Context()
	d, err := cuda.Open(ctx, "host", cuda.Options{})
	if err != nil {
		t.Fatalf("cuda.Open: %v", err)
	}
	defer d.Close()
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "agent", Device: d, Queue: conn.Swarms, Emissions: gateway.NewEmissions(conn.Conn),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	defer agent.Stop()
	spec, err := userfile.ReadSpec("swarm.yaml")
	if err != nil {
		t.Fatalf("specfile.Read: %v", err)
	}
	client, err := swarmclient.New(swarmclient.Options{Swarms: conn.Swarms, Agents: conn.Registry, Jobs: conn.Queue})
	if err != nil {
		t.Fatalf("swarmclient.New: %v", err)
	}
	created, err := client.Create(ctx, spec, nil)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	var out strings.Builder
	if err := run(ctx, conn, &out); err != nil {
		t.Fatalf("run: %v", err)
	}
	var alone, together float64
	if _, err := fmt.Sscanf(out.String(), "right decisions of agents alone:    %f %%\nright decisions of agents "+
		"together: %f %%", &alone, &together); err != nil {
		t.Fatalf("%q: %v", &out, err)
	}
	t.Logf("\n%s", &out)
	if alone < 60 || alone > 80 || together < 99 {
		t.Errorf("agents are right:\n%s", &out)
	}
	var changes []string
	record := created.Record()
	if err := gateway.NewEmissions(conn.Conn).List(context.WithoutCancel(ctx), record.Key(), "signal", 0,
		func(e gateway.StoredEmission) bool {
			changes = append(changes, fmt.Sprint(e.Round, " ", e.Winner))
			return true
		}); err != nil {
		t.Fatalf("List: %v", err)
	}
	var want []string
	for step := 0; step < steps; step += hold {
		want = append(want, fmt.Sprint(step+1, " ", spec.Vote.Candidates[step/hold%2]))
	}
	if !slices.Equal(changes, want) {
		t.Errorf("changes %v, want %v", changes, want)
	}
}
