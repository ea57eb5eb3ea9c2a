package pages

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

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
}

// pageCounts are sums over pagers.
type pageCounts struct {
	hits, misses          map[string]uint64    // by tier
	fetched, used, wasted map[string]uint64    // by tier
	moves                 map[[3]string]uint64 // by tier, tier and reason
	failures              map[string]uint64    // by tier of the store
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
	}
}

// add takes in the counters of a pager.
func (c pageCounts) add(st pager.Stats) {
	for _, m := range st.Memory {
		c.hits[m.Name] += m.Hits
		c.misses[m.Name] += m.Misses
		c.fetched[m.Name] += m.Prefetched
		c.used[m.Name] += m.Used
		c.wasted[m.Name] += m.Wasted
	}
	for _, m := range st.Migrations {
		c.moves[[3]string{m.From, m.To, m.Reason}] += m.Pages
	}
	for _, d := range st.Store {
		c.failures[d.Name] += d.Errors
	}
}

// NewMetrics returns a collector, which the caller registers. docs/operations.md lists its metrics.
func NewMetrics() *Metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("exoswarm_swarm_"+name, help, labels, nil)
	}
	return &Metrics{
		open: map[*pager.Pager]Layered{}, ended: newPageCounts(),
		pages:   desc("pages", "Pages of swarms in a tier of memory: gpu, the device, or cpu, the host.", "tier"),
		hits:    desc("page_hits_total", "Pages that were where they were needed.", "tier"),
		misses:  desc("page_misses_total", "Pages that had to be brought to where they were needed.", "tier"),
		fetched: desc("prefetch_pages_total", "Pages that were brought to a tier before they were asked for.", "tier"),
		used:    desc("prefetch_used_total", "Those that were asked for while they were there.", "tier"),
		wasted:  desc("prefetch_wasted_total", "Those that left before they were asked for.", "tier"),
		moves: desc(
			"page_moves_total", "Pages that went from one tier to another, by the reason.", "from", "to",
			"reason",
		),

		stored: desc(
			"stored_pages",
			"Pages that have their durable copy in a tier on disk, whether they are in memory or not.", "tier",
		),
		storedBytes: desc("stored_bytes", "Bytes that these take on the medium.", "tier"),
		ratio: desc(
			"stored_compression_ratio", "How many times longer these pages are than what they take.", "tier",
		),
		fill: desc(
			"tier_fill_ratio",
			"Part of a tier on disk that is in use, as the swarm sees it that sees the most.", "tier",
		),
		failures: desc(
			"tier_failures_total", "Reads, writes and moves of pages that failed in a tier on disk.", "tier",
		),
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
		p.stored, p.storedBytes, p.ratio, p.fill, p.failures, p.circuitOpen,
	} {
		out <- d
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
	for pages := range p.open {
		st := pages.Stats()
		stats[pages] = st
		all.add(st)
		for _, m := range st.Memory {
			held[m.Name] += m.Frames - m.Free
		}
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
