package pages

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// Metrics collects the counters of the pagers of shards: of those that are open, and of those that
// were. A nil Metrics collects nothing. Its methods may be called from several goroutines.
type Metrics struct {
	mu    sync.Mutex
	open  map[*pager.Pager]Layered // and the store below it; nil: it does not count what it holds
	ended pageCounts

	pages, hits, misses, moves                              *prometheus.Desc
	fetched, used, wasted                                   *prometheus.Desc
	stored, storedBytes, ratio, fill, failures, circuitOpen *prometheus.Desc
	frames, free, policy, queue, wanted, forgotten, trips   *prometheus.Desc
	wait, copied, read, written                             *prometheus.Desc
}

// pageCounts are sums over pagers.
type pageCounts struct {
	hits, misses          map[string]uint64    // by tier
	fetched, used, wasted map[string]uint64    // by tier
	moves                 map[[3]string]uint64 // by tier, tier and reason
	failures, trips       map[string]uint64    // by tier of the store
	forgotten             uint64
	times                 map[timeOf]timed
}

// timeOf is the key of a histogram: what takes the time, and its tier.
type timeOf struct{ what, tier string }

// Values of timeOf.what.
const (
	timeWait  = "wait"
	timeCopy  = "copy"
	timeRead  = "read"
	timeWrite = "write"
)

// timed are the durations of a histogram and their sum.
type timed struct {
	counts tiers.Counts
	sum    time.Duration
}

// plus returns the sum of two histograms.
func (t timed) plus(counts tiers.Counts, sum time.Duration) timed {
	for i, n := range counts {
		t.counts[i] += n
	}
	t.sum += sum
	return t
}

// buckets returns the cumulative counts by the upper bound in seconds, from 4 us to 17 s by factors
// of four, and the count of all durations.
func (t timed) buckets() (by map[float64]uint64, all uint64) {
	by = map[float64]uint64{}
	for i, n := range t.counts {
		all += n
		if i >= 12 && i <= 34 && i%2 == 0 {
			by[float64(uint64(1)<<i)*1e-9] = all
		}
	}
	return by, all
}

// newPageCounts returns counts of zero.
func newPageCounts() pageCounts {
	return pageCounts{
		hits:     map[string]uint64{},
		misses:   map[string]uint64{},
		fetched:  map[string]uint64{},
		used:     map[string]uint64{},
		wasted:   map[string]uint64{},
		moves:    map[[3]string]uint64{},
		failures: map[string]uint64{},
		trips:    map[string]uint64{},
		times:    map[timeOf]timed{},
	}
}

// clone returns a copy that may be added to.
func (c pageCounts) clone() pageCounts {
	return pageCounts{
		hits:     maps.Clone(c.hits),
		misses:   maps.Clone(c.misses),
		fetched:  maps.Clone(c.fetched),
		used:     maps.Clone(c.used),
		wasted:   maps.Clone(c.wasted),
		moves:    maps.Clone(c.moves),
		failures: maps.Clone(c.failures),
		trips:    maps.Clone(c.trips),
		times:    maps.Clone(c.times),

		forgotten: c.forgotten,
	}
}

// time adds durations to a histogram.
func (c *pageCounts) time(what, tier string, counts tiers.Counts, sum time.Duration) {
	k := timeOf{what, tier}
	c.times[k] = c.times[k].plus(counts, sum)
}

// add takes in the counters of a pager.
func (c *pageCounts) add(st pager.Stats) {
	c.forgotten += st.Forgotten
	for _, m := range st.Memory {
		c.hits[m.Name] += m.Hits
		c.misses[m.Name] += m.Misses
		c.fetched[m.Name] += m.Prefetched
		c.used[m.Name] += m.Used
		c.wasted[m.Name] += m.Wasted
		c.time(timeWait, m.Name, m.Wait, m.WaitTime)
		c.time(timeCopy, m.Name, m.Copy, m.CopyTime)
	}
	for _, m := range st.Migrations {
		c.moves[[3]string{m.From, m.To, m.Reason}] += m.Pages
	}
	for _, d := range st.Store {
		c.failures[d.Name] += d.Errors
		c.trips[d.Name] += d.Trips
		c.time(timeRead, d.Name, d.Read, d.ReadTime)
		c.time(timeWrite, d.Name, d.Write, d.WriteTime)
	}
}

// NewMetrics returns a collector, which the caller registers. exoswarm metrics lists its metrics.
func NewMetrics() *Metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("exoswarm_swarm_"+name, help, labels, nil)
	}
	return &Metrics{
		open: map[*pager.Pager]Layered{}, ended: newPageCounts(),
		pages: desc("pages", "Pages of swarms in a tier of memory: gpu, the device, or cpu, the host.", "tier"),
		hits:  desc("page_hits_total", "Accesses to pages that were in the tier.", "tier"),
		misses: desc(
			"page_misses_total",
			"Accesses to pages that had to be brought to the tier first: page faults.",
			"tier",
		),
		fetched: desc("prefetch_pages_total", "Pages that were brought to a tier before an access.", "tier"),
		used:    desc("prefetch_used_total", "Prefetched pages that were accessed in the tier.", "tier"),
		wasted:  desc("prefetch_wasted_total", "Prefetched pages that left the tier before an access.", "tier"),
		moves: desc(
			"page_moves_total", "Moves of pages from one tier to another.", "from", "to",
			"reason",
		),

		stored: desc(
			"stored_pages",
			"Pages that have their durable copy in a tier on disk, whether they are in memory or not.", "tier",
		),
		storedBytes: desc("stored_bytes", "Bytes of the pages that have their durable copy in a tier on disk.", "tier"),
		ratio: desc(
			"stored_compression_ratio", "Bytes of these pages in memory divided by their bytes on disk.", "tier",
		),
		fill: desc(
			"tier_fill_ratio",
			"Used part of a tier on disk, the largest that a shard sees: of its capacity, or of what other programs "+
				"leave of the disk if that is less.", "tier",
		),
		failures: desc(
			"tier_failures_total", "Reads, writes and moves of pages that failed in a tier on disk.", "tier",
		),
		frames: desc("page_frames", "Frames for pages that a tier of memory has, used or free.", "tier"),
		free:   desc("page_frames_free", "Frames of a tier of memory that hold no page.", "tier"),
		policy: desc(
			"policy_info",
			"1 for each policy that shards follow in a tier of memory now.",
			"tier",
			"policy",
		),
		queue:     desc("store_queue_calls", "Reads and writes of a tier on disk that run or wait.", "tier"),
		wanted:    desc("fetch_queue_pages", "Pages that wait to be prefetched."),
		forgotten: desc("fetches_forgotten_total", "Pages that were not prefetched because the queue was full."),
		trips: desc(
			"tier_circuit_trips_total",
			"Times that the circuit of a shard to a tier on disk opened.",
			"tier",
		),
		wait: desc("page_wait_seconds", "Time of accesses to pages that were not in the tier of memory.", "tier"),
		copied: desc("page_copy_seconds", "Time in which a page was copied into the tier from another tier of memory, "+
			"as a share of its batch.", "tier"),
		read:    desc("store_read_seconds", "Time of reads of a tier on disk.", "tier"),
		written: desc("store_write_seconds", "Time of writes to a tier on disk, and of moves into it.", "tier"),
		circuitOpen: desc(
			"tier_circuit_open_shards", "Shards that do not use a tier on disk because it failed.", "tier",
		),
	}
}

// opened adds a pager to those that are collected; closed keeps the sums of one that ends.
func (p *Metrics) opened(pages *pager.Pager, store Store) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[pages], _ = store.(Layered)
}

// closed adds the counters of a pager to the sums, and removes the pager.
func (p *Metrics) closed(pages *pager.Pager) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, pages)
	p.ended.add(pages.Stats())
}

// Describe implements prometheus.Collector.
func (p *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		p.pages, p.hits, p.misses, p.fetched, p.used, p.wasted, p.moves,
		p.stored, p.storedBytes, p.ratio, p.fill, p.failures, p.circuitOpen, p.frames, p.free, p.policy, p.queue,
		p.wanted, p.forgotten, p.trips, p.wait, p.copied, p.read, p.written,
	} {
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

// onDisk is the content of a tier of all stores.
type onDisk struct {
	pages         int
	bytes, length int64
	fill          float64
	circuitOpen   int
}

// collectStores adds up the content of the stores of open pagers, by tier.
func (p *Metrics) collectStores(stats map[*pager.Pager]pager.Stats) map[string]onDisk {
	sums := map[string]onDisk{}
	for pages, store := range p.open {
		for i, d := range stats[pages].Store {
			sum := sums[d.Name]
			open := d.Open
			if store != nil {
				u := store.Holds(i)
				open = open || u.Unavailable != nil
				sum.pages += u.Pages
				sum.bytes += u.Bytes
				sum.length += int64(u.Pages) * int64(store.PageSize())
				sum.fill = max(sum.fill, u.Fill)
			}
			if open {
				sum.circuitOpen++
			}
			sums[d.Name] = sum
		}
	}
	return sums
}

// Collect implements prometheus.Collector.
func (p *Metrics) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	all := p.ended.clone()
	held, stats := map[string]int{}, map[*pager.Pager]pager.Stats{}
	frames, free, queue, wanted := map[string]int{}, map[string]int{}, map[string]int{}, 0
	policies := map[[2]string]bool{}
	for pages := range p.open {
		st := pages.Stats()
		stats[pages] = st
		all.add(st)
		for _, m := range st.Memory {
			held[m.Name] += m.Frames - m.Free
			frames[m.Name] += m.Frames
			free[m.Name] += m.Free
			policies[[2]string{m.Name, m.Policy}] = true
		}
		for _, d := range st.Store {
			queue[d.Name] += d.Queue
		}
		wanted += st.Queue
	}
	stores := p.collectStores(stats)
	p.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, tier string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, tier)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for tier, n := range held {
		gauge(p.pages, float64(n), tier)
		gauge(p.frames, float64(frames[tier]), tier)
		gauge(p.free, float64(free[tier]), tier)
	}
	for of := range policies {
		out <- prometheus.MustNewConstMetric(p.policy, prometheus.GaugeValue, 1, of[:]...)
	}
	for tier, n := range queue {
		gauge(p.queue, float64(n), tier)
	}
	out <- prometheus.MustNewConstMetric(p.wanted, prometheus.GaugeValue, float64(wanted))
	counter(p.forgotten, all.forgotten)
	for tier, n := range all.trips {
		counter(p.trips, n, tier)
	}
	descs := map[string]*prometheus.Desc{timeWait: p.wait, timeCopy: p.copied, timeRead: p.read, timeWrite: p.written}
	for of, t := range all.times {
		buckets, n := t.buckets()
		out <- prometheus.MustNewConstHistogram(descs[of.what], n, t.sum.Seconds(), buckets, of.tier)
	}
	for tier, s := range stores {
		gauge(p.stored, float64(s.pages), tier)
		gauge(p.storedBytes, float64(s.bytes), tier)
		if s.bytes > 0 {
			gauge(p.ratio, float64(s.length)/float64(s.bytes), tier)
		}
		gauge(p.fill, s.fill, tier)
		gauge(p.circuitOpen, float64(s.circuitOpen), tier)
	}
	for tier, n := range all.hits {
		counter(p.hits, n, tier)
	}
	for tier, n := range all.misses {
		counter(p.misses, n, tier)
	}
	for tier, n := range all.fetched {
		counter(p.fetched, n, tier)
	}
	for tier, n := range all.used {
		counter(p.used, n, tier)
	}
	for tier, n := range all.wasted {
		counter(p.wasted, n, tier)
	}
	for tier, n := range all.failures {
		counter(p.failures, n, tier)
	}
	for move, n := range all.moves {
		counter(p.moves, n, move[:]...)
	}
}
