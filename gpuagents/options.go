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
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Queue is what an agent needs of the queue.
type Queue interface {
	// WatchSwarms calls fn for every swarm and every change, one call at a time, until ctx ends.
	WatchSwarms(ctx context.Context, fn func(swarms.Change)) error
	// OpenSession opens a session, under which leases are held.
	OpenSession(ctx context.Context, holder string, ttl time.Duration, log *slog.Logger) (swarms.Session, error)
	// OpenWakes opens what tells of new entries in the logs of parked shards.
	OpenWakes() swarms.Wakes
	// Log addresses a log of a shard. swarm is the key of its swarm, see swarms.Swarm.Key.
	Log(swarm string, shard int, d swarms.Direction) swarms.Log
}

// Options configure an agent.
type Options struct {
	// Name identifies the agent in leases and logs.
	Name string
	// Device runs the swarms. It belongs to the caller, who closes it after the agent has ended.
	Device device.Device
	// Open opens the device again after it broke; the agent owns and closes what it returns. nil:
	// Device is used again, which only helps if it recovers by itself.
	Open func(ctx context.Context) (device.Device, error)
	// OpenHost opens a device that serves the shards while another device fails: the host device.
	// The agent owns and closes it. nil: there is none, and shards stay on their device.
	OpenHost func(ctx context.Context) (device.Device, error)
	// Others are additional devices with their own levels, budgets and failures; Device, Open,
	// PageMemory and Shared describe the first device. A shard goes to the device with the most
	// room for its pages; see docs/operations.md.
	Others []pool.Accelerator
	// Patience sets how long failures count, and how slowly a device returns to a better level.
	Patience pool.Patience
	Queue    Queue
	Logger   *slog.Logger
	// Checkpoints keeps the state of shards across processes, for this agent alone. nil: an agent
	// that starts replays every log from its start.
	Checkpoints shard.Checkpoints
	// ResidencyCheck is the time between two comparisons of the claims of a shard with residency:
	// gpu with its device; 0 means 5 s.
	ResidencyCheck time.Duration
	// Snapshots keeps the snapshots of swarms; nil: entries and records that name one are refused.
	// It belongs to the caller.
	Snapshots snapshot.Store
	// Models opens the files of language models in Snapshots; nil: the agent holds none. It belongs to
	// the caller.
	Models snapshot.Files
	// PageMemory is how many bytes of Device the pages of all shards may take; 0: all that they
	// need. A shard that gets fewer frames than it has pages keeps the others in host memory, and
	// below that with its checkpoint. HostPageMemory is how many bytes of host memory the pages may
	// take, for all devices in equal parts.
	PageMemory, HostPageMemory int64
	// Shared reports whether Device uses the memory of the machine, as the host device does.
	Shared bool
	// PageAge and HostPageAge are the times without use after which a page leaves the device for
	// host memory, and host memory for its store; 0: when its frame is needed. They apply to shards
	// with fewer frames on the device than pages; HostPageAge also requires Checkpoints.
	PageAge, HostPageAge time.Duration
	// Prefetch fetches pages from the store ahead of sequential observations, for shards with fewer
	// frames on the device than pages, and with Checkpoints.
	Prefetch bool
	// Metrics counts what the agent does; nil for none.
	Metrics *Metrics
	// Tracing makes a span of every entry that is applied, as a child of the span of its writer;
	// nil for none.
	Tracing trace.TracerProvider
	// Emissions stores the decisions that swarms emit; nil: swarms that emit are refused.
	Emissions shard.Emissions
	// Submissions submits the jobs of rules; nil: swarms that submit jobs are refused.
	Submissions shard.Submissions
	// CustomCells allows swarms with a step of their user, which runs with all rights of the
	// process.
	CustomCells bool
	// BatchLatency bounds the time of a batch of several entries on the device; longer batches are
	// cut. 0 means 100 ms.
	BatchLatency time.Duration
	// LeaseTTL is how long the shards of a lost agent stay with it; 0 means 10 s.
	LeaseTTL time.Duration
	// MaxShards is the maximum number of shards of the agent; 0 means the constant MaxShards.
	MaxShards int
	// OpenShards is how many idle shards stay open; others are parked. 0 means the constant
	// OpenShards.
	OpenShards int
	// Rebalance is how long the agents of a cluster must be the same before this one offers a shard
	// to an agent with two less; 0: it offers none. It accepts offers in any case.
	Rebalance time.Duration
	// ParkedMemory is how many bytes the state of parked shards without checkpoints may take; 0
	// means the constant ParkedMemory. An agent without memory left takes no more shards, and
	// shards that do not fit stay open.
	ParkedMemory int64
}

// The defaults; RFC 0024 has the measurements.
const (
	// MaxShards is the default of Options.MaxShards.
	MaxShards = 16384
	// OpenShards is the default of Options.OpenShards.
	OpenShards = 64
	// ParkedMemory is the default of Options.ParkedMemory, in bytes.
	ParkedMemory = 512 << 20
)

func (o *Options) pool() pool.Options {
	first := pool.Accelerator{Device: o.Device, Open: o.Open, PageMemory: o.PageMemory, Shared: o.Shared}
	return pool.Options{
		Devices: append([]pool.Accelerator{first}, o.Others...), OpenHost: o.OpenHost, Patience: o.Patience,
		Logger: o.Logger, Metrics: o.Metrics.parts().pool, HostPageMemory: o.HostPageMemory, PageAge: o.PageAge,
		HostPageAge: o.HostPageAge, Prefetch: o.Prefetch,
	}
}

const defaultResidencyCheck = 5 * time.Second

// validate joins an ErrOptions for each mistake.
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
			errs = append(errs, fmt.Errorf("%w: Others[%d].PageMemory is %d: use 0 or more", ErrOptions, i,
				other.PageMemory))
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

func (o *Options) ensureDefaults() {
	o.LeaseTTL = cmp.Or(o.LeaseTTL, 10*time.Second)
	o.ResidencyCheck = cmp.Or(o.ResidencyCheck, defaultResidencyCheck)
	o.MaxShards = cmp.Or(o.MaxShards, MaxShards)
	o.OpenShards = cmp.Or(o.OpenShards, OpenShards)
	o.ParkedMemory = cmp.Or(o.ParkedMemory, ParkedMemory)
}
