package bulk

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what a Server does. A nil Metrics counts nothing.
type Metrics struct {
	requests        *prometheus.CounterVec
	bytes, released prometheus.Counter
	conns, payloads prometheus.Gauge
	kept            prometheus.Gauge
}

// outcomes are the values of the label outcome, by status.
var outcomes = []string{statusOK: "sent", statusUnknown: "unknown", statusBusy: "busy", statusDisk: "disk"}

// NewMetrics registers the metrics of a server.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "exoswarm", Subsystem: "bulk", Name: "requests_total",
			Help: "Requests for payloads of the bulk lane by outcome. unknown: no such payload, or a wrong token. " +
				"disk: the payload could not be read. busy: a connection too many.",
		}, []string{"outcome"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "exoswarm", Subsystem: "bulk", Name: "sent_bytes_total",
			Help: "Bytes of payloads that were sent to GPU agents.",
		}),
		released: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "exoswarm", Subsystem: "bulk", Name: "released_payloads_total",
			Help: "Payloads that were removed because the log was trimmed behind their entry, or the swarm is gone.",
		}),
		conns: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "exoswarm", Subsystem: "bulk", Name: "connections", Help: "Connections of GPU agents.",
		}),
		payloads: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "exoswarm", Subsystem: "bulk", Name: "kept_payloads", Help: "Payloads in the spool.",
		}),
		kept: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "exoswarm", Subsystem: "bulk", Name: "kept_bytes", Help: "Bytes of the payloads in the spool.",
		}),
	}
	var err error
	for _, c := range []prometheus.Collector{m.requests, m.bytes, m.released, m.conns, m.payloads, m.kept} {
		err = errors.Join(err, r.Register(c))
	}
	for _, o := range outcomes {
		m.requests.WithLabelValues(o)
	}
	return m, err
}

// served counts a request.
func (m *Metrics) served(s status, bytes int64) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(outcomes[s]).Inc()
	m.bytes.Add(float64(bytes))
}

func (m *Metrics) connected(by float64) {
	if m != nil {
		m.conns.Add(by)
	}
}

func (m *Metrics) swept(f found) {
	if m == nil {
		return
	}
	m.released.Add(float64(f.released))
	m.payloads.Set(float64(f.payloads))
	m.kept.Set(float64(f.bytes))
}
