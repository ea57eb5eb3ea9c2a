package gateway

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
)

// Limits of a gateway. A request that is answered at once takes a hand; one that waits for a result
// or a log gives its hand back and waits beside, so that open questions delay nobody.
const (
	allWorkers    = 64
	tenantWorkers = 16 // of one tenant: a flood of its requests leaves the other hands to others
	gatewayLine   = 1024
	ownerLine     = 512
	gatewayWaits  = 8192 // open questions, about 16 KiB each
	ownerWaits    = 512
)

// requestLine holds the requests of each tenant in order, and hands them out to the tenants in
// turn.
type requestLine struct {
	serve func(m *nats.Msg, from owner) // on a goroutine of its own

	mu     sync.Mutex
	of     map[owner]*ownerLineState
	turn   []owner // those with requests that stand in line
	busy   int     // hands in use
	length int     // requests that stand in line
	waits  int     // open questions
	closed bool
	ended  sync.WaitGroup
}

// ownerLineState is what a line knows of one tenant.
type ownerLineState struct {
	standing []*nats.Msg
	busy     int
	waits    int
}

func newRequestLine(serve func(m *nats.Msg, from owner)) *requestLine {
	return &requestLine{serve: serve, of: map[owner]*ownerLineState{}}
}

// Who may do everything is one owner for all its users, and has no limit of its own.
func (o owner) workers() int { return o.limit(tenantWorkers, allWorkers) }
func (o owner) room() int    { return o.limit(ownerLine, gatewayLine) }
func (o owner) waits() int   { return o.limit(ownerWaits, gatewayWaits) }

func (o owner) limit(tenant, all int) int {
	if o == "" {
		return all
	}
	return tenant
}

// state must be called with mu held.
func (l *requestLine) state(from owner) *ownerLineState {
	s := l.of[from]
	if s == nil {
		s = &ownerLineState{}
		l.of[from] = s
	}
	return s
}

// forget drops a tenant that has nothing here. It must be called with mu held.
func (l *requestLine) forget(from owner, s *ownerLineState) {
	if s.busy == 0 && s.waits == 0 && len(s.standing) == 0 {
		delete(l.of, from)
	}
}

// add takes a request, and reports whether there was room for it.
func (l *requestLine) add(m *nats.Msg, from owner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state(from)
	if l.closed || l.length >= gatewayLine || len(s.standing) >= from.room() {
		l.forget(from, s)
		return false
	}
	if s.standing = append(s.standing, m); len(s.standing) == 1 {
		l.turn = append(l.turn, from)
	}
	l.length++
	l.dispatch()
	return true
}

// dispatch gives free hands to the tenants in turn. It must be called with mu held.
func (l *requestLine) dispatch() {
	for looked := 0; l.busy < allWorkers && looked < len(l.turn); {
		from := l.turn[0]
		l.turn = l.turn[1:]
		s := l.of[from]
		if s.busy >= from.workers() {
			l.turn = append(l.turn, from)
			looked++
			continue
		}
		looked = 0
		m := s.standing[0]
		s.standing = s.standing[1:]
		if len(s.standing) > 0 {
			l.turn = append(l.turn, from)
		}
		l.length--
		l.busy++
		s.busy++
		l.ended.Go(func() { l.serve(m, from) })
	}
}

// requestPlace is what a request under way holds of a line: a hand first, and after park a place
// among the open questions.
type requestPlace struct {
	l      *requestLine
	from   owner
	parked bool
}

// park gives the hand back before a wait. It fails with jobs.ErrFull when the tenant, or all
// together, have too many open questions.
func (p *requestPlace) park() error {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.parked {
		return nil
	}
	s := l.state(p.from)
	if s.waits >= p.from.waits() || l.waits >= gatewayWaits {
		return jobs.Later(fmt.Errorf("%d questions of this tenant wait here, and %d in all: at most %d and %d may: "+
			"ask without wait_s, or again later: %w",
			s.waits, l.waits, p.from.waits(), gatewayWaits, jobs.ErrFull), time.Second)
	}
	p.parked = true
	l.busy--
	s.busy--
	l.waits++
	s.waits++
	l.dispatch()
	return nil
}

// leave gives back what the place still holds.
func (p *requestPlace) leave() {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state(p.from)
	if p.parked {
		l.waits--
		s.waits--
	} else {
		l.busy--
		s.busy--
	}
	l.forget(p.from, s)
	l.dispatch()
}

// close takes no more requests and returns those that stand in line.
func (l *requestLine) close() (left []*nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for from, s := range l.of {
		left = append(left, s.standing...)
		s.standing = nil
		l.forget(from, s)
	}
	l.turn, l.length = nil, 0
	return left
}
