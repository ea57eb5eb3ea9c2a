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
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/internal/base/telemetry"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestRoles: real processes, each with the credentials of its role, do the telemetry example to the
// bytes of a run without any: a submitter by way of files that the agent may see, an operator by
// way of the object store. Agents whose user is revoked end.
func TestRoles(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	bin, dir, data := binaries(t), filepath.Join(t.TempDir(), "auth"), t.TempDir()
	if err := os.CopyFS(data, telemetry.Files); err != nil {
		t.Fatalf("os.CopyFS: %v", err)
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
		t.Fatalf("the embedded run has written %d bytes, error %v; want some", len(expected), err)
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
		t.Fatalf("fs.ReadFile swarm.yaml: %v", err)
	}
	spec, err := swarm.Parse("swarm.yaml", text)
	if err != nil {
		t.Fatalf("swarm.Parse swarm.yaml: %v", err)
	}
	inputs, err := userfile.Find([]string{filepath.Join(data, "data")})
	if err != nil {
		t.Fatalf("runinput.Find: %v", err)
	}
	var manifest []source.Series
	for _, in := range inputs {
		manifest = append(manifest, source.Series{Name: in.Name, URI: "file:data/data/" + in.Name})
	}
	list, err := json.Marshal(manifest)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	write(t, filepath.Join(data, "manifest.json"), string(list))
	swarmJSON, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	job, err := json.Marshal(cpuagents.StreamSpec{
		Name: spec.Name, Spec: swarmJSON, Candidates: spec.Vote.Candidates,
		Columns:  rows.ColumnSpec{Timestamp: spec.Timestamp, Features: spec.Features},
		Manifest: "file:data/manifest.json", Output: "file:data/out.ndjson", Rejects: "file:data/rejects.ndjson",
		Summary: "file:data/summary.json", Learning: spec.Learning(),
	})
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	return string(job)
}
