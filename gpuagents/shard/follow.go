package shard

import (
	"errors"
	"time"
)

// errFollowing is an answer of an agent that does not hold the lease of the shard.
var errFollowing = errors.New("the agent follows the shard and may not answer")

// follow is a shard that another agent serves and has offered to this one. It is served as any other, but no entry is applied before it has its answer,
// and nothing is written. The loop of the shard and the goroutine that waits for the lease use it.
type Follow struct {
	caughtUp chan struct{} // closed by the loop when all that is answered is applied
	promoted chan struct{} // closed when the lease is this agent's
	since    time.Time     // when the lease came; read behind promoted
	once     bool          // caughtUp is closed; of the loop
}

func newFollow() *Follow {
	return &Follow{caughtUp: make(chan struct{}), promoted: make(chan struct{})}
}

// CaughtUp returns a channel that is closed when all that is answered is applied.
func (f *Follow) CaughtUp() <-chan struct{} { return f.caughtUp }

// Promote says that the agent has the lease. It is called once.
func (f *Follow) Promote() {
	f.since = time.Now()
	close(f.promoted)
}

// followEvery is how often the end of the log of answers is read.
const followEvery = 50 * time.Millisecond
