package travel

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaks(m)
}

// The swarms of the tests, of several pages each.
const (
	shops = `name: shops
cell: {kind: predictor}
groups: 40
agents_per_group: 64
page_size: 64KiB
features: [value]
vote: {candidates: [normal, suspicious, anomalous], rule: weighted}
checkpoint: {interval: 1h, entries: 7}
seed: 1
`
	crowd = `name: crowd
addressed: agent
cell: {kind: gru, params: {hidden: 8}}
agents: 3000
agents_per_group: 100
shards: 3
page_size: 64KiB
features: [a]
vote: {candidates: [calm, busy, unsure], rule: plurality}
checkpoint: {interval: 1h, entries: 7}
seed: 1
`
	cells = `name: cells
addressed: agent
cell: {kind: gru, params: {hidden: 4}}
hear: [decision, leader]
vote: {candidates: [quiet, spike]}
agents: 640
agents_per_group: 64
page_size: 64KiB
features: [a]
seed: 3
`
)

// testCluster is a NATS server in this process, with the place of snapshots of its GPU agents.
type testCluster struct {
	t         *testing.T
	server    *server.Server
	conn      *natsq.Conn
	snapshots snapshot.Store
	models    snapshot.Files    // for agents; nil: they have none
	seq       map[string]uint64 // the last entry, by key and shard
	rng       *rand.Rand
}

func newCluster(t *testing.T) *testCluster {
	t.Helper()
	s := jobstest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess})
	b, err := bucket.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return &testCluster{
		t: t, server: s, conn: jobstest.Open(t, s, natsq.Connect), snapshots: b, seq: map[string]uint64{},
		rng: rand.New(rand.NewPCG(1, 2)),
	}
}

func openHost(t *testing.T) device.Device {
	t.Helper()
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// agent starts a GPU agent on a host device of its own. keep may be nil.
func (c *testCluster) agent(name string, keep shard.Checkpoints) *gpuagents.Agent {
	c.t.Helper()
	a, err := gpuagents.Start(gpuagents.Options{
		Name: name, Device: openHost(c.t), Queue: jobstest.Open(c.t, c.server, natsq.Connect).Swarms, Checkpoints: keep,
		Logger: slog.New(slog.DiscardHandler), PageMemory: 64 << 20, Snapshots: c.snapshots, Models: c.models,
		LeaseTTL: time.Second,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { a.Stop() })
	return a
}

type folders struct {
	dir             string
	opened, resumed *atomic.Int64 // stores, and stores with pages
}

func (f folders) Open(swarm string, shard, pageSize, _ int) (pages.Store, error) {
	s, err := pagestore.Open(pagestore.Options{
		PageSize: pageSize, New: true,
		Tiers: []pagestore.Tier{{
			Name: "disk", Dir: filepath.Join(f.dir, fmt.Sprintf("%s.%d", swarm, shard)), Capacity: 256 << 20,
			SegmentBytes: 1 << 20, DiskReserve: -1,
		}},
	})
	if err != nil {
		return nil, err
	}
	f.opened.Add(1)
	if len(s.Pages()) > 0 {
		f.resumed.Add(1)
	}
	return s, nil
}

func (folders) Remove(string, int) error { return nil }

func (folders) Shards() ([]shard.ID, error) { return nil, nil }

func (c *testCluster) create(text string) swarms.Swarm {
	c.t.Helper()
	spec, err := swarm.Parse("swarm.yaml", []byte(text))
	if err != nil {
		c.t.Fatal(err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		c.t.Fatal(err)
	}
	s := swarms.Swarm{
		Version: jobs.Version, ID: spec.Name, Name: spec.Name, Spec: data, Groups: spec.Groups(), Shards: spec.Shards,
		Nonce: swarms.NewNonce(), Created: time.Now().UTC(),
	}
	if s.Shards == 1 {
		s.Shards = 0
	}
	if err := c.conn.Swarms.CreateSwarm(c.t.Context(), s); err != nil {
		c.t.Fatal(err)
	}
	for i := range s.ShardCount() {
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			if err := c.conn.Swarms.Log(s.Key(), i, d).Create(c.t.Context()); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	return s
}

func (c *testCluster) append(s swarms.Swarm, shard int, e swarms.Entry) uint64 {
	c.t.Helper()
	key := swarms.LeaseKey(s.Key(), shard)
	e.Ref = c.seq[key] + 1
	if err := c.conn.Swarms.Log(s.Key(), shard, swarms.In).Append(c.t.Context(), c.seq[key], e); err != nil {
		c.t.Fatal(err)
	}
	c.seq[key]++
	return c.seq[key]
}

func (c *testCluster) answered(s swarms.Swarm, shard int, entry uint64) swarms.Entry {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	r, err := c.conn.Swarms.Log(s.Key(), shard, swarms.Out).Read(ctx, entry)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	e, err := r.Next(ctx)
	if err != nil || e.Ref != entry {
		c.t.Fatalf("the answer to entry %d of shard %d: %+v, %v", entry, shard, e, err)
	}
	return e
}

// snapshot has a snapshot of a shard written, waits for it, and returns its entry.
func (c *testCluster) snapshot(s swarms.Swarm, shard int, name string) uint64 {
	c.t.Helper()
	n := c.append(s, shard, swarms.Entry{Kind: swarms.EntrySnapshot, Data: fmt.Appendf(nil, `{"v":1,"name":%q}`, name)})
	if e := c.answered(s, shard, n); e.Kind != swarms.EntrySnapshotted {
		c.t.Fatalf("snapshot %s: %s %s", name, e.Kind, e.Data)
	}
	return n
}

// fill appends n random entries to a shard: observations, questions, ticks, resets and entries that
// are refused.
func (c *testCluster) fill(s swarms.Swarm, shard, n int) {
	c.t.Helper()
	spec, err := swarm.FromJSON(s.Spec)
	if err != nil {
		c.t.Fatal(err)
	}
	for range n {
		c.append(s, shard, c.random(s, spec, shard))
	}
}

func (c *testCluster) random(s swarms.Swarm, spec *swarm.Spec, shard int) swarms.Entry {
	first, end := s.ShardGroups(shard)
	if !spec.Topology().ByAgent {
		switch c.rng.IntN(12) {
		case 0:
			return swarms.Entry{Kind: swarms.EntryQuery, Data: []byte(`{"v":1,"groups":[1,3]}`)}
		case 1:
			return swarms.Entry{Kind: swarms.EntryObserve, Data: []byte("no batch")}
		case 2:
			return swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
		}
		return c.observeGroups(first+c.rng.IntN(end-first), 1+c.rng.IntN(60), end)
	}
	switch c.rng.IntN(14) {
	case 0:
		return swarms.Entry{Kind: swarms.EntryVote, Data: []byte(`{"v":1}`)}
	case 1:
		return swarms.Entry{Kind: swarms.EntryVote, Data: []byte(`{"v":1,"round":3}`)} // refused when that is over
	case 2:
		return swarms.Entry{Kind: swarms.EntryFuse, Data: []byte(`{"v":1,"by":"all"}`)}
	case 3, 4, 5:
		return swarms.Entry{Kind: swarms.EntryTick, Data: fmt.Appendf(nil, `{"v":1,"count":%d}`, 1+c.rng.IntN(4))}
	case 6:
		return swarms.Entry{Kind: swarms.EntryObserve, Data: []byte("no batch")}
	case 7:
		if c.rng.IntN(3) == 0 {
			return swarms.Entry{Kind: swarms.EntryReset, Data: []byte(`{"v":1}`)}
		}
	}
	o, size := &batch.AgentObservations{Width: 1}, spec.AgentsPerGroup
	for range 1 + c.rng.IntN(200) {
		o.Agent = append(o.Agent, uint32(first*size+c.rng.IntN((end-first)*size)))
		o.Features = append(o.Features, float32(c.rng.NormFloat64()))
	}
	return swarms.Entry{Kind: swarms.EntryObserve, Data: c.encode(o)}
}

// observeGroups makes an entry of n observations of groups from group first on, below end.
func (c *testCluster) observeGroups(first, n, end int) swarms.Entry {
	o := &batch.Observations{Width: 1}
	at := time.Date(2026, 1, 1, 0, 0, int(c.seq["time"]), 0, time.UTC)
	c.seq["time"]++
	for i := range n {
		v := 10 + c.rng.NormFloat64()
		o.Group, o.Row = append(o.Group, uint32(min(first+i, end-1))), append(o.Row, c.seq["row"]+1)
		c.seq["row"]++
		o.Time, o.Read = append(o.Time, at.UnixNano()+int64(i)), append(o.Read, at.UnixNano())
		o.Features, o.Value = append(o.Features, float32(v)), append(o.Value, v)
		o.Timestamp = append(o.Timestamp, at.Format(time.RFC3339))
	}
	return swarms.Entry{Kind: swarms.EntryObserve, Data: c.encode(o)}
}

func (c *testCluster) encode(v interface{ Encode() ([]byte, error) }) []byte {
	c.t.Helper()
	data, err := v.Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	return data
}
