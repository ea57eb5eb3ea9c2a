package main

import (
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/internal/testlong"
)

// TestGraphOfProcesses: the epidemic of examples/epidemic is the one of the documents although its GPU
// agent is killed between ticks.
func TestGraphOfProcesses(t *testing.T) {
	testlong.Only(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	c := &cluster{bin: binaries(t)}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(c.bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	data := t.TempDir()
	start := func() {
		c.gpu, _ = startProcess(t, "gpuagent is ready", filepath.Join(c.bin, "gpuagent"), "--nats", c.url, "--data-dir",
			data, "--device", "host", "--lease-ttl", "1s")
	}
	start()
	run := func(args ...string) string {
		t.Helper()
		cmd := osexec.CommandContext(t.Context(), filepath.Join(c.bin, "exoswarm"),
			append([]string{"swarm"}, append(args, "--nats", c.url, "--timeout", "5m")...)...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("exoswarm swarm %s: %v\n%s", strings.Join(args, " "), err, errs.String())
		}
		return string(out)
	}
	example := filepath.Join("..", "..", "examples", "epidemic")
	run("create", "-f", filepath.Join(example, "swarm.yaml"))
	run("observe", "epidemic", "--input", filepath.Join(example, "first.csv"))
	for _, count := range []string{"40", "1", "60"} {
		run("tick", "epidemic", "--count", count)
		c.gpu.end(t, syscall.SIGKILL)
		start()
	}
	// The counts are those of the script graph, after as many ticks in one process.
	got := run("tick", "epidemic", "--count", "20", "-o", "jsonl")
	for _, want := range []string{
		`{"candidate":"susceptible","agents":9131,`, `{"candidate":"infected","agents":191,`,
		`{"candidate":"recovered","agents":90678,`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("after kills there is no %s in\n%s", want, got)
		}
	}
}
