// Package gpuagents runs swarms on devices: it takes leases on shards, reads their logs of
// observations in order, steps the agents, and writes the decisions. It does no I/O of its own:
// devices and queue are handed in.
package gpuagents

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// Agent serves every swarm whose leases it gets. Start starts it, and Drain or Stop ends it. Its
// methods may be called from several goroutines.
//
// The goroutines of an agent are the ones that Start starts, and one for each shard in stateServed.
// mu guards all fields below it, and the fields of assignments and served swarms. It is never held
// during a call of the queue or of a device.
type Agent struct {
	o       Options
	metrics Metrics
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	closed  chan struct{}

	server     *shard.Server
	pool       *pool.Pool
	wakes      swarms.Wakes
	openShards *shard.OpenShards

	spans      *gpubatch.Ring
	models     *keptModels
	violations violations
	freed      freed
	refusals   atomic.Uint64 // calls of refuse
	losses     atomic.Uint64 // leases that were lost

	mu          sync.Mutex
	queued      *sync.Cond              // signals that queue has an element, or that the agent ends
	swarms      map[string]*servedSwarm // by id
	assignments map[string]*assignment  // by key
	queue       []*assignment           // for the starters
	session     swarms.Session          // nil: there is none
	retries     uint64                  // calls of retry
	leases      int                     // held, or being acquired
	parkedBytes int64                   // bytes of all parked shards
	refused     bool                    // a shard was left to others since the last retry
	warned      time.Time               // when the refusal was logged
}

// Start starts an agent, which watches the swarms of its queue at once. The error joins an
// ErrOptions for each mistake in the options; nothing runs then.
//
// The caller ends the agent with Drain or Stop, and closes the devices and the queue of the options
// after that.
func Start(o Options) (*Agent, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.ensureDefaults()
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &Agent{
		o: o, metrics: o.Metrics.parts(), cancel: cancel, closed: make(chan struct{}), pool: pool.New(o.pool()),
		wakes:       o.Queue.OpenWakes(),
		openShards:  shard.NewOpenShards(o.OpenShards),
		swarms:      map[string]*servedSwarm{},
		assignments: map[string]*assignment{},
		freed:       make(freed, 1),
		spans:       gpubatch.NewRing(),
		models:      newKeptModels(),
	}
	a.queued = sync.NewCond(&a.mu)
	a.server = shard.NewServer(shard.Options{
		Name: o.Name, Queue: o.Queue, Checkpoints: o.Checkpoints, Snapshots: o.Snapshots,
		Models:         o.Models,
		Emissions:      o.Emissions,
		Submissions:    o.Submissions,
		ResidencyCheck: o.ResidencyCheck,
		BatchLatency:   o.BatchLatency, CustomCells: o.CustomCells, Metrics: a.metrics.shard,
		PageMetrics: a.metrics.pages, Spans: a.spans,
		Tracer: tracing.Tracer(o.Tracing, "github.com/exoswarm/exoswarm/gpuagents"),
		Freed:  a.freed.signal, Violated: a.violations.set, Keeps: a.hasParkedMemory,
	})
	unfollow := a.metrics.agents.follow(a)
	a.running.Go(func() { a.keepSession(ctx) })
	a.running.Go(func() { a.watch(ctx) })
	a.running.Go(func() { a.freed.returnMemory(ctx) })
	a.running.Go(func() { a.listen(ctx) })
	a.running.Go(func() { newBalancer(a).run(ctx) })
	for range starters {
		a.running.Go(func() { a.start(ctx) })
	}
	a.running.Go(func() { a.pool.Monitor(ctx) })
	a.running.Go(func() { a.keepModels(ctx) })
	a.running.Go(func() { a.auditModels(ctx) })
	go func() {
		<-ctx.Done()
		a.mu.Lock()
		a.queued.Broadcast()
		a.mu.Unlock()
		a.running.Wait()
		a.wakes.Close()
		a.endSession()
		a.pool.Close()
		unfollow()
		close(a.closed)
	}()
	return a, nil
}

// Drain takes no new shard, completes the running batches, and gives the leases back. It waits for
// the end, or until ctx ends and then returns the cause; the agent continues to drain, and Closed
// reports its end. A second call only waits.
func (a *Agent) Drain(ctx context.Context) error {
	a.cancel(jobs.ErrDrain)
	select {
	case <-a.closed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop is Drain without a limit of time. It waits for the running batches at most.
func (a *Agent) Stop() {
	a.cancel(jobs.ErrDrain)
	<-a.closed
}

// Shards returns the number of shards that the agent serves, parked ones included.
func (a *Agent) Shards() int { return a.count(stateServed, stateParked) }

// Parked returns the number of parked shards. A parked shard has no frame on a device and no
// goroutine.
func (a *Agent) Parked() int { return a.count(stateParked) }

func (a *Agent) count(states ...assignmentState) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.assignments {
		if slices.Contains(states, p.state) {
			n++
		}
	}
	return n
}

// Full reports whether the agent takes no more shards.
func (a *Agent) Full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.full()
}

// full is Full while a.mu is held.
func (a *Agent) full() bool { return a.leases >= a.o.MaxShards || a.parkedBytes >= a.o.ParkedMemory }

// Room returns how many bytes the agent has for the pages of one shard, which is on one device, and
// of all shards, used or not. It returns nil without a budget.
func (a *Agent) Room() *jobs.Room {
	shard, all, known := a.pool.Capacity()
	if !known {
		return nil
	}
	free := a.pool.Free()
	return &jobs.Room{Shard: shard, All: all, Free: &free}
}

// Level returns the highest level of the devices.
func (a *Agent) Level() pool.Level { return slices.Max(a.Levels()) }

// Levels returns the levels of the devices, in the order of Devices.
func (a *Agent) Levels() []pool.Level { return a.pool.Levels() }

// Devices returns the devices that the agent uses, or returns to from the host: the first of its
// options, then the others. A device may be closed at any time, and then answers so.
func (a *Agent) Devices() []device.Device { return a.pool.Devices() }

// Device returns the first device.
func (a *Agent) Device() device.Device { return a.pool.Devices()[0] }

// TakeSlot takes a slot with room for bytes, for work such as a job. The work shares the device
// with the shards and must leave the device as they do. The caller releases the slot after the work
// and before the agent is drained. ErrEmergency: no device accepts work.
func (a *Agent) TakeSlot(ctx context.Context, bytes int64) (*pool.Slot, error) {
	return a.pool.Take(ctx, func() int64 { return bytes })
}

// TakeSlots takes a slot on every device that works, with room for bytes on each.
func (a *Agent) TakeSlots(ctx context.Context, bytes int64) ([]*pool.Slot, error) {
	return a.pool.TakeAll(ctx, bytes)
}

// Health returns a pool.ErrEmergency for each device if the agent accepts no work, else nil.
func (a *Agent) Health() error { return a.pool.Health() }

// Closed returns a channel that is closed when the agent has ended.
func (a *Agent) Closed() <-chan struct{} { return a.closed }

// watch follows the records of the swarms until ctx ends. After a failure of the queue it watches
// again: all swarms are then reported again, which change accepts.
func (a *Agent) watch(ctx context.Context) {
	a.sweepCheckpoints(ctx) // before the first shard opens its store
	for ctx.Err() == nil {
		err := a.o.Queue.WatchSwarms(ctx, func(c swarms.Change) { a.change(ctx, c) })
		if ctx.Err() != nil {
			return
		}
		a.o.Logger.Warn("watching swarms failed, trying again", "error", err)
		_ = retry.Sleep(ctx, time.Second)
	}
}
