package gpuagents

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// population is the agents of one shard on a device: state where groups are addressed, simulation where agents are. One
// goroutine uses it. What it answers is a function of the entries that it was given.
type population interface {
	about() about
	pages() *memory
	// apply brings an entry into the pages, marks those that it changes, and returns its answer. An error that is a *jobs.Error
	// refuses the entry, which has changed nothing; after any other the pages are undefined. ctx may end it in the middle.
	apply(ctx context.Context, e jobs.Entry) (answer, error)
	// restored is called when pages have been written from a checkpoint, over those of reset.
	restored() error
	// reset makes all pages zeros, the state of agents that have seen nothing. An error is an ErrDevice.
	reset() error
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
	observations int // that were applied
}

// memory is the pages of a shard, which a checkpoint keeps.
type memory struct {
	arena     device.Buffer // one behind the other
	pageBytes int
	dirty     []bool // by page: changed since the last checkpoint
}

// read copies a page into buf, which has the length of one.
func (m *memory) read(page uint64, buf []byte) error {
	if err := m.arena.Read(int64(page)*int64(m.pageBytes), buf); err != nil {
		return fmt.Errorf("%w: page %d: %w", ErrDevice, page, err)
	}
	return nil
}

// write makes content what a page holds. What else follows from it, restored brings up to date.
func (m *memory) write(page uint64, content []byte) error {
	if err := m.arena.Write(int64(page)*int64(m.pageBytes), content); err != nil {
		return fmt.Errorf("%w: page %d: %w", ErrDevice, page, err)
	}
	return nil
}

// newPopulation makes the agents of a swarm. An error that is a *jobs.Error lays it to the swarm's record.
func newPopulation(dev device.Device, spec *swarm.Spec, groups int) (population, error) {
	if spec.ByAgent() {
		s, err := newSimulation(dev, spec, groups)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	s, err := newState(dev, spec, groups)
	if err != nil {
		return nil, err
	}
	return s, nil
}
