package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestJobLogs: what a handler logs is shown in each format, and never commands the terminal.
func TestJobLogs(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: s.URL()})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	defer conn.Close()
	release := make(chan struct{})
	w, err := conn.Work(ctx, natsq.WorkerOptions{
		Name: "w1", Pool: jobs.PoolCPU, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{
			"k": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
				jobs.Logger(ctx).Warn("red \x1b[31malert", "rows", 3, "file", "a b")
				select {
				case <-release:
				case <-ctx.Done():
				}
				return 1, nil
			},
		},
	})
	if err != nil {
		t.Fatalf("conn.Work: %v", err)
	}
	defer w.Stop()
	if err := conn.Queue.Submit(ctx, jobs.Job{
		Version: jobs.Version, ID: "j", Pool: jobs.PoolCPU, Kind: "k",
		Spec: []byte("1"),
	}); err != nil {
		t.Fatalf("conn.Queue.Submit: %v", err)
	}
	logs := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := exec(ctx, t, append([]string{"job", "logs", "j", "--nats", s.URL()}, args...)...)
		if code != 0 {
			t.Fatal(code, stderr)
		}
		return stdout
	}
	for !strings.Contains(logs(), "alert") {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("no line within two minutes")
		}
	}
	close(release)
	for format, want := range map[string]string{
		"table": `1        w1      WARN   red  [31malert  file="a b" rows=3`,
		"json":  `[` + "\n" + `  {"job":"j","attempt":1,"worker":"w1","line":{"time":`,
		"jsonl": `"level":"WARN","msg":"red \u001b[31malert","rows":3,"file":"a b"}}` + "\n",
		"yaml":  "- job: j\n  attempt: 1\n  worker: w1\n",
	} {
		if out := logs("--follow", "-o", format); !strings.Contains(out, want) || strings.Contains(out, "\x1b") {
			t.Errorf("%s: %q, want %q", format, out, want)
		}
	}
	if code, _, stderr := exec(ctx, t, "job", "logs", "other", "--nats", s.URL()); code != 1 ||
		!strings.Contains(stderr, "logs of job other: check the id") {
		t.Error(code, fmt.Sprintf("%q", stderr))
	}
}
