package natsq

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/jobs"
)

// workerMetrics collects the slots of workers, and the age of the jobs in them. It asks the workers
// at each scrape, and never the server.
type workerMetrics struct {
	slots, oldest *prometheus.Desc

	mu  sync.Mutex
	all map[*slots]bool
}

// slots are the places for jobs of a worker. They are a copy of what the worker has, so that
// metrics do not refer to workers: number does not change, and oldest may be called from any
// goroutine, also after the end of the worker.
type slots struct {
	pool   jobs.Pool
	number int
	oldest func() time.Duration // since the start of the job that has been running for the longest
}

func newWorkerMetrics() *workerMetrics {
	return &workerMetrics{
		slots: prometheus.NewDesc("exoswarm_jobs_slots", "Jobs and batches that the worker runs at most at the same "+
			"time.", []string{"pool"}, nil),
		oldest: prometheus.NewDesc("exoswarm_jobs_oldest_running_seconds", "Time since the start of the attempt that "+
			"has been running for the longest; 0 without one.", []string{"pool"}, nil),
		all: map[*slots]bool{},
	}
}

// followWorker adds the slots of a worker to the metrics until ended is called. All counters of its
// kinds are there from then on, at 0: a rate of a counter that appears with its first event misses
// that.
func (m *Metrics) followWorker(of slots, kinds []string) (ended func()) {
	if m == nil {
		return func() {}
	}
	for _, kind := range kinds {
		for _, c := range []*prometheus.CounterVec{
			m.completed, m.retries, m.refusals, m.dead, m.redelivered, m.lost,
		} {
			c.WithLabelValues(string(of.pool), kind)
		}
		m.running.WithLabelValues(string(of.pool), kind)
	}
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.workers.all[&of] = true
	return func() {
		m.workers.mu.Lock()
		defer m.workers.mu.Unlock()
		delete(m.workers.all, &of)
	}
}

// Describe implements prometheus.Collector.
func (m *workerMetrics) Describe(out chan<- *prometheus.Desc) { out <- m.slots; out <- m.oldest }

// Collect implements prometheus.Collector.
func (m *workerMetrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	all := maps.Clone(m.all)
	m.mu.Unlock()
	number, oldest := map[string]float64{}, map[string]float64{}
	for s := range all {
		pool := string(s.pool)
		number[pool] += float64(s.number)
		oldest[pool] = max(oldest[pool], s.oldest().Seconds())
	}
	for pool, n := range number {
		out <- prometheus.MustNewConstMetric(m.slots, prometheus.GaugeValue, n, pool)
		out <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, oldest[pool], pool)
	}
}
