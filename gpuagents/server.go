package gpuagents

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/jobs"
)

// logs are the logs of shards.
type logs interface {
	// Log addresses a log of a shard. swarm is the key of its swarm, see jobs.Swarm.Key.
	Log(swarm string, shard int, d jobs.Direction) jobs.Log
}

// place is where a shard is served: a device with memory for pages.
type place interface {
	// Device returns the device, which stays open as long as the shard is served.
	Device() device.Device
	// Budget returns the memory for pages on the device; nil: what the device has.
	Budget() *pages.Budget
	// OnHost reports whether the host device serves the shard because another device fails.
	OnHost() bool
	// Reduced reports whether batches are cut because the device fails now and then. It may change.
	Reduced() bool
	// Succeeded counts an operation that has ended well, and halved batches that the device had no
	// memory for.
	Succeeded(halved int)
}

// serverOptions configure a server.
type serverOptions struct {
	// Name is the name of the agent in refusals.
	Name string
	// Queue has the logs of the shards.
	Queue logs
	// Checkpoints keeps the state of shards across processes; nil: none does.
	Checkpoints Checkpoints
	// Snapshots keeps the snapshots of swarms; nil: entries and records that name one are refused.
	Snapshots snapshot.Store
	// ResidencyCheck is the time between two comparisons of the claims of a shard with its device.
	ResidencyCheck time.Duration
	// BatchLatency bounds the time of a batch of several entries on the device; 0 means 100 ms.
	BatchLatency time.Duration
	// CustomCells allows swarms whose step their user has written.
	CustomCells bool
	// Metrics and PageMetrics count what shards do and where their pages are; nil for none.
	Metrics     *shardMetrics
	PageMetrics *pages.Metrics
	// Tracer makes a span of every entry that is applied; nil for none.
	Tracer trace.Tracer

	// Freed is called after a shard has released much memory.
	Freed func()
	// Violated is called with an ErrResidency of a shard.
	Violated func(id ShardID, err error)
	// Keeps reports whether the agent has so many bytes for the state of a parked shard.
	Keeps func(bytes int64) bool
}

// server serves the shards of an agent, each in a goroutine of the caller. Its methods may be called
// from several goroutines.
type server struct {
	o        serverOptions
	stumbles stumbles
}
