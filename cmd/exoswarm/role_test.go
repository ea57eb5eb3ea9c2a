package main

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestGPUAgentRole: a GPU agent serves a swarm and executes jobs of pool gpu under the role of its
// kind, and reads nothing of jobs of pool cpu.
func TestGPUAgentRole(t *testing.T) {
	testkit.OnlyLong(t)
	dir := t.TempDir()
	folder := filepath.Join(dir, "auth")
	if code, _, stderr := exec(t.Context(), t, "auth", "init", "--dir", folder, "--tenant", "acme",
		"--yes"); code != 0 {
		t.Fatalf("auth init: exit %d, want 0: %s", code, stderr)
	}
	s := jobstest.Start(t, server.Options{Auth: filepath.Join(folder, auth.ConfigName)})
	creds := func(user string) string { return filepath.Join(folder, "creds", user+".creds") }
	connect := func(user string) *natsq.Conn {
		t.Helper()
		c, err := natsq.Connect(t.Context(), natsconn.Options{
			URL:   s.URL(),
			Login: natsconn.Login{Credentials: creds(user)}, Name: user,
		})
		if err != nil {
			t.Fatalf("natsq.Connect: %v", err)
		}
		t.Cleanup(c.Close)
		return c
	}
	operator := connect(auth.Operator)
	me := connect(auth.GPUAgent)
	dev, err := host.Open(host.Options{})
	if err != nil {
		t.Fatalf("host.Open: %v", err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "gpu", Device: dev, Queue: me.Swarms,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	t.Cleanup(agent.Stop)
	entry, err := me.Registry.Announce(t.Context(),
		func() jobs.Agent { return jobs.Agent{Name: "gpu", Pool: jobs.PoolGPU} }, nil)
	if err != nil {
		t.Fatalf("me.Registry.Announce: %v", err)
	}
	defer func() { _ = entry.Close(t.Context()) }()
	spec := write(t, filepath.Join(dir, "agents.yaml"), "name: lasting\naddressed: agent\nagents: 256\ncell: {kind: "+
		"leaky}\n")
	for _, line := range []string{
		"swarm create -f " + spec, "swarm tick lasting --count 3",
		"swarm query lasting --agents 1-3", "swarm reset lasting", "swarm delete lasting --yes",
	} {
		words := append(strings.Fields(line), "--nats", s.URL(), "--nats-creds", creds(auth.Operator))
		if code, _, stderr := exec(t.Context(), t, words...); code != 0 {
			t.Fatalf("%s: exit %d: %s", line, code, stderr)
		}
	}
	j := jobs.Job{
		Version: jobs.Version, ID: "j", Pool: jobs.PoolCPU, Kind: "none", Spec: []byte("1"),
		Submitted: time.Now().UTC(),
	}
	if err := operator.Queue.Submit(t.Context(), j); err != nil {
		t.Fatalf("operator.Queue.Submit: %v", err)
	}
	for what, try := range map[string]func() error{
		"find a job": func() error { _, err := me.Queue.Find(t.Context(), "j"); return err },
		"dead letters": func() error {
			return me.Letters.List(t.Context(), jobs.DeadFilter{}, func(jobs.DeadLetter) bool { return true })
		},
		"schedules": func() error { _, err := me.Schedules.Schedules(t.Context()); return err },
		"submit":    func() error { return me.Queue.Submit(t.Context(), j) },
		"cancel":    func() error { return me.Queue.Cancel(t.Context(), j, false) },
		"publish": func() error {
			return me.Streams.Publish(t.Context(), jobs.Publication{Stream: "s", Subject: "exo.out.x", ID: "i"})
		},
		"push": func() error { _, err := me.Streams.Push(t.Context(), "p", "k", [][]byte{[]byte("1\n")}); return err },
	} {
		if err := try(); !errors.Is(err, jobs.ErrDenied) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
