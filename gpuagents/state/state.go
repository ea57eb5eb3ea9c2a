// Package state keeps the neural state of a shard and applies the entries of its log.
//
// A caller makes a State with New, opens its Memory, and then resets it or restores its pages.
// After that it applies the entries of the log in their order, one by one with Apply, or
// observations of consecutive entries together with a Batch. The answers and the pages are the same
// bits either way, on every device, wherever pages are, and however batches are cut.
//
// A *jobs.Error refuses an entry, which has changed nothing, and is its answer. A
// gpubatch.ErrDevice is a failure of the device: the pages are lost, and the caller restores them
// from a checkpoint or resets them, and applies the log again.
package state

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// State is the agents of one shard on a device. One goroutine uses it, and its owner closes it
// before the device. Its answers are a function of the entries that were applied.
type State interface {
	// Info returns what does not change.
	Info() Info
	// Memory returns the pages, which belong to the State. The caller opens and shuts them.
	Memory() *pages.Memory
	// Apply applies an entry to the pages, marks changed pages, and returns its answer. A
	// *jobs.Error refuses the entry, which has changed nothing. After any other error the pages are
	// undefined. The end of ctx may interrupt it.
	Apply(ctx context.Context, e swarms.Entry) (Answer, error)
	// Decode decodes and checks the data of an entry of observations. It does not depend on the
	// applied entries, and any goroutine may call it. The error is a *jobs.Error that refuses the
	// entry.
	Decode(data []byte) (Observations, error)
	// NewBatch begins a batch; the batch before it is complete then. One goroutine at a time fills
	// batches. It may be another goroutine than the one of the State.
	NewBatch() Batch
	// Restored is called after pages were opened or written other than by Reset. It recounts what
	// the State derives from the pages, such as the tally, and must return before the next entry.
	Restored(ctx context.Context) error
	// Reset sets all agents to their initial state: all pages are zeros.
	Reset(ctx context.Context) error
	// Reduce splits entries into smaller launches, or ends that. It changes no bit of the answers.
	// A failure of the device then costs a part of an entry.
	Reduce(on bool)
	// Trace has the stages of batches added to a track, which the goroutine of the State uses; nil:
	// none is.
	Trace(t *gpubatch.Track)
	// Close releases the memory on the device. The State and its Memory must not be used
	// afterwards. It writes no checkpoint.
	Close() error
}

// Info is what does not change in a State. The caller compares it with a checkpoint before it opens
// the pages.
type Info struct {
	Cell   string // name of the cell
	Agents int64  // of the shard
	// Stepped is the number of agents that an observation steps: all agents of its group, or one
	// agent.
	Stepped    int64
	Checkpoint swarm.Checkpoint
	// Digest is a digest of all that the content of the pages depends on beside the log. Pages with
	// another digest are not read. The text of the kernels represents the computation of the cell,
	// in both languages.
	Digest string
}

// unknownKind refuses an entry of a kind that a State does not take.
func unknownKind(e swarms.Entry) error {
	return jobs.Errorf(jobs.CodeInvalid, "kind %.100q: this swarm does not take it", e.Kind)
}

// Answer is the answer to an entry that was applied.
type Answer struct {
	Kind         string                                // of the entry in the log of answers
	Data         []byte                                // of that entry
	Body         interface{ Encode() ([]byte, error) } // encodes to Data; nil: Data is complete
	Observations int                                   // that were applied
	Steps        int64                                 // of agents, by a tick
	Dropped      [len(batch.Reasons)]int               // the others, by reason
	Ticked       *swarms.Ticked                        // what a tick has done; nil: it is the answer to another entry
	Voted        *swarms.Voted                         // the decision of a vote; nil: the entry was another one
	Halved       int                                   // how often the device had no memory for the batch
}

// Encoded returns the answer with its data. Any goroutine may call it.
func (a Answer) Encoded() (Answer, error) {
	if a.Body == nil {
		return a, nil
	}
	data, err := a.Body.Encode()
	a.Data, a.Body = data, nil
	return a, err
}

// layoutOf returns the layout of the pages of a State.
func layoutOf(p State) kernels.Layout {
	switch s := p.(type) {
	case *agentState:
		return s.agents.Layout()
	case *neighbourState:
		return s.topology.Layout()
	case *conversationState:
		return s.layout
	}
	return p.(*groupState).layout
}

// Variables returns the layout of the pages of a State, and the variables that can be drawn. The
// row of an addressed gru is two of these: its units, hidden, and its input.
func Variables(p State) (kernels.Layout, []raster.Var) {
	if k, ok := p.(*Snapshotter); ok {
		p = k.State
	}
	if s, ok := p.(*agentState); ok {
		return s.variables()
	}
	l := layoutOf(p)
	if _, ok := p.(*conversationState); ok {
		return l, conversationVariables(l)
	}
	if s, ok := p.(*neighbourState); ok {
		return l, append(raster.Vars(l), s.pictures...)
	}
	return l, raster.Vars(l)
}

// DevicesOf returns the names of the devices that make the ticks of a state; nil: one does.
func DevicesOf(s State) (names []string) {
	n, is := s.(*neighbourState)
	if !is {
		return nil
	}
	shared, is := n.topology.(interface{ Devices() []device.Device })
	if !is || len(shared.Devices()) < 2 {
		return nil
	}
	for _, d := range shared.Devices() {
		names = append(names, d.Properties().Name)
	}
	return names
}

// New makes the state of a shard on a device, with pages that take the budget b. The memory of the
// state is not open yet. The caller closes the state before the device. A *jobs.Error says what is
// wrong with the record of the swarm, or that there is no room for it here. peers are further
// devices that share ticks, for swarms with devices; see field.Peer.
func New(dev device.Device, b *pages.Budget, spec *swarm.Spec, p GroupRange, peers ...field.Peer) (State, error) {
	if err := p.check(spec); err != nil {
		return nil, err
	}
	keep := spec.Residency == swarm.ResidencyGPU
	if keep {
		b = b.AllOnDevice()
	}
	t := spec.Topology()
	s, err := libraries[t.Name].open(opening{dev, b, spec, p, peers})
	if err != nil {
		return nil, err
	}
	if keep || t.Neighbours {
		s.Memory().Claim()
	}
	return s, nil
}
