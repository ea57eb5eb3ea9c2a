package swarmclient

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestNamed: an id goes before the name of a run's spec, which names a run where one alone has it.
func TestNamed(t *testing.T) {
	run := func(id, name string) swarms.Change {
		return swarms.Change{ID: id, Swarm: swarms.Swarm{ID: id, Name: name}}
	}
	all := []swarms.Change{
		run("j1", "plant"), run("j2", "mill"), run("j3", "mill"), run("j4", "j1"),
		{ID: "broken", Err: errors.New("no JSON")},
	}
	for name, want := range map[string]string{"plant": "j1", "j3": "j3", "j1": "j1", "broken": "broken"} {
		if s, err := named(all, name); err != nil || s.ID != want {
			t.Errorf("%s: %s %v, want %s", name, s.ID, err, want)
		}
	}
	if _, err := named(all, "mill"); err == nil || !strings.Contains(err.Error(), "2 runs have that name: use the "+
		"id of one: j2, j3") {
		t.Errorf("a name of two runs: error %v, want both ids", err)
	}
	if _, err := named(all, "quarry"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("an unknown name: error %v, want jobs.ErrNotFound", err)
	}
}

// TestCreateRefused: a swarm is refused at its creation when every GPU agent is full, with their
// numbers, and nothing of it is left.
func TestCreateRefused(t *testing.T) {
	_, conn := jobstest.InProcess(t, natsq.Connect)
	c, err := New(Options{Swarms: conn.Swarms, Agents: conn.Registry, Timeout: time.Second})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	spec := &swarm.Spec{Name: "one", AgentsPerGroup: 10, GroupCount: 1}
	announce := func(name, state string) {
		t.Helper()
		a, err := conn.Registry.Announce(t.Context(), func() jobs.Agent {
			return jobs.Agent{Name: name, Pool: jobs.PoolGPU, Running: 3, MaxShards: 3, State: state}
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("announce %s: %v", name, err)
		}
		t.Cleanup(func() { _ = a.Close(context.WithoutCancel(t.Context())) })
	}
	if err := c.admit(t.Context(), spec); err != nil {
		t.Errorf("without agents: %v, want no refusal", err)
	}
	announce("a", "full")
	if _, err := c.Create(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), "swarm one: every GPU "+
		"agent has as many shards as it takes (a has 3 of 3)") {
		t.Errorf("all agents are full: error %v, want a refusal with their numbers", err)
	}
	if all, err := c.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after the refusal: %d swarms, error %v; want none", len(all), err)
	}
	announce("b", "serving")
	if err := c.admit(t.Context(), spec); err != nil {
		t.Errorf("one agent has room: %v, want no refusal", err)
	}
}

// TestNew: options without a store, or with a negative timeout, are refused.
func TestNew(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("New without Swarms succeeds")
	}
	_, conn := jobstest.InProcess(t, natsq.Connect)
	if _, err := New(Options{Swarms: conn.Swarms, Timeout: -1}); err == nil {
		t.Error("New with a negative Timeout succeeds")
	}
	c, err := New(Options{Swarms: conn.Swarms})
	if err != nil || c.timeout != DefaultTimeout {
		t.Errorf("New with defaults: timeout %v, error %v; want %v", c.timeout, err, DefaultTimeout)
	}
}

// TestDelete: a swarm is removed only after its confirmation. The swarm of a run is not removed
// while its job runs, nor without Jobs.
func TestDelete(t *testing.T) {
	_, conn := jobstest.InProcess(t, natsq.Connect)
	c, err := New(Options{Swarms: conn.Swarms})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	create := func(id, job string) {
		t.Helper()
		if err := conn.Swarms.CreateSwarm(t.Context(), swarms.Swarm{
			Version: jobs.Version, ID: id, Nonce: swarms.NewNonce(), Name: id, Owner: job, Spec: []byte("{}"),
			Groups:  1,
			Created: time.Now().UTC(),
		}); err != nil {
			t.Fatalf("create %s: %v", id, err)
		}
	}
	create("lasting", "")
	refusal := errors.New("not confirmed")
	if err := c.Delete(t.Context(), "lasting", func() error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("not confirmed: error %v, want the error of the confirmation", err)
	}
	if _, err := conn.Swarms.Swarm(t.Context(), "lasting"); err != nil {
		t.Errorf("not confirmed, and the swarm is not there: %v", err)
	}
	if err := c.Delete(t.Context(), "lasting", nil); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := c.Delete(t.Context(), "lasting", nil); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("delete it again: error %v, want jobs.ErrNotFound", err)
	}
	if err := c.Delete(t.Context(), "not an id", nil); err == nil {
		t.Error("an invalid id is accepted")
	}
	create("01job", "01job")
	over := &jobsOver{}
	if s, err := conn.Swarms.Swarm(t.Context(), "01job"); err != nil || s.OwnerJob() == "" {
		t.Fatalf("the record of a run: job %q, error %v", s.OwnerJob(), err)
	}
	for _, j := range []Jobs{nil, over} {
		c.jobs = j
		if err := c.Delete(t.Context(), "01job", nil); err == nil ||
			!strings.Contains(err.Error(), "exoswarm job cancel") {
			t.Errorf("the swarm of a run, Jobs %v: error %v, want a refusal", j, err)
		}
	}
	over.over = true
	if err := c.Delete(t.Context(), "01job", nil); err != nil {
		t.Errorf("the swarm of a run that is over: %v", err)
	}
}

type jobsOver struct{ over bool }

func (j *jobsOver) Over(context.Context, string) (bool, error) { return j.over, nil }

// TestAdmitBeside: a swarm whose agents have neighbours is refused when no GPU agent has room on
// its device for its pages and for what ticks need in addition.
func TestAdmitBeside(t *testing.T) {
	spec, err := swarm.Parse("test.yaml", []byte("name: flock\naddressed: agent\nagents: 10000\ncell: {kind: boids}\n"+
		"neighbours: {space: {size: [90, 90, 90], radius: 1}}\npage_size: 64KiB\n"))
	if err != nil {
		t.Fatal(err)
	}
	const beside = 44 << 10
	c := Client{beside: func(*swarm.Spec) int64 { return beside }}
	need := spec.PageBytes(spec.Groups()) + beside
	agents := func(free int64) []jobs.Agent {
		return []jobs.Agent{{Pool: jobs.PoolGPU, Room: &jobs.Room{Shard: need, All: need, Free: &free}}}
	}
	if err := c.admitPages(spec, agents(need)); err != nil {
		t.Errorf("%d bytes for as many: %v, want no refusal", need, err)
	}
	if err := c.admitPages(spec, agents(need-1)); err == nil || !strings.Contains(err.Error(), "swarm flock does not "+
		"fit: agents that have neighbours are all on one device: their pages need 256 KiB there and what ticks need "+
		"beside them 44 KiB") {
		t.Errorf("a byte less: %v, want a refusal", err)
	}
}
