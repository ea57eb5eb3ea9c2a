package natsq

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/quota"
)

// tenantMetrics says what tenants have, by pool and tenant. It reads what its workers know when it
// is asked and asks the server nothing.
type tenantMetrics struct {
	weight, limit, running, queued, refused *prometheus.Desc

	mu       sync.Mutex
	workers  map[*Worker]bool
	names    map[string]bool // tenants with a label of their own
	refusals map[refusedTenant]uint64
}

type refusedTenant struct {
	pool           jobs.Pool
	tenant, reason string
}

// Why a tenant was refused: its submission, by the limit of jobs in the queue, or a worker that
// would have begun more of its jobs.
const (
	reasonQueued      = "queued"
	reasonConcurrency = "concurrency"
	reasonRate        = "rate"
)

// maxTenants bounds the values of the label tenant. The tenants seen first have a label of their
// own as long as the process lives, what is behind them is one, otherTenants, which is no tenant's
// name.
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
		workers: map[*Worker]bool{}, names: map[string]bool{}, refusals: map[refusedTenant]uint64{},
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
	for w := range workers { // without the lock: they count refusals meanwhile
		for tenant, s := range w.tenants() {
			k := key{w.Pool, m.label(tenant)}
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
			reasonRate:        s.quota.Rate,
			reasonConcurrency: float64(s.quota.Concurrency), reasonQueued: float64(s.quota.Queued),
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

// label is the value of the label tenant.
func (m *tenantMetrics) label(tenant string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.labelLocked(tenant)
}

func (m *tenantMetrics) labelLocked(tenant string) string {
	if !m.names[tenant] {
		if len(m.names) >= maxTenants {
			return otherTenants
		}
		m.names[tenant] = true
	}
	return tenant
}

// follow has the metrics say what a worker knows, until ended is called.
func (m *Metrics) follow(w *Worker) (ended func()) {
	if m == nil {
		return func() {}
	}
	t := m.tenants
	t.mu.Lock()
	defer t.mu.Unlock()
	t.workers[w] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.workers, w)
	}
}

// tenantRefused counts a refusal.
func (m *Metrics) tenantRefused(p jobs.Pool, tenant, reason string) {
	if m == nil {
		return
	}
	t := m.tenants
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refusals[refusedTenant{p, t.labelLocked(tenant), reason}]++
}

// tenantState is what a worker knows of a tenant.
type tenantState struct {
	quota   quota.Quota
	running int
	queued  uint64
}

// tenants lists the tenants that have limits of their own, have jobs waiting or had jobs here.
func (w *Worker) tenants() map[string]tenantState {
	all := map[string]tenantState{}
	for _, name := range w.ctl.limited() {
		all[name] = tenantState{}
	}
	w.mu.Lock()
	for name, n := range w.waiting {
		all[name] = tenantState{queued: n}
	}
	w.mu.Unlock()
	for name, n := range w.limits.running() {
		s := all[name]
		s.running = n
		all[name] = s
	}
	for name, s := range all {
		s.quota = w.ctl.quota(name)
		all[name] = s
	}
	return all
}

// running counts the jobs at hand by tenant, 0 of those that had some.
func (l *limiter) running() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]int, len(l.tenants))
	for name := range l.tenants {
		all[name] = 0
	}
	for _, name := range l.of {
		all[name]++
	}
	return all
}

// limited lists the tenants with limits of their own.
func (w *operatorState) limited() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.limits {
		if name != jobs.EveryTenant {
			names = append(names, name)
		}
	}
	return names
}
