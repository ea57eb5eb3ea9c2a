package gpuagents

import (
	"context"

	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// population is the agents of one shard on a device: state where groups are addressed, simulation where agents are. One
// goroutine uses it. What it answers is a function of the entries that it was given.
type population interface {
	about() about
	pages() *pages.Memory
	// apply brings an entry into the pages, marks those that it changes, and returns its answer. An error that is a *jobs.Error
	// refuses the entry, which has changed nothing; after any other the pages are undefined. ctx may end it in the middle.
	apply(ctx context.Context, e jobs.Entry) (answer, error)
	// decode reads and checks the data of an entry of observations. It depends on nothing that entries change and may be called from any
	// goroutine. An error is a *jobs.Error that refuses the entry.
	decode(data []byte) (observed, error)
	// merge begins to gather observations for a batch. One goroutine at a time merges, which need not be the one that uses the population, and
	// what was begun before is then complete.
	merge() merger
	// restored is called when pages have been opened or written that are not those of reset.
	restored(ctx context.Context) error
	// reset makes all pages zeros, the state of agents that have seen nothing.
	reset(ctx context.Context) error
	// reduce has entries go in smaller launches, or ends that. The answers are the same bits.
	reduce(on bool)
	// close releases everything on the device.
	close() error
}

// about says what of a population does not change.
type about struct {
	cell   string // its name
	agents int64
	every  swarm.Checkpoint
	// meaning is a digest of all that the bytes of the pages depend on beside the log: a page of another meaning is not read.
	// The text of the kernels stands for what the cell computes, in both languages.
	meaning string
}
