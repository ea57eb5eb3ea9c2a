package natsq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// electedSubject is where the servers of a cluster say that a stream has another leader.
const electedSubject = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED."

// errElected ends a try that a leader may never answer which is gone, because there is another.
var errElected = errors.New("a stream has another leader")

// elections tells calls that the wait for a leader is over. Without it a try that was made shortly before the election ended was waited for to its
// own end, up to 1.6 s.
type elections struct {
	mu   sync.Mutex
	next context.Context // ends with the next election
	end  context.CancelCauseFunc
}

func newElections() *elections {
	e := &elections{}
	e.next, e.end = context.WithCancelCause(context.Background())
	return e
}

// follow listens for elections of the streams that a submission needs. Where the login may not hear of them, tries end by themselves.
func (e *elections) follow(nc *nats.Conn) error {
	for _, stream := range []string{wire.JobStream(jobs.PoolCPU), wire.JobStream(jobs.PoolGPU), wire.ResultStream, wire.SchedStream, wire.WaitStream} {
		if _, err := nc.Subscribe(electedSubject+stream, func(*nats.Msg) { e.heard() }); err != nil {
			return fmt.Errorf("listen for elections: %w", err)
		}
	}
	return nil
}

func (e *elections) heard() {
	e.mu.Lock()
	end := e.end
	e.next, e.end = context.WithCancelCause(context.Background())
	e.mu.Unlock()
	end(errElected)
}

// try calls fn with a context that ends at an election; then it fails with errElected unless it succeeds.
func (e *elections) try(ctx context.Context, fn func(ctx context.Context) error) error {
	e.mu.Lock()
	next := e.next
	e.mu.Unlock()
	try, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(next, func() { cancel(errElected) })()
	err := fn(try)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(try), errElected) {
		return fmt.Errorf("%w: %w", errElected, err)
	}
	return err
}
