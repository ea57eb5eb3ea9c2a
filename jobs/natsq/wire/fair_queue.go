package wire

import (
	"cmp"

	"github.com/exoswarm/exoswarm/jobs"
)

// FairQueue chooses the source that a worker asks next. It does no I/O and has no lock: one
// goroutine uses it.
//
// Lanes are strict, with one exception: every eighth turn begins at one of the two lower lanes,
// which alternate. So a lane below a busy one gets at least one turn in sixteen.
//
// Within a lane the order is start-time fair queueing. The clock of a tenant advances by the number
// of jobs taken, divided by the weight. The tenant with the lowest clock is next. A tenant that was
// idle starts at the clock of the tenant served last, so it saves nothing up. Among the kinds of
// one tenant, the kind that was served longest ago is next.
type FairQueue struct {
	weights map[string]float64 // by tenant; a tenant that is absent has 1
	turns   int                // that took jobs
	now     float64            // the clock of the tenant served last
	clocks  map[string]float64 // by tenant
	served  map[Source]int
}

// NewFairQueue returns a queue in which every tenant has the weight 1.
func NewFairQueue() *FairQueue {
	return &FairQueue{weights: map[string]float64{}, clocks: map[string]float64{}, served: map[Source]int{}}
}

// SetWeight sets the weight of a tenant for the jobs taken from now on. 0 and less count as 1.
func (q *FairQueue) SetWeight(tenant string, weight float64) { q.weights[tenant] = weight }

// starvation is the number of turns per turn that begins at a lower lane.
const starvation = 8

// order returns the lanes in the order of the present turn.
func (q *FairQueue) order() [3]jobs.Lane {
	switch {
	case q.turns%starvation != starvation-1:
		return [3]jobs.Lane{jobs.High, jobs.Normal, jobs.Low}
	case q.turns/starvation%2 == 0:
		return [3]jobs.Lane{jobs.Normal, jobs.Low, jobs.High}
	default:
		return [3]jobs.Lane{jobs.Low, jobs.Normal, jobs.High}
	}
}

// Next returns the next source among the sources that may have jobs. ok is false if ready is empty.
// The choice does not change until Take is called.
func (q *FairQueue) Next(ready []Source) (s Source, ok bool) {
	for _, lane := range q.order() {
		for _, r := range ready {
			if r.Lane == lane && (!ok || q.before(r, s)) {
				s, ok = r, true
			}
		}
		if ok {
			return s, true
		}
	}
	return s, false
}

func (q *FairQueue) clock(tenant string) float64 { return max(q.clocks[tenant], q.now) }

func (q *FairQueue) before(a, b Source) bool {
	return cmp.Or(
		cmp.Compare(q.clock(a.Tenant), q.clock(b.Tenant)),
		cmp.Compare(q.clocks[a.Tenant], q.clocks[b.Tenant]),
		cmp.Compare(a.Tenant, b.Tenant),
		cmp.Compare(q.served[a], q.served[b]),
		cmp.Compare(a.Kind, b.Kind)) < 0
}

// Take records that n jobs, 1 or more, were taken from a source, and ends the turn. A turn that
// found no job does not count; the caller does not report it.
func (q *FairQueue) Take(s Source, n int) {
	w := q.weights[s.Tenant]
	if w <= 0 {
		w = 1
	}
	q.now = q.clock(s.Tenant)
	q.clocks[s.Tenant] = q.now + float64(n)/w
	q.turns++
	q.served[s] = q.turns
}
