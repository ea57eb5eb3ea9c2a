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

// NewMetrics registers the metrics of shards. exoswarm metrics lists names and labels.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(
			prometheus.CounterOpts{Namespace: "exoswarm", Subsystem: "swarm", Name: name, Help: help},
			append([]string{"cell"}, labels...),
		)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "exoswarm", Subsystem: "swarm", Name: name, Help: help,
			// 0.1 ms to 27 s by factors of four: from a launch to a checkpoint of gigabytes.
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		}, []string{"cell"})
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Namespace: "exoswarm", Subsystem: "swarm", Name: name, Help: help},
			[]string{"cell"},
		)
	}
	m := &Metrics{
		handovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "exoswarm",
			Subsystem: "gpuagent",
			Name:      "handovers_total",
			Help:      "Planned hand-overs of shards to other agents: given, taken, and offers that were withdrawn.",
		}, []string{"outcome"}),
		parting: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "exoswarm",
			Subsystem: "gpuagent",
			Name:      "handover_seconds",
			Help:      "From the last entry that is applied here to the lease in the name of the other agent.",
			Buckets:   prometheus.ExponentialBuckets(0.001, 4, 8), // to 16 s
		}),
		lag: gauge(
			"lag_entries",
			"Entries in the logs of open shards that are not applied yet, those of a replay too, summed over the "+
				"shards.",
		),
		replaying: gauge("replaying_shards", "Shards that apply entries again which an earlier process has answered."),
		replayAt: gauge(
			"replay_position_entries",
			"Of shards that are replayed, the last entry that was, summed over the shards.",
		),
		replayOf: gauge(
			"replay_target_entries",
			"Of shards that are replayed, the entry that the replay ends with, summed over the shards.",
		),
		busy: map[string]*busy{},
		busySeconds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "exoswarm", Subsystem: "gpuagent", Name: "device_busy_seconds_total",
			Help: "Time in which a shard had a batch, ticks or a query on the device: from the upload to the end of " +
				"the read back as the shard's loop sees them, with what the host does in between; shards that have " +
				"at the same time count once.",
		},
			[]string{"device"}),
		batch: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "exoswarm",
			Subsystem: "swarm",
			Name:      "batch_observations",
			Help:      "Observations that were applied together, of one entry or of several.",
			Buckets:   prometheus.ExponentialBuckets(16, 4, 9), // 16 to a million
		}, []string{"cell"}),
		limit: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "exoswarm", Subsystem: "swarm", Name: "batch_limit",
			Help: "Observations that a batch of several entries may have now, summed over the shards.",
		}, []string{"cell"}),
		shards: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Namespace: "exoswarm",
				Subsystem: "swarm",
				Name:      "shards",
				Help:      "Shards that are served now.",
			},
			[]string{"cell"},
		),
		agents: gauge("agents", "Agents of the shards that are served now."),
		groups: gauge("groups", "Groups of the shards that are served now."),
		stored: gauge("checkpoint_timestamp_seconds", "Unix time of the last checkpoint that a shard has stored."),
		lagAge: newLagSeconds(),
		snapshots: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "exoswarm", Name: "snapshot_timestamp_seconds",
			Help: "Unix time of the last snapshot that a shard has written; absent before the first one.",
		}, []string{"cell"}),
		snapshotBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "exoswarm", Name: "snapshot_bytes_total",
			Help: "Bytes of the files of snapshots that shards have written.",
		}, []string{"cell"}),
		steps: counter("steps_total", "Steps of agents, by observations and by ticks, those of a replay too. An "+
			"observation of a group steps all of its agents."),
		observations: counter("observations_total", "Observations that were applied, those of a replay too."),
		dropped: counter(
			"dropped_observations_total",
			"Observations that have changed nothing, as the swarm's spec says, by the reason: late or duplicate; "+
				"those of a replay too.",
			"reason",
		),
		rejected: counter(
			"rejected_entries_total", "Log entries that were answered with an error and changed nothing.",
		),
		checkpoints: counter("checkpoints_total", "Checkpoints, by their outcome: stored or failed.", "outcome"),
		apply: histogram(
			"apply_seconds",
			"How long the state takes to apply an entry and have its answer, without the log: observations, with "+
				"those of the entries that they are merged with, ticks, queries.",
		),
		checkpoint: histogram("checkpoint_seconds", "Pause of a shard for a checkpoint."),
		claims: counter(
			"residency_claims_total", "Pages of swarms with residency: gpu that were compared with the device.",
		),
		violations: counter(
			"residency_violations_total",
			"Comparisons that found pages of a swarm with residency: gpu elsewhere or with other bytes. The shard "+
				"then starts again from its checkpoint.",
		),
	}
	for _, c := range []prometheus.Collector{
		m.shards, m.observations, m.dropped, m.rejected, m.checkpoints, m.apply, m.checkpoint, m.busySeconds,
		m.batch, m.limit, m.claims, m.violations,
		m.lag, m.replaying, m.replayAt, m.replayOf, m.handovers, m.parting, m.agents, m.groups, m.stored, m.steps,
		m.lagAge, m.snapshots, m.snapshotBytes,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	var err error
	m.votes, err = newVoteMetrics(r)
	return m, err
}

// serving counts a shard, its agents and its groups until done is called. Every counter of the cell
// is there from then on, at 0: a rate of a counter that appears with its first event misses that.
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

// applied counts the observations of an answer, and the time in which its entry was applied.
// span is that of the entry; the time has it as an exemplar if it is sampled.
// stepped is how many agents an observation steps.
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

// audited counts the claims of a comparison, and whether it found a violation.
func (m *Metrics) audited(cell string, checked int, violated bool) {
	if m == nil {
		return
	}
	m.claims.WithLabelValues(cell).Add(float64(checked))
	if n := m.violations.WithLabelValues(cell); violated { // shown from the first comparison on
		n.Inc()
	}
}

// batched counts a batch of so many observations.
func (m *Metrics) batched(cell string, rows int) {
	if m != nil {
		m.batch.WithLabelValues(cell).Observe(float64(rows))
	}
}

// limiting returns a function that is called with the batch limit of a shard: 0 when the shard
// ends.
func (m *Metrics) limiting(cell string) func(most int) {
	if m == nil {
		return func(int) {}
	}
	gauge, before := m.limit.WithLabelValues(cell), 0
	return func(most int) {
		if most != before {
			gauge.Add(float64(most - before))
			before = most
		}
	}
}

// waiting returns what a shard notes its oldest entry in, until ended is called; nil for a nil
// Metrics.
func (m *Metrics) waiting(cell string) (w *waiting, ended func()) {
	if m == nil {
		return nil, func() {}
	}
	return m.lagAge.follow(cell)
}

// snapshotted counts a snapshot, unless it failed.
func (m *Metrics) snapshotted(cell string, a state.Answer, err error) {
	if m == nil || err != nil {
		return
	}
	m.snapshots.WithLabelValues(cell).SetToCurrentTime()
	if done, err := swarms.DecodeSnapshotted(a.Data); err == nil {
		m.snapshotBytes.WithLabelValues(cell).Add(float64(done.Bytes))
	}
}

// lagGauges is the part of one shard in the gauges of lag and replay. A nil lagGauges counts
// nothing. The goroutine that serves the shard uses it.
type lagGauges struct {
	gauges [4]prometheus.Gauge
	before [4]float64
}

// lagging returns the gauges of one shard; nil for a nil Metrics.
func (m *Metrics) lagging(cell string) *lagGauges {
	if m == nil {
		return nil
	}
	l := &lagGauges{}
	for i, g := range []*prometheus.GaugeVec{m.lag, m.replaying, m.replayAt, m.replayOf} {
		l.gauges[i] = g.WithLabelValues(cell)
	}
	return l
}

// set sets the entries that the shard is behind, and the position and the target of its replay; of
// is 0 without a replay.
func (l *lagGauges) set(lag, at, of uint64) {
	if l == nil {
		return
	}
	now := [4]float64{float64(lag), float64(min(of, 1)), float64(at), float64(of)}
	for i, v := range now {
		if v != l.before[i] {
			l.gauges[i].Add(v - l.before[i])
		}
	}
	l.before = now
}

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
	since time.Time // the begin of the time that is not in seconds, while any works
}

// shift changes the number of shards that work on the device.
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

// refused counts a rejected entry.
func (m *Metrics) refused(cell string) {
	if m != nil {
		m.rejected.WithLabelValues(cell).Inc()
	}
}

// saved counts a checkpoint by its outcome, and its time.
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
