package policy

// sweep is an announced pass over pages first..last in order.
type sweep struct {
	first, next, last uint64
	on                bool
	// slack is how far ahead of next an access may be and still belong to the sweep: concurrent
	// accesses come in any order, and one that is farther ahead belongs to something else.
	slack uint64
	seen  []uint64 // a bit for each page of first..last that was passed
}

// Sweep announces that the pages first..last, both included, will be used once each, in order. The
// announcement holds until the last one was used, or until another takes its place.
func (a *Adaptive) Sweep(first, last uint64) {
	seen := a.sweep.seen
	a.sweep = sweep{first: first, next: first, last: last, on: last >= first, slack: max(64, uint64(a.capacity)/8)}
	if a.sweep.on {
		words := (last-first)/64 + 1
		if uint64(cap(seen)) < words {
			seen = make([]uint64, words)
		}
		a.sweep.seen = seen[:words]
		clear(a.sweep.seen)
	}
}

func (s *sweep) active() bool { return s.on }

// pass notes an access and reports whether it is the sweep's own: the first one to a page that is
// due.
func (s *sweep) pass(page uint64) bool {
	if !s.on || page < s.first || page > s.last || page > s.next && page-s.next > s.slack {
		return false
	}
	word, bit := (page-s.first)/64, uint64(1)<<((page-s.first)%64)
	if s.seen[word]&bit != 0 {
		return false
	}
	s.seen[word] |= bit
	if page >= s.next {
		s.next = page + 1
		s.on = page < s.last
	}
	return true
}

func (s *sweep) ahead(page uint64) bool { return s.on && page >= s.next && page <= s.last }

// sweepVictim picks a page while a sweep runs. Every page ahead is a certain hit, so none of them
// goes while there is another: first what the leader gave up, then the pages that the sweep has
// just passed, which it will not come back to before the next one, and of those ahead the farthest.
func (a *Adaptive) sweepVictim(s *shadow, may func(uint64) bool) (uint64, bool) {
	for i := s.order.head; i != 0; i = s.spare.nodes[i].next {
		if page := s.spare.nodes[i].page; !a.sweep.ahead(page) && may(page) {
			return page, true
		}
	}
	for page := a.sweep.next; page > a.sweep.first; page-- {
		if _, here := a.resident[page-1]; here && may(page-1) {
			return page - 1, true
		}
	}
	var far uint64
	found := false
	for page := range a.resident {
		if !may(page) {
			continue
		}
		if !a.sweep.ahead(page) {
			return page, true
		}
		if !found || page > far {
			far, found = page, true
		}
	}
	return far, found
}

// Sweeping is the announced sweep: its first page, the next one to come and its last one, and
// whether there is one.
func (a *Adaptive) Sweeping() (first, next, last uint64, on bool) {
	return a.sweep.first, a.sweep.next, a.sweep.last, a.sweep.on
}
