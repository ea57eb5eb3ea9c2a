package policy

import "math"

// Numbers of Adaptive. They were chosen on the table that TestTable prints together with 60 random
// sequences of loops, zigzags, scans, Zipf draws, drifting sets and stack distances, for the least
// worst case and not for any one row.
const (
	// memory is the half-life of a lead, in accesses of a capacity. If it is shorter, a pattern
	// that returns every 20 capacities is forgotten; if it is longer, a change of phase is followed
	// late.
	memory = 32
	// The tier follows another expert once its lead in hits exceeds switchCost times the number of
	// pages that must be fetched for it. floor of the capacity counts as to be fetched in any case,
	// so that chance does not decide between equal experts.
	switchCost = 0.15
	floor      = 0.3
	// Every switch doubles the cost of the next one, up to eightfold, and this caution decays like
	// a lead. So two experts that overtake each other are not followed back and forth.
	backoff    = 2
	maxCaution = 8
	// Until there is evidence, this part of the tier goes by the second expert: a mistake of the
	// first guess then costs less than a whole capacity.
	hedge = 0.25
	// settleAt is the deficit, as a part of the capacity, at which the second expert is given up.
	settleAt = 0.005
)

// Adaptive keeps a tier close to the best of several experts without being told the load. Each
// expert runs as a shadow over page ids; the tier evicts first what the leader's shadow has
// evicted, and so comes to hold what the leader holds. Another expert takes over when its lead in
// hits would pay for fetching the pages that it holds and the tier does not.
//
// The four shadows take about 400 bytes a page of capacity: nothing beside a 2 MiB page. One
// goroutine uses it at a time.
type Adaptive struct {
	capacity int
	experts  []*shadow
	leader   int
	rival    int // the second expert while the first guess is hedged, or -1
	resident map[uint64]struct{}
	decay    float64 // of leads, an access
	caution  float64
}

// shadow is an expert with its account of hits.
type shadow struct {
	Expert
	hit bool
	// lead is the number of hits by which it is ahead of the leader; recent hits count more.
	lead float64
	// missing is the number of its pages that the tier does not hold.
	missing int
	// listed: the resident pages that it does not hold are kept in order, the first to go first.
	listed bool
	spare  arena
	order  list
}

// give lists a resident page that the expert does not hold.
func (s *shadow) give(page uint64) {
	if s.listed && s.spare.find[page] == 0 {
		s.spare.add(&s.order, page)
	}
}

func (s *shadow) keep(page uint64) {
	if i := s.spare.find[page]; i != 0 {
		s.spare.drop(&s.order, i)
	}
}

func (s *shadow) unlist() { s.listed, s.spare, s.order = false, newArena(0), list{} }

// NewAdaptive returns an empty policy for a tier of capacity pages that follows one of some
// experts, the first one to begin with; with a single one it is that policy. nil means Experts.
func NewAdaptive(capacity int, experts []New) *Adaptive {
	if len(experts) == 0 {
		experts = Experts()
	}
	capacity = max(capacity, 1)
	a := &Adaptive{
		capacity: capacity, resident: make(map[uint64]struct{}, capacity),
		decay: 1 - math.Ln2/(memory*float64(capacity)), rival: -1, caution: 1,
	}
	for i, create := range experts {
		s := &shadow{spare: newArena(0)}
		s.Expert = create(capacity, func(page uint64) { a.evicted(i, page) })
		a.experts = append(a.experts, s)
	}
	a.experts[0].listed = true
	if len(experts) > 1 {
		a.rival = 1
		a.experts[1].listed = true
	}
	return a
}

// Name returns the name of the expert that the tier follows now.
func (a *Adaptive) Name() string { return a.experts[a.leader].Name() }

func (a *Adaptive) evicted(i int, page uint64) {
	if _, here := a.resident[page]; !here {
		a.experts[i].missing--
		return
	}
	a.experts[i].give(page)
}

// Access records that a page was used, resident or not.
func (a *Adaptive) Access(page uint64) {
	_, here := a.resident[page]
	for _, s := range a.experts {
		s.hit = s.Contains(page)
		if !s.hit && !here {
			s.missing++ // Until evicted is called.
		}
		s.Access(page)
		if s.listed && s.Contains(page) {
			s.keep(page)
		}
	}
	a.caution = 1 + (a.caution-1)*a.decay
	lead := a.experts[a.leader]
	best, bestOver := a.leader, 0.0
	for i, s := range a.experts {
		s.lead *= a.decay
		switch {
		case s.hit && !lead.hit:
			s.lead++
		case lead.hit && !s.hit:
			s.lead--
		}
		cost := a.caution * switchCost * (float64(s.missing) + floor*float64(a.capacity))
		if over := s.lead - cost; over > bestOver {
			best, bestOver = i, over
		}
	}
	switch {
	case best != a.leader:
		a.follow(best)
	case a.rival >= 0 && a.experts[a.rival].lead < -settleAt*float64(a.capacity):
		a.settle()
	}
}

func (a *Adaptive) settle() {
	if a.rival >= 0 {
		a.experts[a.rival].unlist()
		a.rival = -1
	}
}

func (a *Adaptive) follow(i int) {
	a.settle()
	a.experts[a.leader].unlist()
	base := a.experts[i].lead
	for _, s := range a.experts {
		s.lead -= base
	}
	a.leader = i
	a.caution = min(a.caution*backoff, maxCaution)
	lead := a.experts[i]
	lead.listed = true
	for page := range a.resident {
		if !lead.Contains(page) {
			lead.give(page)
		}
	}
}

// Added records that a page is resident now.
func (a *Adaptive) Added(page uint64) {
	if _, here := a.resident[page]; here {
		return
	}
	a.resident[page] = struct{}{}
	for _, s := range a.experts {
		if s.Contains(page) {
			s.missing--
		} else {
			s.give(page)
		}
	}
}

// Evicted records that a page left the tier and still exists.
func (a *Adaptive) Evicted(page uint64) {
	if _, here := a.resident[page]; !here {
		return
	}
	delete(a.resident, page)
	for _, s := range a.experts {
		s.keep(page)
		if s.Contains(page) {
			s.missing++
		}
	}
}

// Removed records that a page was deleted.
func (a *Adaptive) Removed(page uint64) {
	_, here := a.resident[page]
	delete(a.resident, page)
	for _, s := range a.experts {
		s.keep(page)
		if s.Contains(page) && !here {
			s.missing--
		}
		s.Remove(page)
	}
}

// Victim proposes the next page to evict, without evicting it. may reports whether a page may go;
// ok is false if no resident page may. The first choice is the page that the leader gave up longest
// ago.
func (a *Adaptive) Victim(may func(uint64) bool) (page uint64, ok bool) {
	s := a.experts[a.leader]
	if a.rival >= 0 && float64(s.order.n) <= hedge*float64(a.capacity) {
		s = a.experts[a.rival]
	}
	for i := s.order.head; i != 0; i = s.spare.nodes[i].next {
		if page := s.spare.nodes[i].page; may(page) {
			return page, true
		}
	}
	for page := range a.resident {
		if may(page) {
			return page, true
		}
	}
	return 0, false
}
