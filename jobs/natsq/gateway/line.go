package gateway

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
)

// Limits of a gateway. A request needs a worker while it is answered. A request that waits for a
// result or a log gives its worker back, so requests that wait delay no others.
const (
	allWorkers    = 64
	tenantWorkers = 16   // for one tenant, so that many requests of one tenant leave workers for other tenants
	gatewayLine   = 1024 // requests without a worker
	ownerLine     = 512  // of one tenant
	gatewayWaits  = 8192 // requests that wait for a result or a log, about 16 KiB each
	ownerWaits    = 512  // of one tenant
)

// requestLine keeps the requests of each tenant in their order, and serves the tenants in turn. Its
// methods never wait.
type requestLine struct {
	serve func(m *nats.Msg, from owner) // on a new goroutine

	mu     sync.Mutex
	of     map[owner]*ownerLineState
	turn   []owner // owners with requests in line, in the order of their turns
	busy   int     // workers in use
	length int     // requests in line
	waits  int     // parked requests
	closed bool
	ended  sync.WaitGroup
}

// ownerLineState is the part of a line that belongs to one owner.
type ownerLineState struct {
	standing []*nats.Msg // requests in line
	busy     int
	waits    int
}

// newRequestLine returns an empty line. It calls serve for each request on a new goroutine. serve
// must call requestPlace.leave at its end.
func newRequestLine(serve func(m *nats.Msg, from owner)) *requestLine {
	return &requestLine{serve: serve, of: map[owner]*ownerLineState{}}
}

// The limits of an owner. All clients without a tenant are one owner, which may use the whole
// gateway.
func (o owner) workers() int { return o.limit(tenantWorkers, allWorkers) }
func (o owner) room() int    { return o.limit(ownerLine, gatewayLine) }
func (o owner) waits() int   { return o.limit(ownerWaits, gatewayWaits) }

func (o owner) limit(tenant, all int) int {
	if o == "" {
		return all
	}
	return tenant
}

// state returns the state of an owner, which is new if the line has none. It must be called with mu
// held.
func (l *requestLine) state(from owner) *ownerLineState {
	s := l.of[from]
	if s == nil {
		s = &ownerLineState{}
		l.of[from] = s
	}
	return s
}

func (l *requestLine) forget(from owner, s *ownerLineState) {
	if s.busy == 0 && s.waits == 0 && len(s.standing) == 0 {
		delete(l.of, from)
	}
}

// add puts a request into the line, and reports whether there was room. If not, the caller answers
// it.
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

// dispatch gives free workers to the owners in turn, one request each. An owner at its limit keeps
// its requests in line. It must be called with mu held.
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

// requestPlace is the place of a running request in a line: a worker at first, and after park a
// place among the requests that wait.
type requestPlace struct {
	l      *requestLine
	from   owner
	parked bool
}

// park gives the worker back before a wait. It fails with jobs.ErrFull if too many requests of the
// owner, or of all, wait already. A second call does nothing.
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

// leave gives back the worker, or the place among the requests that wait. It is called once.
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

// close ends the line and returns the requests in it, which the caller answers. Running requests
// continue.
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
