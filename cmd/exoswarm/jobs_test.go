package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestJobCommands: the life of jobs as an operator sees it, on a real server with a real worker.
func TestJobCommands(t *testing.T) {
	dir := t.TempDir()
	s, err := server.Start(t.Context(), server.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		code, stdout, stderr := exec(t.Context(), t, append(args, "--nats", s.URL())...)
		if code != want {
			t.Fatalf("exoswarm %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, stdout, stderr)
		}
		return stdout, stderr
	}
	has := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
	}
	// init shows, then applies, then finds nothing to do.
	out, errs := run(0, "init")
	has(out+errs, "EXO_RESULTS", "EXO_JOBS_GPU", "apply it with --yes")
	_, errs = run(0, "init", "--yes")
	has(errs, "16 changes applied")
	_, errs = run(0, "init", "--yes")
	has(errs, "nothing to change")

	// Without a worker: submit, list, get, cancel.
	run(0, "queue", "pause", "cpu")
	run(0, "submit", "--kind", "double", "--spec", "21", "--id", "j1", "--lane", "high")
	_, errs = run(1, "submit", "--kind", "double", "--spec", "21", "--id", "j1", "--lane", "high")
	has(errs, "submit job j1: exists already")
	file := write(t, filepath.Join(dir, "jobs.jsonl"),
		strings.Repeat(`{"pool":"cpu","kind":"double","spec":4}`+"\n", 1500))
	out, _ = run(0, "submit", "-f", file, "-o", "jsonl")
	if n := strings.Count(out, `{"job":`); n != 1500 {
		t.Errorf("%d ids of 1500 jobs", n)
	}
	out, _ = run(0, "job", "list", "--limit", "2")
	has(out, "j1", "double", "high")
	out, _ = run(0, "job", "get", "j1", "-o", "yaml")
	has(out, "- id: j1\n  state: queued\n", "note: 'pool cpu is paused: exoswarm queue resume cpu'")
	run(0, "submit", "--kind", "double", "--spec", "1", "--id", "j2", "--delay", "1h")
	run(0, "job", "cancel", "j2")
	out, _ = run(0, "job", "get", "j2")
	has(out, "failed", "job was cancelled before it began")
	_, errs = run(2, "job", "cancel", "j2")
	has(errs, "job j2 is over")
	// Jobs that wait for others.
	run(0, "submit", "--kind", "double", "--spec", "2", "--id", "child", "--after", "j1")
	run(0, "submit", "--kind", "double", "--spec", "2", "--id", "skipped", "--after", "j2,child", "--on-failed-parent",
		"skip")
	out, _ = run(0, "job", "get", "child")
	has(out, "waiting", "waits for j1")
	graph := write(t, filepath.Join(dir, "graph.jsonl"), `{"pool":"cpu","kind":"double","spec":4,"id":"last","after":["middle"]}
{"pool":"cpu","kind":"double","spec":4,"id":"middle","after":["child"],"on_failed_parent":"run"}`)
	run(0, "submit", "-f", graph)
	out, _ = run(0, "job", "list", "--limit", "0")
	has(out, "waiting", "waits for", "middle")
	out, _ = run(0, "job", "get", "skipped")
	has(out, "skipped", "job skipped did not begin, because job j2 failed (canceled)")
	out, _ = run(0, "queue", "stats")
	has(out, "1501", "true", "double", "normal")

	// Schedules.
	run(0, "cron", "add", "yearly", "--cron", "0 0 1 1 *", "--zone", "Europe/Berlin", "--missed", "once", "--from",
		"2020-01-01T00:00:00Z", "--kind", "double", "--spec", "6")
	if _, err := run(2, "cron", "add", "bad", "--cron", "0 0 1 1 *", "--kind", "stream", "--spec",
		"{}"); !strings.Contains(err, "field /job/spec: missing properties") {
		t.Errorf("a schedule of a stream without a spec: %s", err)
	}
	run(0, "cron", "pause", "yearly")
	out, _ = run(0, "cron", "list")
	has(out, "yearly", "0 0 1 1 *", "Europe/Berlin", "double", "paused", "never")
	run(0, "cron", "resume", "yearly")
	out, _ = run(0, "cron", "list", "-o", "yaml")
	has(out, "- v: 1\n  name: yearly\n", "-01-01T00:00:00+01:00", "  job:\n    pool: cpu\n")

	// Limits of tenants.
	run(0, "tenant", "limit", "*", "--weight", "0.5")
	run(0, "tenant", "limit", "small", "--queued", "1", "--rate", "20")
	run(0, "tenant", "limit", "small", "--burst", "3", "--concurrency", "2")
	out, _ = run(0, "tenant", "list")
	has(out, "*       0.5", "small           20    3      2            1")
	run(0, "submit", "--kind", "double", "--spec", "7", "--tenant", "small", "--id", "s1")
	_, errs = run(1, "submit", "--kind", "double", "--spec", "7", "--tenant", "small", "--id", "s2")
	has(errs, "submit job s2: tenant small has 1 jobs in the queue of pool cpu and may have 1: queue is full: try "+
		"again in 100ms")
	run(0, "tenant", "unlimit", "*")
	out, _ = run(0, "tenant", "list", "-o", "jsonl")
	has(out, `{"tenant":"small","v":1,"rate":20,"burst":3,"concurrency":2,"queued":1}`)

	// A worker takes over.
	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w, err := conn.Work(t.Context(), natsq.WorkerOptions{
		Name: "w1", Pool: jobs.PoolCPU, Concurrency: 16, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{"double": func(_ context.Context, j jobs.Job, progress func(any)) (any,
			error,
		) {
			progress("half way")
			var n int
			if err := json.Unmarshal(j.Spec, &n); err != nil {
				return nil, jobs.Errorf(jobs.CodeInput, "the spec %s is not a number", j.Spec)
			}
			return 2 * n, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	entry, err := conn.Registry.Announce(t.Context(), func() jobs.Agent {
		return jobs.Agent{
			Name: "w1", Pool: jobs.PoolCPU, Kinds: []string{"double"}, Concurrency: 16, State: "serving",
			Started: time.Now(),
		}
	}, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = entry.Close(context.Background()) }()
	out, _ = run(0, "agent", "list")
	has(out, "w1", "double", "serving")
	_, errs = run(1, "agent", "drain", "w2")
	has(errs, "no agent of that name is connected")
	run(0, "agent", "drain", "w1")
	<-entry.Drained() // what to do is the agent's own; this one goes on
	run(0, "queue", "resume", "cpu")
	out, _ = run(0, "job", "watch", "j1")
	has(out, "j1", "done", "42")
	out, _ = run(0, "job", "watch", "s1")
	has(out, "done", "14")
	out, _ = run(0, "job", "watch", "last")
	has(out, "last", "done", "8")
	// The last New Year was missed; in Berlin it comes an hour before that of UTC.
	year := time.Now().Add(time.Hour).UTC().Year() - 1
	out, _ = run(0, "job", "watch", fmt.Sprintf("yearly-%d1231T2300Z", year))
	has(out, "done", "12")
	run(0, "cron", "remove", "yearly")
	out, _ = run(0, "submit", "--kind", "double", "--spec", "5", "--wait", "-o", "json")
	var results []jobs.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 1 ||
		string(results[0].Output) != "10" {
		t.Errorf("%s, %v", out, err)
	}

	// A job that fails: exit code, dead letter, redrive, purge.
	_, errs = run(2, "submit", "--kind", "double", "--spec", `"x"`, "--id", "bad", "--wait")
	has(errs, `job bad failed: the spec "x" is not a number`)
	deadline := time.Now().Add(2 * time.Minute) // the letter follows the result
	for {
		if out, _ = run(0, "dlq", "list"); strings.Contains(out, "bad") || time.Now().After(deadline) {
			break
		}
	}
	has(out, "bad", "input", "is not a number")
	out, _ = run(0, "dlq", "show", "bad", "-o", "yaml")
	var letters []map[string]any
	if err := yaml.Unmarshal([]byte(out), &letters); err != nil || len(letters) != 1 || letters[0]["id"] != "bad" {
		t.Errorf("%s, %v", out, err)
	}
	run(0, "queue", "pause", "cpu", "--kind", "double")
	w.Stop() // a worker hears of the pause some time later, and might do the job again before
	out, _ = run(0, "job", "retry", "bad")
	has(out, "1")
	out, _ = run(0, "dlq", "list", "-o", "json")
	if strings.TrimSpace(out) != "[]" {
		t.Errorf("a letter is left: %s", out)
	}
	_, errs = run(2, "job", "retry", "bad")
	has(errs, "has no dead letter")
	_, errs = run(2, "dlq", "purge")
	has(errs, "--all")
	out, _ = run(0, "dlq", "purge", "--all")
	has(out, "0")
}

func TestJobCommandErrors(t *testing.T) {
	dir := t.TempDir()
	s, err := server.Start(t.Context(), server.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	bad := write(t, filepath.Join(dir, "bad.jsonl"),
		`{"pool":"cpu","kind":"k","spec":1}`+"\n"+`{"pool":"cpu","kind":"k","spec":1,"lane":"fast"}`+"\n")
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{2, []string{"submit"}, "--kind is missing"},
		{2, []string{"submit", "--kind", "k", "--spec", "{"}, "--spec is not JSON"},
		{2, []string{"submit", "--kind", "k", "--lane", "fast"}, `lane "fast": use "high", "normal" or "low"`},
		{2, []string{"submit", "--kind", "k", "--spec", "@/does/not/exist"}, "no such file"},
		{2, []string{"submit", "--kind", "k", "--after", "nobody"}, "waits for nobody, of which nothing is known"},
		{2, []string{"submit", "--kind", "k", "--on-failed-parent", "skip"}, "on_failed_parent without after"},
		{2, []string{"cron", "add", "n", "--cron", "0 0 * * *"}, "--cron and --kind say when and what"},
		{2, []string{"cron", "add", "n", "--cron", "0 0 * *", "--kind", "k"}, "use five fields"},
		{
			2,
			[]string{"cron", "add", "n", "--cron", "0 0 * * *", "--kind", "k", "--from", "now"},
			`--from "now": use a time such as`,
		},
		{1, []string{"cron", "remove", "none"}, "schedule none: not found"},
		{2, []string{"tenant", "limit", "t"}, "tenant limit: say what to limit"},
		{2, []string{"tenant", "limit", "t", "--rate", "-1"}, "limit tenant t: rate -1: use 0.001 to 1000000"},
		{2, []string{"tenant", "limit", "a b", "--rate", "1"}, `tenant "a b"`},
		{1, []string{"tenant", "unlimit", "t"}, "unlimit tenant t: it has no limits of its own: not found"},
		{2, []string{"submit", "-f", bad}, `bad.jsonl line 2: field /lane: `},
		{2, []string{"submit", "-f", bad, "--wait"}, "--file goes with neither"},
		{1, []string{"submit", "--kind", "k", "--wait", "--timeout", "50ms"}, "it has no result after 50ms; it goes " +
			"on"},
		{1, []string{"job", "get", "none"}, "job none: neither queued nor over"},
		{2, []string{"job", "get", "a b"}, `job id "a b"`},
		{2, []string{"job", "get"}, "accepts 1 arg"},
		{1, []string{"job", "cancel", "none"}, "not found"},
		{2, []string{"job", "list", "--pool", "tpu"}, `pool "tpu": use cpu or gpu`},
		{2, []string{"queue", "pause", "tpu"}, `pool "tpu"`},
		{2, []string{"queue", "stats", "-o", "xml"}, `--output "xml": use table, json, jsonl or yaml`},
		{1, []string{"dlq", "show", "none"}, "dead letter none: not found"},
		{2, []string{"dlq", "purge", "--kind", "a.>"}, `"a.>"`},
		{2, []string{"init", "--replicas", "9"}, "--replicas 9: use 1 to 5"},
	} {
		code, stdout, stderr := exec(t.Context(), t, append(c.args, "--nats", s.URL())...)
		if strings.Contains(c.want, "no result after") { // behind the hint that nobody serves the kind
			_, stderr, _ = strings.Cut(stderr, "\n")
		}
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit %d, want %d\nstderr %s\nwant   %s\nstdout %s", c.args, code, c.code, stderr, c.want,
				stdout)
		}
	}
}

// TestPrinter: a list is well-formed in every format, with no, one and many items, and a table of
// many is written as it comes.
func TestPrinter(t *testing.T) {
	type item struct {
		Name string `json:"name"`
		N    int    `json:"n"`
	}
	for _, format := range []string{"table", "json", "jsonl", "yaml"} {
		for _, n := range []int{0, 1, 450} {
			cmd := submitCommand()
			if err := cmd.Flags().Set("output", format); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			p, err := newPrinter(&b, cmd.Flags(), "NAME", "N")
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if err := p.item(item{"true", i}, "a\tb\nc", i); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.end(); err != nil {
				t.Fatal(err)
			}
			var got []item
			switch format {
			case "table":
				if lines := strings.Count(b.String(), "\n"); lines != n+1 {
					t.Errorf("%d lines of %d items", lines, n)
				}
				continue
			case "json":
				err = json.Unmarshal(b.Bytes(), &got)
			case "jsonl":
				for dec := json.NewDecoder(&b); dec.More(); {
					var i item
					if err = dec.Decode(&i); err != nil {
						break
					}
					got = append(got, i)
				}
			case "yaml":
				err = yaml.Unmarshal(b.Bytes(), &got)
			}
			if err != nil || len(got) != n || n > 0 && got[n-1] != (item{"true", n - 1}) {
				t.Errorf("%s of %d: %d items, %v", format, n, len(got), err)
			}
		}
	}
}
