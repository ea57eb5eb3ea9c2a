package serveprocess

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

const (
	// maxKinds bounds the values of the label kind. The first kinds that are seen keep a label of
	// their own as long as the process lives; all others share otherKinds.
	maxKinds   = 32
	otherKinds = "other kinds"
	// everyKind is the label of a pause that concerns all kinds of a pool. It is no valid kind.
	everyKind = "*"
	// logsOfSwarms is the label of all logs of swarms together, whose number is not bounded.
	logsOfSwarms = "swarm logs"
)

// States of an agent as a label. An agent names its devices in its state if one of several has
// failed, so the label has fewer values than the state.
const (
	agentServing  = "serving"
	agentFull     = "full"
	agentDraining = "draining"
	agentDegraded = "degraded"
)

// exporter collects the state of a cluster that a watcher has seen last. It sends nothing to the
// cluster, so scrapes cost the cluster nothing. Prometheus may call it from several goroutines.
type exporter struct {
	state   func() *cluster.State
	viewers func() int
	kinds   kinds

	up, at, rtt, ui, agents                           *prometheus.Desc
	jobs, oldest, unserved, paused, dead, demand      *prometheus.Desc
	shards, swarms, entries                           *prometheus.Desc
	bytes, limit, messages, leaderless, behind, store *prometheus.Desc
	storeLimit, refuses, checks                       *prometheus.Desc
}

// newExporter returns an exporter of a watcher, which stays the caller's. A nil watcher has an
// exporter that describes the families and collects nothing.
func newExporter(w *cluster.Watcher) *exporter {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("exoswarm_"+name, help, labels, nil)
	}
	e := &exporter{
		up: desc(
			"cluster_up",
			"1 when the last look at the cluster succeeded, 0 when the NATS servers did not answer.",
		),
		at: desc("cluster_look_timestamp_seconds", "Unix time of the last look at the cluster that succeeded. The "+
			"other metrics of the cluster have its state."),
		rtt: desc("nats_rtt_seconds", "Time of one message to the NATS server and back, at the last look."),
		ui:  desc("ui_viewers", "Browsers that watch the dashboard of this process."),
		agents: desc("cluster_agents", "Agents in the registry. degraded: a device of it has failed, or its scratch "+
			"folder; lost: it ended without giving back what it held.", "pool", "state"),
		jobs: desc("queue_jobs", "Jobs in the queue. running: a worker has them, or they wait for another attempt.",
			"pool", "kind", "lane", "state"),
		oldest: desc("queue_oldest_seconds", "Age of the oldest job in the queue, running ones included; 0 for an "+
			"empty queue.", "pool"),
		unserved: desc("queue_unserved_jobs", "Jobs of kinds that no agent of the pool handles.", "pool", "kind"),
		paused: desc("queue_paused", "1 while the kind is paused; the kind * stands for the whole pool.",
			"pool", "kind"),
		dead: desc("dead_letters", "Dead letters that are kept."),
		demand: desc(
			"scale_demand",
			"Work that agents of the pool are wanted for, for autoscaling: of cpu, waiting and "+
				"running jobs that are not paused; of gpu, shards, served or not, and jobs.",
			"pool",
		),
		shards:  desc("shards", "Shards of swarms. waiting: no agent serves the shard.", "state"),
		swarms:  desc("swarms", "Swarms, by the state of the shard that is farthest from being served.", "state"),
		entries: desc("swarm_waiting_entries", "Entries in the logs of all shards that are not answered yet."),
		bytes:   desc("jetstream_bytes", "Bytes of the stream; of the logs of all swarms together.", "stream"),
		limit: desc("jetstream_limit_bytes", "Bytes that the stream may have; absent without a limit.",
			"stream"),
		messages: desc("jetstream_messages", "Messages of the stream; of the logs of all swarms together.", "stream"),
		leaderless: desc("jetstream_leaderless_streams", "1 while the stream has no leader; the number of such "+
			"streams for the logs of swarms.", "stream"),
		behind: desc("jetstream_replicas_behind", "Replicas of the stream that are gone or not current; the sum for "+
			"the logs of swarms.", "stream"),
		store:      desc("jetstream_store_bytes", "Bytes that the account has stored on disk."),
		storeLimit: desc("jetstream_store_limit_bytes", "Bytes that the account may store; absent without a limit."),
		refuses: desc(
			"jetstream_refuses",
			"1 while the server stores nothing more because its disk is nearly full.",
		),
		checks: desc("doctor_checks", "Checks of the doctor by their result.", "status"),
	}
	if w != nil {
		e.state, e.viewers = w.State, w.Viewers
	}
	return e
}

// Describe implements prometheus.Collector.
func (e *exporter) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		e.up, e.at, e.rtt, e.ui, e.agents, e.jobs, e.oldest, e.unserved, e.paused, e.dead, e.demand, e.shards, e.swarms,
		e.entries, e.bytes, e.limit, e.messages, e.leaderless, e.behind, e.store, e.storeLimit, e.refuses, e.checks,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector. Before the first look it has exoswarm_cluster_up alone.
// While the cluster cannot be observed the other metrics are absent, because an old number is wrong
// without anybody noticing.
func (e *exporter) Collect(out chan<- prometheus.Metric) {
	if e.state == nil {
		return
	}
	g := gauges{out}
	g.set(e.ui, float64(e.viewers()))
	s := e.state()
	if s.Frame == 0 || s.Error != "" {
		g.set(e.up, 0)
		if !s.Since.IsZero() {
			g.set(e.at, seconds(s.Since))
		}
		return
	}
	g.set(e.up, 1)
	g.set(e.at, seconds(s.At))
	g.set(e.rtt, s.NATS.RTT.Seconds())
	e.collectAgents(g, s)
	e.collectQueues(g, s)
	e.collectSwarms(g, s)
	e.collectStreams(g, s)
	levels := map[doctor.Level]int{doctor.Failed: 0, doctor.Warn: 0, doctor.Info: 0, doctor.OK: 0, doctor.Skip: 0}
	facts := &doctor.Facts{At: s.At, State: s}
	for _, r := range doctor.Examine(facts, "nats", "agents", "devices", "queues", "swarms", "detectors") {
		levels[r.Level]++
	}
	for level, n := range levels {
		g.set(e.checks, float64(n), string(level))
	}
}

// collectAgents counts agents. Every state of every pool has a series.
func (e *exporter) collectAgents(g gauges, s *cluster.State) {
	type key struct {
		pool  jobs.Pool
		state string
	}
	n := map[key]int{}
	for _, p := range wire.Pools() {
		for _, state := range []string{agentServing, agentFull, agentDraining, agentDegraded, jobs.AgentLost} {
			n[key{p, state}] = 0
		}
	}
	for _, a := range s.Agents {
		state := agentDegraded
		switch {
		case a.Lost != nil:
			state = jobs.AgentLost
		case a.State == agentServing || a.State == agentFull || a.State == agentDraining:
			state = a.State
		}
		n[key{a.Pool, state}]++
	}
	for k, n := range n {
		g.set(e.agents, float64(n), string(k.pool), k.state)
	}
}

// collectQueues adds up the queues by pool, kind, lane and state.
func (e *exporter) collectQueues(g gauges, s *cluster.State) {
	type key struct{ kind, lane, state string }
	demand := map[jobs.Pool]float64{}
	for _, p := range s.Pools {
		pool := string(p.Pool)
		sums, unserved, paused := map[key]float64{}, map[string]float64{}, map[string]float64{
			everyKind: number(p.Paused),
		}
		for _, c := range p.Sources {
			kind := e.kinds.label(c.Kind)
			sums[key{kind, string(c.Lane), "waiting"}] += float64(c.Waiting)
			sums[key{kind, string(c.Lane), "running"}] += float64(c.Running)
			all := float64(c.Waiting) + float64(c.Running)
			if c.Agents > 0 {
				all = 0
			}
			unserved[kind] += all
			paused[kind] = max(paused[kind], number(c.Paused))
			if demand[p.Pool] += float64(c.Running); !p.Paused && !c.Paused {
				demand[p.Pool] += float64(c.Waiting)
			}
		}
		for k, v := range sums {
			g.set(e.jobs, v, pool, k.kind, k.lane, k.state)
		}
		for kind, v := range unserved {
			g.set(e.unserved, v, pool, kind)
		}
		for kind, v := range paused {
			g.set(e.paused, v, pool, kind)
		}
		oldest := 0.0
		if !p.Oldest.IsZero() {
			oldest = max(0, s.At.Sub(p.Oldest).Seconds())
		}
		g.set(e.oldest, oldest, pool)
	}
	for _, sw := range s.Swarms {
		if sw.State != cluster.StateEnding {
			demand[jobs.PoolGPU] += float64(len(sw.Shards))
		}
	}
	for _, p := range wire.Pools() {
		g.set(e.demand, demand[p], string(p))
	}
	g.set(e.dead, s.Numbers[cluster.DeadLetters])
}

// collectSwarms counts swarms and shards. Every state has a series.
func (e *exporter) collectSwarms(g gauges, s *cluster.State) {
	swarms := map[string]int{
		cluster.StateServed: 0, cluster.StateReplaying: 0, cluster.StateWaiting: 0, cluster.StateEnding: 0,
	}
	shards := map[string]int{cluster.StateServed: 0, cluster.StateReplaying: 0, cluster.StateWaiting: 0}
	for _, sw := range s.Swarms {
		swarms[sw.State]++
		for _, sh := range sw.Shards {
			shards[sh.State]++
		}
	}
	for state, n := range swarms {
		g.set(e.swarms, float64(n), state)
	}
	for state, n := range shards {
		g.set(e.shards, float64(n), state)
	}
	g.set(e.entries, s.Numbers[cluster.EntriesWaiting])
}

// collectStreams adds what the servers report of their streams.
func (e *exporter) collectStreams(g gauges, s *cluster.State) {
	var bytes, messages, leaderless, behind float64
	for _, l := range s.NATS.Logs {
		bytes += float64(l.Bytes)
		messages += float64(l.Messages)
		leaderless += number(l.Leaderless)
		behind += float64(len(l.Behind))
	}
	add := func(name string, bytes, messages, leaderless, behind float64) {
		g.set(e.bytes, bytes, name)
		g.set(e.messages, messages, name)
		g.set(e.leaderless, leaderless, name)
		g.set(e.behind, behind, name)
	}
	add(logsOfSwarms, bytes, messages, leaderless, behind)
	for _, st := range s.NATS.Streams {
		if !protocolStream(st.Name) {
			continue // of somebody else on the same servers
		}
		add(st.Name, float64(st.Bytes), float64(st.Messages), number(st.Leaderless), float64(len(st.Behind)))
		if st.MaxBytes > 0 {
			g.set(e.limit, float64(st.MaxBytes), st.Name)
		}
	}
	g.set(e.store, float64(s.NATS.Store))
	if s.NATS.StoreLimit > 0 {
		g.set(e.storeLimit, float64(s.NATS.StoreLimit))
	}
	g.set(e.refuses, number(s.NATS.Refuses))
}

// protocolStream reports whether a stream is one of the protocol, whose number is fixed.
func protocolStream(name string) bool {
	return slices.ContainsFunc([]string{"EXO_", "KV_EXO_", "OBJ_EXO_"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// kinds gives the first kinds that it sees a label of their own. Its zero value is ready.
type kinds struct {
	mu    sync.Mutex
	known map[string]bool
}

func (k *kinds) label(kind string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known[kind] {
		if len(k.known) >= maxKinds {
			return otherKinds
		}
		if k.known == nil {
			k.known = map[string]bool{}
		}
		k.known[kind] = true
	}
	return kind
}

type gauges struct{ out chan<- prometheus.Metric }

func (g gauges) set(d *prometheus.Desc, v float64, labels ...string) {
	g.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
