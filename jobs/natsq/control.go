package natsq

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/quota"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// operatorState follows what operators and submitters say to the workers of a pool: which jobs are
// cancelled, what is paused and what tenants may have. One watch each serves all jobs.
type operatorState struct {
	pool  jobs.Pool
	poke  func() // something was resumed
	log   *slog.Logger
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex
	cancels map[string]cancellation // by job id
	prune   int                     // how many cancellations there may be before the old ones go
	running map[string]context.CancelCauseFunc
	pauses  map[string]bool // by key, see pauseKey
	limits  map[string]jobs.Limits
	quotas  map[string]quota.Quota // of those tenants asked about since the limits changed
}

// cancellation is jobs.ErrFinish or jobs.ErrCancelled, its revision in the bucket, and since when
// it stands.
type cancellation struct {
	cause    error
	revision uint64
	at       time.Time
}

// of says how a job is cancelled whose message forgives the revisions up to forgiven, or nil.
func (c cancellation) of(forgiven uint64) error {
	if c.revision <= forgiven {
		return nil
	}
	return c.cause
}

// watchControl returns when what was there before is known.
func (c *Conn) watchControl(ctx context.Context, pool jobs.Pool, poke func(),
	log *slog.Logger,
) (*operatorState, error) {
	if err := c.CheckFollow(ctx, wire.ControlBucket); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	w := &operatorState{
		pool: pool, poke: poke, log: log, stop: stop,
		cancels: map[string]cancellation{}, running: map[string]context.CancelCauseFunc{}, pauses: map[string]bool{},
		limits: map[string]jobs.Limits{}, quotas: map[string]quota.Quota{},
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

func (w *operatorState) close() { w.stop(); w.ended.Wait() }

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
	// The server forgets a cancellation after cancelAge and does not say so.
	if len(w.cancels) > w.prune {
		maps.DeleteFunc(w.cancels, func(_ string, c cancellation) bool { return time.Since(c.at) > natsconn.CancelAge })
		w.prune = 2*len(w.cancels) + 100
	}
	if cancel := w.running[u.Key()]; cancel != nil {
		cancel(cause)
	}
}

// cause says how a job is cancelled, or nil; cancellations up to the revision forgiven do not
// count.
func (w *operatorState) cause(id string, forgiven uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cancels[id].of(forgiven)
}

// attach has cancel called when the job is cancelled, which may be at once, until detach is called.
func (w *operatorState) attach(id string, forgiven uint64, cancel context.CancelCauseFunc) (detach func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cause := w.cancels[id].of(forgiven); cause != nil {
		cancel(cause)
	}
	w.running[id] = cancel
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.running, id)
	}
}

func (w *operatorState) controlled(u jetstream.KeyValueEntry) {
	w.mu.Lock()
	put := u.Operation() == jetstream.KeyValuePut
	if tenant, ok := control.ParseTenantKey(u.Key()); ok {
		l, err := quota.ParseLimits(u.Value())
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
	w.poke()
}

// quota is what a tenant may have.
func (w *operatorState) quota(tenant string) quota.Quota {
	w.mu.Lock()
	defer w.mu.Unlock()
	q, ok := w.quotas[tenant]
	if !ok {
		q = quota.Of(w.limits[tenant].Or(w.limits[jobs.EveryTenant]))
		w.quotas[tenant] = q
	}
	return q
}

func (w *operatorState) paused(kind string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pauses[control.PauseKey(w.pool, "")] || w.pauses[control.PauseKey(w.pool, kind)]
}
