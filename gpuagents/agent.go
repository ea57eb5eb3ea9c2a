// Package gpuagents runs swarms on devices: it takes leases on shards, reads their logs of observations in order, steps
// the agents, and writes the decisions. It does no I/O of its own: devices and queue are handed in.
package gpuagents

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
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
	// OpenSession opens a session, under which leases are held.
	OpenSession(ctx context.Context, holder string, ttl time.Duration, log *slog.Logger) (jobs.Session, error)
	// OpenWakes opens what tells of entries in the logs of parked shards.
	OpenWakes() jobs.Wakes
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
	// ResidencyCheck is how often a shard of a swarm with residency: gpu compares what its pages claim with the device; 0 means 5 s.
	ResidencyCheck time.Duration
	// Snapshots is where entries and records of swarms have their snapshots; nil: those are refused. It belongs to the caller.
	Snapshots snapshot.Store
	// PageMemory is how many bytes of the device the pages of all shards may take; 0: all that they need. A shard that gets fewer than
	// it has pages keeps the others in host memory, and below that with its checkpoint. HostPageMemory bytes of it are for all devices, in equal
	// parts.
	PageMemory, HostPageMemory int64
	// Shared reports whether the memory of Device is the machine's, as that of the host device is.
	Shared bool
	// PageAge is after how long without use a page leaves the device for host memory, and HostPageAge host memory for its store; 0: when its
	// frame is needed. Both are of shards that have fewer frames on the device than pages, HostPageAge of those with Checkpoints.
	PageAge, HostPageAge time.Duration
	// Prefetch has pages in the store fetched ahead of observations that go on in order, by shards that have fewer frames on the device than pages,
	// and Checkpoints. Else no page comes before an entry asks for it.
	Prefetch bool
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
	// MaxShards is how many shards the agent takes at most; 0 means the constant MaxShards.
	MaxShards int
	// OpenShards is how many shards stay open that have nothing to do; others are parked. 0 means the constant OpenShards.
	OpenShards int
	// Rebalance is for how long the agents of a cluster must be the same before this one offers a shard to one that has two less; 0: it offers none by itself. It takes what others
	// offer in any case.
	Rebalance time.Duration
	// ParkedMemory is how many bytes the state of parked shards may take that have no checkpoint; 0 means the constant ParkedMemory. The agent takes no more shards
	// when it is used up, and those that would not fit stay open.
	ParkedMemory int64
}

// Accelerator is a further device of an agent.
type Accelerator struct {
	// Device belongs to the caller, who closes it after the agent has ended.
	Device device.Device
	// Open opens the device anew when it has broken; see Options.
	Open func(ctx context.Context) (device.Device, error)
	// PageMemory is how many bytes of the device the pages of all shards may take; 0: all that they need.
	PageMemory int64
	// Shared reports whether its memory is the machine's.
	Shared bool
}

// Agent serves every swarm that it can get a lease for. It starts with Start and ends with Drain or Stop.
type Agent struct {
	o       Options
	tracer  trace.Tracer // nil: nothing is traced
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	closed  chan struct{}

	fleet *fleet
	wakes jobs.Wakes
	open  *openings

	stumbles   stumbles
	violations violations
	freed      chan struct{} // a shard has let go of its memory

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

// Start runs an agent.
func Start(o Options) *Agent {
	if o.LeaseTTL == 0 {
		o.LeaseTTL = 10 * time.Second
	}
	if o.ResidencyCheck == 0 {
		o.ResidencyCheck = defaultResidencyCheck
	}
	if o.MaxShards == 0 {
		o.MaxShards = MaxShards
	}
	if o.OpenShards == 0 {
		o.OpenShards = OpenShards
	}
	if o.ParkedMemory == 0 {
		o.ParkedMemory = ParkedMemory
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &Agent{
		o: o, tracer: telemetry.Tracer(o.Tracing, "github.com/exoswarm/exoswarm/gpuagents"), cancel: cancel, closed: make(chan struct{}), fleet: newFleet(&o),
		wakes: o.Queue.OpenWakes(), open: newOpenings(o.OpenShards), swarms: map[string]*serving{}, posts: map[string]*post{}, freed: make(chan struct{}, 1),
	}
	a.queued = sync.NewCond(&a.mu)
	a.running.Go(func() { a.attend(ctx) })
	a.running.Go(func() { a.watch(ctx) })
	a.running.Go(func() { a.returnMemory(ctx) })
	a.running.Go(func() { a.listen(ctx) })
	a.running.Go(func() { a.balance(ctx) })
	for range starters {
		a.running.Go(func() { a.start(ctx) })
	}
	for _, ds := range a.fleet.all {
		a.running.Go(func() { ds.care(ctx) })
	}
	go func() {
		<-ctx.Done()
		a.mu.Lock()
		a.queued.Broadcast()
		a.mu.Unlock()
		a.running.Wait()
		a.wakes.Close()
		a.endSession()
		a.fleet.close()
		close(a.closed)
	}()
	return a
}

// endSession gives back all leases that are left.
func (a *Agent) endSession() {
	if a.session == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.o.LeaseTTL)
	defer cancel()
	if err := a.session.Close(ctx); err != nil {
		a.o.Logger.Warn("session not closed, its leases end with their time", "error", err)
	}
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
	shard, all, known := a.fleet.rooms()
	if !known {
		return nil
	}
	free := a.fleet.free()
	return &jobs.Room{Shard: shard, All: all, Free: &free}
}

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

// returnDelay gathers shards that end together: giving memory back to the system is a collection of the whole heap.
const returnDelay = time.Second

// returnBytes is what a shard must have had for that to be worth it.
const returnBytes = 16 << 20

// returnMemory gives the memory of shards that have ended back to the system, which the runtime alone does over minutes.
func (a *Agent) returnMemory(ctx context.Context) {
	for {
		select {
		case <-a.freed:
		case <-ctx.Done():
			return
		}
		pause(ctx, returnDelay)
		select {
		case <-a.freed:
		default:
		}
		debug.FreeOSMemory()
	}
}
