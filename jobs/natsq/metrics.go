package natsq

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/deadletters"
)

// Metrics counts what workers do, by pool and kind and never by job, and says what tenants have, at
// most a hundred of them each by itself. One may serve several workers. A nil Metrics counts
// nothing.
type Metrics struct {
	completed, failed, retries, refusals, dead *prometheus.CounterVec
	running                                    *prometheus.GaugeVec
	wait, run                                  *prometheus.HistogramVec
	tenants                                    *tenantMetrics
}

// NewMetrics registers the metrics of workers. Names and labels are listed in docs/protocol.md.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "exoswarm", Subsystem: "jobs", Name: name,
			Help: help,
		}, append([]string{"pool", "kind"}, labels...))
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "exoswarm", Subsystem: "jobs", Name: name, Help: help,
			// 0.5 ms to 4.5 hours by factors of four: from a kernel launch to a long stream job.
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 13),
		}, []string{"pool", "kind"})
	}
	m := &Metrics{
		completed: counter("completed_total", "Jobs that a worker has done."),
		failed:    counter("failed_total", "Jobs that ended as failed, by the code of their error.", "code"),
		retries:   counter("retries_total", "Jobs given back to the queue to be tried again."),
		refusals:  counter("results_refused_total", "Results that came second and were refused."),
		dead:      counter("dead_letters_total", "Jobs that became dead letters."),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "exoswarm", Subsystem: "jobs",
			Name: "running", Help: "Jobs in a handler now.",
		}, []string{"pool", "kind"}),
		tenants: newTenantMetrics(),
		wait:    histogram("queue_wait_seconds", "From a job's submission to its first start."),
		run:     histogram("run_seconds", "From a job's start to its end, one attempt."),
	}
	for _, c := range []prometheus.Collector{
		m.completed, m.failed, m.retries, m.refusals, m.dead, m.running, m.wait,
		m.run, m.tenants,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func labels(t *task) []string { return []string{string(t.src.Pool), t.src.Kind} }

func (m *Metrics) started(t *task) {
	if m == nil {
		return
	}
	t.began = time.Now()
	m.running.WithLabelValues(labels(t)...).Inc()
	if t.attempt == 1 && !t.queued.IsZero() {
		m.wait.WithLabelValues(labels(t)...).Observe(max(0, time.Since(t.queued).Seconds()))
	}
}

func (m *Metrics) ended(t *task) {
	if m == nil {
		return
	}
	m.running.WithLabelValues(labels(t)...).Dec()
	m.run.WithLabelValues(labels(t)...).Observe(time.Since(t.began).Seconds())
}

func (m *Metrics) retried(t *task) {
	if m != nil {
		m.retries.WithLabelValues(labels(t)...).Inc()
	}
}

func (m *Metrics) refused(t *task) {
	if m != nil {
		m.refusals.WithLabelValues(labels(t)...).Inc()
	}
}

func (m *Metrics) settled(t *task, r jobs.Result) {
	if m == nil {
		return
	}
	if r.Status == jobs.Done {
		m.completed.WithLabelValues(labels(t)...).Inc()
		return
	}
	m.failed.WithLabelValues(append(labels(t), string(r.Error.Code))...).Inc()
	if deadletters.Needed(r) {
		m.dead.WithLabelValues(labels(t)...).Inc()
	}
}
