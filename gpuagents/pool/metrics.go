package pool

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts the failures, levels and rebuilds of devices. A nil Metrics counts nothing.
type Metrics struct {
	level, shared          *prometheus.GaugeVec
	deviceErrors, rebuilds *prometheus.CounterVec
	claims, violations     prometheus.Counter // of models
}

// NewMetrics registers the metrics of device pools. exoswarm metrics lists names and labels.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "exoswarm", Subsystem: "gpuagent", Name: name, Help: help,
		}, labels)
	}
	m := &Metrics{
		level: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "exoswarm", Subsystem: "gpuagent", Name: "level",
			Help: "How far work is cut down because the device fails: 0 normal, 1 reduced, 2 host, 3 emergency.",
		}, []string{"device"}),
		shared: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "exoswarm", Subsystem: "gpuagent", Name: "shared_shards",
			Help: "Shards whose pages are on another device and whose ticks the device shares.",
		}, []string{"device"}),
		deviceErrors: counter("device_errors_total",
			"Failures of the device under a shard, and batches that it had no room for.", "device", "class"),
		rebuilds: counter("device_rebuilds_total",
			"Times that a broken device was opened again, by the outcome: opened or failed.", "device", "outcome"),
	}
	model := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "exoswarm", Subsystem: "model", Name: name, Help: help,
		})
	}
	m.claims = model("residency_claims_total", "Layers of models that were compared with the device.")
	m.violations = model("residency_violations_total", "Comparisons that found a layer of a model with other bytes "+
		"than it had. It is then loaded again, and shards with the model start again from their checkpoints.")
	for _, c := range []prometheus.Collector{m.level, m.shared, m.deviceErrors, m.rebuilds, m.claims, m.violations} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) levelChanged(device string, by Level) {
	if m != nil {
		m.level.WithLabelValues(device).Add(float64(by))
	}
}

func (m *Metrics) joined(device string, by int) {
	if m != nil {
		m.shared.WithLabelValues(device).Add(float64(by))
	}
}

func (m *Metrics) failed(device, class string, n int) {
	if m != nil && n > 0 {
		m.deviceErrors.WithLabelValues(device, class).Add(float64(n))
	}
}

func (m *Metrics) audited(claims, violations int) {
	if m != nil {
		m.claims.Add(float64(claims))
		m.violations.Add(float64(violations))
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
