// Package state keeps the neural state of a shard and applies the entries of its log.
package state

import (
	"context"

	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// population is the agents of one shard on a device: state where groups are addressed, simulation where agents are. One
// goroutine uses it. What it answers is a function of the entries that it was given.
type State interface {
	Info() Info
	Memory() *pages.Memory
	// apply brings an entry into the pages, marks those that it changes, and returns its answer. An error that is a *jobs.Error
	// refuses the entry, which has changed nothing; after any other the pages are undefined. ctx may end it in the middle.
	Apply(ctx context.Context, e jobs.Entry) (Answer, error)
	// decode reads and checks the data of an entry of observations. It depends on nothing that entries change and may be called from any
	// goroutine. An error is a *jobs.Error that refuses the entry.
	Decode(data []byte) (Observations, error)
	// merge begins to gather observations for a batch. One goroutine at a time merges, which need not be the one that uses the population, and
	// what was begun before is then complete.
	NewBatch() Batch
	// restored is called when pages have been opened or written that are not those of reset.
	Restored(ctx context.Context) error
	// reset makes all pages zeros, the state of agents that have seen nothing.
	Reset(ctx context.Context) error
	// reduce has entries go in smaller launches, or ends that. The answers are the same bits.
	Reduce(on bool)
	// close releases everything on the device.
	Close() error
}

// about says what of a population does not change.
type Info struct {
	Cell       string // its name
	Agents     int64
	Checkpoint swarm.Checkpoint
	// meaning is a digest of all that the bytes of the pages depend on beside the log: a page of another meaning is not read.
	// The text of the kernels stands for what the cell computes, in both languages.
	Digest string
}
