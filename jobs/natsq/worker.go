package natsq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/fairqueue"
	"github.com/exoswarm/exoswarm/jobs/natsq/joblog"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/pull"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// WorkerOptions configure a Worker.
type WorkerOptions struct {
	// Name identifies the worker in results and logs.
	Name string
	Pool jobs.Pool
	// Handlers by kind of job, for kinds that are done one at a time. A worker takes jobs of the
	// kinds in Handlers and Batches only. Workers of one pool may serve different kinds; a job of a
	// kind that no worker serves stays queued.
	Handlers map[string]jobs.Handler
	// Batches by kind, for kinds that are done together. A kind is in one of the two maps.
	Batches map[string]Batch
	// Concurrency is how many jobs and batches run at once; 0 means 4.
	Concurrency int
	// Healthy is asked before every renewal of the leases. While it returns an error the worker
	// renews and takes nothing, and its jobs are cancelled with that error: they go to other
	// workers. It is for a watchdog of the device, without which a kernel that hangs would keep its
	// jobs for ever. Nil means always healthy.
	Healthy func() error
	// Ready is asked before jobs are taken. While it returns an error the worker takes nothing; the
	// jobs that it has go on. Nil means always ready.
	Ready func() error
	// Metrics counts what the worker does; nil for none.
	Metrics *Metrics
	Logger  *slog.Logger
}

// Batch says how jobs of a kind are put together.
type Batch struct {
	Handle jobs.BatchHandler
	// Max is the most jobs of a batch, 1 to jobs.MaxBatch; 0 means 256.
	Max int
	// MaxBytes is the most bytes of their messages, at least jobs.MaxMessage; 0 means 64 MiB.
	MaxBytes int
	// Linger is how long the first job may wait for others; 0 means 2 ms, negative not at all. The
	// earliest deadline among the jobs ends the wait too.
	Linger time.Duration
}

// Defaults of a Batch. With 2 ms a batch of up to 256 closes within 5 ms of its submission at 5,000
// jobs a second (p99, measured with one server).
const (
	defaultBatch  = 256
	defaultBytes  = 64 << 20
	defaultLinger = 2 * time.Millisecond
)

func (o *WorkerOptions) defaults() error {
	if o.Concurrency == 0 {
		o.Concurrency = 4
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Healthy == nil {
		o.Healthy = func() error { return nil }
	}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, jobs.Errorf(jobs.CodeInvalid, "worker %s: "+format, append([]any{o.Name}, args...)...))
	}
	if o.Pool != jobs.PoolCPU && o.Pool != jobs.PoolGPU {
		bad("pool %q: use %q or %q", o.Pool, jobs.PoolCPU, jobs.PoolGPU)
	}
	if o.Concurrency < 1 || o.Concurrency > 10_000 {
		bad("a concurrency of %d: use 1 to 10000", o.Concurrency)
	}
	batches := make(map[string]Batch, len(o.Batches))
	for kind, b := range o.Batches {
		if b.Max == 0 {
			b.Max = defaultBatch
		}
		if b.MaxBytes == 0 {
			b.MaxBytes = defaultBytes
		}
		if b.Linger == 0 {
			b.Linger = defaultLinger
		}
		if b.Handle == nil || b.Max < 1 || b.Max > jobs.MaxBatch || b.MaxBytes < jobs.MaxMessage {
			bad("batches of %s: they need a handler, 1 to %d jobs and at least %d bytes", kind, jobs.MaxBatch,
				jobs.MaxMessage)
		}
		if o.Handlers[kind] != nil {
			bad("kind %s has a handler for one job and one for batches: use one", kind)
		}
		batches[kind] = b
	}
	o.Batches = batches
	return errors.Join(errs...)
}

// Worker takes jobs of one pool.
type Worker struct {
	WorkerOptions
	c      *Conn
	puller *pull.Puller
	held   *holder
	done   *retirer
	logs   *joblog.Writer
	ctl    *operatorState
	limits *limiter
	deps   *queue.Resolver
	hand   atHand
	wake   chan struct{}

	mu      sync.Mutex
	sources map[wire.Source]*sourceState
	waiting map[string]uint64 // jobs by tenant, as they were counted last

	strand  map[wire.Source]uint64 // the first job of a source that seemed stranded at the last look; of discover alone
	foreign foreign                // jobs of kinds that the worker does not serve; of discover and expireForeign alone

	slots   chan struct{}
	asking  atomic.Int32 // slots that have no job yet
	cancel  context.CancelCauseFunc
	ending  <-chan struct{} // Drain or Stop was called
	running sync.WaitGroup
	closed  chan struct{}
}

// sourceState says whether asking a source may find jobs. news counts what was heard of it, so that
// news which come while it is asked are not taken for old.
type sourceState struct {
	ready bool
	news  uint64
	at    time.Time // of the last wake-up
	known bool      // its consumer exists
	look  bool      // the lookout wants to know
	stand int       // batches whose requests stand at it
}

// Work starts a worker, which runs until Drain or Stop. ctx bounds the start only.
func (c *Conn) Work(ctx context.Context, o WorkerOptions) (_ *Worker, err error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	w := &Worker{
		WorkerOptions: o, c: c, wake: make(chan struct{}, 1), sources: map[wire.Source]*sourceState{},
		strand: map[wire.Source]uint64{},
		slots:  make(chan struct{}, o.Concurrency), closed: make(chan struct{}),
	}
	w.deps = queue.NewResolver(c.Queue, o.Logger)
	run, cancel := context.WithCancelCause(context.Background())
	w.cancel, w.ending = cancel, run.Done()
	var ends []func()
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
	w.puller = pull.New(c.NC)
	ends = append(ends, w.puller.Close)
	w.held = newHolder(c.Lease/3, o.Healthy, o.Logger)
	ends = append(ends, w.held.close)
	w.done = c.newRetirer(o.Logger)
	w.done.ended.Go(w.done.loop)
	ends = append(ends, w.done.close)
	w.logs = joblog.NewWriter(c.Conn, o.Logger)
	ends = append(ends, w.logs.Close)
	if w.ctl, err = c.watchControl(ctx, o.Pool, w.poke, o.Logger); err != nil {
		return nil, err
	}
	ends = append(ends, w.ctl.close)
	w.limits = &limiter{
		c: c, pool: o.Pool, held: w.held, quota: w.ctl.quota, poke: w.poke, there: w.there,
		log: o.Logger,
	}
	w.limits.refused = func(tenant, reason string) { o.Metrics.tenantRefused(o.Pool, tenant, reason) }
	if err := w.limits.start(ctx); err != nil {
		return nil, err
	}
	ends = append(ends, w.limits.close)
	// Before the first look, so that no job falls between the two.
	sub, err := c.NC.Subscribe("exo.wake."+string(o.Pool)+".>", w.heard)
	if err != nil {
		return nil, fmt.Errorf("join pool %s: %w", o.Pool, err)
	}
	ends = append(ends, func() { _ = sub.Unsubscribe() })
	asked, err := w.answerRunning()
	if err != nil {
		return nil, fmt.Errorf("join pool %s: %w", o.Pool, err)
	}
	ends = append(ends, func() { _ = asked.Unsubscribe() })
	if err := w.discover(ctx); err != nil {
		return nil, err
	}
	if o.Metrics != nil {
		// also of the gateway of this process
		c.Control.OnRefused(func(p jobs.Pool, tenant string) { o.Metrics.tenantRefused(p, tenant, reasonQueued) })
	}
	ends = append(ends, o.Metrics.follow(w))
	w.running.Go(func() { w.loop(run) })
	w.running.Go(func() { w.lookout(run) })
	w.running.Go(func() { queue.NewMover(c.Queue, o.Logger).Run(run) })
	w.running.Go(func() { w.deps.Run(run) })
	w.running.Go(func() { c.Schedules.Run(run, o.Logger) })
	go func() {
		<-run.Done()
		w.running.Wait()
		w.done.close()
		// Acknowledgements are not waited for one by one, but the last must be on their way.
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

// Drain takes nothing new, gives the running jobs back to the queue between two of their steps, and
// waits for that or for ctx.
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

// Closed is closed when the worker has ended.
func (w *Worker) Closed() <-chan struct{} { return w.closed }

// Running is how many jobs and batches the worker has at hand.
func (w *Worker) Running() int { return max(0, len(w.slots)-int(w.asking.Load())) }

// poke has the loop look again.
func (w *Worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// heard notes that a job was stored. The subject is exo.wake and the job's without its id.
func (w *Worker) heard(m *nats.Msg) {
	s, _, ok := wire.ParseSubject(m.Subject)
	if !ok || s.Pool != w.Pool || !w.serves(s.Kind) {
		return
	}
	w.note(s, false)
	w.mu.Lock()
	w.sources[s].at = time.Now()
	w.mu.Unlock()
	w.poke()
}

// The server tells of a job before its consumer hands it out, by some microseconds when it is idle.
// A source that was heard of and had nothing is asked again, ever more rarely, until lastEcho has
// passed. Without this three idle jobs in ten waited for the lookout (measured).
const (
	firstEcho = 200 * time.Microsecond
	moment    = 2 * time.Millisecond // of patience before the first echo
	lastEcho  = 50 * time.Millisecond
)

func (w *Worker) note(s wire.Source, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.sources[s]
	if st == nil {
		st = &sourceState{}
		w.sources[s] = st
	}
	st.ready = true
	st.news++
	st.known = st.known || known
}

// ready lists the sources that may have jobs and are not paused; none while the worker is not
// healthy or not ready.
func (w *Worker) ready() (all []wire.Source) {
	if w.held.ill() || w.Ready != nil && w.Ready() != nil {
		return nil // the lookout asks again
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, st := range w.sources {
		if st.ready && st.stand == 0 && !w.ctl.paused(s.Kind) && w.limits.open(s, w.room(s)) {
			all = append(all, s)
		}
	}
	return all
}

// lookout asks every source now and then, without being told of jobs: the server does not tell of
// redeliveries, and a message may be lost. Every half a minute it looks for sources that it has not
// heard of.
func (w *Worker) lookout(ctx context.Context) {
	const discovery = 30 * time.Second
	turn := 0
	found := time.Now()
	tick := time.NewTimer(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if time.Since(found) > discovery {
			found = time.Now()
			if err := w.discover(ctx); err != nil && ctx.Err() == nil {
				w.Logger.Warn("looking for queues", "pool", w.Pool, "error", err)
			}
			if err := w.expireForeign(ctx); err != nil && ctx.Err() == nil {
				w.Logger.Warn("ending jobs that have passed their deadline", "pool", w.Pool, "error", err)
			}
		}
		w.mu.Lock()
		n := len(w.sources)
		turn++
		i := 0
		for _, st := range w.sources {
			st.ready = true
			st.news++
			// one at a time: it holds up the others for a moment; the order of a map is as good as
			// any
			st.look = i == turn%n
			i++
		}
		w.mu.Unlock()
		w.poke()
		// A hundred questions a second at most, however many sources there are.
		tick.Reset(max(time.Second, time.Duration(n)*10*time.Millisecond))
	}
}

// loop gives the free slots to jobs until ctx ends. It alone takes turns.
func (w *Worker) loop(ctx context.Context) {
	q := fairqueue.New()
	for {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		w.asking.Store(1)
		s, msgs, err := w.fetch(ctx, q)
		w.asking.Store(0)
		if err != nil {
			<-w.slots
			if ctx.Err() != nil {
				return
			}
			w.Logger.Warn("fetching work failed, trying again", "pool", w.Pool, "error", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			continue
		}
		if b, ok := w.Batches[s.Kind]; ok {
			// What waits at the server is taken from the tenant's slots meanwhile, so a tenant that
			// has few is asked now and then instead. A batch that is full asks for no more.
			stand := b.Linger > 0 && len(msgs) < b.Max && !w.limits.quota(s.Tenant).Limited()
			if stand { // before this loop asks again
				w.stand(s, 1)
			}
			w.running.Go(func() {
				defer func() { <-w.slots }()
				w.doBatch(ctx, s, b, msgs, stand)
			})
			continue
		}
		for i, m := range msgs {
			if i > 0 {
				w.slots <- struct{}{} // fetch counted the free ones, and only this goroutine takes them
			}
			w.running.Go(func() {
				defer func() { <-w.slots }()
				w.do(ctx, m)
			})
		}
	}
}

// fetch waits for jobs of one source: as many as there are free slots and one, or a batch.
func (w *Worker) fetch(ctx context.Context, q *fairqueue.Queue) (wire.Source, []*nats.Msg, error) {
	for {
		ready := w.ready()
		s, ok := q.Next(ready)
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return s, nil, context.Cause(ctx)
			}
		}
		msgs, err := w.ask(ctx, s, pull.Request{
			Messages: w.room(s), MaxBytes: w.Batches[s.Kind].MaxBytes,
			Wait: w.patience(s, len(ready)),
		})
		if err != nil {
			return s, nil, err
		}
		if len(msgs) > 0 {
			q.SetWeight(s.Tenant, w.ctl.quota(s.Tenant).Weight)
			q.Take(s, len(msgs))
			return s, msgs, nil
		}
	}
}

// room is how many jobs of a source are taken at once: a batch, or as many as there are free slots
// and the one at hand.
func (w *Worker) room(s wire.Source) int {
	if b, ok := w.Batches[s.Kind]; ok {
		return b.Max
	}
	return max(1, 1+cap(w.slots)-len(w.slots))
}

// there says whether the stream has jobs of a source. That it has none is remembered until there is
// news.
func (w *Worker) there(ctx context.Context, s wire.Source) (bool, error) {
	w.mu.Lock()
	st := w.sources[s]
	before := st.news
	w.mu.Unlock()
	_, err := w.c.NextOnce(ctx, wire.JobStream(w.Pool), s.Job("*"), 1)
	if !errors.Is(err, jobs.ErrNotFound) {
		return err == nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.news == before {
		st.ready = false
	}
	return false, nil
}

// patience is how long the server may look for jobs of a source: a moment when it has just told of
// one and the worker has no other source to ask meanwhile, longer for the lookout, else not at all.
// Without patience the server answers by a count of what is pending, and that has been seen to say
// none while a job stood there (nats-server 2.15.2, RFC 0007); with it, it looks.
func (w *Worker) patience(s wire.Source, ready int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.sources[s]
	look := st.look
	st.look = false
	switch {
	case look:
		return pull.ReadWait
	case ready == 1 && time.Since(st.at) <= lastEcho:
		return moment
	}
	return 0
}

// ask gets jobs of a source and holds them. That there was no more is remembered until there is
// news.
func (w *Worker) ask(ctx context.Context, s wire.Source, r pull.Request) ([]*nats.Msg, error) {
	w.mu.Lock()
	st := w.sources[s]
	before, known := st.news, st.known
	w.mu.Unlock()
	if !known {
		if err := w.c.Queue.EnsureConsumer(ctx, s); err != nil {
			return nil, err
		}
		w.mu.Lock()
		st.known = true
		w.mu.Unlock()
	}
	if r.Messages = w.limits.reserve(s, r.Messages); r.Messages == 0 {
		return nil, nil // another one of this worker was first
	}
	msgs, err := w.puller.Pull(ctx, wire.JobStream(w.Pool), s.Consumer(), r)
	for _, m := range msgs {
		w.held.add(m)
	}
	w.limits.began(s, r.Messages, msgs)
	w.done.track(s, msgs)
	return msgs, w.learned(s, r, before, len(msgs), err)
}

// learned notes what asking a source has shown; before is what was heard of it by then.
func (w *Worker) learned(s wire.Source, r pull.Request, before uint64, got int, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.sources[s]
	// removed by an operator, or its leader is being elected: made again when next asked
	if errors.Is(err, pull.ErrNoConsumer) {
		w.c.Queue.Forget(s)
		st.known, err = false, nil
	}
	if got > 0 {
		err = nil // what went wrong will go wrong again
	}
	// A batch may be bounded by its bytes: then there may be more.
	if bounded := r.MaxBytes > 0 && got > 0; got < r.Messages && !bounded && st.news == before {
		st.ready = false
		if since := time.Since(st.at); since < lastEcho {
			time.AfterFunc(max(since, firstEcho), func() { w.note(s, false); w.poke() })
		}
	}
	return err
}

// stand notes that a batch begins, or ends, to have its requests stand at a source: whoever else
// asked there would take from it.
func (w *Worker) stand(s wire.Source, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sources[s].stand += n
	if n < 0 {
		w.poke()
	}
}

// insist is repeat that waits for room as long as the server says that it has none and the worker
// goes on: a job whose result is not stored begins anew, and each time counts.
func (w *Worker) insist(ctx context.Context, what string, size int, fn func(ctx context.Context) error) error {
	for {
		err := w.c.RetryIdempotent(ctx, what, size, fn)
		if !natsconn.IsNoSpace(err) || !errors.Is(err, jobs.ErrUnavailable) {
			return err
		}
		select {
		case <-w.ending:
			return err
		default:
		}
		w.Logger.Warn("the NATS server has no room; trying again", "what", what, "error", err)
	}
}
