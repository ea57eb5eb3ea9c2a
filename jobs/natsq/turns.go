package natsq

import (
	"cmp"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// turns decides which source is asked next. It does no I/O and holds no lock: one goroutine uses it.
//
// Lanes are strict, except that every eighth turn begins at one of the lower two, in turn: a lane below a busy one gets at least one
// turn in sixteen. Within a lane it is start-time fair queueing: a tenant's clock runs by jobs taken over weight, the
// tenant whose clock is furthest behind is next, and one that was idle starts at the clock of those that were not, so it
// saves nothing up. Of a tenant's kinds the one served longest ago is next.
type turns struct {
	weights map[string]float64 // by tenant; 1 for those not in it
	count   int
	now     float64             // the clock of the tenant served last
	clocks  map[string]float64  // by tenant
	served  map[wire.Source]int // the turn in which a source was served last
}

func newTurns() *turns {
	return &turns{weights: map[string]float64{}, clocks: map[string]float64{}, served: map[wire.Source]int{}}
}

// starvation is how many turns there are to each that begins at a lower lane.
const starvation = 8

// order lists the lanes as this turn looks at them.
func (t *turns) order() [3]jobs.Lane {
	switch {
	case t.count%starvation != starvation-1:
		return [3]jobs.Lane{jobs.High, jobs.Normal, jobs.Low}
	case t.count/starvation%2 == 0:
		return [3]jobs.Lane{jobs.Normal, jobs.Low, jobs.High}
	default:
		return [3]jobs.Lane{jobs.Low, jobs.Normal, jobs.High}
	}
}

// next picks one of the sources that may have jobs; ok is false when there is none.
func (t *turns) next(ready []wire.Source) (s wire.Source, ok bool) {
	for _, lane := range t.order() {
		for _, r := range ready {
			if r.Lane == lane && (!ok || t.before(r, s)) {
				s, ok = r, true
			}
		}
		if ok {
			return s, true
		}
	}
	return s, false
}

func (t *turns) clock(tenant string) float64 { return max(t.clocks[tenant], t.now) }

func (t *turns) before(a, b wire.Source) bool {
	return cmp.Or(cmp.Compare(t.clock(a.Tenant), t.clock(b.Tenant)), cmp.Compare(t.clocks[a.Tenant], t.clocks[b.Tenant]),
		cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(t.served[a], t.served[b]), cmp.Compare(a.Kind, b.Kind)) < 0
}

// took says that n jobs, 1 or more, were taken from a source: its turn is over. A turn that found nothing does not count.
func (t *turns) took(s wire.Source, n int) {
	w := t.weights[s.Tenant]
	if w <= 0 {
		w = 1
	}
	t.now = t.clock(s.Tenant)
	t.clocks[s.Tenant] = t.now + float64(n)/w
	t.count++
	t.served[s] = t.count
}
