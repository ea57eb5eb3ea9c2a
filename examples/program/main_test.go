package main

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaks(m)
}

// TestProgram: the program finds the spike of its second series and nothing else, and the document
// shows its output.
func TestProgram(t *testing.T) {
	srv := jobstest.Start(t, server.Options{})
	conn := jobstest.Open(t, srv, natsq.Connect)
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	defer dev.Close()
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "gpuagent", Device: dev, Queue: conn.Swarms, Logger: slog.New(slog.DiscardHandler),
		LeaseTTL: 2 * time.Second,
	})
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	defer agent.Stop()
	var out strings.Builder
	if err := run(t.Context(), srv.URL(), &out); err != nil {
		t.Fatalf("run: %v", err)
	}
	if !strings.HasPrefix(out.String(), "group 1 at 2026-03-02T07:30:00Z: anomalous, value 40\n2 groups, ") {
		t.Errorf("the program prints\n%s", out.String())
	}
	page, err := os.ReadFile("../../docs/tutorial-go.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if !strings.Contains(string(page), "    "+line) {
			t.Errorf("docs/tutorial-go.md does not have the line %q of the output", line)
		}
	}
}
