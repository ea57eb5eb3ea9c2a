package natsq

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// tenantMetrics collects the limits and jobs of tenants, by pool and tenant. It asks its workers
// for their state at each collection, and never the server.
type tenantMetrics struct {
	weight, limit, running, queued, refused *prometheus.Desc

	mu       sync.Mutex
	workers  map[*tenantSource]bool
	names    map[string]bool // tenants with their own label
	refusals map[refusedTenant]uint64
}

// tenantSource is a worker that reports the state of its tenants.
type tenantSource struct {
	pool    jobs.Pool
	tenants func() map[string]tenantState
}

type refusedTenant struct {
	pool           jobs.Pool
	tenant, reason string
}

// reasonQueued is the reason of a submission that the limit of queued jobs refused. The limiter has
// the reasons for which a worker does not begin jobs.
const reasonQueued = "queued"

// maxTenants bounds the values of the label tenant. The tenants that are seen first keep their
// labels as long as the process lives. All others share otherTenants, which is not a valid name of
// a tenant.
const (
	maxTenants   = 100
	otherTenants = "other tenants"
)

func newTenantMetrics() *tenantMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("exoswarm_tenant_"+name, help, append([]string{"pool", "tenant"}, labels...), nil)
	}
	return &tenantMetrics{
		weight:  desc("weight", "The tenant's share within a lane."),
		limit:   desc("limit", "A limit of the tenant; absent where it has none.", "limit"),
		running: desc("running", "Jobs of the tenant that this process has at hand."),
		queued: desc("queued", "Jobs of the tenant that wait to be handed out, as the server counted them at most "+
			"half a minute ago."),
		refused: desc("refused_total", "Submissions of the tenant that its limit refused, and times that its limits "+
			"had a worker wait that would have begun its jobs.", "reason"),
		workers: map[*tenantSource]bool{}, names: map[string]bool{}, refusals: map[refusedTenant]uint64{},
	}
}

// Describe implements prometheus.Collector.
func (m *tenantMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.weight, m.limit, m.running, m.queued, m.refused} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *tenantMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	workers := maps.Clone(m.workers)
	m.mu.Unlock()
	type key struct {
		pool   jobs.Pool
		tenant string
	}
	all := map[key]tenantState{}
	for w := range workers { // without the lock, because they count refusals meanwhile
		for tenant, s := range w.tenants() {
			k := key{w.pool, m.label(tenant)}
			sum := all[k]
			sum.quota, sum.running = s.quota, sum.running+s.running
			if k.tenant == otherTenants {
				sum.queued += s.queued
			} else {
				sum.queued = max(sum.queued, s.queued) // workers of a pool count the same jobs
			}
			all[k] = sum
		}
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for k, s := range all {
		pool := string(k.pool)
		gauge(m.running, float64(s.running), pool, k.tenant)
		gauge(m.queued, float64(s.queued), pool, k.tenant)
		if k.tenant == otherTenants {
			continue // each has its own
		}
		gauge(m.weight, s.quota.Weight, pool, k.tenant)
		for limit, v := range map[string]float64{
			control.ReasonRate:        s.quota.Rate,
			control.ReasonConcurrency: float64(s.quota.Concurrency), reasonQueued: float64(s.quota.Queued),
		} {
			if v > 0 {
				gauge(m.limit, v, pool, k.tenant, limit)
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, n := range m.refusals {
		ch <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(n), string(k.pool), k.tenant,
			k.reason)
	}
}

func (m *tenantMetrics) label(tenant string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.labelLocked(tenant)
}

// labelLocked must be called with mu held.
func (m *tenantMetrics) labelLocked(tenant string) string {
	if !m.names[tenant] {
		if len(m.names) >= maxTenants {
			return otherTenants
		}
		m.names[tenant] = true
	}
	return tenant
}

// follow adds the tenants of a worker to the metrics until ended is called. tenants must not wait
// for the server.
func (m *Metrics) follow(pool jobs.Pool, tenants func() map[string]tenantState) (ended func()) {
	if m == nil {
		return func() {}
	}
	t := m.tenants
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &tenantSource{pool, tenants}
	t.workers[w] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.workers, w)
	}
}

// tenantRefused counts a submission that was refused, or a wait for slots or tokens.
func (m *Metrics) tenantRefused(p jobs.Pool, tenant, reason string) {
	if m == nil {
		return
	}
	t := m.tenants
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refusals[refusedTenant{p, t.labelLocked(tenant), reason}]++
}

type tenantState struct {
	quota   wire.Quota
	running int    // jobs in this worker
	queued  uint64 // jobs in the pool, as they were last counted
}
