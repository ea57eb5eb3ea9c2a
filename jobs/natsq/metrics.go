package natsq

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/deadletters"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Metrics counts the jobs of workers by pool and kind, never by job. It also shows the limits and
// jobs of tenants, of which at most a hundred have labels of their own. One Metrics may serve
// several workers. A nil Metrics counts nothing.
type Metrics struct {
	completed, failed, retries, refusals, dead *prometheus.CounterVec
	running                                    *prometheus.GaugeVec
	wait, run                                  *prometheus.HistogramVec
	tenants                                    *tenantMetrics
}

// NewMetrics registers the metrics of workers. Names and labels are listed in docs/protocol.md.
// Labels have the pool and the kind, which are few; a job has no label of its own. It fails if the
// metrics are registered already.
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

func labels(s wire.Source) []string { return []string{string(s.Pool), s.Kind} }

// started counts the start of a handler. queued is when the server stored the job, zero if unknown.
func (m *Metrics) started(s wire.Source, attempt int, queued time.Time) {
	if m == nil {
		return
	}
	m.running.WithLabelValues(labels(s)...).Inc()
	if attempt == 1 && !queued.IsZero() {
		m.wait.WithLabelValues(labels(s)...).Observe(max(0, time.Since(queued).Seconds()))
	}
}

// ended counts the end of a handler that began at a time. Each started needs one ended.
func (m *Metrics) ended(s wire.Source, began time.Time) {
	if m == nil {
		return
	}
	m.running.WithLabelValues(labels(s)...).Dec()
	m.run.WithLabelValues(labels(s)...).Observe(time.Since(began).Seconds())
}

// retried counts a job that goes back to the queue for another attempt.
func (m *Metrics) retried(s wire.Source) {
	if m != nil {
		m.retries.WithLabelValues(labels(s)...).Inc()
	}
}

// refused counts a result that came after another one of the same job.
func (m *Metrics) refused(s wire.Source) {
	if m != nil {
		m.refusals.WithLabelValues(labels(s)...).Inc()
	}
}

// settled counts the end of a job with its first result.
func (m *Metrics) settled(s wire.Source, r jobs.Result) {
	if m == nil {
		return
	}
	if r.Status == jobs.Done {
		m.completed.WithLabelValues(labels(s)...).Inc()
		return
	}
	m.failed.WithLabelValues(append(labels(s), string(r.Error.Code))...).Inc()
	if deadletters.Needed(r) {
		m.dead.WithLabelValues(labels(s)...).Inc()
	}
}
