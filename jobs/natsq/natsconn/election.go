package natsconn

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// electedSubject is the subject prefix on which the servers of a cluster announce the new leader of
// a stream.
const electedSubject = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED."

// elections ends the tries that wait for a stream leader when the servers elect another one.
// Without it a try that began shortly before the end of an election waited for its own time limit,
// up to 1.6 s.
type elections struct{ calls interrupts }

// follow listens for elections of the streams that a submission needs. If the login may not hear of
// them, tries end by their time limits.
func (e *elections) follow(nc *nats.Conn) error {
	streams := []string{
		wire.JobStream(jobs.PoolCPU), wire.JobStream(jobs.PoolGPU), wire.ResultStream, wire.SchedStream,
		wire.WaitStream,
	}
	for _, stream := range streams {
		if _, err := nc.Subscribe(electedSubject+stream, func(*nats.Msg) { e.onElection() }); err != nil {
			return fmt.Errorf("listen for elections: %w", err)
		}
	}
	return nil
}

func (e *elections) onElection() { e.calls.interrupt(errElected) }

// try calls fn with a context that ends at an election. fn then fails with errElected, unless it
// succeeds or ctx has ended.
func (e *elections) try(ctx context.Context, fn func(ctx context.Context) error) error {
	try, remove := e.calls.add(ctx)
	defer remove()
	err := fn(try)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(try), errElected) {
		return fmt.Errorf("%w: %w", errElected, err)
	}
	return err
}
