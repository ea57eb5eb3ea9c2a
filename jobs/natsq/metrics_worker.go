package natsq

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// workerMetrics collects the slots of workers, and the age of the jobs in them. It asks the workers
// at each scrape, and never the server.
type workerMetrics struct {
	slots, oldest *prometheus.Desc

	mu  sync.Mutex
	all map[*Worker]bool
}

// newWorkerMetrics returns metrics without workers. Workers add themselves with
// Metrics.followWorker.
func newWorkerMetrics() *workerMetrics {
	return &workerMetrics{
		slots: prometheus.NewDesc("exoswarm_jobs_slots", "Jobs and batches that the worker runs at most at the same "+
			"time.", []string{"pool"}, nil),
		oldest: prometheus.NewDesc("exoswarm_jobs_oldest_running_seconds", "Time since the start of the attempt that "+
			"has been running for the longest; 0 without one.", []string{"pool"}, nil),
		all: map[*Worker]bool{},
	}
}

// followWorker adds a worker to the metrics until ended is called. All counters of its kinds are there
// from then on, at 0: a rate of a counter that appears with its first event misses that.
func (m *Metrics) followWorker(w *Worker) (ended func()) {
	if m == nil {
		return func() {}
	}
	for _, kind := range slices.Concat(slices.Collect(maps.Keys(w.Handlers)), slices.Collect(maps.Keys(w.Batches))) {
		for _, c := range []*prometheus.CounterVec{
			m.completed, m.retries, m.refusals, m.dead, m.redelivered, m.lost,
		} {
			c.WithLabelValues(string(w.Pool), kind)
		}
		m.running.WithLabelValues(string(w.Pool), kind)
	}
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.workers.all[w] = true
	return func() {
		m.workers.mu.Lock()
		defer m.workers.mu.Unlock()
		delete(m.workers.all, w)
	}
}

// Describe implements prometheus.Collector.
func (m *workerMetrics) Describe(out chan<- *prometheus.Desc) { out <- m.slots; out <- m.oldest }

// Collect implements prometheus.Collector.
func (m *workerMetrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	all := maps.Clone(m.all)
	m.mu.Unlock()
	slots, oldest := map[string]float64{}, map[string]float64{}
	for w := range all {
		pool := string(w.Pool)
		slots[pool] += float64(cap(w.slots))
		oldest[pool] = max(oldest[pool], w.current.oldest().Seconds())
	}
	for pool, n := range slots {
		out <- prometheus.MustNewConstMetric(m.slots, prometheus.GaugeValue, n, pool)
		out <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, oldest[pool], pool)
	}
}

// oldest returns the time since the start of the job that has been running for the longest, 0 without
// one.
func (a *runningJobs) oldest() (age time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.jobs {
		age = max(age, time.Since(r.Since))
	}
	return age
}
