package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/examples/telemetry"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/testlong"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestAuthCommands: accounts and users as an administrator makes them, and what each role is told
// by the other commands.
func TestAuthCommands(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	auth := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		code, stdout, stderr := exec(t.Context(), t, append(append([]string{"auth"}, args...), "--dir", dir)...)
		if code != want {
			t.Fatalf("exoswarm auth %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, stdout, stderr)
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
	_, errs := auth(2, "list")
	has(errs, "make the folder first")
	out, errs := auth(0, "init", "--operator", "ops", "--tenant", "acme")
	has(out+errs, "tenant-acme.submitter", "operator  ops", "auth.conf", "apply it with --yes")
	if files, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(files) > 0 {
		t.Errorf("made without --yes: %v, %v", files, err)
	}
	auth(0, "init", "--operator", "ops", "--tenant", "acme", "--yes")
	_, errs = auth(0, "init", "--yes")
	has(errs, "nothing to change")
	out, errs = auth(0, "init", "--tenant", "umbrella", "--yes")
	has(out+errs, "tenant-umbrella", "umbrella-submitter")
	if strings.Contains(out, "operator") || strings.Contains(out, "cluster") || strings.Contains(out, "acme") {
		t.Errorf("a new tenant changes others:\n%s", out)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"belongs to operator", []string{"init", "--operator", "other"}},
		{"at most 32", []string{"init", "--tenant", "a--b"}},
		{"--role is missing", []string{"user", "add", "x"}},
		{"use one of agent, gpuagent, submitter", []string{"user", "add", "x", "--role", "boss"}},
		{"name it (--tenant)", []string{"user", "add", "x", "--role", "submitter"}},
		{"there is no account tenant-none", []string{"user", "add", "x", "--role", "submitter", "--tenant", "none"}},
		{"leave --tenant out", []string{"user", "add", "x", "--role", "viewer", "--tenant", "acme"}},
		{"exists already", []string{"user", "add", "agent", "--role", "agent"}},
		{"--nats is missing", []string{"push"}},
	} {
		_, errs := auth(2, c.args...)
		has(errs, c.want)
	}
	out, _ = auth(0, "user", "add", "bob", "--role", "submitter", "--tenant", "acme", "--expires", "720h")
	has(out, filepath.Join("creds", "bob.creds"))
	out, _ = auth(0, "list")
	has(out, "bob", time.Now().Add(720*time.Hour).UTC().Format("2006-01"), "never", "umbrella")

	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Auth: filepath.Join(dir, "auth.conf")})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	creds := func(user string) string { return filepath.Join(dir, "creds", user+".creds") }
	as := func(user string, want int, args ...string) (stdout, stderr string) {
		t.Helper()
		code, stdout, stderr := exec(t.Context(), t, append(args, "--nats", srv.URL(), "--nats-creds", creds(user))...)
		if code != want {
			t.Fatalf("%s: exoswarm %s: exit %d, want %d\n%s%s", user, strings.Join(args, " "), code, want, stdout,
				stderr)
		}
		return stdout, stderr
	}
	_, errs = as("viewer", 1, "queue", "stats")
	has(errs, `may not publish to "$JS.API.STREAM.CREATE.`) // nobody has made the streams yet
	_, errs = as("operator", 0, "init", "--yes")
	has(errs, "16 changes applied")
	conn, err := natsq.Connect(t.Context(), natsconn.Options{
		URL:   srv.URL(),
		Login: natsconn.Login{Credentials: creds("agent")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w, err := conn.Work(t.Context(), natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{
			"double": func(ctx context.Context, j jobs.Job, _ func(any)) (any, error) {
				jobs.Logger(ctx).Info("doubling")
				var n int
				err := json.Unmarshal(j.Spec, &n)
				return 2 * n, err
			},
			"wait": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	g, err := conn.Serve(jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()

	out, _ = as("bob", 0, "submit", "--kind", "double", "--spec", "21", "--id", "j", "--wait", "-o", "jsonl")
	has(out, `"job":"acme--j"`, `"output":42`)
	file := write(t, filepath.Join(t.TempDir(), "jobs.jsonl"),
		strings.Repeat(`{"pool":"cpu","kind":"double","spec":4}`+"\n", 1500))
	out, _ = as("bob", 0, "submit", "-f", file, "-o", "jsonl")
	if n := strings.Count(out, `{"job":"acme--`); n != 1500 {
		t.Errorf("%d ids", n)
	}
	out, _ = as("bob", 0, "job", "get", "j")
	has(out, "acme--j", "done", "42")
	out, _ = as("viewer", 0, "job", "get", "acme--j")
	has(out, "done", "42")
	as("bob", 0, "submit", "--kind", "wait", "--id", "long")
	out, _ = as("bob", 0, "job", "get", "long")
	has(out, "acme--long", "wait")
	as("bob", 0, "job", "cancel", "long")
	_, errs = as("bob", 1, "job", "watch", "long")
	has(errs, "cancelled")
	as("bob", 0, "submit", "--kind", "wait", "--id", "listed")
	for _, user := range []string{"bob", "viewer", "operator"} {
		out, _ = as(user, 0, "job", "list", "--limit", "0")
		has(out, "acme--listed", "wait")
	}
	if out, _ = as("umbrella-submitter", 0, "job", "list"); strings.Contains(out, "acme") {
		t.Errorf("another's jobs: %s", out)
	}
	as("bob", 0, "job", "cancel", "listed")
	deadline := time.Now().Add(2 * time.Minute)
	for { // a worker stores lines in turns
		if out, _ = as("bob", 0, "job", "logs", "--follow", "j"); strings.Contains(out, "doubling") ||
			time.Now().After(deadline) {
			break
		}
	}
	has(out, "doubling")
	_, errs = as("umbrella-submitter", 1, "job", "logs", "acme--j")
	has(errs, "check the id")
	_, errs = as("bob", 1, "submit", "--kind", "double", "--spec", `"x"`, "--id", "bad", "--wait")
	has(errs, "job acme--bad failed")
	_, errs = as("umbrella-submitter", 2, "job", "retry", "acme--bad")
	has(errs, "has no dead letter")
	for { // the letter follows the result
		if out, _ = as("operator", 0, "dlq", "list"); strings.Contains(out, "acme--bad") || time.Now().After(deadline) {
			break
		}
	}
	out, _ = as("bob", 0, "job", "retry", "bad")
	has(out, "1")
	_, errs = as("bob", 1, "job", "watch", "bad")
	has(errs, "failed")
	as("bob", 0, "cron", "add", "nightly", "--cron", "0 2 * * *", "--kind", "double", "--spec", "1")
	out, _ = as("bob", 0, "cron", "list")
	has(out, "acme--nightly")
	as("bob", 0, "cron", "pause", "nightly")
	as("bob", 0, "cron", "remove", "nightly")
	for _, args := range [][]string{
		{"agent", "list"}, {"queue", "stats"}, {"dlq", "list"}, {"tenant", "list"}, {"init"},
	} {
		as("viewer", 0, args...)
		as("operator", 0, args...)
		_, errs := as("bob", 1, args...)
		has(errs, `user bob (submitter of tenant acme) may not publish to "$JS.API.`, "use a login of another role",
			"not allowed")
	}
	for _, args := range [][]string{
		{"submit", "--kind", "double", "--spec", "1"},
		{"job", "cancel", "x"},
		{"queue", "pause", "cpu"},
		{"tenant", "limit", "acme", "--weight", "2"},
		{"cron", "add", "n", "--cron", "0 2 * * *", "--kind", "double"},
		{"dlq", "purge", "--all"},
		{"agent", "drain", "x"},
	} {
		want, text := 1, "user viewer (viewer) may not publish to"
		if args[0] == "job" { // there is none, and that comes first
			text = "not queued"
		}
		_, errs := as("viewer", want, args...)
		has(errs, text)
	}
	_, errs = as("bob", 2, "submit", "--kind", "double", "--tenant", "umbrella")
	has(errs, "this login is of tenant acme")
	_, errs = as("umbrella-submitter", 1, "job", "get", "acme--j")
	has(errs, "not found")
	_, errs = as("umbrella-submitter", 1, "job", "cancel", "acme--j")
	has(errs, "not found")

	// A context of the nats tool does as well as the flags.
	nctx, err := json.Marshal(map[string]string{"url": srv.URL(), "creds": creds("viewer")})
	if err != nil {
		t.Fatal(err)
	}
	place := write(t, filepath.Join(t.TempDir(), "viewer.json"), string(nctx))
	if code, _, errs := exec(t.Context(), t, "queue", "stats", "--nats-context", place); code != 0 {
		t.Errorf("by a context: exit %d: %s", code, errs)
	}
	// A tenant that comes later, on a server that runs.
	auth(0, "init", "--tenant", "late", "--yes")
	auth(0, "push", "--nats", srv.URL())
	out, _ = as("late-submitter", 0, "submit", "--kind", "double", "--spec", "4", "--id", "j", "--wait", "-o", "jsonl")
	has(out, `"job":"late--j"`, `"output":8`)

	kept := filepath.Join(t.TempDir(), "bob.creds")
	data, err := os.ReadFile(creds("bob"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, errs = auth(0, "revoke", "bob", "--nats", srv.URL())
	has(errs, "accounts handed over")
	out, _ = auth(0, "list", "-o", "jsonl")
	has(out, `"name":"bob"`, `"revoked":true`)
	code, _, errs := exec(t.Context(), t, "submit", "--kind", "double", "--nats", srv.URL(), "--nats-creds", kept)
	if has(errs, "does not let user bob (submitter of tenant acme) in", "revoked"); code != 2 {
		t.Errorf("exit %d", code)
	}
	_, errs = auth(0, "revoke", "umbrella-submitter")
	has(errs, "exoswarm auth push")
	_, errs = auth(0, "push", "--nats", srv.URL())
	has(errs, "6 accounts handed over")
}

// TestRoles: real processes, each with the credentials of its role, do the telemetry example to the
// bytes of a run without any: a submitter by way of files that the agent may see, an operator by
// way of the object store. Agents whose user is revoked end.
func TestRoles(t *testing.T) {
	testlong.Only(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	bin, dir, data := binaries(t), filepath.Join(t.TempDir(), "auth"), t.TempDir()
	if err := os.CopyFS(data, telemetry.Files); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	exo := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		cmd := osexec.CommandContext(ctx, filepath.Join(bin, "exoswarm"), args...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("exoswarm %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
		}
		return stdout.String()
	}
	spec, in := filepath.Join(data, "swarm.yaml"), filepath.Join(data, "data")
	want := filepath.Join(t.TempDir(), "embedded.ndjson")
	exo("run", "-f", spec, "--input", in, "--output", want, "--progress", "none")
	expected, err := os.ReadFile(want)
	if err != nil || len(expected) == 0 {
		t.Fatal(err)
	}

	exo("auth", "init", "--dir", dir, "--tenant", "acme", "--yes")
	creds := func(user string) string { return filepath.Join(dir, "creds", user+".creds") }
	nats, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir(), "--auth", filepath.Join(dir, "auth.conf"))
	login := func(user string) []string { return []string{"--nats", url, "--nats-creds", creds(user)} }
	exo(append([]string{"init", "--yes"}, login("operator")...)...)
	gpu, _ := startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"),
		append(login("agent"), "--data-dir", t.TempDir(), "--device", "host")...)
	cpu, _ := startProcess(t, "cpuagent is ready", filepath.Join(bin, "cpuagent"),
		append(login("agent"), "--root", "tenant=acme,name=data,path="+data)...)

	out := filepath.Join(t.TempDir(), "operator.ndjson")
	exo(append([]string{"run", "-f", spec, "--input", in, "--output", out, "--progress", "none"},
		login("operator")...)...)
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, expected) {
		t.Errorf("an operator's run: other bytes than a run in one process: %v", err)
	}

	submitted := write(t, filepath.Join(t.TempDir(), "spec.json"), streamJob(t, data))
	exo(append([]string{"submit", "--kind", cpuagents.KindStream, "--spec", "@" + submitted, "--wait"},
		login("acme-submitter")...)...)
	if got, err := os.ReadFile(filepath.Join(data, "out.ndjson")); err != nil || !bytes.Equal(got, expected) {
		t.Errorf("a submitter's job: other bytes than a run in one process: %v", err)
	}
	if list := exo(append([]string{"agent", "list", "-o", "jsonl"}, login("viewer")...)...); strings.Count(list,
		`"name"`) != 2 {
		t.Errorf("a viewer sees %s", list)
	}

	exo("auth", "revoke", "agent", "--dir", dir, "--nats", url)
	for _, p := range []*process{cpu, gpu} {
		p.end(t, syscall.Signal(0)) // it ends by itself
		if code := p.cmd.ProcessState.ExitCode(); code != 1 ||
			!strings.Contains(p.log.String(), "expired or were revoked") {
			t.Errorf("%s: exit code %d\n%s", p.cmd.Path, code, p.log)
		}
	}
	nats.end(t, syscall.SIGTERM)
}

// streamJob is the spec of a job over the example's files as an agent sees them, below its root
// data.
func streamJob(t *testing.T, data string) string {
	t.Helper()
	text, err := fs.ReadFile(telemetry.Files, "swarm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := swarm.Parse("swarm.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	inputs, err := findInputs([]string{filepath.Join(data, "data")})
	if err != nil {
		t.Fatal(err)
	}
	var manifest []source.Series
	for _, in := range inputs {
		manifest = append(manifest, source.Series{Name: in.Name, URI: "file:data/data/" + in.Name})
	}
	list, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(data, "manifest.json"), string(list))
	swarmJSON, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	job, err := json.Marshal(cpuagents.StreamSpec{
		Name: spec.Name, Spec: swarmJSON, Candidates: spec.Vote.Candidates,
		Columns:  rows.ColumnSpec{Timestamp: spec.Timestamp, Features: spec.Features},
		Manifest: "file:data/manifest.json", Output: "file:data/out.ndjson", Rejects: "file:data/rejects.ndjson",
		Summary: "file:data/summary.json",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(job)
}
