package gateway

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts the requests of a gateway, by operation and never by tenant.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight *prometheus.Desc
	line     *requestLine // nil: a description without a gateway
}

func newMetrics(line *requestLine) *metrics {
	return &metrics{
		line: line,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exoswarm_gateway_requests_total",
			Help: "Requests that the gateway has answered, by the code of the error, or ok.",
		}, []string{"op", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "exoswarm_gateway_request_seconds",
			Help: "Time of a request in the gateway, without its wait for a " +
				"place. A request for a result waits for the job if it says so.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 11), // to 524 s
		}, []string{"op"}),
		inFlight: prometheus.NewDesc("exoswarm_gateway_in_flight", "Requests of the gateway: running, queued for a "+
			"place, and waiting for a job without a place.", []string{"state"}, nil),
	}
}

// Collector returns the metrics of the gateway. A nil Gateway has a collector that describes the
// families and collects nothing.
func (g *Gateway) Collector() prometheus.Collector {
	if g == nil {
		return newMetrics(nil)
	}
	return g.metrics
}

// ops are the operations with their own label. All other operations share a label.
var ops = map[string]bool{
	"submit": true, "result": true, "find": true, "cancel": true, "cron": true, "list": true,
	"logs": true, "retry": true, "react": true,
}

// opOf returns the operation of a subject, which the client chooses.
func opOf(subject string) string {
	_, what := caller(subject)
	verb, _, _ := strings.Cut(what, ".")
	if ops[verb] {
		return verb
	}
	return "other"
}

func (m *metrics) answered(subject string, r apiReply, began time.Time) {
	op, code := opOf(subject), "ok"
	if r.Error != nil {
		code = r.Error.Code
	}
	m.requests.WithLabelValues(op, code).Inc()
	m.seconds.WithLabelValues(op).Observe(time.Since(began).Seconds())
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	m.requests.Describe(out)
	m.seconds.Describe(out)
	out <- m.inFlight
}

// Histograms returns the names of the families that are histograms.
func (m *metrics) Histograms() []string { return []string{"exoswarm_gateway_request_seconds"} }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	if m.line == nil {
		return
	}
	m.requests.Collect(out)
	m.seconds.Collect(out)
	m.line.mu.Lock()
	busy, length, waits := m.line.busy, m.line.length, m.line.waits
	m.line.mu.Unlock()
	for state, n := range map[string]int{"running": busy, "queued": length, "waiting": waits} {
		out <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, float64(n), state)
	}
}
