package gpuagents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
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
	Others []pool.Accelerator
	// Patience is how long failures are remembered, and how slowly a device goes back to a better level.
	Patience pool.Patience
	Queue    Queue
	Logger   *slog.Logger
	// Checkpoints keeps the state of shards across processes; nil: an agent that starts replays every log from its start.
	// It belongs to this agent alone.
	Checkpoints shard.Checkpoints
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

// What an agent has unless it is told otherwise; RFC 0024 has the measurements.
const (
	// MaxShards is how many shards it takes at most.
	MaxShards = 16384
	// OpenShards is how many shards without anything to do stay open.
	OpenShards = 64
	// ParkedMemory is how many bytes the state of parked shards may take.
	ParkedMemory = 512 << 20
)

// pool returns the options of the device pool.
func (o *Options) pool() pool.Options {
	first := pool.Accelerator{Device: o.Device, Open: o.Open, PageMemory: o.PageMemory, Shared: o.Shared}
	return pool.Options{
		Devices: append([]pool.Accelerator{first}, o.Others...), OpenHost: o.OpenHost, Patience: o.Patience, Logger: o.Logger,
		Metrics: o.Metrics.parts().pool, HostPageMemory: o.HostPageMemory, PageAge: o.PageAge, HostPageAge: o.HostPageAge,
		Prefetch: o.Prefetch,
	}
}

// defaultResidencyCheck is Options.ResidencyCheck where it is 0.
const defaultResidencyCheck = 5 * time.Second

// validate says what is wrong with the options.
func (o *Options) validate() error {
	var errs []error
	missing := func(is bool, what string) {
		if is {
			errs = append(errs, fmt.Errorf("%w: no %s", ErrOptions, what))
		}
	}
	missing(o.Device == nil, "device")
	missing(o.Queue == nil, "queue")
	missing(o.Logger == nil, "logger")
	for i, other := range o.Others {
		missing(other.Device == nil, fmt.Sprintf("device in Others[%d]", i))
		if other.PageMemory < 0 {
			errs = append(errs, fmt.Errorf("%w: Others[%d].PageMemory is %d: use 0 or more", ErrOptions, i, other.PageMemory))
		}
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"PageMemory", o.PageMemory},
		{"HostPageMemory", o.HostPageMemory},
		{"ParkedMemory", o.ParkedMemory},
		{"MaxShards", int64(o.MaxShards)},
		{"OpenShards", int64(o.OpenShards)},
		{"PageAge", int64(o.PageAge)},
		{"HostPageAge", int64(o.HostPageAge)},
		{"ResidencyCheck", int64(o.ResidencyCheck)},
		{"BatchLatency", int64(o.BatchLatency)},
		{"LeaseTTL", int64(o.LeaseTTL)},
		{"Rebalance", int64(o.Rebalance)},
	} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("%w: %s is %d: use 0 or more", ErrOptions, n.name, n.value))
		}
	}
	return errors.Join(errs...)
}

// ensureDefaults sets the options that are 0.
func (o *Options) ensureDefaults() {
	o.LeaseTTL = cmp.Or(o.LeaseTTL, 10*time.Second)
	o.ResidencyCheck = cmp.Or(o.ResidencyCheck, defaultResidencyCheck)
	o.MaxShards = cmp.Or(o.MaxShards, MaxShards)
	o.OpenShards = cmp.Or(o.OpenShards, OpenShards)
	o.ParkedMemory = cmp.Or(o.ParkedMemory, ParkedMemory)
}
