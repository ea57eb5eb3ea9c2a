package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/agentview"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// The swarms of a live cluster: one that is addressed by agent, of three shards, one that watches
// series, one on a grid, one in a box and one on a graph.
const (
	crowd = `name: crowd
addressed: agent
cell: {kind: gru, params: {hidden: 8}}
agents: 90000
agents_per_group: 100
shards: 3
features: [a]
vote: {candidates: [calm, busy, unsure], rule: plurality}
seed: 1
`
	shops = `name: shops
cell: {kind: predictor}
groups: 40
agents_per_group: 64
features: [value]
vote: {candidates: [normal, suspicious, anomalous], rule: weighted}
seed: 1
`
	garden = `name: garden
addressed: agent
cell: {kind: life}
neighbours: {width: 120, height: 64}
features: [alive]
`
	flock = `name: flock
addressed: agent
agents: 2000
cell: {kind: boids}
neighbours: {space: {size: [60, 40], radius: 2, periodic: true}}
`
	cortex = `name: cortex
addressed: agent
agents: 1000
cell: {kind: izhikevich, params: {noise: 12, inhibitory: 0.2}}
neighbours: {random: {degree: 100, seed: 1}}
features: [current]
`
)

// liveViews are the pages of a live cluster with a text that each shows.
var liveViews = []view{
	{"overview", "", "nosuch"},
	{"queue", "queue", "row 7 is no number"},
	{"job", "jobs/report", "not over yet"},
	{"swarms", "swarms", "predictor"},
	{"swarm", "swarms/crowd", "cells of up to"},
	{"grid", "swarms/garden", "A grid of 120 columns and 64 rows"},
	{"box", "swarms/flock", "A box of 60 by 40"},
	{"spikes", "swarms/cortex", "and a column a tick"},
	{"decision", "swarms/shops/shards/0/decisions/3", "What group 0 decided before"},
	{"moment", "swarms/shops/shards/0/at/9/and/10/group/7", "The shard differs between the moments"},
	{"agents", "agents", "gpu-1"},
	{"agent", "agents/gpu-1", "Longest"},
	{"tiers", "tiers", "Pale cells"},
	{"tenants", "tenants", "acme"},
	{"nats", "nats", "EXO_JOBS"},
	{"doctor", "doctor", "nosuch"},
	{"audit", "audit", "tenant.limit"},
}

// live is a cluster in this process: a NATS server, a GPU agent on the host device, a worker, two
// swarms with entries and jobs in many states.
func live(t *testing.T) (*natsq.Conn, *cluster.Watcher) {
	t.Helper()
	s := jobstest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	ctx := t.Context()
	quiet, began := slog.New(slog.DiscardHandler), time.Now()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	announce := func(describe func() jobs.Agent) {
		entry, err := c.Registry.Announce(ctx, describe, quiet)
		must(err)
		t.Cleanup(func() { _ = entry.Close(context.WithoutCancel(ctx)) })
	}

	people, series, grid := createSwarm(t, c, crowd, 3), createSwarm(t, c, shops, 1), createSwarm(t, c, garden, 1)
	ticking := []swarms.Swarm{grid, createSwarm(t, c, flock, 1), createSwarm(t, c, cortex, 1)}
	dev, err := cuda.Open(ctx, "host", cuda.Options{})
	must(err)
	t.Cleanup(func() { _ = dev.Close() })
	registry := prometheus.NewRegistry()
	metrics, err := gpuagents.NewMetrics(registry)
	must(err)
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "gpu-1", Device: dev, Queue: c.Swarms, PageMemory: 256 << 20, Logger: quiet, Metrics: metrics,
	})
	must(err)
	t.Cleanup(func() { agent.Stop() })
	announce(func() jobs.Agent {
		return jobs.Agent{
			Name: "gpu-1", Pool: jobs.PoolGPU, State: "serving", Device: "host", Started: began,
			Running:   agent.Shards(),
			MaxShards: 8, Memory: 256 << 20, Room: &jobs.Room{Shard: 256 << 20, All: 256 << 20},
		}
	})
	silent, err := c.Telemetry.Answer("gpu-1",
		func(names []string) []jobs.Sample { return command.Samples(registry, names) })
	must(err)
	t.Cleanup(silent)
	silent, err = c.Telemetry.AnswerView("gpu-1", func(ctx context.Context, v telemetry.View) (any, error) {
		return agentview.Answer(ctx, "gpu-1", gpuagents.ViewsOf(agent), v)
	})
	must(err)
	t.Cleanup(silent)

	feeds, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		feed(feeds, t, c, people, series, ticking)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})

	release := make(chan struct{})
	t.Cleanup(func() { close(release) }) // before the worker drains
	worker := jobstest.Work(t, jobstest.Open(t, s, natsq.Connect).Work, natsq.WorkerOptions{
		Pool: jobs.PoolCPU, Logger: jobstest.Quiet, Name: "cpu-1", Concurrency: 2, Handlers: map[string]jobs.Handler{
			"import": func(ctx context.Context, _ jobs.Job, progress func(any)) (any, error) {
				jobs.Logger(ctx).Info("opened", "file", "shops.csv")
				jobs.Logger(ctx).Warn("a row is wrong", "row", 7)
				for i := 1; ; i++ {
					progress(map[string]int{"done": min(640+i, 1000), "total": 1000})
					select {
					case <-release:
						return map[string]int{"rows": 1000}, nil
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					case <-time.After(time.Second):
					}
				}
			},
			"parse": func(context.Context, jobs.Job, func(any)) (any, error) {
				return nil, jobs.Errorf(jobs.CodeInput, "row 7 is no number: correct the file")
			},
		},
	})
	announce(func() jobs.Agent {
		return jobs.Agent{
			Name: "cpu-1", Pool: jobs.PoolCPU, Kinds: []string{"import", "parse"}, Concurrency: 2,
			Running: worker.Running(),
			State:   "serving", Started: began,
		}
	})
	submit := func(id, kind string, edit func(*jobs.Job)) {
		j := jobstest.Job(id, kind)
		j.Submitted = time.Now().UTC()
		j.Spec = json.RawMessage(`{"input":"shops.csv","output":"https://user:hunter2@example/x"}`)
		if edit != nil {
			edit(&j)
		}
		must(c.Queue.Submit(ctx, j))
	}
	submit("import", "import", nil)
	submit("report", "parse", func(j *jobs.Job) { j.After = []string{"import"} })
	submit("broken", "parse", nil)
	submit("strange", "nosuch", nil)
	submit("later", "parse", func(j *jobs.Job) { j.NotBefore = time.Now().Add(time.Hour) })
	must(c.Control.LimitTenant(ctx, "acme", jobs.Limits{Concurrency: new(4), Weight: new(2.0)}))

	w := cluster.Start(cluster.Options{Conn: c})
	t.Cleanup(w.Close)
	return c, w
}

func createSwarm(t *testing.T, c *natsq.Conn, text string, shards int) swarms.Swarm {
	t.Helper()
	spec, err := swarm.Parse("swarm.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	s := swarms.Swarm{
		Version: jobs.Version, ID: spec.Name, Name: spec.Name, Spec: data, Groups: spec.Groups(), Shards: shards,
		Nonce: swarms.NewNonce(), Created: time.Now().UTC(),
	}
	for i := range shards {
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			if err := c.Swarms.Log(s.Key(), i, d).Create(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Swarms.CreateSwarm(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// feed appends entries to the logs of swarms until ctx ends: ticks and votes for the first, rows
// for the second, and ticks for the others. The first of the others is a grid with the gun of
// examples/life.
func feed(ctx context.Context, t *testing.T, c *natsq.Conn, people, series swarms.Swarm, ticking []swarms.Swarm) {
	seq := map[string]uint64{}
	add := func(s swarms.Swarm, shard int, entries ...swarms.Entry) {
		key := fmt.Sprint(s.ID, shard)
		for i := range entries {
			entries[i].Ref = seq[key] + uint64(i) + 1
		}
		if err := c.Swarms.Log(s.Key(), shard, swarms.In).Append(ctx, seq[key], entries...); err != nil &&
			ctx.Err() == nil {
			t.Error(err)
		}
		seq[key] += uint64(len(entries))
	}
	gun, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "examples", "life", "gun.csv"))
	if err != nil {
		t.Error(err)
		return
	}
	alive := batch.AgentObservations{Width: 1}
	for line := range strings.Lines(string(gun)) {
		var id uint32
		var state float32
		if n, _ := fmt.Sscanf(line, "%d,%g", &id, &state); n == 2 {
			alive.Agent, alive.Features = append(alive.Agent, id), append(alive.Features, state)
		}
	}
	data, err := alive.Encode()
	if err != nil {
		t.Error(err)
		return
	}
	add(ticking[0], 0, swarms.Entry{Kind: swarms.EntryObserve, Data: data})
	row := uint64(0)
	for n := 1; ctx.Err() == nil; n++ {
		for shard := range 3 {
			add(people, shard, swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)},
				swarms.Entry{Kind: swarms.EntryVote, Data: fmt.Appendf(nil, `{"v":1,"round":%d}`, n)})
		}
		for i, s := range ticking {
			add(s, 0, swarms.Entry{Kind: swarms.EntryTick, Data: fmt.Appendf(nil, `{"v":1,"count":%d}`, 1+20*(i/2))})
		}
		o := &batch.Observations{Width: 1}
		for g := range series.Groups {
			row++
			v := 10 + 3*math.Sin(float64(n)/9+float64(g))
			at := time.Now()
			o.Group, o.Row, o.Time, o.Read = append(o.Group, uint32(g)), append(
				o.Row,
				row,
			), append(o.Time, at.UnixNano()), append(
				o.Read,
				at.UnixNano(),
			)
			o.Features, o.Timestamp, o.Value = append(o.Features, float32(v)), append(
				o.Timestamp,
				at.UTC().Format(time.RFC3339),
			), append(o.Value, v)
		}
		data, err := o.Encode()
		if err != nil {
			t.Error(err)
			return
		}
		add(series, 0, swarms.Entry{Kind: swarms.EntryObserve, Data: data})
		pause(ctx, 300*time.Millisecond)
	}
}

// TestLive shows a real cluster in a browser, every page in both color schemes.
func TestLive(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("40 s: the pages of TestPages with another cluster")
	}
	b := openBrowser(t)
	c, w := live(t)
	guide, err := travel.New(travel.Options{Conn: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = guide.Close() })
	op, err := action.New(action.Options{Conn: c})
	if err != nil {
		t.Fatal(err)
	}
	limit := action.Request{Action: "tenant.limit", Object: "acme", Limits: &jobs.Limits{Queued: new(500)}}
	p, err := op.Preview(t.Context(), limit)
	if err == nil {
		_, err = op.Confirm(
			t.Context(),
			control.Actor{User: "operator", From: "127.0.0.1:1", Via: "dashboard"},
			p.Request,
			p.Digest,
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := opened(t, Observe(w, c), func(o *Options) {
		o.Version, o.Actions, o.Past = "v0.1.0", op, guide
		o.Audit = func(ctx context.Context, since time.Time, limit int) (all []control.AuditEntry, err error) {
			err = c.Audit.List(ctx, since, func(e control.AuditEntry) bool {
				all = append(all, e)
				return len(all) < limit
			})
			return all, err
		}
		o.Doctor = func(ctx context.Context) ([]doctor.Result, error) {
			return doctor.Examine(&doctor.Facts{At: time.Now(), State: w.State(), Drift: doctor.Drift(ctx, c)}), nil
		}
	})
	b.with(t).begin(r)
	b.until("some history", `document.querySelector("figure")`)
	for w.State().Frame < 25 && !t.Failed() { // the charts have a past
		if _, err := w.Wait(t.Context(), w.State().Frame); err != nil {
			t.Fatal(err)
		}
	}
	b.eachScreen(t, liveViews, *pictures)
	if _, body := r.get(t, "jobs/import"); strings.Contains(body, "hunter") {
		t.Error("the job shows a secret:", body)
	}
	if _, body := r.get(t, "swarms/shops/decisions?limit=1"); !strings.Contains(body, `"counts":[`) {
		t.Error("the decisions have no votes:", body)
	}
}

// TestLiveViewers: 50 browsers cost the cluster as much as one.
func TestLiveViewers(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	w := cluster.Start(cluster.Options{Conn: c, Every: 100 * time.Millisecond})
	t.Cleanup(w.Close)
	r := opened(t, Observe(w, c), nil)
	// sent returns the messages that the process sends to NATS for each poll.
	sent := func(viewers int) float64 {
		for range viewers {
			s := r.listen(t, true)
			defer s.close()
			s.next(t)
		}
		before, frame := c.NC.Stats().OutMsgs, w.State().Frame
		for w.State().Frame < frame+20 {
			if _, err := w.Wait(t.Context(), w.State().Frame); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		return float64(c.NC.Stats().OutMsgs-before) / float64(w.State().Frame-frame)
	}
	one, fifty := sent(1), sent(50)
	t.Logf("messages a look: %.2f with one viewer, %.2f with 50", one, fifty)
	if fifty > one*1.2+1 {
		t.Errorf("50 viewers cause %.1f messages a look, one %.1f", fifty, one)
	}
}
