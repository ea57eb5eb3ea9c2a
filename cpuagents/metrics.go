package cpuagents

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cpuagents/sink"
)

// Metrics counts the rows and the decisions of stream jobs and of detectors, never by job: the
// number of series must not grow with the number of jobs. One may serve several Streamers, and its
// methods may be called at the same time. A nil Metrics counts nothing.
type Metrics struct {
	rows        *prometheus.CounterVec
	decisions   prometheus.Counter
	dropped     *prometheus.CounterVec
	latency     prometheus.Histogram
	sinks       prometheus.Histogram
	running     prometheus.Gauge
	undelivered *prometheus.CounterVec
	detection   prometheus.Histogram
	evicted     prometheus.Counter
	returned    prometheus.Counter
}

// NewMetrics registers the metrics of stream jobs. exoswarm metrics lists names and labels. It
// returns an error if r has metrics of these names. Series with a known set of labels begin with 0,
// because a rate needs the value before the first event.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	name := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "exoswarm", Subsystem: "stream", Name: name, Help: help}
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "exoswarm", Subsystem: "stream", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 11), // to 524 s
		})
	}
	m := &Metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts(name("rows_total", "Rows that stream jobs have read. "+
			"rejected: the row has no valid observation, or no entity.")), []string{"outcome"}),
		decisions: prometheus.NewCounter(prometheus.CounterOpts(name("decisions_total", "Decisions that stream jobs "+
			"have received."))),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts(name("dropped_total", "Observations of stream jobs "+
			"that the swarm has dropped.")), []string{"reason"}),
		latency: histogram("decision_latency_seconds", "Time from the reading of a row to its decision, of the first "+
			"row of each batch."),
		sinks: histogram("sink_seconds", "Time in which a sink took the decisions of a batch, retries included."),
		running: prometheus.NewGauge(prometheus.GaugeOpts(name("jobs_running", "Stream jobs that this process "+
			"executes now."))),
		evicted: prometheus.NewCounter(prometheus.CounterOpts(prometheus.Opts{
			Namespace: "exoswarm", Subsystem: "detector", Name: "evicted_entities_total",
			Help: "Entities of detectors that have lost their groups. Their states are stored.",
		})),
		returned: prometheus.NewCounter(prometheus.CounterOpts(prometheus.Opts{
			Namespace: "exoswarm", Subsystem: "detector", Name: "returned_entities_total",
			Help: "Entities of detectors that have got groups again, with their states.",
		})),
	}
	m.undelivered = prometheus.NewCounterVec(prometheus.CounterOpts(name("sink_dropped_total", "Messages and "+
		"decisions that a sink has dropped. full: the destination was away for too long. refused: it did not "+
		"accept the message. bound: too many series or incidents. order: a sample was not after the one before it.")),
		[]string{"sink", "reason"})
	m.detection = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "exoswarm", Subsystem: "detector", Name: "latency_seconds",
		Help: "Time from the arrival of a row at the agent that reads its source to the sinks having its decision, " +
			"of detectors.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 16), // to 32 s
	})
	for _, kind := range sink.Notifiers() {
		for _, reason := range sink.DropReasons() {
			m.undelivered.WithLabelValues(kind, reason)
		}
	}
	for _, outcome := range []string{"accepted", "rejected"} {
		m.rows.WithLabelValues(outcome)
	}
	for _, reason := range []string{"late", "duplicate"} {
		m.dropped.WithLabelValues(reason)
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.rows, m.decisions, m.dropped, m.latency, m.sinks, m.running, m.undelivered, m.detection,
		m.evicted, m.returned,
	} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// begin counts a job as running until ended is called, which the caller does once. A job that
// continues in another process counts there.
func (m *Metrics) begin() (ended func()) {
	if m == nil {
		return func() {}
	}
	m.running.Inc()
	return m.running.Dec
}

// add counts what a job has done between two states of its progress, and the earlier state was
// added before. Both are of the same attempt.
func (m *Metrics) add(before, now StreamProgress) {
	if m == nil {
		return
	}
	m.rows.WithLabelValues("accepted").Add(float64(now.Observations - before.Observations))
	m.rows.WithLabelValues("rejected").Add(float64(now.Rejected - before.Rejected))
	m.decisions.Add(float64(now.Decisions - before.Decisions))
	m.dropped.WithLabelValues("late").Add(float64(now.Late - before.Late))
	m.dropped.WithLabelValues("duplicate").Add(float64(now.Duplicates - before.Duplicates))
}

func (m *Metrics) moved(evicted, returned uint64) {
	if m != nil {
		m.evicted.Add(float64(evicted))
		m.returned.Add(float64(returned))
	}
}

// decided observes the time from the reading of a row to its decision. Callers pass the time of the
// first row of a batch, which has waited longest.
func (m *Metrics) decided(took time.Duration) {
	if m != nil {
		m.latency.Observe(max(0, took.Seconds()))
	}
}

// detected observes the time from the arrival of a row of a detector to its decision. Callers pass
// the time of every row, because rows of a batch may have arrived at different times.
func (m *Metrics) detected(took time.Duration) {
	if m != nil {
		m.detection.Observe(max(0, took.Seconds()))
	}
}

// sinkDropped counts what a sink of a kind has dropped. kind and reason are of sink.Notifiers and
// sink.DropReasons, so the number of series is known.
func (m *Metrics) sinkDropped(kind, reason string, n int) {
	if m != nil {
		m.undelivered.WithLabelValues(kind, reason).Add(float64(n))
	}
}

// sent observes the time in which a sink took a batch. It is part of the time in which the next
// batches wait.
func (m *Metrics) sent(took time.Duration) {
	if m != nil {
		m.sinks.Observe(took.Seconds())
	}
}
