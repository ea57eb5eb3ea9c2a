package gpuagents

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what agents do, by cell and never by swarm, and where pages are, by tier. One may serve several agents. A nil Metrics counts nothing.
type Metrics struct {
	shards                              *prometheus.GaugeVec
	observations, rejected, checkpoints *prometheus.CounterVec
	apply, checkpoint                   *prometheus.HistogramVec
	pages                               *pageMetrics
	level                               *prometheus.GaugeVec
	deviceErrors, rebuilds              *prometheus.CounterVec
}

// NewMetrics registers the metrics of agents. Names and labels are listed in docs/operations.md.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "exoswarm", Subsystem: "swarm", Name: name, Help: help}, append([]string{"cell"}, labels...))
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "exoswarm", Subsystem: "swarm", Name: name, Help: help,
			// 0.1 ms to 27 s by factors of four: from a launch to a checkpoint of gigabytes.
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		}, []string{"cell"})
	}
	m := &Metrics{
		shards:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "exoswarm", Subsystem: "swarm", Name: "shards", Help: "Shards that are served now."}, []string{"cell"}),
		observations: counter("observations_total", "Observations that were applied, those of a replay too."),
		rejected:     counter("rejected_entries_total", "Log entries that were answered with an error and changed nothing."),
		checkpoints:  counter("checkpoints_total", "Checkpoints, by their outcome: stored or failed.", "outcome"),
		apply:        histogram("apply_seconds", "From an entry of a log to its answer, without the log: observations, ticks, queries."),
		checkpoint:   histogram("checkpoint_seconds", "How long a shard stands still for a checkpoint."),
		pages:        newPageMetrics(),
		level:        prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "exoswarm", Subsystem: "gpuagent", Name: "level", Help: "How far work is cut down because the device fails: 0 normal, 1 reduced, 2 host, 3 emergency."}, []string{"device"}),
		deviceErrors: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "exoswarm", Subsystem: "gpuagent", Name: "device_errors_total", Help: "Failures of the device under a shard, and batches that it had no room for."}, []string{"device", "class"}),
		rebuilds:     prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "exoswarm", Subsystem: "gpuagent", Name: "device_rebuilds_total", Help: "Times that a broken device was opened anew, by the outcome: opened or failed."}, []string{"device", "outcome"}),
	}
	for _, c := range []prometheus.Collector{m.shards, m.observations, m.rejected, m.checkpoints, m.apply, m.checkpoint, m.pages, m.level, m.deviceErrors, m.rebuilds} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// serving counts a shard until done is called.
func (m *Metrics) serving(cell string) (done func()) {
	if m == nil {
		return func() {}
	}
	m.shards.WithLabelValues(cell).Inc()
	return m.shards.WithLabelValues(cell).Dec
}

// ofPages is what pages of shards are counted by.
func (m *Metrics) ofPages() *pageMetrics {
	if m == nil {
		return nil
	}
	return m.pages
}

func (m *Metrics) applied(cell string, observations int, took time.Duration) {
	if m == nil {
		return
	}
	m.observations.WithLabelValues(cell).Add(float64(observations))
	m.apply.WithLabelValues(cell).Observe(took.Seconds())
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
	m.checkpoint.WithLabelValues(cell).Observe(took.Seconds())
}

// levelled says by how much the level of a device has changed.
func (m *Metrics) levelled(device string, by Level) {
	if m != nil {
		m.level.WithLabelValues(device).Add(float64(by))
	}
}

func (m *Metrics) failedDevice(device, class string, n int) {
	if m != nil && n > 0 {
		m.deviceErrors.WithLabelValues(device, class).Add(float64(n))
	}
}

func (m *Metrics) rebuilt(device string, err error) {
	if m == nil {
		return
	}
	outcome := "opened"
	if err != nil {
		outcome = "failed"
	}
	m.rebuilds.WithLabelValues(device, outcome).Inc()
}
