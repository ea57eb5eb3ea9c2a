// Package gpuagents runs swarms on devices: it takes leases on shards, reads their logs of observations in order, steps
// the agents, and writes the decisions. It does no I/O of its own: devices and queue are handed in.
package gpuagents

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/telemetry"
	"github.com/exoswarm/exoswarm/jobs"
)

// Queue is what an agent needs of the queue.
type Queue interface {
	// WatchSwarms calls fn for every swarm there is and every change, one call at a time, until ctx ends.
	WatchSwarms(ctx context.Context, fn func(jobs.SwarmChange)) error
	// Acquire takes a lease or fails with jobs.ErrHeld.
	Acquire(ctx context.Context, key, holder string, ttl time.Duration, log *slog.Logger) (jobs.Lease, error)
	// Log addresses a log of a shard. swarm is the key of its swarm, see jobs.Swarm.Key.
	Log(swarm string, shard int, d jobs.Direction) jobs.Log
}

// Options configure an agent.
type Options struct {
	// Name identifies the agent in leases and logs.
	Name string
	// Device runs the swarms. It belongs to the caller, who closes it after the agent has ended.
	Device device.Device
	// Open opens the device anew when it has broken; what it returns is the agent's, who closes it. nil: Device is used again, which only
	// helps where it mends itself.
	Open func(ctx context.Context) (device.Device, error)
	// OpenHost opens a device that serves the shards while the other fails: the host device. It is the agent's, who closes it. nil: there
	// is none, and shards stay on the device.
	OpenHost func(ctx context.Context) (device.Device, error)
	// Others are further devices, whose levels, budgets and failures are their own: Device, Open and PageMemory are those of the first. A shard
	// goes to the one with the most room left for its pages; see docs/operations.md. What the agent has beside that, it has once.
	Others []Accelerator
	// Patience is how long failures are remembered, and how slowly a device goes back to a better level.
	Patience Patience
	Queue    Queue
	Logger   *slog.Logger
	// Checkpoints keeps the state of shards across processes; nil: an agent that starts replays every log from its start.
	// It belongs to this agent alone.
	Checkpoints Checkpoints
	// Snapshots is where entries and records of swarms have their snapshots; nil: those are refused. It belongs to the caller.
	Snapshots snapshot.Store
	// PageMemory is how many bytes of the device the pages of all shards may take; 0: all that they need. A shard that gets fewer than
	// it has pages keeps the others in host memory, and below that with its checkpoint. HostPageMemory bytes of it are for all devices, in equal
	// parts.
	PageMemory, HostPageMemory int64
	// Metrics counts what the agent does; nil for none.
	Metrics *Metrics
	// Tracing makes a span of every batch that is applied, below that of whoever appended it; nil for none.
	Tracing trace.TracerProvider
	// CustomCells allows swarms whose step their user has written, which runs with all rights of the process.
	CustomCells bool
	// BatchLatency is how long a batch of several entries may take on the device; longer ones are cut. 0 means 100 ms.
	BatchLatency time.Duration
	// LeaseTTL is how long a dead agent's shards stay with it; 0 means 10 s.
	LeaseTTL time.Duration
}

// Accelerator is a further device of an agent.
type Accelerator struct {
	// Device belongs to the caller, who closes it after the agent has ended.
	Device device.Device
	// Open opens the device anew when it has broken; see Options.
	Open func(ctx context.Context) (device.Device, error)
	// PageMemory is how many bytes of the device the pages of all shards may take; 0: all that they need.
	PageMemory int64
}

// Agent serves every swarm that it can get a lease for. It starts with Start and ends with Drain or Stop.
type Agent struct {
	o       Options
	tracer  trace.Tracer // nil: nothing is traced
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	closed  chan struct{}

	fleet  *fleet
	shards atomic.Int32 // served now

	stumbles stumbles

	mu     sync.Mutex
	swarms map[string]*serving // by id
}

// serving is a swarm of which the agent serves shards or wants to.
type serving struct {
	record atomic.Pointer[jobs.Swarm] // as it is now
	end    context.CancelCauseFunc
	gone   bool        // by the agent's mu: it was told to end
	again  *jobs.Swarm // by the agent's mu: the next swarm of the id, which waits until all shards of this one have ended; nil: none

	mu   sync.Mutex
	next time.Time // when the next try for a lease may begin
}

// leasePace is the time between two tries of an agent for leases of one swarm. Agents that hear of a swarm together then share its shards, in
// place of the first taking all: it is several times what taking a lease needs on a server that syncs, some 3 ms, and 64 shards are
// taken in 1.6 s.
const leasePace = 25 * time.Millisecond

// turn waits until it is time for a try.
func (s *serving) turn(ctx context.Context) {
	s.mu.Lock()
	now := time.Now()
	wait := max(0, s.next.Sub(now))
	s.next = now.Add(wait + leasePace)
	s.mu.Unlock()
	pause(ctx, wait)
}

// Start runs an agent.
func Start(o Options) *Agent {
	if o.LeaseTTL == 0 {
		o.LeaseTTL = 10 * time.Second
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &Agent{o: o, tracer: telemetry.Tracer(o.Tracing, "github.com/exoswarm/exoswarm/gpuagents"), cancel: cancel, closed: make(chan struct{}), fleet: newFleet(&o), swarms: map[string]*serving{}}
	a.running.Go(func() { a.watch(ctx) })
	for _, ds := range a.fleet.all {
		a.running.Go(func() { ds.care(ctx) })
	}
	go func() {
		<-ctx.Done()
		a.running.Wait()
		a.fleet.close()
		close(a.closed)
	}()
	return a
}

// Drain takes no new swarm, finishes the batches in hand, gives the leases back, and waits for that or for ctx.
func (a *Agent) Drain(ctx context.Context) error {
	a.cancel(jobs.ErrDrain)
	select {
	case <-a.closed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop is Drain without a limit of time: a batch in hand is the most it waits for.
func (a *Agent) Stop() {
	a.cancel(jobs.ErrDrain)
	<-a.closed
}

// Shards is how many shards the agent serves now.
func (a *Agent) Shards() int { return int(a.shards.Load()) }

// Level is how far the agent's work is cut down because a device fails: the highest of its devices.
func (a *Agent) Level() Level { return slices.Max(a.Levels()) }

// Levels are those of the devices, in the order of Devices.
func (a *Agent) Levels() []Level {
	var levels []Level
	for _, ds := range a.fleet.all {
		levels = append(levels, ds.level())
	}
	return levels
}

// Devices are those that the agent runs on, or comes back to from the host: the first of its options, then the others. Any may be closed at
// any time, and then answers so.
func (a *Agent) Devices() []device.Device {
	var now []device.Device
	for _, ds := range a.fleet.all {
		now = append(now, ds.current())
	}
	return now
}

// Device is the first of them.
func (a *Agent) Device() device.Device { return a.fleet.all[0].current() }

// Health says with an ErrEmergency why the agent takes no work: every device is in an emergency, and is named.
func (a *Agent) Health() error { return a.fleet.health() }

// Closed is closed when the agent has ended.
func (a *Agent) Closed() <-chan struct{} { return a.closed }

// watch follows the records of the swarms, and asks again when the queue was away.
func (a *Agent) watch(ctx context.Context) {
	a.sweepCheckpoints(ctx) // before the first shard opens its own
	for ctx.Err() == nil {
		err := a.o.Queue.WatchSwarms(ctx, func(c jobs.SwarmChange) { a.change(ctx, c) })
		if ctx.Err() != nil {
			return
		}
		a.o.Logger.Warn("watching swarms failed, trying again", "error", err)
		pause(ctx, time.Second)
	}
}

func (a *Agent) change(ctx context.Context, c jobs.SwarmChange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, is := a.swarms[c.ID]
	switch {
	case c.Err != nil:
		a.o.Logger.Error("swarm ignored", "swarm", c.ID, "error", c.Err)
	case c.Gone && is:
		known.gone, known.again = true, nil
		known.end(jobs.ErrNotFound)
	case c.Gone:
	case is && known.gone: // one swarm of an id at a time: their log lines and metrics share its name
		known.again = &c.Swarm
	case is && !known.record.Load().Same(c.Swarm): // the end of the first was not seen, as when the queue was away
		known.gone, known.again = true, &c.Swarm
		known.end(jobs.ErrNotFound)
	case is: // for the next time that the shard starts
		known.record.Store(&c.Swarm)
	default:
		serve, cancel := context.WithCancelCause(ctx)
		known = &serving{end: cancel}
		known.record.Store(&c.Swarm)
		a.swarms[c.ID] = known
		a.running.Add(1)
		go func() {
			defer a.running.Done()
			var shards sync.WaitGroup
			for _, k := range rand.Perm(c.Swarm.ShardCount()) { // others try in another order
				shards.Go(func() { a.serve(serve, k, known) })
			}
			shards.Wait()
			cancel(nil)
			a.mu.Lock()
			delete(a.swarms, c.ID)
			again := known.again
			a.mu.Unlock()
			if again != nil && ctx.Err() == nil {
				a.change(ctx, jobs.SwarmChange{ID: c.ID, Swarm: *again})
			}
		}()
	}
}

// serve tries for the lease of a shard until the swarm or the agent ends, and works while it has it. The checkpoint
// stays until the swarm is gone: a shard whose log has ended may be asked for again by a successor.
func (a *Agent) serve(ctx context.Context, shard int, of *serving) {
	first := of.record.Load()
	id := ShardID{first.Key(), shard}
	log := a.o.Logger.With("swarm", first.ID)
	if first.ShardCount() > 1 {
		log = log.With("shard", shard)
	}
	defer func() {
		if errors.Is(context.Cause(ctx), jobs.ErrNotFound) {
			a.removeCheckpoint(id)
		}
	}()
	missing := firstMissing // how long to wait for a log that is not there
	for {
		a.fleet.ready(ctx)
		if first.ShardCount() > 1 {
			of.turn(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		lease, err := a.o.Queue.Acquire(ctx, jobs.LeaseKey(id.Swarm, shard), a.o.Name, a.o.LeaseTTL, log)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, jobs.ErrHeld) {
				log.Warn("lease not acquired, trying again", "error", err)
			}
			pause(ctx, a.o.LeaseTTL/10)
			continue
		}
		err = a.hold(ctx, lease, *of.record.Load(), shard, log)
		if rerr := lease.Release(context.WithoutCancel(ctx)); rerr != nil {
			log.Warn("lease not released", "error", rerr)
		}
		switch {
		case err == nil:
			<-ctx.Done() // nothing follows in this log
			return
		case ctx.Err() != nil:
			return
		case errors.Is(err, jobs.ErrNotFound):
			// The record is written before the logs and outlives them, so that there is no log without a record.
			if missing == firstMissing {
				log.Info("the log of the shard is not there yet, or not any more: waiting for it, or for the end of the swarm")
			}
			pause(ctx, missing)
			missing = min(2*missing, time.Second)
			continue
		case errors.Is(err, jobs.ErrFenced):
			log.Warn("shard lost to another agent", "error", err)
		case errors.Is(err, errMoved):
			log.Info("shard goes elsewhere", "level", a.Level().String())
		default:
			log.Error("shard failed, starting again", "error", err)
			pause(ctx, time.Second)
		}
		missing = firstMissing
	}
}

// firstMissing is how long an agent waits for a log before it looks again, doubled up to a second: making a log takes some 5 ms.
const firstMissing = 10 * time.Millisecond

// hold works on a shard as long as the lease and the device last.
func (a *Agent) hold(ctx context.Context, lease jobs.Lease, s jobs.Swarm, shard int, log *slog.Logger) error {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leave, took := (<-chan struct{})(nil), make(chan (<-chan struct{}), 1)
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-lease.Lost():
				cancel(jobs.ErrFenced)
				return
			case leave = <-took:
			case <-leave:
				cancel(errMoved)
				return
			case <-stop:
				return
			}
		}
	})
	defer watch.Wait()
	defer close(stop)
	own := s
	own.Groups = holdingOf(s, shard).groups // which is what its pages take
	on, err := a.fleet.take(work, own)
	if err != nil {
		return err
	}
	defer on.give()
	took <- on.until
	if err = a.work(work, on, s, shard, log); err != nil {
		on.of.failed(on.seat, err)
	}
	return err
}

// pause waits for d or for ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
