package payload

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts the payloads of all shards, by cell. A nil Metrics counts nothing.
type Metrics struct {
	bytes, failures *prometheus.CounterVec
	seconds         *prometheus.HistogramVec
	shards          *prometheus.GaugeVec
}

// NewMetrics registers the metrics of payloads. docs/metrics.md lists names and labels.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "exoswarm", Subsystem: "swarm", Name: name, Help: help,
		}, []string{"cell"})
	}
	m := &Metrics{
		bytes: counter("bulk_bytes_total", "Bytes of entries beside the log that were fetched, those of a replay too."),
		failures: counter("bulk_failures_total", "Tries to fetch the bytes of an entry that have failed. They are "+
			"repeated until one succeeds."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "exoswarm", Subsystem: "swarm", Name: "bulk_fetch_seconds",
			Help:    "Time of a try that has fetched the bytes of an entry.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8), // 0.5 ms to 8 s
		}, []string{"cell"}),
		shards: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "exoswarm", Subsystem: "swarm", Name: "bulk_waiting_shards",
			Help: "Shards that wait for the bytes of an entry whose last try has failed. They answer nothing behind " +
				"it.",
		}, []string{"cell"}),
	}
	return m, errors.Join(r.Register(m.bytes), r.Register(m.failures), r.Register(m.seconds), r.Register(m.shards))
}

// CellMetrics are the metrics of the shards of a cell. A nil CellMetrics counts nothing.
type CellMetrics struct {
	bytes, failures prometheus.Counter
	seconds         prometheus.Observer
	shards          prometheus.Gauge
}

// Of returns the metrics of a cell, which has series from then on; nil for a nil Metrics.
func (m *Metrics) Of(cell string) *CellMetrics {
	if m == nil {
		return nil
	}
	return &CellMetrics{
		bytes: m.bytes.WithLabelValues(cell), failures: m.failures.WithLabelValues(cell),
		seconds: m.seconds.WithLabelValues(cell), shards: m.shards.WithLabelValues(cell),
	}
}

func (m *CellMetrics) fetched(bytes int, took time.Duration) {
	if m != nil {
		m.bytes.Add(float64(bytes))
		m.seconds.Observe(took.Seconds())
	}
}

func (m *CellMetrics) failed() {
	if m != nil {
		m.failures.Inc()
	}
}

func (m *CellMetrics) waiting(by float64) {
	if m != nil {
		m.shards.Add(by)
	}
}
