package main

import (
	"context"
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var rollingTo = flag.String("rolling.to", "", "folder with the commands that TestRollingUpdate updates to; empty: "+
	"the same ones as before")

// rollingRows is how many rows each of the four files of a round has in TestRollingUpdate: a round
// must take longer than the replacement of a process.
const rollingRows = 600

// TestRollingUpdate replaces every process of a cluster with three NATS servers and two agents of
// each kind, one by one, as docs/deploy.md describes it, while a stream job goes from files to
// files and a swarm whose agents are addressed answers, round after round. A process gets SIGTERM,
// ends with exit code 0, and the next one serves with its data; the update continues when both
// loads have. Every line of every output, and every answer, is the same as of an undisturbed run.
func TestRollingUpdate(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	before := *recoverRows
	*recoverRows = rollingRows
	defer func() { *recoverRows = before }()
	r := startRecovery(ctx, t, 3, 2)
	for _, m := range slices.Concat(r.gpus, r.cpus) {
		m.start(t)
	}
	loads := []*load{r.stream(), r.addressed(newSimulated(t, rollingRows/7))}
	for _, l := range loads { // each remembers its first round as the undisturbed one
		if err := l.run(ctx, closed()); err != nil {
			t.Fatalf("an undisturbed round: %v", err)
		}
		l.flow, l.due, l.rounds = pulse{}, 0, 0
	}
	over, failed := make(chan struct{}), make(chan error, len(loads))
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, l := range loads {
		running.Go(func() { failed <- l.run(ctx, over) })
	}
	// The servers first, so that a new agent never connects to an old server.
	for _, m := range slices.Concat(r.nats, r.gpus, r.cpus) {
		r.moved(ctx, false, loads, failed)
		pid, began := m.cmd.Process.Pid, time.Now()
		r.fault("replace", m)
		r.end(m, syscall.SIGTERM)
		if code := m.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s ends with exit code %d after SIGTERM:\n%s", m.kind, code, m.log)
		}
		if *rollingTo != "" {
			m.command[0] = filepath.Join(*rollingTo, filepath.Base(m.command[0]))
		}
		m.start(t)
		if m.cmd.Process.Pid == pid {
			t.Errorf("%s was not replaced", m.kind)
		}
		t.Logf("%s replaced in %.1f s", strings.Join(m.command[:2], " "), time.Since(began).Seconds())
	}
	r.moved(ctx, false, loads, failed)
	close(over)
	for range loads {
		if err := <-failed; err != nil {
			t.Fatalf("a load: %v", err)
		}
	}
	for _, l := range loads {
		t.Logf("%s: rounds %d lines %d lost 0 doubled 0 longest stall %.1f s", l.name, l.rounds, l.due,
			l.flow.gap.Seconds())
		if l.due == 0 {
			t.Errorf("%s compared no line", l.name)
		}
	}
}
