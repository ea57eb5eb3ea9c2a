package natsq

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// Metrics counts the jobs of workers by pool and kind, never by job. It also shows the limits and
// jobs of tenants; at most a hundred tenants have labels. One Metrics may serve several workers. A
// nil Metrics counts nothing.
type Metrics struct {
	completed, failed, retries, refusals, dead *prometheus.CounterVec
	redelivered, lost                          *prometheus.CounterVec
	logLines, logDropped                       *prometheus.CounterVec // by pool alone
	running                                    *prometheus.GaugeVec
	wait, run                                  *prometheus.HistogramVec
	tenants                                    *tenantMetrics
	workers                                    *workerMetrics
}

// NewMetrics registers the metrics of workers. exoswarm metrics lists names and labels. Labels have
// the pool and the kind, which are few; a job has no label. It fails if the metrics are registered
// already.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "exoswarm", Subsystem: "jobs", Name: name,
			Help: help,
		}, append([]string{"pool", "kind"}, labels...))
	}
	ofPool := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "exoswarm", Subsystem: "jobs", Name: name, Help: help,
		}, []string{"pool"})
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "exoswarm", Subsystem: "jobs", Name: name, Help: help,
			// 0.5 ms to 4.5 hours by factors of four: from a kernel launch to a long stream job.
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 13),
		}, []string{"pool", "kind"})
	}
	m := &Metrics{
		completed: counter("completed_total", "Jobs that ended as done."),
		failed:    counter("failed_total", "Jobs that ended as failed, by the code of their error.", "code"),
		retries:   counter("retries_total", "Failed attempts whose jobs wait for another attempt."),
		refusals:  counter("results_refused_total", "Results that came after another result of the same job."),
		dead:      counter("dead_letters_total", "Jobs that became dead letters."),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "exoswarm", Subsystem: "jobs",
			Name: "running", Help: "Jobs in a handler now.",
		}, []string{"pool", "kind"}),
		redelivered: counter("redelivered_total", "Attempts after the first one: retries, and jobs whose worker was "+
			"lost."),
		logLines: ofPool("log_lines_total", "Lines that handlers wrote to the logs of their jobs, dropped ones "+
			"included."),
		logDropped: ofPool("log_lines_dropped_total", "Lines of the logs of jobs that were dropped, because the log "+
			"of the attempt was full or lines came faster than they are stored."),
		lost:    counter("leases_lost_total", "Jobs that their worker gave up because it had lost the lease."),
		tenants: newTenantMetrics(),
		workers: newWorkerMetrics(),
		wait:    histogram("queue_wait_seconds", "Time from the submission of a job to its first start."),
		run:     histogram("run_seconds", "Time of an attempt from its start to its end."),
	}
	for _, c := range []prometheus.Collector{
		m.completed, m.failed, m.retries, m.refusals, m.dead, m.running, m.wait,
		m.run, m.tenants, m.redelivered, m.lost, m.workers, m.logLines, m.logDropped,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// logLine returns the function that counts a line of the log of a job of the pool. Both counters
// are there from then on.
func (m *Metrics) logLine(p jobs.Pool) func(dropped bool) {
	if m == nil {
		return nil
	}
	all, lost := m.logLines.WithLabelValues(string(p)), m.logDropped.WithLabelValues(string(p))
	return func(dropped bool) {
		all.Inc()
		if dropped {
			lost.Inc()
		}
	}
}

func labels(s wire.Source) []string { return []string{string(s.Pool), s.Kind} }

// started counts the start of a handler. queued is when the server stored the job, zero if unknown.
// span is the span of the attempt; if it is sampled, it is the exemplar of the wait.
func (m *Metrics) started(s wire.Source, attempt int, queued time.Time, span trace.Span) {
	if m == nil {
		return
	}
	m.running.WithLabelValues(labels(s)...).Inc()
	m.redelivered.WithLabelValues(labels(s)...).Add(float64(max(0, min(attempt-1, 1))))
	if attempt == 1 && !queued.IsZero() {
		tracing.Observe(m.wait.WithLabelValues(labels(s)...), max(0, time.Since(queued).Seconds()), span)
	}
}

// ended counts the end of a handler that began at a time. Each started needs one ended.
func (m *Metrics) ended(s wire.Source, began time.Time, span trace.Span) {
	if m == nil {
		return
	}
	m.running.WithLabelValues(labels(s)...).Dec()
	tracing.Observe(m.run.WithLabelValues(labels(s)...), time.Since(began).Seconds(), span)
}

func (m *Metrics) leaseLost(s wire.Source) {
	if m != nil {
		m.lost.WithLabelValues(labels(s)...).Inc()
	}
}

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

// settled counts the end of a job with its first result, and its dead letter if it has one.
func (m *Metrics) settled(s wire.Source, r jobs.Result, letter bool) {
	if m == nil {
		return
	}
	if r.Status == jobs.Done {
		m.completed.WithLabelValues(labels(s)...).Inc()
		return
	}
	m.failed.WithLabelValues(append(labels(s), string(r.Error.Code))...).Inc()
	if letter {
		m.dead.WithLabelValues(labels(s)...).Inc()
	}
}
