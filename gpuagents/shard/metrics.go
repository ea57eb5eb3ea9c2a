package shard

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// Metrics counts the work on shards, by cell and never by swarm. One may serve several agents. A
// nil Metrics counts nothing.
type Metrics struct {
	shards                              *prometheus.GaugeVec
	agents, groups, stored              *prometheus.GaugeVec
	observations, rejected, checkpoints *prometheus.CounterVec
	steps                               *prometheus.CounterVec
	dropped                             *prometheus.CounterVec
	apply, checkpoint, batch            *prometheus.HistogramVec
	limit                               *prometheus.GaugeVec
	busySeconds                         *prometheus.CounterVec
	claims, violations                  *prometheus.CounterVec
	lag, replaying, replayAt, replayOf  *prometheus.GaugeVec
	handovers                           *prometheus.CounterVec
	parting                             prometheus.Histogram
	votes                               *voteMetrics
	lagAge                              *lagSeconds
	snapshots                           *prometheus.GaugeVec
	snapshotBytes                       *prometheus.CounterVec

	mu   sync.Mutex
	busy map[string]*busy // by device
}

type registrar struct {
	to  prometheus.Registerer
	err error
}

func (r *registrar) register(c prometheus.Collector) {
	if r.err == nil {
		r.err = r.to.Register(c)
	}
}

func (r *registrar) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "exoswarm_swarm_" + name, Help: help},
		append([]string{"cell"}, labels...))
	r.register(c)
	return c
}

func (r *registrar) gauge(name, help string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "exoswarm_" + name, Help: help}, []string{"cell"})
	r.register(g)
	return g
}

func (r *registrar) histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Name: "exoswarm_swarm_" + name, Help: help, Buckets: buckets}, []string{"cell"},
	)
	r.register(h)
	return h
}

// NewMetrics registers the metrics of shards. exoswarm metrics lists names and labels.
func NewMetrics(to prometheus.Registerer) (*Metrics, error) {
	r := &registrar{to: to}
	// 0.1 ms to 27 s by factors of four: from a launch to a checkpoint of gigabytes.
	seconds := prometheus.ExponentialBuckets(0.0001, 4, 10)
	m := &Metrics{
		handovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exoswarm_gpuagent_handovers_total",
			Help: "Planned hand-overs of shards to other agents: given, taken, and offers that were withdrawn.",
		}, []string{"outcome"}),
		parting: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "exoswarm_gpuagent_handover_seconds",
			Help:    "From the last entry that is applied here to the lease in the name of the other agent.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8), // to 16 s
		}),
		busy: map[string]*busy{},
		busySeconds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exoswarm_gpuagent_device_busy_seconds_total",
			Help: "Time in which a shard had a batch, ticks or a query on the device: from the upload to the end of " +
				"the read back as the shard's loop sees them, with what the host does in between; shards that have " +
				"at the same time count once.",
		}, []string{"device"}),
		snapshotBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exoswarm_snapshot_bytes_total", Help: "Bytes of the files of snapshots that shards have written.",
		}, []string{"cell"}),
		lagAge: newLagSeconds(),
		lag: r.gauge("swarm_lag_entries", "Entries in the logs of open shards that are not applied yet, in a "+
			"replay too, summed over the shards."),
		replaying: r.gauge("swarm_replaying_shards",
			"Shards that apply entries again which an earlier process has answered."),
		replayAt: r.gauge("swarm_replay_position_entries",
			"Of shards that are replayed, the last entry that was, summed over the shards."),
		replayOf: r.gauge("swarm_replay_target_entries",
			"Of shards that are replayed, the entry that the replay ends with, summed over the shards."),
		batch: r.histogram("batch_observations",
			"Observations that were applied together, of one entry or of several.",
			prometheus.ExponentialBuckets(16, 4, 9)), // 16 to a million
		limit: r.gauge("swarm_batch_limit",
			"Observations that a batch of several entries may have now, summed over the shards."),
		shards: r.gauge("swarm_shards", "Shards that are served now."),
		agents: r.gauge("swarm_agents", "Agents of the shards that are served now."),
		groups: r.gauge("swarm_groups", "Groups of the shards that are served now."),
		stored: r.gauge("swarm_checkpoint_timestamp_seconds",
			"Unix time of the last checkpoint that a shard has stored."),
		snapshots: r.gauge("snapshot_timestamp_seconds",
			"Unix time of the last snapshot that a shard has written; absent before the first one."),
		steps: r.counter("steps_total", "Steps of agents, by observations and by ticks, in a replay too. An "+
			"observation of a group steps all of its agents."),
		observations: r.counter("observations_total", "Observations that were applied, in a replay too."),
		dropped: r.counter("dropped_observations_total", "Observations that have changed nothing, as the swarm's spec "+
			"says, by the reason: late or duplicate; in a replay too.", "reason"),
		rejected: r.counter("rejected_entries_total",
			"Log entries that were answered with an error and changed nothing."),
		checkpoints: r.counter("checkpoints_total", "Checkpoints, by their outcome: stored or failed.", "outcome"),
		apply: r.histogram("apply_seconds", "How long the state takes to apply an entry and have its answer, without "+
			"the log: observations, with the entries that they are merged with, ticks, queries.", seconds),
		checkpoint: r.histogram("checkpoint_seconds", "Pause of a shard for a checkpoint.", seconds),
		claims: r.counter("residency_claims_total",
			"Pages of swarms with residency: gpu that were compared with the device."),
		violations: r.counter("residency_violations_total", "Comparisons that found pages of a swarm with residency: "+
			"gpu elsewhere or with other bytes. The shard then starts again from its checkpoint."),
		votes: newVoteMetrics(r),
	}
	for _, c := range []prometheus.Collector{m.handovers, m.parting, m.busySeconds, m.snapshotBytes, m.lagAge} {
		r.register(c)
	}
	return m, r.err
}

// serving counts a shard, its agents and its groups until done is called. It creates every counter
// of the cell at 0: a rate misses the first event of a counter that appears with it.
func (m *Metrics) serving(of state.Info, groups int) (done func()) {
	if m == nil {
		return func() {}
	}
	add := func(sign float64) {
		m.shards.WithLabelValues(of.Cell).Add(sign)
		m.agents.WithLabelValues(of.Cell).Add(sign * float64(of.Agents))
		m.groups.WithLabelValues(of.Cell).Add(sign * float64(groups))
	}
	for _, c := range []*prometheus.CounterVec{m.observations, m.rejected, m.steps} {
		c.WithLabelValues(of.Cell)
	}
	for _, outcome := range []string{"stored", "failed"} {
		m.checkpoints.WithLabelValues(of.Cell, outcome)
	}
	for why, reason := range batch.Reasons {
		if why != int(batch.Applied) {
			m.dropped.WithLabelValues(of.Cell, reason)
		}
	}
	m.apply.WithLabelValues(of.Cell)
	m.snapshotBytes.WithLabelValues(of.Cell)
	add(1)
	return func() { add(-1) }
}

// applied counts the observations of an answer, and the time of its entry. span is the span of the
// entry; if it is sampled, the time has it as an exemplar. stepped is the number of agents that an
// observation steps.
func (m *Metrics) applied(cell string, a state.Answer, stepped int64, took time.Duration, span trace.Span) {
	if m == nil {
		return
	}
	m.steps.WithLabelValues(cell).Add(float64(a.Steps + int64(a.Observations)*stepped))
	m.observations.WithLabelValues(cell).Add(float64(a.Observations))
	for why, n := range a.Dropped {
		if why != int(batch.Applied) && n > 0 {
			m.dropped.WithLabelValues(cell, batch.Reasons[why]).Add(float64(n))
		}
	}
	tracing.Observe(m.apply.WithLabelValues(cell), took.Seconds(), span)
}

func (m *Metrics) audited(cell string, checked int, violated bool) {
	if m == nil {
		return
	}
	m.claims.WithLabelValues(cell).Add(float64(checked))
	if n := m.violations.WithLabelValues(cell); violated { // shown from the first comparison on
		n.Inc()
	}
}

func (m *Metrics) batched(cell string, rows int) {
	if m != nil {
		m.batch.WithLabelValues(cell).Observe(float64(rows))
	}
}

// waiting returns a record for the oldest entry of a shard, until ended is called; nil for a nil
// Metrics.
func (m *Metrics) waiting(cell string) (w *waiting, ended func()) {
	if m == nil {
		return nil, func() {}
	}
	return m.lagAge.follow(cell)
}

func (m *Metrics) snapshotted(cell string, a state.Answer, err error) {
	if m == nil || err != nil {
		return
	}
	m.snapshots.WithLabelValues(cell).SetToCurrentTime()
	if done, err := swarms.DecodeSnapshotted(a.Data); err == nil {
		m.snapshotBytes.WithLabelValues(cell).Add(float64(done.Bytes))
	}
}

// shardGauges is the share of one shard in the gauges that are summed over shards. A nil
// shardGauges counts nothing. The goroutine that serves the shard uses it.
type shardGauges struct {
	gauges [5]prometheus.Gauge
	before [5]float64
}

// gauges returns the gauges of one shard; nil for a nil Metrics.
func (m *Metrics) gauges(cell string) *shardGauges {
	if m == nil {
		return nil
	}
	g := &shardGauges{}
	for i, of := range []*prometheus.GaugeVec{m.limit, m.lag, m.replaying, m.replayAt, m.replayOf} {
		g.gauges[i] = of.WithLabelValues(cell)
	}
	return g
}

// set sets gauges from number first on.
func (g *shardGauges) set(first int, values ...uint64) {
	if g == nil {
		return
	}
	for i, v := range values {
		if now, before := float64(v), &g.before[first+i]; now != *before {
			g.gauges[first+i].Add(now - *before)
			*before = now
		}
	}
}

// limit sets the limit of the next batch; 0 when the shard ends.
func (g *shardGauges) limit(most int) { g.set(0, uint64(most)) }

// lag sets the number of entries that the shard is behind, and the position and the target of its
// replay; of is 0 without a replay.
func (g *shardGauges) lag(entries, at, of uint64) { g.set(1, entries, min(of, 1), at, of) }

// HandedOver counts a hand-over by its outcome.
func (m *Metrics) HandedOver(outcome string) {
	if m != nil {
		m.handovers.WithLabelValues(outcome).Inc()
	}
}

// Parted observes the time for which a shard was stopped before its lease was handed on.
func (m *Metrics) Parted(took time.Duration) {
	if m != nil {
		m.parting.Observe(took.Seconds())
	}
}

// working counts a device as busy until idle is called.
func (m *Metrics) working(device string) (idle func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	b := m.busy[device]
	if b == nil {
		b = &busy{seconds: m.busySeconds.WithLabelValues(device)}
		m.busy[device] = b
	}
	m.mu.Unlock()
	b.shift(1)
	return func() { b.shift(-1) }
}

// busy measures the time in which at least one shard works on a device.
type busy struct {
	seconds prometheus.Counter

	mu    sync.Mutex
	works int
	since time.Time // start of the busy time that is not in seconds yet
}

func (b *busy) shift(by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.works > 0 {
		b.seconds.Add(now.Sub(b.since).Seconds())
	}
	b.since = now
	b.works += by
}

func (m *Metrics) refused(cell string) {
	if m != nil {
		m.rejected.WithLabelValues(cell).Inc()
	}
}

func (m *Metrics) saved(cell string, err error, took time.Duration) {
	if m == nil {
		return
	}
	outcome := "stored"
	if err != nil {
		outcome = "failed"
	}
	m.checkpoints.WithLabelValues(cell, outcome).Inc()
	if err == nil {
		m.stored.WithLabelValues(cell).SetToCurrentTime()
	}
	m.checkpoint.WithLabelValues(cell).Observe(took.Seconds())
}
