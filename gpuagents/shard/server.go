// Package shard serves the shards of an agent: it replays a log, applies its entries in order and
// appends the answers.
package shard

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Logs gives access to the logs of shards.
type Logs interface {
	// Log addresses a log of a shard. swarm is the key of its swarm, see swarms.Swarm.Key.
	Log(swarm string, shard int, d swarms.Direction) swarms.Log
}

// Slot is a device with memory for pages, on which a shard is served. pool.Slot implements it.
type Slot interface {
	// Device returns the device, which stays open as long as the shard is served.
	Device() device.Device
	// Budget returns the memory for pages on the device; nil: all of the device.
	Budget() *pages.Budget
	// Weights returns the models on the device.
	Weights() *weights.Holder
	// OnHost reports whether the host device serves the shard because another device fails.
	OnHost() bool
	// Reduced reports whether batches are cut because the device fails now and then. It may change.
	Reduced() bool
	// Succeeded counts an operation that has ended well, and halved batches that the device had no
	// memory for.
	Succeeded(halved int)
}

// Options configure a Server.
type Options struct {
	// Name is the name of the agent in refusals.
	Name string
	// Queue has the logs of the shards.
	Queue Logs
	// Checkpoints keeps the state of shards across processes; nil: none does.
	Checkpoints Checkpoints
	// Snapshots keeps the snapshots of swarms; nil: entries and records that name one are refused.
	Snapshots snapshot.Store
	// Models opens the files of language models in Snapshots; nil: shards have none.
	Models snapshot.Files
	// ResidencyCheck is the time between two comparisons of the claims of a shard with its device.
	ResidencyCheck time.Duration
	// BatchLatency bounds the time of a batch of several entries on the device; 0 means 100 ms.
	BatchLatency time.Duration
	// Emissions stores the decisions that swarms emit; nil: swarms that emit are refused.
	Emissions Emissions
	// Submissions submits the jobs of rules; nil: swarms that submit jobs are refused.
	Submissions Submissions
	// CustomCells allows swarms whose step their user has written.
	CustomCells bool
	// Metrics and PageMetrics count what shards do and where their pages are; nil for none.
	Metrics     *Metrics
	PageMetrics *pages.Metrics
	// Tracer makes a span of every entry that is applied; nil for none.
	Tracer trace.Tracer

	// Spans keeps the stages of the last batches; nil: nothing does.
	Spans *gpubatch.Ring

	// Freed is called after a shard has released much memory.
	Freed func()
	// Violated is called with an ErrResidency of a shard.
	Violated func(id ID, err error)
	// Keeps reports whether the agent has room for the state of a parked shard.
	Keeps func(bytes int64) bool
}

// Server serves the shards of an agent, each in a goroutine of the caller. Its methods may be
// called from several goroutines.
type Server struct {
	o            Options
	readFailures readFailures
}

// NewServer returns a server. It starts nothing.
func NewServer(o Options) *Server { return &Server{o: o} }

// Forget forgets the failed reads of a shard whose swarm is gone.
func (a *Server) Forget(id ID) { a.readFailures.forget(id) }

// Task is a shard to serve once.
type Task struct {
	// On is where the shard is served.
	On Slot
	// Members are further devices that share its ticks; see Share.
	Members []field.Peer
	Swarm   swarms.Swarm
	Shard   int
	// From is the rest of the shard when it was parked; nil: it was not parked.
	From *Rest
	// Open is the record of the shard in OpenShards.
	Open *OpenShard
	Log  *slog.Logger
}

// Need returns the bytes that a shard needs on the device if there is room for all its pages; 0 for
// a record that cannot be read.
func Need(s swarms.Swarm) int64 {
	spec, err := swarm.FromJSON(s.Spec)
	if err != nil {
		return 0
	}
	return spec.PageBytes(s.Groups) + state.BesideBytes(spec)
}

// Share returns the maximum number of devices that make the ticks of a shard together, and the
// bytes that each additional device needs for a number of devices; 1 for a record that cannot be
// read.
func Share(s swarms.Swarm) (devices int, bytes func(devices int) int64) {
	spec, err := swarm.FromJSON(s.Spec)
	if err != nil {
		return 1, nil
	}
	return max(1, spec.Devices), state.PeerBytes(spec)
}
