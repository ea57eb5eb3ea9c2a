package swarmclient_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/bulk"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsqtest"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// lane is a cluster with a spool that is served.
type lane struct {
	client *swarmclient.Client
	spool  *countedSpool
	logs   *bulk.QueueLogs
}

// countedSpool counts what it keeps, and fails Put or Appended when it is told to.
type countedSpool struct {
	*bulk.Spool
	mu     sync.Mutex
	kept   int
	put    int
	failAt int // the call of Put that fails; 0: none
}

var errDisk = errors.New("no disk")

func (s *countedSpool) Put(ctx context.Context, swarm string, shard int, data []byte) (swarms.Bulk, error) {
	s.mu.Lock()
	s.put++
	fails := s.put == s.failAt
	s.mu.Unlock()
	if fails {
		return swarms.Bulk{}, errDisk
	}
	b, err := s.Spool.Put(ctx, swarm, shard, data)
	if err == nil {
		s.mu.Lock()
		s.kept++
		s.mu.Unlock()
	}
	return b, err
}

func (s *countedSpool) Remove(b swarms.Bulk) error {
	s.mu.Lock()
	s.kept--
	s.mu.Unlock()
	return s.Spool.Remove(b)
}

// newLane starts a server, a GPU agent on the host device, and a spool with its server.
func newLane(t *testing.T) *lane {
	t.Helper()
	_, conn := natsqtest.InProcess(t)
	spool, err := bulk.OpenSpool(bulk.SpoolOptions{Dir: "/spool", FS: vfs.NewMem(0)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, err := bulk.Serve(bulk.ServerOptions{
		Spool: spool, Listener: l, Place: bulk.Place{Address: l.Addr().String()}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	fetcher := bulk.NewFetcher(bulk.FetcherOptions{})
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "gpuagent", Device: dev, Queue: conn.Swarms, Logger: slog.New(slog.DiscardHandler), Payloads: fetcher,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		agent.Stop()
		fetcher.Close()
		if err := errors.Join(dev.Close(), srv.Close()); err != nil {
			t.Error(err)
		}
	})
	client, err := swarmclient.New(swarmclient.Options{Swarms: conn.Swarms, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return &lane{client, &countedSpool{Spool: spool}, bulk.NewQueueLogs(conn.Swarms)}
}

// create creates a swarm of a text.
func (l *lane) create(t *testing.T, name, text string) *swarmclient.Swarm {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", fmt.Appendf(nil, "name: %s\n%s", name, text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.client.Create(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const (
	laneFeatures = 8
	laneAgents   = "addressed: agent\nagents: 2000\nagents_per_group: 10\nshards: 3\npage_size: 64KiB\nseed: 1\n" +
		"cell: {kind: gru, params: {hidden: 4}}\nvote: {candidates: [a, b, c], rule: majority}\n"
	laneGroups = "groups: 20\nagents_per_group: 4\nshards: 2\npage_size: 64KiB\ncell: {kind: leaky}\nfeatures: [a]\n"
)

// agentsText is laneAgents with its features.
func agentsText() string {
	var names []string
	for i := range laneFeatures {
		names = append(names, fmt.Sprintf("f%d", i))
	}
	return laneAgents + "features: [" + strings.Join(names, ", ") + "]\n"
}

// TestObserveBulk: decisions are those of observations in the log, for agents and for groups, over
// several shards, and what was sent stays in the spool until the swarm is gone.
func TestObserveBulk(t *testing.T) {
	l := newLane(t)
	r := rand.New(rand.NewPCG(1, 1))
	// Batches of agents decide by entry, so that the entries of both ways must be the same: one.
	o := &batch.AgentObservations{Width: laneFeatures}
	for range 4000 {
		o.Agent = append(o.Agent, uint32(r.IntN(2000)))
		for range laneFeatures {
			o.Features = append(o.Features, float32(r.NormFloat64()))
		}
	}
	var got, want *batch.AgentDecisions
	n, err := l.create(t, "beside", agentsText()).ObserveBulk(t.Context(), l.spool, o,
		func(d *batch.AgentDecisions) error { got = d; return nil })
	if n != 1 || err != nil {
		t.Fatalf("%d entries: %v", n, err)
	}
	m, err := l.create(t, "within", agentsText()).Observe(t.Context(), o,
		func(d *batch.AgentDecisions) error { want = d; return nil })
	if m != 1 || err != nil {
		t.Fatalf("%d entries: %v", m, err)
	}
	if !slices.Equal(got.Agent, want.Agent) || !slices.Equal(got.Vote, want.Vote) ||
		!slices.Equal(got.Decision, want.Decision) {
		t.Error("agents decide otherwise than from the log")
	}
	g := &batch.Observations{Width: 1}
	for i := range 9000 { // several entries
		group, v := r.IntN(20), r.NormFloat64()
		g.Group, g.Row, g.Time = append(g.Group, uint32(group)), append(g.Row, uint64(i)), append(g.Time, int64(i)*1e9)
		g.Read, g.Timestamp = append(g.Read, 0), append(g.Timestamp, fmt.Sprint(i))
		g.Value, g.Features = append(g.Value, v), append(g.Features, float32(v))
	}
	var beside, within batch.Decisions
	collect := func(all *batch.Decisions) func(*batch.Decisions) error {
		return func(d *batch.Decisions) error {
			all.Group, all.Decision = append(all.Group, d.Group...), append(all.Decision, d.Decision...)
			all.Score, all.Timestamp = append(all.Score, d.Score...), append(all.Timestamp, d.Timestamp...)
			return nil
		}
	}
	groups := l.create(t, "groups", laneGroups)
	if n, err := groups.ObserveGroupsBulk(t.Context(), l.spool, g, collect(&beside)); n < 3 || err != nil {
		t.Fatalf("%d entries: %v", n, err)
	}
	if _, err := l.create(t, "other", laneGroups).ObserveGroups(t.Context(), g, collect(&within)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(beside.Timestamp, within.Timestamp) || !slices.Equal(beside.Decision, within.Decision) ||
		!slices.Equal(beside.Score, within.Score) || !slices.Equal(beside.Group, within.Group) {
		t.Error("groups decide otherwise than from the log")
	}
	if l.spool.kept < 3+2*3 {
		t.Errorf("%d payloads are kept", l.spool.kept)
	}
	base, gone, err := l.logs.Kept(t.Context(), groups.Record().Key(), 1)
	if base != 0 || gone || err != nil {
		t.Errorf("kept %d, %v, %v", base, gone, err)
	}
	if last, err := l.logs.Last(t.Context(), groups.Record().Key(), 1); last < 4 || err != nil {
		t.Errorf("the last entry is %d, %v", last, err)
	}
	if err := l.client.Delete(t.Context(), groups.ID(), nil); err != nil {
		t.Fatal(err)
	}
	if _, gone, err := l.logs.Kept(t.Context(), groups.Record().Key(), 1); !gone || err != nil {
		t.Errorf("of a swarm that is deleted: gone %v, %v", gone, err)
	}
}

// TestObserveBulkFails: a part that is not stored is not sent, nor are those behind it, and what they
// had stored goes.
func TestObserveBulkFails(t *testing.T) {
	l := newLane(t)
	s := l.create(t, "one", "addressed: agent\nagents: 500000\nagents_per_group: 10\npage_size: 2MiB\n"+
		"cell: {kind: leaky}\nfeatures: [a]\n")
	const parts = 6
	o := &batch.AgentObservations{Width: 1}
	for i := range parts * swarms.MaxAddressed {
		o.Agent, o.Features = append(o.Agent, uint32(i)), append(o.Features, 1)
	}
	l.spool.failAt = 4
	calls := 0
	n, err := s.ObserveBulk(t.Context(), l.spool, o, func(*batch.AgentDecisions) error { calls++; return nil })
	if !errors.Is(err, errDisk) || n >= parts || calls != n {
		t.Errorf("%d entries, %d calls: %v", n, calls, err)
	}
	at, perr := s.Positions(t.Context())
	if perr != nil || at[0].Entries != uint64(1+n) || l.spool.kept != n {
		t.Errorf("%d entries took effect, and the log has %+v, the spool %d: %v", n, at, l.spool.kept, perr)
	}
	broken := errors.New("no reader")
	l.spool.kept, l.spool.failAt = 0, 0
	n, err = s.ObserveBulk(t.Context(), l.spool, o, func(*batch.AgentDecisions) error { return broken })
	if !errors.Is(err, broken) || n < 1 || n != l.spool.kept {
		t.Errorf("fn fails: %d entries, %d payloads: %v", n, l.spool.kept, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := s.ObserveBulk(ctx, l.spool, o, func(*batch.AgentDecisions) error { return nil }); n != 0 ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("without a context: %d entries, %v", n, err)
	}
	var refused *jobs.Error
	o.Agent[0] = 1 << 30
	if _, err := s.ObserveBulk(t.Context(), l.spool, o, func(*batch.AgentDecisions) error { return nil }); !errors.As(
		err, &refused) {
		t.Errorf("an unknown agent: %v", err)
	}
}
