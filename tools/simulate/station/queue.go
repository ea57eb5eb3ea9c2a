package station

import "fmt"

// Queue is a station with one or more servers and a line that is first in, first out.
type Queue struct {
	Audit

	clock   *Clock
	servers int
	busy    int
	line    []func()
	used    Audit // of the servers
}

// NewQueue returns an empty station. servers is at least 1.
func NewQueue(c *Clock, servers int) *Queue { return &Queue{clock: c, servers: max(1, servers)} }

// Enter adds a job. When a server is free for it, work is called, which calls leave once, at that
// time or later.
func (q *Queue) Enter(work func(leave func())) {
	arrived := q.clock.Now()
	q.Arrive(arrived)
	q.line = append(q.line, func() {
		began := q.clock.Now()
		q.used.Arrive(began)
		work(func() {
			now := q.clock.Now()
			q.Leave(now, arrived)
			q.used.Leave(now, began)
			q.busy--
			q.next()
		})
	})
	q.next()
}

// Serve adds a job that takes a time, and calls done when it leaves.
func (q *Queue) Serve(ns int64, done func()) {
	q.Enter(func(leave func()) {
		q.clock.After(ns, func() {
			leave()
			done()
		})
	})
}

func (q *Queue) next() {
	for q.busy < q.servers && len(q.line) > 0 {
		begin := q.line[0]
		q.line[0] = nil
		q.line = q.line[1:]
		q.busy++
		begin()
	}
}

// Use returns the share of the time of the servers that was used, from 0 to 1.
func (q *Queue) Use() float64 { return q.used.Mean(q.clock.Now()) / float64(q.servers) }

// CheckAll is Check for the jobs and for the servers, and that each job waits or has a server.
func (q *Queue) CheckAll(name string) error {
	if q.used.Inside() != int64(q.busy) || q.Inside() != int64(q.busy+len(q.line)) {
		return fmt.Errorf("%w %s: %d jobs are inside, %d of them have a server, but %d servers have work and "+
			"%d jobs wait",
			ErrAudit, name, q.Inside(), q.used.Inside(), q.busy, len(q.line))
	}
	if err := q.Check(name, q.clock.Now()); err != nil {
		return err
	}
	return q.used.Check("servers of "+name, q.clock.Now())
}
