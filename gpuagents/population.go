package gpuagents

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// population is the agents of one shard on a device: state where groups are addressed, simulation where agents are. One
// goroutine uses it. What it answers is a function of the entries that it was given.
type population interface {
	about() about
	pages() *memory
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

// answer is what is written for an entry that was applied.
type answer struct {
	kind         string
	data         []byte
	body         interface{ Encode() ([]byte, error) } // what data is yet to be made of; nil: nothing
	observations int                                   // that were applied
	dropped      [len(batch.Reasons)]int               // the others, by the reason
	halved       int                                   // how often they were too many for the device's memory
}

// encoded is the answer with its data.
func (a answer) encoded() (answer, error) {
	if a.body == nil {
		return a, nil
	}
	data, err := a.body.Encode()
	a.data, a.body = data, nil
	return a, err
}

// newPopulation makes all agents of a swarm of one shard; see newShard.
func newPopulation(dev device.Device, b *budget, spec *swarm.Spec, groups int) (population, error) {
	return newShard(dev, b, spec, holding{shards: 1, groups: groups, all: groups})
}

// newShard makes the agents of a shard, with pages of what b has. An error that is a *jobs.Error lays it to the swarm's record,
// or says that there is no room for it here.
func newShard(dev device.Device, b *budget, spec *swarm.Spec, p holding) (population, error) {
	if err := p.check(spec); err != nil {
		return nil, err
	}
	if spec.Residency == swarm.ResidencyGPU {
		b = b.allOnDevice()
	}
	if spec.ByAgent() {
		s, err := newSimulation(dev, b, spec, p)
		if err != nil {
			return nil, err
		}
		s.claimed(spec)
		return s, nil
	}
	if n := spec.Groups(); n != 0 && n != p.groups {
		return nil, jobs.Errorf(jobs.CodeInvalid, "its record has %d groups, its spec %d: write the same, or leave groups out of the spec of a run", p.groups, n)
	}
	s, err := newState(dev, b, spec, p.groups)
	if err != nil {
		return nil, err
	}
	s.claimed(spec)
	return s, nil
}
