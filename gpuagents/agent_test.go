package gpuagents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

// told is a queue whose agents are notified of the swarms that a test names, in the order of the
// test.
type told struct {
	*swarmlog.Swarms
	changes chan swarms.Change
}

// WatchSwarms implements gpuagents.Queue.
func (q told) WatchSwarms(ctx context.Context, fn func(swarms.Change)) error {
	for {
		select {
		case c := <-q.changes:
			fn(c)
		case <-ctx.Done():
			return nil
		}
	}
}

// kept is checkpoints in memory, a page store a shard, which survive the agent but not the test.
type kept struct {
	mu      sync.Mutex
	disks   map[shard.ID]*tierstest.Mem
	removed []shard.ID
	fail    error // of Open
	stay    error // of Remove, which then removes nothing
	list    error // of Shards
}

func newKept() *kept { return &kept{disks: map[shard.ID]*tierstest.Mem{}} }

// Open implements gpuagents.Checkpoints.
func (k *kept) Open(id string, n, pageSize, _ int) (pages.Store, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return nil, k.fail
	}
	at := shard.ID{Swarm: id, Shard: n}
	if k.disks[at] == nil {
		k.disks[at] = tierstest.NewMem(1 << 30)
	}
	s, err := pagestore.Open(pagestore.Options{
		FS: k.disks[at], Tables: tierstest.Backend{FS: k.disks[at]}, PageSize: pageSize,
		Tiers: []pagestore.Tier{{
			Name: "disk", Dir: "/disk", Capacity: 64 << 20, SegmentBytes: 1 << 20,
			DiskReserve: -1,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", at, err)
	}
	return s, nil
}

// Remove implements gpuagents.Checkpoints.
func (k *kept) Remove(id string, n int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := shard.ID{Swarm: id, Shard: n}
	if k.stay != nil {
		return k.stay
	}
	delete(k.disks, at)
	k.removed = append(k.removed, at)
	return nil
}

// Shards implements gpuagents.Checkpoints.
func (k *kept) Shards() (ids []shard.ID, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.disks {
		ids = append(ids, id)
	}
	return ids, k.list
}

func (k *kept) has(id shard.ID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.disks[id] != nil
}

// stage is a queue on a server in this process, with agents on host devices.
type stage struct {
	conn  *natsq.Conn
	queue told
	log   *testkit.Log
}

func newStage(t *testing.T) *stage {
	t.Helper()
	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	testkit.NoError(t, "server.Start", err)
	t.Cleanup(srv.Close)
	conn, err := natsq.Connect(t.Context(), natsconn.Options{InProcess: srv, Name: "test"})
	testkit.NoError(t, "natsq.Connect", err)
	t.Cleanup(conn.Close)
	return &stage{conn: conn, queue: told{conn.Swarms, make(chan swarms.Change, 8)}, log: &testkit.Log{}}
}

// agent starts an agent of the stage. It ends with the test at the latest.
func (s *stage) agent(t *testing.T, o gpuagents.Options) *gpuagents.Agent {
	t.Helper()
	if o.Name == "" {
		o.Name = "agent"
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = time.Minute // none is lost on a busy machine
	}
	if o.Queue == nil {
		o.Queue = s.queue
	}
	if o.Device == nil {
		o.Device = launches.Host(t)
	}
	o.Logger = slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a, err := gpuagents.Start(o)
	testkit.NoError(t, "gpuagents.Start", err)
	t.Cleanup(func() {
		a.Stop()
		if err := o.Device.Close(); err != nil {
			t.Errorf("Device.Close: %v, want no error", err)
		}
	})
	return a
}

// record is a swarm of small neurons whose agents are addressed, with a number of shards and
// existing logs.
func (s *stage) record(t *testing.T, id string, shards int, more string) swarms.Swarm {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte("name: x\naddressed: agent\nagents: 64\nagents_per_group: 8\n"+
		"features: [a]\ncell: {kind: leaky}\npage_size: 64KiB\n"+fmt.Sprintf("shards: %d\n", shards)+more))
	testkit.NoError(t, "swarm.Parse", err)
	data, err := json.Marshal(spec)
	testkit.NoError(t, "json.Marshal", err)
	for k := range shards {
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			testkit.NoError(t, "Create", s.conn.Swarms.Log(id, k, d).Create(t.Context()))
		}
	}
	r := swarms.Swarm{
		Version: jobs.Version, ID: id, Name: spec.Name, Spec: data, Groups: spec.Groups(),
		Created: time.Now().UTC(),
	}
	if shards > 1 {
		r.Shards = shards
	}
	return r
}

// tell has agents hear of a swarm.
func (s *stage) tell(r swarms.Swarm) { s.queue.changes <- swarms.Change{ID: r.ID, Swarm: r} }

// ask appends an entry to a shard's log and returns its answer.
func (s *stage) ask(t *testing.T, id string, shard int, kind string, v any) swarms.Entry {
	t.Helper()
	data, err := json.Marshal(v)
	testkit.NoError(t, "json.Marshal", err)
	last, err := s.conn.Swarms.Log(id, shard, swarms.In).Last(t.Context())
	testkit.NoError(t, "Last", err)
	if err := s.conn.Swarms.Log(id, shard, swarms.In).Append(t.Context(), last.Seq,
		swarms.Entry{Kind: kind, Data: data}); err != nil {
		t.Fatalf("Append: %v, want no error", err)
	}
	return s.answer(t, id, shard, last.Seq+1)
}

// answer waits for the answer to an entry.
func (s *stage) answer(t *testing.T, id string, shard int, ref uint64) swarms.Entry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := s.conn.Swarms.Log(id, shard, swarms.Out).Read(ctx, 1)
	testkit.NoError(t, "Read", err)
	defer r.Close()
	for {
		e, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("the answer to entry %d of shard %d: %v\n%s", ref, shard, err, s.log)
		}
		if e.Ref == ref {
			return e
		}
	}
}

// TestAnotherShardCount: a record with another number of shards is another swarm, also when nobody
// has said that the first is gone: the agent ends the first and serves every shard of the second.
func TestAnotherShardCount(t *testing.T) {
	s := newStage(t)
	a := s.agent(t, gpuagents.Options{})
	tick := swarms.Tick{Version: jobs.Version, Count: 1}
	for _, shards := range []int{1, 2, 4, 3, 1} {
		r := s.record(t, "x", shards, "")
		s.tell(r)
		for k := range shards {
			if e := s.ask(t, "x", k, swarms.EntryTick, tick); e.Kind == swarms.EntryRejected {
				t.Fatalf("shard %d of %d: %s", k, shards, e.Data)
			}
		}
		testkit.Until(t, fmt.Sprintf("%d shards served", shards), func() bool { return a.Shards() == shards })
	}
}
