package natsq

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// operatorState follows the orders of operators and submitters to the workers of a pool: cancelled
// jobs, pauses and the limits of tenants. One watch of each bucket serves all jobs.
type operatorState struct {
	pool  jobs.Pool
	wake  func() // called after a change of pauses or limits
	log   *slog.Logger
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex
	cancels map[string]cancellation // by job id
	prune   int                     // how many cancellations there may be before the old ones go
	running map[string][]*attached  // by job id; two attempts at a job may run after a server was killed
	pauses  map[string]bool         // by wire.PauseKey
	limits  map[string]jobs.Limits
	quotas  map[string]wire.Quota // computed since the limits last changed
}

// attached is an attempt at a job that is told of cancellations.
type attached struct{ cancel context.CancelCauseFunc }

// cancellation is jobs.ErrFinish or jobs.ErrCancelled, with its revision and time in the bucket.
type cancellation struct {
	cause    error
	revision uint64
	at       time.Time
}

// of returns the cause for a job that forgives cancellations up to a revision, or nil.
func (c cancellation) of(forgiven uint64) error {
	if c.revision <= forgiven {
		return nil
	}
	return c.cause
}

// watchControl returns when the present content of both buckets is known. It then follows changes
// until close.
func (c *Conn) watchControl(ctx context.Context, pool jobs.Pool, wake func(),
	log *slog.Logger,
) (*operatorState, error) {
	if err := c.CheckFollow(ctx, wire.ControlBucket); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	w := &operatorState{
		pool: pool, wake: wake, log: log, stop: stop,
		cancels: map[string]cancellation{}, running: map[string][]*attached{}, pauses: map[string]bool{},
		limits: map[string]jobs.Limits{}, quotas: map[string]wire.Quota{},
	}
	for bucket, fn := range map[string]func(jetstream.KeyValueEntry){
		wire.CancelBucket: w.cancelled, wire.ControlBucket: w.controlled,
	} {
		synced := make(chan struct{})
		w.ended.Go(func() { c.FollowBucket(run, bucket, synced, fn, log) })
		select {
		case <-synced:
		case <-ctx.Done():
			w.close()
			return nil, fmt.Errorf("watch bucket %s: %w", bucket, context.Cause(ctx))
		}
	}
	return w, nil
}

// close ends the watches and waits for them.
func (w *operatorState) close() { w.stop(); w.ended.Wait() }

// cancelled learns a change of the bucket of cancellations.
func (w *operatorState) cancelled(u jetstream.KeyValueEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if u.Operation() != jetstream.KeyValuePut {
		delete(w.cancels, u.Key())
		return
	}
	cause := jobs.ErrCancelled
	if string(u.Value()) == "finish" {
		cause = jobs.ErrFinish
	}
	w.cancels[u.Key()] = cancellation{cause, u.Revision(), u.Created()}
	// The server removes a cancellation after its age without an update.
	if len(w.cancels) > w.prune {
		maps.DeleteFunc(w.cancels, func(_ string, c cancellation) bool { return time.Since(c.at) > natsconn.CancelAge })
		w.prune = 2*len(w.cancels) + 100
	}
	for _, a := range w.running[u.Key()] {
		a.cancel(cause)
	}
}

// cause returns how a job is cancelled, or nil. Cancellations up to the revision forgiven do not
// count.
func (w *operatorState) cause(id string, forgiven uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cancels[id].of(forgiven)
}

// attach calls cancel when the job is cancelled, perhaps before it returns, until detach is called.
func (w *operatorState) attach(id string, forgiven uint64, cancel context.CancelCauseFunc) (detach func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cause := w.cancels[id].of(forgiven); cause != nil {
		cancel(cause)
	}
	a := &attached{cancel}
	w.running[id] = append(w.running[id], a)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running[id] = slices.DeleteFunc(w.running[id], func(o *attached) bool { return o == a })
		if len(w.running[id]) == 0 {
			delete(w.running, id)
		}
	}
}

// controlled learns a pause, or the limits of a tenant.
func (w *operatorState) controlled(u jetstream.KeyValueEntry) {
	w.mu.Lock()
	put := u.Operation() == jetstream.KeyValuePut
	if tenant, ok := control.ParseTenantKey(u.Key()); ok {
		l, err := schema.ParseLimits(u.Value())
		if put && err != nil {
			w.log.Error("limits not followed", "tenant", tenant, "error", err)
		}
		if delete(w.limits, tenant); put && err == nil {
			w.limits[tenant] = l
		}
		clear(w.quotas)
	} else if put {
		w.pauses[u.Key()] = true
	} else {
		delete(w.pauses, u.Key())
	}
	w.mu.Unlock()
	w.wake()
}

// quota returns what a tenant may use: its own limits, else the limits of jobs.EveryTenant.
func (w *operatorState) quota(tenant string) wire.Quota {
	w.mu.Lock()
	defer w.mu.Unlock()
	q, ok := w.quotas[tenant]
	if !ok {
		q = wire.QuotaOf(w.limits[tenant].Or(w.limits[jobs.EveryTenant]))
		w.quotas[tenant] = q
	}
	return q
}

// paused reports whether a kind, or the whole pool, is paused.
func (w *operatorState) paused(kind string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pauses[wire.PauseKey(w.pool, "")] || w.pauses[wire.PauseKey(w.pool, kind)]
}

// limited returns the tenants with their own limits.
func (w *operatorState) limited() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.limits {
		if name != jobs.EveryTenant {
			names = append(names, name)
		}
	}
	return names
}
