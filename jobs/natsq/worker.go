package natsq

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Worker takes jobs of one pool and executes them. Its methods may be called from several
// goroutines.
type Worker struct {
	WorkerOptions
	c          *Conn
	puller     *natsconn.Puller
	heartbeats *control.Keeper
	acks       *ackBatcher
	logs       *queue.LogWriter
	ctl        *operatorState
	limits     *control.Limiter
	deps       *queue.Resolver
	sources    *sourceTable
	discovery  *discovery
	current    *runningJobs
	wake       chan struct{}

	slots   chan struct{} // has an element for each job or batch, and for each fetch
	asking  atomic.Int32  // slots of fetches that have no job yet
	cancel  context.CancelCauseFunc
	ending  <-chan struct{} // Drain or Stop was called
	running sync.WaitGroup
	closed  chan struct{}
}

// Work starts a worker, which runs until Drain or Stop. ctx bounds the start only.
func (c *Conn) Work(ctx context.Context, o WorkerOptions) (*Worker, error) {
	return c.work(ctx, o, nil)
}

// Beside starts another worker of the same agent, for other kinds of job with slots of their own.
// The first one answers the questions what runs for both: an agent answers once. The caller ends
// both.
func (w *Worker) Beside(ctx context.Context, o WorkerOptions) (*Worker, error) {
	return w.c.work(ctx, o, w.current)
}

// work starts a worker that keeps what it runs in current, for which another worker answers; nil:
// it answers itself.
func (c *Conn) work(ctx context.Context, o WorkerOptions, current *runningJobs) (_ *Worker, err error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	w := &Worker{
		WorkerOptions: o, c: c, wake: make(chan struct{}, 1),
		slots: make(chan struct{}, o.Concurrency), closed: make(chan struct{}),
		current: cmp.Or(current, &runningJobs{}),
	}
	w.sources = newSourceTable(w.wakeLoop)
	w.deps = queue.NewResolver(c.Queue, o.Logger)
	w.discovery = newDiscovery(c, o, w.sources, w.deps.JobEnded)
	run, cancel := context.WithCancelCause(context.Background())
	w.cancel, w.ending = cancel, run.Done()
	var ends []func() // called in the opposite order
	end := func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}
	defer func() {
		if err != nil {
			cancel(err)
			end()
		}
	}()
	w.puller = natsconn.NewPuller(c.NC, func() func(error) { return c.Timed(natsconn.OpFetch) })
	ends = append(ends, w.puller.Close)
	w.heartbeats = control.StartKeeper(c.Lease/3, o.Healthy, o.Logger)
	ends = append(ends, w.heartbeats.Close)
	w.acks = startAcks(c.Conn, o.Logger)
	ends = append(ends, w.acks.Close)
	w.logs = queue.NewLogWriter(c.Conn, o.Logger, o.Metrics.logLine(o.Pool))
	ends = append(ends, w.logs.Close)
	if w.ctl, err = c.watchControl(ctx, o.Pool, w.wakeLoop, o.Logger); err != nil {
		return nil, err
	}
	ends = append(ends, w.ctl.close)
	if w.limits, err = control.StartLimiter(ctx, c.Conn, control.LimiterOptions{
		Pool: o.Pool, Quota: w.ctl.quota, Heartbeats: w.heartbeats, Freed: w.wakeLoop, HasJobs: w.hasJobs,
		Refused: func(tenant, reason string) { o.Metrics.tenantRefused(o.Pool, tenant, reason) }, Log: o.Logger,
	}); err != nil {
		return nil, err
	}
	ends = append(ends, w.limits.Close)
	// The subscription comes before the first discovery, so that one or the other finds each job.
	sub, err := c.NC.Subscribe("exo.wake."+string(o.Pool)+".>", w.announced)
	if err != nil {
		return nil, fmt.Errorf("join pool %s: %w", o.Pool, err)
	}
	ends = append(ends, func() { _ = sub.Unsubscribe() })
	if current == nil {
		asked, err := w.current.serve(c.NC, o.Pool, o.Name, o.Logger)
		if err != nil {
			return nil, fmt.Errorf("join pool %s: %w", o.Pool, err)
		}
		ends = append(ends, func() { _ = asked.Unsubscribe() })
	}
	if err := w.discovery.look(ctx); err != nil {
		return nil, err
	}
	if o.Metrics != nil {
		// It also counts the submissions that a gateway of this process refuses.
		c.Control.OnRefused(func(p jobs.Pool, tenant string) { o.Metrics.tenantRefused(p, tenant, reasonQueued) })
	}
	ends = append(ends, o.Metrics.follow(o.Pool, w.tenants), o.Metrics.followWorker(
		slots{pool: o.Pool, number: cap(w.slots), oldest: w.current.oldest},
		slices.Concat(slices.Collect(maps.Keys(o.Handlers)), slices.Collect(maps.Keys(o.Batches)))))
	w.running.Go(func() { w.loop(run) })
	w.running.Go(func() { w.poll(run) })
	if !o.JobsOnly {
		w.running.Go(func() { queue.NewMover(c.Queue, o.Logger).Run(run) })
		w.running.Go(func() { w.deps.Run(run) })
		w.running.Go(func() { c.Schedules.Run(run, o.Pool, o.Logger) })
	}
	go func() {
		<-run.Done()
		w.running.Wait()
		w.acks.Close()
		// An acknowledgement has no answer, but the last ones must be sent before the end.
		flush, done := context.WithTimeout(context.Background(), 5*time.Second)
		if err := c.NC.FlushWithContext(flush); err != nil {
			o.Logger.Warn("flushing acknowledgements; the queue will give those jobs out again and find their "+
				"results", "error", err)
		}
		done()
		end()
		close(w.closed)
	}()
	return w, nil
}

// Drain takes no new jobs, gives the running ones back to the queue between two of their steps, and
// waits for that or for ctx. It may be called again.
func (w *Worker) Drain(ctx context.Context) error {
	w.cancel(jobs.ErrDrain)
	select {
	case <-w.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain worker %s: %w", w.Name, context.Cause(ctx))
	}
}

// Stop is Drain without a limit of time.
func (w *Worker) Stop() {
	w.cancel(jobs.ErrDrain)
	<-w.closed
}

// Running returns the number of jobs and batches in progress.
func (w *Worker) Running() int { return max(0, len(w.slots)-int(w.asking.Load())) }

// wakeLoop makes the loop check the sources again. It never waits.
func (w *Worker) wakeLoop() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// announced handles the announcement of a stored job. Its subject is exo.wake and the subject of
// the job without the id.
func (w *Worker) announced(m *nats.Msg) {
	s, ok := wire.ParseWake(m.Subject)
	if ok && s.Pool == w.Pool && w.serves(s.Kind) {
		w.sources.announce(s)
	}
}

// ready returns the sources that may have jobs and may be asked: they are not paused, and their
// tenants have slots. It returns none while the worker is unhealthy or not ready; the next poll
// wakes the loop again.
func (w *Worker) ready() (all []wire.Source) {
	if w.heartbeats.Unhealthy() || w.Ready != nil && w.Ready() != nil {
		return nil
	}
	for _, s := range w.sources.candidates() {
		if !w.ctl.paused(s.Kind) && w.limits.Open(s, w.room(s)) {
			all = append(all, s)
		}
	}
	return all
}

// poll makes all sources ready from time to time. Every half a minute it also finds new sources,
// and jobs past their deadline that no worker would take.
func (w *Worker) poll(ctx context.Context) {
	const period = 30 * time.Second
	looked := time.Now()
	tick := time.NewTimer(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if time.Since(looked) > period {
			looked = time.Now()
			if err := w.discovery.look(ctx); err != nil && ctx.Err() == nil {
				w.Logger.Warn("looking for queues", "pool", w.Pool, "error", err)
			}
			if err := w.discovery.expire(ctx); err != nil && ctx.Err() == nil {
				w.Logger.Warn("ending jobs that have passed their deadline", "pool", w.Pool, "error", err)
			}
		}
		n := w.sources.pollAll()
		// At most a hundred requests per second, whatever the number of sources.
		tick.Reset(max(time.Second, time.Duration(n)*10*time.Millisecond))
	}
}

// tenants returns the state of the tenants that have their own limits, have jobs queued or had jobs
// in this worker.
func (w *Worker) tenants() map[string]tenantState {
	all := map[string]tenantState{}
	for _, name := range w.ctl.limited() {
		all[name] = tenantState{}
	}
	for name, n := range w.discovery.queuedByTenant() {
		all[name] = tenantState{queued: n}
	}
	for name, n := range w.limits.Running() {
		s := all[name]
		s.running = n
		all[name] = s
	}
	for name, s := range all {
		s.quota = w.ctl.quota(name)
		all[name] = s
	}
	return all
}
