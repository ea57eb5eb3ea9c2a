package gpuagents

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/tiers/pager"
)

// pageMetrics collects what the pagers of shards say of themselves: of those that are open when it is asked, and of those that were. A nil
// one collects nothing. Its methods may be called from several goroutines.
type pageMetrics struct {
	mu    sync.Mutex
	open  map[*pager.Pager]struct{}
	ended pageCounts

	pages, hits, misses, moves *prometheus.Desc
}

// pageCounts are sums over pagers.
type pageCounts struct {
	hits, misses map[string]uint64    // by tier
	moves        map[[3]string]uint64 // by tier, tier and reason
}

func newPageCounts() pageCounts {
	return pageCounts{map[string]uint64{}, map[string]uint64{}, map[[3]string]uint64{}}
}

// add takes in the counters of a pager.
func (c pageCounts) add(st pager.Stats) {
	for _, m := range st.Memory {
		c.hits[m.Name] += m.Hits
		c.misses[m.Name] += m.Misses
	}
	for _, m := range st.Migrations {
		c.moves[[3]string{m.From, m.To, m.Reason}] += m.Pages
	}
}

func newPageMetrics() *pageMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("exoswarm_swarm_"+name, help, labels, nil)
	}
	return &pageMetrics{
		open: map[*pager.Pager]struct{}{}, ended: newPageCounts(),
		pages:  desc("pages", "Pages of swarms in a tier of memory: gpu, the device, or cpu, the host.", "tier"),
		hits:   desc("page_hits_total", "Pages that were where they were needed.", "tier"),
		misses: desc("page_misses_total", "Pages that had to be brought to where they were needed.", "tier"),
		moves:  desc("page_moves_total", "Pages that went from one tier to another, by the reason.", "from", "to", "reason"),
	}
}

// opened and closed say when a pager is asked: between the two.
func (p *pageMetrics) opened(pages *pager.Pager) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[pages] = struct{}{}
}

func (p *pageMetrics) closed(pages *pager.Pager) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, pages)
	p.ended.add(pages.Stats())
}

// Describe implements prometheus.Collector.
func (p *pageMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.pages, p.hits, p.misses, p.moves} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (p *pageMetrics) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	all, held := pageCounts{maps.Clone(p.ended.hits), maps.Clone(p.ended.misses), maps.Clone(p.ended.moves)}, map[string]int{}
	for pages := range p.open {
		st := pages.Stats()
		all.add(st)
		for _, m := range st.Memory {
			held[m.Name] += m.Frames - m.Free
		}
	}
	p.mu.Unlock()
	for tier, n := range held {
		out <- prometheus.MustNewConstMetric(p.pages, prometheus.GaugeValue, float64(n), tier)
	}
	for tier, n := range all.hits {
		out <- prometheus.MustNewConstMetric(p.hits, prometheus.CounterValue, float64(n), tier)
	}
	for tier, n := range all.misses {
		out <- prometheus.MustNewConstMetric(p.misses, prometheus.CounterValue, float64(n), tier)
	}
	for move, n := range all.moves {
		out <- prometheus.MustNewConstMetric(p.moves, prometheus.CounterValue, float64(n), move[:]...)
	}
}
