package gpuprocess

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// sluice is a queue whose in-logs give no entry behind number at before open is closed.
type sluice struct {
	*swarmlog.Swarms
	at   uint64
	open chan struct{}
}

func (s *sluice) Log(swarm string, shard int, d swarms.Direction) swarms.Log {
	return sluiceLog{s.Swarms.Log(swarm, shard, d), s, d}
}

type sluiceLog struct {
	swarms.Log
	of *sluice
	d  swarms.Direction
}

func (l sluiceLog) Read(ctx context.Context, from uint64) (swarms.Reader, error) {
	r, err := l.Log.Read(ctx, from)
	if err != nil || l.d == swarms.Out {
		return r, err
	}
	return &sluiceReader{r, l.of, from}, nil
}

type sluiceReader struct {
	swarms.Reader
	of   *sluice
	next uint64
}

func (r *sluiceReader) Next(ctx context.Context) (swarms.Entry, error) {
	if r.next > r.of.at {
		select {
		case <-r.of.open:
		case <-ctx.Done():
			return swarms.Entry{}, context.Cause(ctx)
		}
	}
	r.next++
	return r.Reader.Next(ctx)
}

// gaugeSum is the sum of a metric over its labels.
func gaugeSum(tb testing.TB, r *prometheus.Registry, name string) (sum float64) {
	tb.Helper()
	all, err := r.Gather()
	if err != nil {
		tb.Fatalf("r.Gather: %v", err)
	}
	for _, f := range all {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// vanish has an agent of a name hold a lease and end without a word.
func (r *rig) vanish(tb testing.TB, name, key string) {
	tb.Helper()
	conn, err := natsq.Connect(tb.Context(), natsconn.Options{InProcess: r.server, Name: name})
	if err != nil {
		tb.Fatalf("natsq.Connect: %v", err)
	}
	s, err := conn.Swarms.OpenSession(tb.Context(), name, time.Second, slog.New(slog.DiscardHandler))
	if err == nil {
		_, err = s.Acquire(tb.Context(), key)
	}
	if err != nil {
		tb.Fatal(err)
	}
	conn.Close()
}

func (r *rig) census(tb testing.TB) *swarmlog.Census {
	tb.Helper()
	c, err := r.conn.Swarms.Census(tb.Context())
	if err != nil {
		tb.Fatalf("r.conn.Swarms.Census: %v", err)
	}
	return c
}

// TestTakeoverIsTold: an agent that has ended without a word is lost with what it held, and how far
// its successor is with the replay is told in the registry, by metrics and in the log.
func TestTakeoverIsTold(t *testing.T) {
	t.Parallel()
	const n, at = 20, 7
	r := newRig(t)
	r.logs(t, "x", mixed(t, n, true))
	r.put(t, "x", byAgent)
	first := r.agent(t, "")
	r.answered(t, "x", n)
	first.Stop()
	if c := r.census(t); len(c.Agents) != 0 || len(c.Holders) != 0 {
		t.Fatalf("after a clean end: %+v", c)
	}
	r.vanish(t, "gone", "x.0")
	r.wait(t, "the agent to be lost", func() bool { return r.census(t).LostHolder("x.0") != nil })
	c := r.census(t)
	if a := c.Agents[0]; len(c.Agents) != 1 || a.Name != "gone" || a.State != jobs.AgentLost ||
		!slices.Equal(a.Lost.Shards, []string{"x.0"}) || time.Since(a.Lost.Since) > time.Minute || len(c.Holders) != 0 {
		t.Fatalf("%+v, lost %+v", c, a.Lost)
	}
	registry := prometheus.NewRegistry()
	counts, err := gpuagents.NewMetrics(registry)
	if err != nil {
		t.Fatalf("gpuagents.NewMetrics: %v", err)
	}
	s := &sluice{r.conn.Swarms, at, make(chan struct{})}
	r.Reset()
	second := r.start(t, gpuagents.Options{Queue: s, Metrics: counts})
	entry, err := r.conn.Registry.Announce(t.Context(), func() jobs.Agent {
		return jobs.Agent{Name: "agent", Pool: jobs.PoolGPU, State: "serving", Recovering: second.Recoveries()}
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("r.conn.Registry.Announce: %v", err)
	}
	defer func() {
		if err := entry.Close(t.Context()); err != nil {
			t.Errorf("entry.Close: %v", err)
		}
	}()
	r.wait(t, "the replay to be told", func() bool {
		c = r.census(t)
		is := c.Recovery("x.0")
		return is != nil && is.Entry == at
	})
	if is := c.Recovery("x.0"); is.Of != n || is.Rate <= 0 ||
		!strings.HasPrefix(is.String(), "replaying entry 7 of 20 (35 %, ") || c.Holders["x.0"] != "agent" ||
		len(c.Agents) != 1 {
		t.Errorf("%v of %+v", is, c)
	}
	for name, want := range map[string]float64{
		"lag_entries": n - at, "replaying_shards": 1,
		"replay_position_entries": at, "replay_target_entries": n,
	} {
		if got := gaugeSum(t, registry, "exoswarm_swarm_"+name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	close(s.open)
	r.logged(t, "the log of the shard is replayed")
	if !strings.Contains(r.String(), "replaying the log of the shard") || len(second.Recoveries()) != 0 {
		t.Errorf("%v behind the replay:\n%s", second.Recoveries(), r.String())
	}
	r.wait(t, "the replay to be over", func() bool {
		c = r.census(t)
		return c.Recovery("x.0") == nil && gaugeSum(t, registry, "exoswarm_swarm_lag_entries") == 0 &&
			gaugeSum(t, registry, "exoswarm_swarm_replay_target_entries") == 0
	})
}
