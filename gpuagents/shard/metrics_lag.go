package shard

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lagSeconds collects the age of the oldest entry that is not applied, by cell: the maximum over
// the shards. It reads the clock at each scrape, so the age of an entry that blocks a shard grows.
type lagSeconds struct {
	desc *prometheus.Desc

	mu    sync.Mutex
	cells map[string]bool // cells of shards that were ever followed
	all   map[*waiting]bool
}

// waiting is the oldest entry of a shard that is not applied.
type waiting struct {
	cell  string
	since atomic.Int64 // when the server stored it, in nanoseconds since 1970; 0: all are applied
}

func newLagSeconds() *lagSeconds {
	return &lagSeconds{
		desc: prometheus.NewDesc("exoswarm_swarm_lag_seconds", "Age of the oldest entry in the logs of open shards "+
			"that is not applied yet, by the clocks of this machine and of the NATS server; 0 when all are applied. "+
			"In a replay it is the time since the entry was new.", []string{"cell"}, nil),
		cells: map[string]bool{}, all: map[*waiting]bool{},
	}
}

// follow adds a shard until ended is called. The cell has a series from then on.
func (l *lagSeconds) follow(cell string) (w *waiting, ended func()) {
	w = &waiting{cell: cell}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cells[cell] = true
	l.all[w] = true
	return w, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, w)
	}
}

// set records when the oldest entry was stored; zero: all entries are applied. A nil waiting
// records nothing.
func (w *waiting) set(stored time.Time) {
	switch {
	case w == nil:
	case stored.IsZero():
		w.since.Store(0)
	default:
		w.since.Store(stored.UnixNano())
	}
}

// Describe implements prometheus.Collector.
func (l *lagSeconds) Describe(out chan<- *prometheus.Desc) { out <- l.desc }

// Collect implements prometheus.Collector.
func (l *lagSeconds) Collect(out chan<- prometheus.Metric) {
	l.mu.Lock()
	all, ages := maps.Clone(l.all), map[string]time.Duration{}
	for cell := range l.cells {
		ages[cell] = 0
	}
	l.mu.Unlock()
	now := time.Now()
	for w := range all {
		if since := w.since.Load(); since != 0 {
			ages[w.cell] = max(ages[w.cell], now.Sub(time.Unix(0, since)))
		}
	}
	for cell, age := range ages {
		out <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, age.Seconds(), cell)
	}
}
