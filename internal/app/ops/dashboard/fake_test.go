package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/internal/app/detectors"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// fakeCluster is a Cluster whose frames a test makes. It counts the questions.
type fakeCluster struct {
	mu       sync.Mutex
	newest   *cluster.State
	changed  chan struct{}
	watchers atomic.Int64
	watched  atomic.Int64 // calls of Watched
	waits    atomic.Int64
	asked    atomic.Int64 // other questions to the cluster
	fail     atomic.Pointer[error]
}

func newFake(s *cluster.State) *fakeCluster {
	return &fakeCluster{newest: s, changed: make(chan struct{})}
}

func (f *fakeCluster) next(edit func(*cluster.State)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := *f.newest
	s.Frame++
	s.At = time.Now()
	if edit != nil {
		edit(&s)
	}
	f.newest = &s
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeCluster) State() *cluster.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest
}

func (f *fakeCluster) Wait(ctx context.Context, after uint64) (*cluster.State, error) {
	f.waits.Add(1)
	for {
		f.mu.Lock()
		s, changed := f.newest, f.changed
		f.mu.Unlock()
		if s.Frame > after {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (f *fakeCluster) Watched() func() {
	f.watched.Add(1)
	f.watchers.Add(1)
	return func() { f.watchers.Add(-1) }
}

func (f *fakeCluster) History(names []string, from time.Time) cluster.History {
	h := cluster.History{Step: time.Second, Series: map[string][]*float64{}}
	for at := from.Unix(); at < time.Now().Unix(); at++ {
		h.At = append(h.At, at)
	}
	for _, name := range names {
		for i := range h.At {
			v := float64(i % 17)
			h.Series[name] = append(h.Series[name], &v)
		}
	}
	return h
}

func (f *fakeCluster) ask() error {
	f.asked.Add(1)
	if err := f.fail.Load(); err != nil {
		return *err
	}
	return nil
}

var submitted = time.Now().Add(-90 * time.Second)

func fakeJob(id string) cluster.JobView {
	v := cluster.JobView{ID: id, State: "running", Job: &jobs.Job{
		ID: id, Pool: jobs.PoolCPU, Kind: "stream", Submitted: submitted, Lane: jobs.Normal, Tenant: "default",
		MaxAttempts: 5, After: []string{"before-1", "before-2"},
		Spec: json.RawMessage(
			`{"sink":{"url":"https://user:hunter2@host/x","headers":{"X":"hunter3"},"token":"hunter4",` +
				`"rows":12345678901234567890}}`,
		),
	}, Waits: []string{"before-2"}, Running: &jobs.Running{
		JobID: id, Worker: "c1", Attempt: 1, Since: submitted.Add(10 * time.Second),
		Progress: json.RawMessage(`{"series":3,"observations":1000,"decisions":640,"rejected":2}`),
	}}
	return v
}

func (f *fakeCluster) Jobs(_ context.Context, pool string, over bool, limit int) ([]cluster.JobView, error) {
	var all []cluster.JobView
	switch {
	case !over && pool == "" || limit < 0:
		return nil, jobs.Errorf(jobs.CodeInvalid, "pool %q, limit %d", pool, limit)
	case pool == string(jobs.PoolCPU) && !over:
		all = append(all, fakeJob("j1"), fakeJob("j2"))
	case over:
		j := fakeJob("j0")
		j.State, j.Running = "failed", nil
		j.Result = &jobs.Result{
			JobID:  "j0",
			Kind:   "stream",
			Status: jobs.Failed,
			Error:  jobs.Errorf(jobs.CodeIO, "disk full"),
		}
		all = append(all, j)
	}
	return all, f.ask()
}

func (f *fakeCluster) Job(_ context.Context, id string) (cluster.JobView, error) {
	if id == "none" {
		return cluster.JobView{}, fmt.Errorf("job %q: %w", id, jobs.ErrNotFound)
	}
	return fakeJob(id), f.ask()
}

func (f *fakeCluster) JobLogs(context.Context, string) ([]jobs.LogLines, error) {
	return []jobs.LogLines{{JobID: "j1", Attempt: 1, Worker: "c1", Lines: []json.RawMessage{
		json.RawMessage(`{"time":"2026-11-23T07:00:00Z","level":"INFO","msg":"opened","file":"a.csv"}`),
		json.RawMessage(`{"time":"2026-11-23T07:00:01Z","level":"WARN","msg":"a row is wrong","row":7}`),
	}}}, f.ask()
}

func (f *fakeCluster) ExplainJob(context.Context, string) (doctor.Reason, error) {
	return doctor.Reason{
		Cause: "parents", Sentence: "The job waits for job before-2.",
		Evidence: []string{"before-2 is queued"}, Cure: "Wait, or cancel before-2.",
	}, f.ask()
}

func (f *fakeCluster) ExplainSwarm(_ context.Context, id string) (doctor.Reason, error) {
	if id != "s1" {
		return doctor.Reason{}, fmt.Errorf("swarm %q: %w", id, jobs.ErrNotFound)
	}
	return doctor.Reason{
		Cause: "no_room", Sentence: "No GPU agent has room for shard 2.",
		Evidence: []string{"g1 has 12 MiB"}, Cure: "Start a GPU agent.",
	}, f.ask()
}

// Detectors implements Cluster: plant reads, late has failed, and idle waits for an agent.
func (f *fakeCluster) Detectors(context.Context) ([]detectors.View, error) {
	now := time.Now()
	return []detectors.View{
		{Detector: detectors.Detector{Name: "idle", State: detectors.StateWaiting}, Most: 10},
		{
			Detector: detectors.Detector{
				Name: "late", State: detectors.StateFailed, Job: "j0", Error: "no column \"value\"", Since: now,
			}, Most: 10,
		},
		{
			Detector: detectors.Detector{
				Name: "plant", State: detectors.StateRunning, Job: "j1", Worker: "c1", Since: submitted,
				Created: submitted,
				Counts: &cpuagents.DetectorProgress{
					Rows: 1_234_567, Rejected: 7, Decisions: 1_234_000, Anomalies: 12, Entities: 9_876, LatencyP50: 3.2,
					LatencyP99: 41, Rate: 9_900, Pending: 560, LastDecision: now, LastReject: "p: row 7: no value",
					Evicted: 5, Returned: 3, SourceFailures: 2, Unreachable: "source p: connection refused",
				},
			},
			Sources: []string{
				"push:plant",
				"mqtt://broker/plant/+",
			}, Sinks: []string{"nats:OUT/out.plant"}, Most: 20_000,
		},
	}, f.ask()
}

func (f *fakeCluster) Detector(ctx context.Context, name string) (detectors.View, error) {
	all, err := f.Detectors(ctx)
	for _, d := range all {
		if d.Name == name {
			return d, err
		}
	}
	return detectors.View{}, fmt.Errorf("detector %q: %w", name, jobs.ErrNotFound)
}

func (f *fakeCluster) ExplainDetector(_ context.Context, name string) (doctor.Reason, error) {
	return doctor.Reason{
		Cause: doctor.SourceAway, Sentence: "A source of " + name + " cannot be read.", Evidence: []string{"refused"},
		Cure: "Repair the source.",
	}, f.ask()
}

func (f *fakeCluster) Dead(context.Context, string, int) ([]jobs.DeadLetter, error) {
	return []jobs.DeadLetter{{
		Seq: 1, ID: "d1", Pool: jobs.PoolCPU, Kind: "stream", Tenant: "default", Attempts: 5, Worker: "c1",
		Died: submitted, Reason: jobs.Errorf(jobs.CodeIO, "the disk is full"), Data: []byte("hunter5"),
	}}, f.ask()
}

func (f *fakeCluster) doctor(context.Context) ([]doctor.Result, error) {
	return []doctor.Result{
		{
			ID:       "nats.sync",
			Category: "nats",
			Level:    "warn",
			Summary:  "The store does not sync always.",
			Cure:     "Set sync_interval: always.",
		},
		{ID: "nats.reach", Category: "nats", Level: "ok", Summary: "The server answers."},
	}, f.ask()
}

func (f *fakeCluster) Decisions(_ context.Context, _ string, shard int, before uint64, limit int) (
	[]cluster.Decision, error,
) {
	var all []cluster.Decision // newest first
	newest := 40
	if before > 0 {
		newest = min(newest, int(before)-1)
	}
	for i := newest; i > max(0, newest-limit); i-- {
		d := cluster.Decision{
			Seq:   uint64(i),
			Ref:   uint64(i + 3),
			At:    submitted.Add(time.Duration(i) * time.Second),
			Bytes: 100,
		}
		if shard == 1 {
			d.Kind, d.Count = swarms.EntryDecide, 2
			d.Rows = []cluster.DecisionRow{
				{
					Group:     3,
					Row:       4,
					Timestamp: "2026-11-23",
					Values:    []*float64{new(1.5)},
					Score:     new(float32(0.2)),
					Counts:    []uint32{9, 1},
				},
				{
					Group:     5,
					Row:       9,
					Timestamp: "2026-11-23",
					Values:    []*float64{nil},
					Score:     new(float32(0.9)),
					Decision:  1,
					Counts:    []uint32{2, uint32(i)},
				},
			}
		} else {
			d.Kind = "voted"
			d.Body = fmt.Appendf(nil, `{"v":1,"round":%d,"winner":%d,"counts":[%d,%d,7],"abstentions":1,`+
				`"quorum_met":true,"leader":{"agent":12,"priority":99}}`,
				i, i%2, 50+i, 90)
		}
		all = append(all, d)
	}
	return all, f.ask()
}

func (f *fakeCluster) GroupDecisions(
	ctx context.Context, id string, shard, group int, before uint64, limit int,
) (cluster.GroupDecisions, error) {
	all, err := f.Decisions(ctx, id, shard, before, limit)
	out := cluster.GroupDecisions{Decisions: []cluster.Decision{}}
	for _, d := range all {
		d.Rows = slices.DeleteFunc(d.Rows, func(r cluster.DecisionRow) bool { return int(r.Group) != group })
		if len(d.Rows) > 0 {
			out.Decisions, out.Next = append(out.Decisions, d), d.Seq
		}
	}
	if out.Next == 1 {
		out.Next = 0
	}
	return out, err
}

// Entities implements Cluster: swarm s1 has the entities pump-0 to pump-299.
func (f *fakeCluster) Entities(_ context.Context, id, text string, limit int) (entities.Page, error) {
	if id != "s1" {
		return entities.Page{}, fmt.Errorf("swarm %s: %w: %w", id, entities.ErrNoKey, jobs.ErrNotFound)
	}
	p := entities.Page{Columns: []string{"id"}, Count: 300, Entities: []entities.Entity{}}
	for i := range 300 {
		name := fmt.Sprint("pump-", i)
		if !strings.Contains(name, text) {
			continue
		}
		if p.Matches++; p.Matches <= limit {
			p.Entities = append(p.Entities, entities.Entity{
				Name: name, Key: map[string]string{"id": name}, Group: i, Shard: i / 100,
			})
		}
	}
	if p.Matches == 0 {
		p.Entities = append(p.Entities,
			entities.Entity{Name: "pump-7", Key: map[string]string{"id": "pump-7"}, Group: 7})
	}
	return p, f.ask()
}

// Entity implements Cluster: the last rows of pump-17 are not normal.
func (f *fakeCluster) Entity(_ context.Context, id string, group int) (cluster.EntityView, error) {
	v := cluster.EntityView{
		Swarm: id, Title: "shops", Entity: fmt.Sprint("pump-", group), Group: group,
		Features:   []string{"power", "load"},
		Candidates: []string{"calm", "busy"},
	}
	for i := range 200 {
		r := cluster.EntityRow{
			Answer: uint64(i + 1), Timestamp: fakeTime.Add(time.Duration(i) * time.Minute).Format(time.DateTime),
			Values: []*float64{new(float64(10 + i%7)), new(float64(i % 5))}, Feature: -1, Score: 0.1,
			Expected: []*float64{new(13.0), nil}, Low: []*float64{new(9.0), nil}, High: []*float64{new(17.0), nil},
			Counts: []uint32{9, 1},
		}
		if i >= 190 {
			r.Values[0], r.Score, r.Decision, r.Feature, r.Kind, r.Side = new(90.0), 0.9, 1, 0, "point", "above"
		}
		v.Rows = append(v.Rows, r)
	}
	return v, f.ask()
}

// Observed implements Cluster: the agents of s3 have asked for an item with each observation but
// the newest.
func (f *fakeCluster) Observed(_ context.Context, id string, agent uint32, limit int) (cluster.ObservedAgent, error) {
	if id != "s3" || agent >= 900 {
		return cluster.ObservedAgent{}, fmt.Errorf("agent %d: %w", agent, jobs.ErrNotFound)
	}
	v := cluster.ObservedAgent{
		Swarm: id, Name: "flock", Agent: agent, Features: []string{"answer"}, Candidates: []string{"weak", "strong"},
		First: 1,
	}
	for i := range min(limit, 30) {
		o := cluster.Observation{
			Entry: uint64(30 - i), Answer: uint64(30 - i), At: submitted, Values: []*float64{new(float64(30 - i))},
			Vote: int64(i % 2), Decision: -1,
		}
		if i > 0 {
			o.Item, o.Score = new(int32(7)), new(float32(0.75))
		}
		v.Observations = append(v.Observations, o)
	}
	return v, f.ask()
}

// fakeTime is the time of the first row of an entity, and fakeIncidents are of two entities and a
// run.
var fakeTime = time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)

func fakeIncidents(now time.Time) []cluster.Incident {
	in := func(entity string, group uint32, began time.Time, score float32) cluster.Incident {
		return cluster.Incident{
			Watch: "plant", Swarm: "s1", Current: explain.Current{
				Entity: entity, Group: group, Begin: fakeTime.Add(190 * time.Minute).Format(time.DateTime),
				Last: fakeTime.Add(199 * time.Minute).Format(time.DateTime), Began: began, Rows: 10, Score: score,
				Feature: "power", Kind: "point", Side: "above", Value: new(90.0), Expected: new(13.0), Before: 1,
			},
		}
	}
	all := []cluster.Incident{
		in("pump-17", 17, now.Add(-3*time.Minute), 0.9), in("pump-3", 3, now.Add(-4*time.Minute), 0.6),
		{
			Watch: "telemetry", Swarm: "r9", Current: explain.Current{
				Entity: "cpu.csv", Begin: "2026-03-05", Last: "2026-03-05", Began: now.Add(-time.Hour),
				Rows: 1, Score: 0.7,
			},
		},
	}
	all[1].Ended, all[2].Ended = now.Add(-2*time.Minute), now.Add(-time.Hour)
	return all
}

func (f *fakeCluster) Entry(_ context.Context, _ string, _ int, entry uint64, group int) (travel.Entry, error) {
	return travel.Entry{
		Seq: entry, Kind: swarms.EntryObserve, Ref: 7, At: submitted, Bytes: 900, Count: 2, Answer: swarms.EntryDecide,
		Timestamp: "timestamp", Columns: []string{"value", "load"}, Groups: []int{3, 5}, Job: "j1", Rows: []travel.Row{{
			Group: max(group, 3), Row: 4, Timestamp: "2026-11-23", Time: submitted, Read: submitted,
			Values: []*float64{new(1.5), nil}, Series: "shop-3", Source: "file:in/shop-3.csv",
		}},
	}, f.ask()
}

func (f *fakeCluster) At(_ context.Context, q travel.Question) (travel.View, error) {
	return travel.View{Swarm: q.Swarm, Name: q.Swarm, Last: 43, First: 1, Progress: &travel.Progress{
		Moment: 1, Entry: 20, Of: q.Entry,
	}}, f.ask()
}

// fakeState is a cluster with everything that pages show.
func fakeState() *cluster.State {
	now := time.Now()
	sample := func(name string, v float64, labels ...string) jobs.Sample {
		s := jobs.Sample{Name: name, Value: v}
		if len(labels) > 0 {
			s.Labels = map[string]string{}
		}
		for i := 0; i < len(labels); i += 2 {
			s.Labels[labels[i]] = labels[i+1]
		}
		return s
	}
	gpu := cluster.Agent{Agent: jobs.Agent{
		Name: "g1", Pool: jobs.PoolGPU, Device: "NVIDIA H100", Memory: 80 << 30, Running: 2, MaxShards: 8,
		State:   "serving",
		Started: now.Add(-time.Hour), Seen: now, Room: &jobs.Room{Shard: 1 << 30, All: 4 << 30},
		Recovering: []jobs.Recovery{{Shard: "s1.1", Entry: 40, Of: 100, Rate: 12}},
	}, Telemetry: &jobs.Telemetry{At: now, Samples: []jobs.Sample{
		sample("exoswarm_gpuagent_device_busy_seconds_total", 12, "device", "gpu0"),
		sample("exoswarm_swarm_observations_total", 1000),
		sample("exoswarm_swarm_page_moves_total", 40, "from", "gpu", "to", "cpu", "reason", "age"),
		sample("exoswarm_swarm_page_moves_total", 22, "from", "cpu", "to", "gpu", "reason", "miss"),
		sample("exoswarm_swarm_pages", 120, "tier", "gpu"), sample("exoswarm_swarm_pages", 40, "tier", "cpu"),
		sample("exoswarm_swarm_stored_pages", 400, "tier", "nvme"),
		sample("exoswarm_swarm_stored_bytes", 4e8, "tier", "nvme"),
		sample("exoswarm_model_bytes", 4<<30, "device", "gpu0", "place", "device"),
		sample("exoswarm_model_bytes", 1<<30, "device", "gpu0", "place", "pinned"),
		sample("exoswarm_model_bytes", 1<<29, "device", "gpu0", "place", "file"),
		sample("exoswarm_device_temperature_celsius", 61, "device", "gpu0"),
	}}}
	return &cluster.State{
		Frame: 1, At: now, Incidents: fakeIncidents(now), Watches: []cluster.Watch{
			{
				Name: "late", Swarm: "late", Detector: true, State: cluster.WatchFailed, Why: "no column value",
				Since: now,
			},
			{
				Name: "plant", Swarm: "s1", Detector: true, Job: "j1", Worker: "c1", State: cluster.WatchRuns,
				Since: submitted, Clock: "2026-03-05 03:19:00", Rate: 9_900, Decisions: 1_234_000, Incidents: 2,
				LatencyP50: 3.2, LatencyP99: 41,
			},
			{
				Name: "telemetry", Swarm: "r9", Job: "r9", Sources: []string{"cpu.csv"}, State: cluster.WatchDone,
				Since: now.Add(-time.Hour), Decisions: 9, Incidents: 1,
			},
		},
		NATS: telemetry.ServerReport{
			URL: "nats://127.0.0.1:4222", Server: "n1", Version: "2.14.0", Servers: []string{"127.0.0.1:4222"},
			RTT: 210 * time.Microsecond, Store: 3 << 20, StoreLimit: 1 << 30,
			Streams: []telemetry.ServerStream{
				{Name: "EXO_JOBS_CPU", Messages: 3, Bytes: 2000, MaxBytes: 1 << 30, Replicas: 1},
				{Name: "EXO_WAIT", MaxBytes: -1, Replicas: 3, Leader: "n1", Behind: []string{"n3"}},
			},
		},
		Pools: []cluster.Pool{{QueueStats: jobs.QueueStats{
			Pool: jobs.PoolCPU, Jobs: 3, Bytes: 4000, Oldest: submitted, Sources: []jobs.SourceStats{
				{Kind: "stream", Lane: jobs.Normal, Tenant: "default", Waiting: 1, Running: 2, Agents: 1},
				{Kind: "nosuch", Lane: jobs.Normal, Tenant: "default", Waiting: 4},
			},
		}, Unserved: []string{"nosuch"}}},
		Agents: []cluster.Agent{
			{Agent: jobs.Agent{
				Name: "c1", Pool: jobs.PoolCPU, Kinds: []string{"stream"}, Concurrency: 4, Running: 2, State: "serving",
				Started: now.Add(-time.Hour), Seen: now,
			}},
			gpu,
			{Agent: jobs.Agent{
				Name: "g2", Pool: jobs.PoolGPU, State: jobs.AgentLost,
				Lost: &jobs.Lost{Since: submitted, Shards: []string{"s1.2"}},
			}},
		},
		Swarms: []cluster.Swarm{{
			ID: "s1", Name: "shops", Key: "s1.x", Cell: "predictor", Addressed: "group", Agents: 300_000, Groups: 300,
			Created: now.Add(-time.Hour), State: cluster.StateWaiting, Candidates: []string{"calm", "busy"},
			Spec: json.RawMessage(`{"name":"shops","key":["id"],"token":"hunter6"}`),
			Shards: []cluster.Shard{
				{
					Shard:            0,
					End:              100,
					Holder:           "g1",
					State:            cluster.StateServed,
					Entries:          120,
					Answered:         118,
					EntriesPerSecond: 3.5,
				},
				{
					Shard: 1, First: 100, End: 200, Holder: "g1", State: cluster.StateReplaying, Entries: 100,
					Answered:   100,
					Recovering: &jobs.Recovery{Shard: "s1.1", Entry: 40, Of: 100, Rate: 12},
				},
				{Shard: 2, First: 200, End: 300, State: cluster.StateWaiting, LostHolder: "g2", LostSince: submitted},
			},
		}, {
			ID: "s2", Name: "shops", Cell: "lif", Addressed: "group", Agents: 10, Groups: 1, Owner: "j1",
			State:  cluster.StateServed,
			Shards: []cluster.Shard{{End: 1, Holder: "g1", State: cluster.StateServed}},
		}, {
			ID: "s3", Name: "flock", Cell: "boids", Addressed: "agent", Agents: 900, Groups: 1,
			State:  cluster.StateServed,
			Shards: []cluster.Shard{{End: 1, Holder: "g1", State: cluster.StateServed}},
		}, {
			ID: "s4", Name: "cortex", Cell: "izhikevich", Addressed: "agent", Agents: 900, Groups: 1,
			State:  cluster.StateServed,
			Shards: []cluster.Shard{{End: 1, Holder: "g1", State: cluster.StateServed}},
		}},
		Tenants: []cluster.Tenant{{Tenant: "default", Waiting: 1, Running: 2}, {
			Tenant: "acme", Running: 1, Limits: &jobs.TenantLimits{
				Tenant: "acme",
				Limits: jobs.Limits{Concurrency: new(4)},
			},
		}},
		Numbers: map[string]float64{
			"jobs_waiting": 5, "jobs_running": 2, "jobs_ended_per_second": 0.1, "dead_letters": 1, "agents": 2,
			"shards":          3,
			"shards_unserved": 1, "entries_per_second": 3.5, "observations_per_second": 900, "entries_waiting": 4,
			"store_bytes": 3 << 20, "device_busy": 0.4, "page_moves_per_second": 2,
		},
	}
}

func opened(t *testing.T, f Cluster, edit func(*Options), edits ...func(*Server)) *running {
	t.Helper()
	o := Options{Cluster: f, Listen: "127.0.0.1:0", Version: "test", Token: testToken}
	if fake, ok := f.(*fakeCluster); ok {
		o.Doctor, o.Past = fake.doctor, fake
	}
	if edit != nil {
		edit(&o)
	}
	return serve(t, o, edits...)
}

const testToken = "a token of at least 20 characters"
