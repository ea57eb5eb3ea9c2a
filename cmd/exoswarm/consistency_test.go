package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestConsistencyOfSwarms: a run whose logs are fast decides as any. A run and a swarm with more
// replicas than there are servers are refused with what to do, and leave nothing.
func TestConsistencyOfSwarms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	input := write(t, filepath.Join(dir, "in", "a.csv"), series(1, 700))
	run := func(more string) (code int, output, stderr string) {
		t.Helper()
		spec, out := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec+more), filepath.Join(t.TempDir(), "d.ndjson")
		code, _, stderr = exec(t.Context(), t, "run", "-f", spec, "--input", input, "--output", out)
		text, err := os.ReadFile(out)
		if code == 0 && err != nil {
			t.Fatal(err)
		}
		return code, string(text), stderr
	}
	code, want, stderr := run("")
	if code != 0 || want == "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if code, got, stderr := run("durability: fast\n"); code != 0 || got != want {
		t.Errorf("fast: exit %d, the same: %v: %s", code, got == want, stderr)
	}
	if code, got, stderr := run("replicas: 3\n"); code != 2 || got != "" || !strings.Contains(stderr, "3 replicas: "+
		"the NATS server has not as many servers for streams") {
		t.Errorf("three replicas: exit %d: %s", code, stderr)
	}
	if code, _, stderr := run("replicas: 4\n"); code != 2 || !strings.Contains(stderr, "replicas 4: use 1, 3 or 5") {
		t.Errorf("four replicas: exit %d: %s", code, stderr)
	}
	s := jobstest.Start(t, server.Options{})
	spec := write(t, filepath.Join(dir, "lasting.yaml"), fmt.Sprintf("name: x\naddressed: agent\nagents: %d\n"+
		"agents_per_group: 10\nreplicas: 5\nfeatures: [a]\nvote: {candidates: [x, y]}\n", 100))
	if code, out, errs := exec(t.Context(), t, "swarm", "create", "-f", spec, "--nats", s.URL()); code != 2 ||
		!strings.Contains(errs, "5 replicas: the NATS server has not as many servers for streams") {
		t.Errorf("swarm create: exit %d\n%s%s", code, out, errs)
	}
	if code, out, errs := exec(t.Context(), t, "swarm", "list", "-o", "json", "--nats", s.URL()); code != 0 ||
		strings.Contains(out, `"x"`) {
		t.Errorf("swarm list: exit %d\n%s%s", code, out, errs)
	}
}

// TestNobodyServes: a command that waits for GPU agents says at once when there is none.
func TestNobodyServes(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	spec := write(t, filepath.Join(t.TempDir(), "swarm.yaml"), "name: lonely\ngroups: 1\nagents_per_group: 16\n")
	for _, args := range [][]string{{"swarm", "create", "-f", spec}, {"swarm", "query", "lonely", "--groups", "0"}} {
		code, _, stderr := exec(t.Context(), t, append(args, "--nats", s.URL(), "--timeout", "100ms")...)
		if code == 0 || !strings.HasPrefix(stderr, "no GPU agent serves swarms: start one (gpuagent --nats URL)") {
			t.Errorf("exoswarm %s: exit %d\n%s", strings.Join(args, " "), code, stderr)
		}
	}
}
