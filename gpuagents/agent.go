// Package gpuagents runs swarms on devices: it takes leases on shards, reads their logs of observations in order, steps
// the agents, and writes the decisions. It does no I/O of its own: devices and queue are handed in.
package gpuagents

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/internal/telemetry"
	"github.com/exoswarm/exoswarm/jobs"
)

// Agent serves every swarm that it can get a lease for. It starts with Start and ends with Drain or Stop.
type Agent struct {
	o       Options
	counts  Metrics
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	closed  chan struct{}

	server *shard.Server
	fleet  *pool.Pool
	wakes  jobs.Wakes
	open   *shard.OpenShards

	violations violations
	freed      freed

	mu      sync.Mutex
	queued  *sync.Cond          // something is in queue, or the agent ends
	swarms  map[string]*serving // by id
	posts   map[string]*post    // by key
	queue   []*post             // for the starters
	session jobs.Session        // nil: there is none now
	tries   uint64              // calls of retry
	leases  int                 // held, or being acquired
	resting int64               // bytes of all rests
	refused bool                // a shard was left to others since the last retry
	told    time.Time           // when that was logged
}

// Start runs an agent. The error says what is wrong with the options; nothing runs then.
func Start(o Options) (*Agent, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.ensureDefaults()
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &Agent{
		o: o, counts: o.Metrics.parts(), cancel: cancel, closed: make(chan struct{}), fleet: pool.New(o.pool()),
		wakes: o.Queue.OpenWakes(), open: shard.NewOpenShards(o.OpenShards), swarms: map[string]*serving{}, posts: map[string]*post{}, freed: make(freed, 1),
	}
	a.queued = sync.NewCond(&a.mu)
	a.server = shard.NewServer(shard.Options{
		Name: o.Name, Queue: o.Queue, Checkpoints: o.Checkpoints, Snapshots: o.Snapshots, ResidencyCheck: o.ResidencyCheck,
		BatchLatency: o.BatchLatency, CustomCells: o.CustomCells, Metrics: a.counts.shard, PageMetrics: a.counts.pages,
		Tracer: telemetry.Tracer(o.Tracing, "github.com/exoswarm/exoswarm/gpuagents"),
		Freed:  a.freed.signal, Violated: a.violations.set, Keeps: a.rests,
	})
	a.running.Go(func() { a.attend(ctx) })
	a.running.Go(func() { a.watch(ctx) })
	a.running.Go(func() { a.freed.returnMemory(ctx) })
	a.running.Go(func() { a.listen(ctx) })
	a.running.Go(func() { newBalancer(a).run(ctx) })
	for range starters {
		a.running.Go(func() { a.start(ctx) })
	}
	a.running.Go(func() { a.fleet.Monitor(ctx) })
	go func() {
		<-ctx.Done()
		a.mu.Lock()
		a.queued.Broadcast()
		a.mu.Unlock()
		a.running.Wait()
		a.wakes.Close()
		a.endSession()
		a.fleet.Close()
		close(a.closed)
	}()
	return a, nil
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

// Shards is how many shards the agent serves now, parked ones too.
func (a *Agent) Shards() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.posts {
		if p.state == postServed || p.state == postParked {
			n++
		}
	}
	return n
}

// Parked is how many of them are parked.
func (a *Agent) Parked() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.posts {
		if p.state == postParked {
			n++
		}
	}
	return n
}

// Full reports whether the agent takes no more shards.
func (a *Agent) Full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leases >= a.o.MaxShards || a.resting >= a.o.ParkedMemory
}

// Room returns how many bytes of memory the agent has for the pages of one shard, which is on one device, and of all, whether they are in use or
// not. It returns nil where the agent has no budget.
func (a *Agent) Room() *jobs.Room {
	shard, all, known := a.fleet.Capacity()
	if !known {
		return nil
	}
	free := a.fleet.Free()
	return &jobs.Room{Shard: shard, All: all, Free: &free}
}

// Level is how far the agent's work is cut down because a device fails: the highest of its devices.
func (a *Agent) Level() pool.Level { return slices.Max(a.Levels()) }

// Levels are those of the devices, in the order of Devices.
func (a *Agent) Levels() []pool.Level {
	return a.fleet.Levels()
}

// Devices are those that the agent runs on, or comes back to from the host: the first of its options, then the others. Any may be closed at
// any time, and then answers so.
func (a *Agent) Devices() []device.Device {
	return a.fleet.Devices()
}

// Device is the first of them.
func (a *Agent) Device() device.Device { return a.fleet.Devices()[0] }

// Health says with an ErrEmergency why the agent takes no work: every device is in an emergency, and is named.
func (a *Agent) Health() error { return a.fleet.Health() }

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
