package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// killedBetweenTicks makes a swarm of an example and ticks it, and kills its GPU agent after each
// of some numbers of ticks. The result runs exoswarm swarm on the same cluster, and returns its
// output.
func killedBetweenTicks(t *testing.T, example string, counts []string, first ...string) func(args ...string) string {
	t.Helper()
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	c := &processes{bin: binaries(t)}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(c.bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	data := t.TempDir()
	start := func() {
		c.gpu, _ = startProcess(t, "gpuagent is ready", filepath.Join(c.bin, "gpuagent"), "--nats", c.url, "--data-dir",
			data, "--device", "host", "--lease-ttl", "1s")
	}
	start()
	run := func(args ...string) string { return c.swarm(t, args...) }
	run("create", "-f", filepath.Join("..", "..", "examples", example, "swarm.yaml"))
	if len(first) > 0 {
		run(first...)
	}
	for _, count := range counts {
		run("tick", example, "--count", count)
		c.gpu.end(t, syscall.SIGKILL)
		start()
	}
	return run
}

// TestGraphOfProcesses: the epidemic of examples/epidemic is the one of the documents although its
// GPU agent is killed between ticks.
func TestGraphOfProcesses(t *testing.T) {
	run := killedBetweenTicks(t, "epidemic", []string{"40", "1", "60"}, "observe", "epidemic", "--input",
		filepath.Join("..", "..", "examples", "epidemic", "first.csv"))
	// The script graph has the same counts after the same number of ticks in one process.
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

// TestDelaysOfProcesses: the neurons of examples/delays are the same after 800 ticks as in one
// process, although their GPU agent is killed between ticks, with spikes on their way.
func TestDelaysOfProcesses(t *testing.T) {
	var after [2]string
	for i, kills := range [][]string{{"300", "1", "2", "490"}, nil} {
		run, left := killedBetweenTicks(t, "delays", kills), "800"
		if kills != nil {
			left = "7"
		}
		run("tick", "delays", "--count", left)
		after[i] = run("query", "delays", "--agents", "0-999", "-o", "json")
	}
	if after[0] != after[1] {
		t.Error("after kills the neurons differ from the neurons of one process")
	}
}

// TestBoxOfProcesses: the boids of examples/boids are as the documents show them after 400 ticks,
// to the pixel, although their GPU agent is killed between ticks.
func TestBoxOfProcesses(t *testing.T) {
	run := killedBetweenTicks(t, "boids", []string{"150", "1", "200"})
	file := filepath.Join(t.TempDir(), "boids.png")
	run("render", "boids", "-o", file, "--scale", "3", "--ticks", "49")
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("..", "..", "docs", "images", "boids.png"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("after kills the picture differs from the picture of the documents (error %v)", err)
	}
}
