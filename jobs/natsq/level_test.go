package natsq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestLevelStreams: on three servers a job chooses between memory, one and three replicas. The
// default level needs no other stream. A level that the cluster cannot give is refused.
func TestLevelStreams(t *testing.T) {
	t.Parallel()
	servers := jobstest.Cluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	c, err := natsq.Connect(ctx, natsconn.Options{URL: servers[0].URL(), Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	of := func(l jobs.Level) jobs.Job { return jobstest.Job("j"+string(l), "k").WithLevel(l) }
	for _, l := range []jobs.Level{"", jobs.LevelMemory, jobs.LevelOne, jobs.LevelThree} {
		if err := c.Queue.Submit(ctx, of(l)); err != nil {
			t.Errorf("level %q: %v", l, err)
		}
	}
	if err := c.Queue.Submit(ctx, of(jobs.LevelFive)); jobs.AsError(err).Code != jobs.CodeInvalid ||
		!strings.Contains(err.Error(), "exoswarm init --replicas 5, on as many servers") {
		t.Errorf("five replicas on three servers: %v", err)
	}
	for stream, want := range map[string]struct {
		replicas int
		storage  jetstream.StorageType
		jobs     uint64
	}{
		"EXO_JOBS_CPU":        {3, jetstream.FileStorage, 2}, // the default and three
		"EXO_JOBS_CPU_ONE":    {1, jetstream.FileStorage, 1},
		"EXO_JOBS_CPU_MEMORY": {1, jetstream.MemoryStorage, 1},
	} {
		s, err := c.JS.Stream(ctx, stream)
		if err != nil {
			t.Errorf("%s: %v", stream, err)
			continue
		}
		if i := s.CachedInfo(); i.Config.Replicas != want.replicas || i.Config.Storage != want.storage ||
			i.State.Msgs != want.jobs {
			t.Errorf("%s: %+v, %+v", stream, i.Config, i.State)
		}
	}
	if levels, err := c.JobLevels(ctx, jobs.PoolCPU, 0); err != nil || len(levels) != 2 {
		t.Errorf("levels %v, %v", levels, err)
	}
	if levels, err := c.JobLevels(ctx, jobs.PoolGPU, 0); err != nil || len(levels) != 0 {
		t.Errorf("levels of the other pool %v, %v", levels, err)
	}
	work(t, c, natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{"k": func(_ context.Context, j jobs.Job, _ func(any)) (any, error) {
			return j.Level(), nil
		}},
	})
	for _, l := range []jobs.Level{"", jobs.LevelMemory, jobs.LevelOne, jobs.LevelThree} {
		want, _ := json.Marshal(l)
		if r := jobstest.Await(t, c.Results, of(l).ID); r.Status != jobs.Done || string(r.Output) != string(want) {
			t.Errorf("level %q: %+v", l, r)
		}
	}
}

// TestLevelOldAgents: a job of a level is refused while the agents of its kind are of a version
// that knows no levels, and runs where one agent reads it. A delayed job that such an agent moves
// is not lost: it loses its level.
func TestLevelOldAgents(t *testing.T) {
	t.Parallel()
	s, c := jobstest.InProcess(t, natsq.Connect)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	kv, err := c.JS.KeyValue(ctx, wire.AgentBucket)
	if err != nil {
		t.Fatal(err)
	}
	old := func(name string) {
		t.Helper()
		if _, err := kv.Put(ctx, name, fmt.Appendf(nil, `{"v":1,"name":%q,"pool":"cpu","kinds":["k","stream"],`+
			`"state":"serving"}`, name)); err != nil {
			t.Fatal(err)
		}
	}
	old("former")
	in := func(id, kind string) jobs.Job { return jobstest.Job(id, kind).WithLevel(jobs.LevelMemory) }
	for range 2 { // nothing of the first answer is kept
		if err := c.Queue.Submit(ctx, in("a", "k")); jobs.AsError(err).Code != jobs.CodeInvalid ||
			!strings.Contains(err.Error(), "former knows no levels: update it") {
			t.Fatalf("a level that no agent reads: %v", err)
		}
	}
	if err := c.Queue.Submit(ctx, in("nobody", "served")); err != nil {
		t.Fatalf("a kind without agents: %v", err)
	}
	newer := jobstest.Open(t, s, natsq.Connect)
	entry, err := newer.Registry.Announce(ctx, func() jobs.Agent {
		return jobs.Agent{Name: "newer", Pool: jobs.PoolCPU, Kinds: []string{"k", "stream"}, State: "serving"}
	}, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = entry.Close(context.WithoutCancel(ctx)) }()
	old("former")
	if err := c.Queue.Submit(ctx, in("a", "k")); err != nil {
		t.Fatalf("one agent reads the level: %v", err)
	}
	if err := c.Queue.Submit(ctx, jobstest.Job("swarm", "stream").WithLevel(jobs.LevelMemory)); err == nil ||
		!strings.Contains(err.Error(), "agent former knows no levels, and would remove the swarm") {
		t.Fatalf("a swarm that an old agent removes: %v", err)
	}
	// What a process does that knows no levels: it copies the body, and reads it strictly.
	delayed := in("late", "k")
	delayed.NotBefore = time.Now().Add(time.Hour)
	if err := c.Queue.Submit(ctx, delayed); err != nil {
		t.Fatal(err)
	}
	m, err := c.Last(ctx, wire.SchedStream, wire.SourceOf(delayed).Sched("late"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(m.Data), "durability") {
		t.Errorf("a body that an earlier version refuses: %s", m.Data)
	}
	if n, err := c.Purge(ctx, wire.SchedStream, m.Subject); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if _, err := c.JS.Publish(ctx, wire.SourceOf(delayed).Job("late"), m.Data); err != nil {
		t.Fatal(err)
	}
	work(t, newer, natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{"k": func(context.Context, jobs.Job, func(any)) (any, error) {
			return nil, nil
		}},
	})
	for _, id := range []string{"a", "late"} {
		if r := jobstest.Await(t, c.Results, id); r.Status != jobs.Done {
			t.Errorf("%+v", r)
		}
	}
}

// TestLevelAway: while the only server of a level is away, the jobs of other levels are submitted,
// listed, counted and done by workers that start meanwhile, and nothing says "not found" of a job
// that may be there.
func TestLevelAway(t *testing.T) {
	t.Parallel()
	servers := jobstest.Cluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	connect := func(s *server.Server, patience time.Duration) *natsq.Conn {
		t.Helper()
		c, err := natsq.Connect(ctx, natsconn.Options{URL: s.URL(), Replicas: 3, Patience: patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	c := connect(servers[0], 0)
	if err := c.Queue.Submit(ctx, jobstest.Job("away", "k").WithLevel(jobs.LevelOne)); err != nil {
		t.Fatal(err)
	}
	s, err := c.JS.Stream(ctx, "EXO_JOBS_CPU_ONE")
	if err != nil {
		t.Fatal(err)
	}
	has := s.CachedInfo().Cluster.Leader
	var left *server.Server
	for i, s := range servers {
		if fmt.Sprintf("s%d", i) == has {
			s.Close()
		} else {
			left = s
		}
	}
	c = connect(left, 0)
	for _, id := range []string{"here", "here2"} {
		if err := c.Queue.Submit(ctx, jobstest.Job(id, "k")); err != nil {
			t.Errorf("the default level: %v", err)
		}
	}
	if err := c.Queue.Submit(ctx, jobstest.Job("memory", "k").WithLevel(jobs.LevelMemory)); err != nil {
		t.Errorf("memory: %v", err)
	}
	if st, err := c.Queue.Stats(ctx, jobs.PoolCPU); err != nil || st.Jobs != 3 {
		t.Errorf("%+v, %v", st, err)
	}
	n := 0
	if err := c.Queue.Jobs(ctx, jobs.PoolCPU, func(jobs.Job) bool { n++; return true }); err != nil || n != 3 {
		t.Errorf("%d jobs are listed: %v", n, err)
	}
	if _, err := c.Queue.Find(ctx, "here"); err != nil {
		t.Errorf("a job of another level: %v", err)
	}
	impatient := connect(left, 2*time.Second) // no answer comes for the job that is away
	if _, err := impatient.Queue.Find(ctx, "away"); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("a job that may be there: %v", err)
	}
	if there, err := impatient.Queue.Known(ctx, "away"); there || !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("a job that may be there is known %v: %v", there, err)
	}
	work(t, c, natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{"k": func(context.Context, jobs.Job, func(any)) (any, error) {
			return nil, nil
		}},
	})
	for _, id := range []string{"here", "here2", "memory"} {
		if r := jobstest.Await(t, c.Results, id); r.Status != jobs.Done {
			t.Errorf("%+v", r)
		}
	}
	if err := c.Queue.Cancel(ctx, jobstest.Job("here", "k"), false); err != nil {
		t.Errorf("cancel a job that has ended: %v", err)
	}
}

// TestLevelServerRestart: a server that starts again has lost its jobs in memory, and the stream.
// The same worker continues with jobs of the default level, and with new jobs in memory.
func TestLevelServerRestart(t *testing.T) {
	t.Parallel()
	o := server.Options{Dir: t.TempDir(), Port: jobstest.Port(t), Fast: true}
	s, err := server.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	c, err := natsq.Connect(ctx, natsconn.Options{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	submit := func(id, kind string, l jobs.Level) {
		t.Helper()
		testkit.Until(t, "job "+id+" to be taken", func() bool {
			err := c.Queue.Submit(ctx, jobstest.Job(id, kind).WithLevel(l))
			if err != nil && !errors.Is(err, jobs.ErrExists) {
				t.Logf("submit %s: %v", id, err)
			}
			return err == nil || errors.Is(err, jobs.ErrExists)
		})
	}
	work(t, c, natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Logger: jobstest.Quiet,
		Handlers: map[string]jobs.Handler{"k": func(context.Context, jobs.Job, func(any)) (any, error) {
			return nil, nil
		}},
	})
	submit("m1", "k", jobs.LevelMemory)
	jobstest.Await(t, c.Results, "m1")
	submit("lost", "unserved", jobs.LevelMemory)
	submit("kept", "unserved", "")
	s.Close()
	if s, err = server.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for i := range 3 {
		submit(fmt.Sprint("d", i), "k", "")
		submit(fmt.Sprint("m-after", i), "k", jobs.LevelMemory)
	}
	for i := range 3 {
		for _, id := range []string{fmt.Sprint("d", i), fmt.Sprint("m-after", i)} {
			if r := jobstest.Await(t, c.Results, id); r.Status != jobs.Done {
				t.Errorf("%+v", r)
			}
		}
	}
	if _, err := c.Queue.Find(ctx, "kept"); err != nil {
		t.Errorf("a job on disk: %v", err)
	}
	if _, err := c.Queue.Find(ctx, "lost"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a job in memory: %v", err)
	}
}
