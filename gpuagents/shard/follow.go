package shard

import (
	"time"
)

// Follow is the state of a shard that another agent serves and has offered to this one. No entry is
// applied before it is answered, and nothing is written. The loop of the shard and the goroutine
// that waits for the lease use it.
type Follow struct {
	caughtUp chan struct{} // closed by the loop when all answered entries are applied
	promoted chan struct{} // closed when this agent has the lease
	since    time.Time     // when the lease was acquired; read after promoted
	once     bool          // caughtUp is closed; used by the loop
}

// newFollow returns the state of a shard without a lease.
func newFollow() *Follow {
	return &Follow{caughtUp: make(chan struct{}), promoted: make(chan struct{})}
}

// CaughtUp returns a channel that is closed when all answered entries are applied.
func (f *Follow) CaughtUp() <-chan struct{} { return f.caughtUp }

// Promote tells the loop that the agent has the lease. It is called once.
func (f *Follow) Promote() {
	f.since = time.Now()
	close(f.promoted)
}

// followEvery is the time between two reads of the end of the answers.
const followEvery = 50 * time.Millisecond
