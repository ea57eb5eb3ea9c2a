package pages

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// Metrics collects the counters of the pagers of shards, open and closed ones. A nil Metrics
// collects nothing. Its methods may be called from several goroutines.
type Metrics struct {
	mu    sync.Mutex
	open  map[*pager.Pager]Layered // the store below each pager; nil: it does not count what it holds
	ended pageCounts               // of closed pagers

	labels map[*prometheus.Desc]int // the number of labels of each metric

	pages, hits, misses, moves                              *prometheus.Desc
	fetched, used, wasted                                   *prometheus.Desc
	stored, storedBytes, ratio, fill, failures, circuitOpen *prometheus.Desc
	frames, free, policy, queue, wanted, forgotten, trips   *prometheus.Desc
	wait, copied, read, written                             *prometheus.Desc
}

// series is a metric with the values of its labels. Unused labels are empty.
type series struct {
	desc   *prometheus.Desc
	labels [3]string
}

type pageCounts struct {
	counters map[series]float64
	times    map[series]histogram
}

func newPageCounts() pageCounts { return pageCounts{map[series]float64{}, map[series]histogram{}} }

type histogram struct {
	counts tiers.Counts
	sum    time.Duration
}

// buckets returns the cumulative counts by upper bound in seconds, from 4 us to 17 s by factors of
// four, and the total count.
func (h histogram) buckets() (by map[float64]uint64, all uint64) {
	by = map[float64]uint64{}
	for i, n := range h.counts {
		all += n
		if i >= 12 && i <= 34 && i%2 == 0 {
			by[float64(uint64(1)<<i)*1e-9] = all
		}
	}
	return by, all
}

func (c pageCounts) count(desc *prometheus.Desc, n uint64, labels ...string) {
	s := series{desc: desc}
	copy(s.labels[:], labels)
	c.counters[s] += float64(n)
}

func (c pageCounts) time(desc *prometheus.Desc, tier string, counts tiers.Counts, sum time.Duration) {
	s := series{desc, [3]string{tier}}
	h := c.times[s]
	for i, n := range counts {
		h.counts[i] += n
	}
	h.sum += sum
	c.times[s] = h
}

func (p *Metrics) add(c pageCounts, st pager.Stats) {
	c.count(p.forgotten, st.Forgotten)
	for _, m := range st.Memory {
		c.count(p.hits, m.Hits, m.Name)
		c.count(p.misses, m.Misses, m.Name)
		c.count(p.fetched, m.Prefetched, m.Name)
		c.count(p.used, m.Used, m.Name)
		c.count(p.wasted, m.Wasted, m.Name)
		c.time(p.wait, m.Name, m.Wait, m.WaitTime)
		c.time(p.copied, m.Name, m.Copy, m.CopyTime)
	}
	for _, m := range st.Migrations {
		c.count(p.moves, m.Pages, m.From, m.To, m.Reason)
	}
	for _, d := range st.Store {
		c.count(p.failures, d.Errors, d.Name)
		c.count(p.trips, d.Trips, d.Name)
		c.time(p.read, d.Name, d.Read, d.ReadTime)
		c.time(p.written, d.Name, d.Write, d.WriteTime)
	}
}

// NewMetrics returns a collector, which the caller registers. exoswarm metrics lists its metrics.
func NewMetrics() *Metrics {
	p := &Metrics{
		open: map[*pager.Pager]Layered{}, ended: newPageCounts(), labels: map[*prometheus.Desc]int{},
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc("exoswarm_swarm_"+name, help, labels, nil)
		p.labels[d] = len(labels)
		return d
	}
	p.pages = desc("pages", "Pages of swarms in a tier of memory: gpu, the device, or cpu, the host.", "tier")
	p.hits = desc("page_hits_total", "Accesses to pages that were in the tier.", "tier")
	p.misses = desc("page_misses_total", "Accesses to pages that had to be brought to the tier first: page faults.",
		"tier")
	p.fetched = desc("prefetch_pages_total", "Pages that were brought to a tier before an access.", "tier")
	p.used = desc("prefetch_used_total", "Prefetched pages that were accessed in the tier.", "tier")
	p.wasted = desc("prefetch_wasted_total", "Prefetched pages that left the tier before an access.", "tier")
	p.moves = desc("page_moves_total", "Moves of pages from one tier to another.", "from", "to", "reason")
	p.stored = desc("stored_pages", "Pages that have their durable copy in a tier on disk, whether they are in memory "+
		"or not.", "tier")
	p.storedBytes = desc("stored_bytes", "Bytes of the pages that have their durable copy in a tier on disk.", "tier")
	p.ratio = desc("stored_compression_ratio", "Bytes of these pages in memory divided by their bytes on disk.", "tier")
	p.fill = desc("tier_fill_ratio", "Used part of a tier on disk, the largest that a shard sees: of its capacity, or "+
		"of what other programs leave of the disk if that is less.", "tier")
	p.failures = desc("tier_failures_total", "Reads, writes and moves of pages that failed in a tier on disk.", "tier")
	p.frames = desc("page_frames", "Frames for pages that a tier of memory has, used or free.", "tier")
	p.free = desc("page_frames_free", "Frames of a tier of memory that hold no page.", "tier")
	p.policy = desc("policy_info", "1 for each policy that shards follow in a tier of memory now.", "tier", "policy")
	p.queue = desc("store_queue_calls", "Reads and writes of a tier on disk that run or wait.", "tier")
	p.wanted = desc("fetch_queue_pages", "Pages that wait to be prefetched.")
	p.forgotten = desc("fetches_forgotten_total", "Pages that were not prefetched because the queue was full.")
	p.trips = desc("tier_circuit_trips_total", "Times that the circuit of a shard to a tier on disk opened.", "tier")
	p.wait = desc("page_wait_seconds", "Time of accesses to pages that were not in the tier of memory.", "tier")
	p.copied = desc("page_copy_seconds", "Time in which a page was copied into the tier from another tier of memory, "+
		"as a share of its batch.", "tier")
	p.read = desc("store_read_seconds", "Time of reads of a tier on disk.", "tier")
	p.written = desc("store_write_seconds", "Time of writes to a tier on disk, and of moves into it.", "tier")
	p.circuitOpen = desc("tier_circuit_open_shards", "Shards that do not use a tier on disk because it failed.", "tier")
	p.ended.count(p.forgotten, 0)
	return p
}

func (p *Metrics) opened(pages *pager.Pager, store Store) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[pages], _ = store.(Layered)
}

func (p *Metrics) closed(pages *pager.Pager) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, pages)
	p.add(p.ended, pages.Stats())
}

// Describe implements prometheus.Collector.
func (p *Metrics) Describe(out chan<- *prometheus.Desc) {
	for d := range p.labels {
		out <- d
	}
}

// Histograms returns the names of the families that are histograms.
func (p *Metrics) Histograms() []string {
	return []string{
		"exoswarm_swarm_page_wait_seconds", "exoswarm_swarm_page_copy_seconds", "exoswarm_swarm_store_read_seconds",
		"exoswarm_swarm_store_write_seconds",
	}
}

// measure adds a pager and the content of its store to gauges. lengths gets the bytes of stored
// pages in memory, by tier.
func (p *Metrics) measure(gauges map[series]float64, lengths map[string]int64, st pager.Stats, store Layered) {
	of := func(desc *prometheus.Desc, labels ...string) series {
		s := series{desc: desc}
		copy(s.labels[:], labels)
		return s
	}
	gauges[of(p.wanted)] += float64(st.Queue)
	for _, m := range st.Memory {
		gauges[of(p.pages, m.Name)] += float64(m.Frames - m.Free)
		gauges[of(p.frames, m.Name)] += float64(m.Frames)
		gauges[of(p.free, m.Name)] += float64(m.Free)
		gauges[of(p.policy, m.Name, m.Policy)] = 1
	}
	for i, d := range st.Store {
		gauges[of(p.queue, d.Name)] += float64(d.Queue)
		var u TierUsage
		if store != nil {
			u = store.Holds(i)
			lengths[d.Name] += int64(u.Pages) * int64(store.PageSize())
		}
		gauges[of(p.stored, d.Name)] += float64(u.Pages)
		gauges[of(p.storedBytes, d.Name)] += float64(u.Bytes)
		gauges[of(p.fill, d.Name)] = max(gauges[of(p.fill, d.Name)], u.Fill)
		open := 0.0
		if d.Open || u.Unavailable != nil {
			open = 1
		}
		gauges[of(p.circuitOpen, d.Name)] += open
	}
}

// Collect implements prometheus.Collector.
func (p *Metrics) Collect(out chan<- prometheus.Metric) {
	gauges, lengths := map[series]float64{{desc: p.wanted}: 0}, map[string]int64{}
	p.mu.Lock()
	all := pageCounts{maps.Clone(p.ended.counters), maps.Clone(p.ended.times)}
	for pages, store := range p.open {
		st := pages.Stats()
		p.add(all, st)
		p.measure(gauges, lengths, st, store)
	}
	p.mu.Unlock()
	for tier, length := range lengths {
		if bytes := gauges[series{p.storedBytes, [3]string{tier}}]; bytes > 0 {
			gauges[series{p.ratio, [3]string{tier}}] = float64(length) / bytes
		}
	}
	send := func(values map[series]float64, kind prometheus.ValueType) {
		for s, v := range values {
			out <- prometheus.MustNewConstMetric(s.desc, kind, v, s.labels[:p.labels[s.desc]]...)
		}
	}
	send(gauges, prometheus.GaugeValue)
	send(all.counters, prometheus.CounterValue)
	for s, h := range all.times {
		buckets, n := h.buckets()
		out <- prometheus.MustNewConstHistogram(s.desc, n, h.sum.Seconds(), buckets, s.labels[0])
	}
}
