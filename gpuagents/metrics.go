package gpuagents

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
)

// Metrics counts what agents do, by cell and never by swarm, and where pages are, by tier. One may
// serve several agents. A nil Metrics counts nothing.
type Metrics struct {
	pages *pages.Metrics
	pool  *pool.Metrics
	shard *shard.Metrics
}

// NewMetrics registers the metrics of agents. docs/operations.md lists names and labels.
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
	return &Metrics{pages: pages, pool: pool, shard: shard}, nil
}

// parts returns the metrics of the packages below. Those of a nil Metrics are nil and count
// nothing.
func (m *Metrics) parts() Metrics {
	if m == nil {
		return Metrics{}
	}
	return *m
}
