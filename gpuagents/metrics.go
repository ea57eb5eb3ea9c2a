package gpuagents

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
)

// Metrics counts what agents do, by cell and never by swarm, and where pages are, by tier. One may
// serve several agents. A nil Metrics counts nothing.
type Metrics struct {
	pages  *pages.Metrics
	pool   *pool.Metrics
	shard  *shard.Metrics
	agents *agentMetrics
}

// NewMetrics registers the metrics of agents. exoswarm metrics lists names and labels.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	pages := pages.NewMetrics()
	if err := r.Register(pages); err != nil {
		return nil, err
	}
	pool, err := pool.NewMetrics(r)
	if err != nil {
		return nil, err
	}
	shard, err := shard.NewMetrics(r)
	if err != nil {
		return nil, err
	}
	agents := newAgentMetrics()
	if err := r.Register(agents); err != nil {
		return nil, err
	}
	return &Metrics{pages: pages, pool: pool, shard: shard, agents: agents}, nil
}

// parts returns the metrics of the packages below, which may be nil.
func (m *Metrics) parts() Metrics {
	if m == nil {
		return Metrics{}
	}
	return *m
}

// agentMetrics collects the assignments of agents and the time of the stages of their batches. It
// asks the agents at each scrape. A nil agentMetrics follows nothing.
type agentMetrics struct {
	assignments, stages, refusals, losses, models *prometheus.Desc

	mu    sync.Mutex
	all   map[*Agent]bool
	ended map[string][]time.Duration // time of the stages of agents that have ended, by cell
	left  uint64                     // refusals of agents that have ended
	lost  uint64                     // leases that agents lost before they ended
}

func newAgentMetrics() *agentMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("exoswarm_"+name, help, labels, nil)
	}
	return &agentMetrics{
		assignments: desc("gpuagent_assignments", "Shards that the agent knows. served: it works on the shard; "+
			"parked: it holds the lease and waits for an entry; waiting: another agent has the lease, or this agent "+
			"has as many as it may; queued: it is about to try; over: nothing follows in the log.", "state"),
		stages: desc("swarm_stage_seconds_total", "Time of the batches of all shards in a stage of the pipeline. "+
			"Stages of several shards, and of the batches of one shard, overlap.", "cell", "stage"),
		refusals: desc("gpuagent_refusals_total", "Times that the agent left a shard to other agents because it has "+
			"as many as it may."),
		losses: desc("swarm_leases_lost_total", "Leases of shards that the agent lost while it had them: another "+
			"agent serves the shard then."),
		models: desc("model_bytes", "Weights of language models that the device computes with. device: they stay "+
			"there, or are the buffers for others; pinned and file: they pass through the device in each step.",
			"device", "place"),
		all: map[*Agent]bool{}, ended: map[string][]time.Duration{},
	}
}

func (m *agentMetrics) follow(a *Agent) (ended func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[a] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.all, a)
		addStages(m.ended, a.spans.Totals())
		m.left += a.refusals.Load()
		m.lost += a.losses.Load()
	}
}

// Describe implements prometheus.Collector.
func (m *agentMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.assignments
	out <- m.stages
	out <- m.refusals
	out <- m.losses
	out <- m.models
}

// Collect implements prometheus.Collector.
func (m *agentMetrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	all, refusals, losses := maps.Clone(m.all), m.left, m.lost
	took := map[string][]time.Duration{}
	weights := map[string][3]int64{} // by device
	addStages(took, m.ended)
	m.mu.Unlock()
	states := map[string]int{}
	for a := range all {
		for name, n := range countAssignments(a) {
			states[name] += n
		}
		addStages(took, a.spans.Totals())
		refusals += a.refusals.Load()
		losses += a.losses.Load()
		for _, d := range a.Devices() {
			weights[d.Properties().Name] = weights[d.Properties().Name] // 0 without a model
		}
		for _, of := range a.pool.Models() {
			n := weights[of.Device]
			weights[of.Device] = [...]int64{n[0] + of.Info.Device, n[1] + of.Pinned, n[2] + of.File}
		}
	}
	for device, bytes := range weights {
		for i, place := range []string{"device", "pinned", "file"} {
			out <- prometheus.MustNewConstMetric(m.models, prometheus.GaugeValue, float64(bytes[i]), device, place)
		}
	}
	for name, n := range states {
		out <- prometheus.MustNewConstMetric(m.assignments, prometheus.GaugeValue, float64(n), name)
	}
	for cell, took := range took {
		for i, name := range gpubatch.Stages() {
			out <- prometheus.MustNewConstMetric(m.stages, prometheus.CounterValue, took[i].Seconds(), cell, name)
		}
	}
	out <- prometheus.MustNewConstMetric(m.refusals, prometheus.CounterValue, float64(refusals))
	out <- prometheus.MustNewConstMetric(m.losses, prometheus.CounterValue, float64(losses))
}

func addStages(sums, more map[string][]time.Duration) {
	for cell, took := range more {
		if sums[cell] == nil {
			sums[cell] = make([]time.Duration, len(took))
		}
		for i, d := range took {
			sums[cell][i] += d
		}
	}
}
