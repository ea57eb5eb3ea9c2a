package state

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/computation"
	"github.com/exoswarm/exoswarm/gpuagents/grid"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/timeline"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// gridState is the State of a swarm whose agents are on a grid, which has one shard. An observation
// sets the state of an agent and steps nothing. The goroutine that serves the shard calls Apply, and
// another one may decode and fill batches meanwhile.
type gridState struct {
	plane    *grid.Plane
	groups   GroupRange
	of       swarm.Neighbours
	every    swarm.Checkpoint
	reduced  bool                  // few generations are put into the stream at a time
	computer *computation.Computer // nil before the first question that needs it
}

// newGridState allocates the grid of a swarm. Its memory is not open: the caller opens it with a
// store, or resets it. The caller closes the state.
func newGridState(dev device.Device, b *pages.Budget, spec *swarm.Spec, p GroupRange) (*gridState, error) {
	cell, err := spec.Address()
	if err != nil {
		return nil, err
	}
	n := spec.Neighbours
	plane, err := grid.New(dev, b, cell, grid.Options{
		Width: n.Width, Height: n.Height, Periodic: n.Periodic, PageBytes: int(spec.PageSize),
	})
	if err != nil {
		return nil, err
	}
	return &gridState{plane: plane, groups: p, of: n, every: spec.Checkpoint}, nil
}

// Info implements State. The digest covers everything that decides the meaning of a page: the cell,
// its kernel, the layout and the grid.
func (s *gridState) Info() Info {
	h := sha256.New()
	src, _ := kernels.Lookup(s.plane.Kernel())
	fmt.Fprintf(h, "life on a grid, %v\n%+v\n%s\n", s.of, s.plane.Layout(), src.Code)
	return Info{
		Cell: "life", Agents: s.plane.Len(), Stepped: 1, Checkpoint: s.every, Digest: hex.EncodeToString(h.Sum(nil)),
	}
}

// Memory implements State.
func (s *gridState) Memory() *pages.Memory { return s.plane.Memory() }

// Reset implements State.
func (s *gridState) Reset(ctx context.Context) error { return s.plane.Reset(ctx) }

// Restored implements State. Nothing is derived from the pages.
func (s *gridState) Restored(context.Context) error { return nil }

// Trace implements State. Batches of a grid have no stages.
func (s *gridState) Trace(*timeline.Track) {}

// Reduce implements State.
func (s *gridState) Reduce(on bool) { s.reduced = on }

// Close implements State. The memory of the grid is closed with it.
func (s *gridState) Close() error { return errors.Join(s.computer.Close(), s.plane.Close()) }

// Apply implements State. It completes observations after the end of ctx, but not ticks: after an
// interrupted tick the caller discards the pages.
func (s *gridState) Apply(ctx context.Context, e swarms.Entry) (Answer, error) {
	switch e.Kind {
	case swarms.EntryObserve:
		return applyObservations(context.WithoutCancel(ctx), s, e)
	case swarms.EntryTick:
		return s.tick(ctx, e.Data)
	case swarms.EntryQuery:
		return s.query(context.WithoutCancel(ctx), e.Data)
	case swarms.EntryCompute:
		return s.compute(ctx, e.Data)
	case swarms.EntryVote:
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid,
			"vote: agents on a grid do not vote: exoswarm swarm tick counts "+
				"those that are alive, and swarm compute sum(alive)",
		)
	case swarms.EntryFuse:
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid,
			"fuse: agents on a grid have no embeddings: ask swarm compute, as "+
				"in mean(alive) by group",
		)
	}
	return Answer{}, unknownKind(e)
}

// Decode implements State. An observation that does not fit the swarm refuses the entry.
func (s *gridState) Decode(data []byte) (Observations, error) {
	o, err := batch.DecodeAgentObservations(data)
	if err == nil {
		err = s.check(o)
	}
	return Observations{Agents: o}, err
}

// check returns a *jobs.Error for observations that do not fit the grid: too many, of an agent that
// is not there, or of a state that no agent has. Nothing is applied then.
func (s *gridState) check(o *batch.AgentObservations) error {
	switch {
	case len(o.Agent) > swarms.MaxAddressed:
		return jobs.Errorf(
			jobs.CodeInvalid, "%d observations: send at most %d at a time", len(o.Agent), swarms.MaxAddressed,
		)
	case o.Width != 1:
		return jobs.Errorf(jobs.CodeInvalid, "observations have %d features, the swarm takes 1", o.Width)
	}
	if bad, err := s.groups.owns(o.Agent, s.plane.Layout().Agents, "agent"); err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "observation %d is for agent %v", bad, err)
	}
	for i, f := range o.Features {
		if f != 0 && f != 1 { // a NaN is neither
			return jobs.Errorf(jobs.CodeInvalid, "observation %d: agent %d has the state %v: use 0 for dead or 1 for "+
				"alive", i, o.Agent[i], f)
		}
	}
	return nil
}

// Generations that are put into the stream before the end of a context is looked at: a drain waits
// for so many.
const (
	gridSteps   = 64
	gridReduced = 1
)

// tick answers an entry that makes generations.
func (s *gridState) tick(ctx context.Context, data []byte) (Answer, error) {
	t, err := swarms.DecodeTick(data)
	if err != nil {
		return Answer{}, err
	}
	steps := gridSteps
	if s.reduced {
		steps = gridReduced
	}
	alive, err := s.plane.Tick(ctx, context.WithoutCancel(ctx), t.Count, steps)
	if err != nil { // after the end of ctx the pages are between two positions, and are discarded
		return Answer{}, err
	}
	n := uint64(s.plane.Len())
	done := swarms.Ticked{
		Version: jobs.Version, Stepped: uint64(t.Count) * n, Tally: []uint64{n - alive, alive},
		Decided: make([]uint64, 2), Undecided: uint64(s.groups.Groups),
	}
	data, err = json.Marshal(done)
	return Answer{Kind: swarms.EntryTicked, Data: data, Steps: int64(done.Stepped), Ticked: &done}, err
}

// query answers the states of agents, in the order of the question.
func (s *gridState) query(ctx context.Context, data []byte) (Answer, error) {
	q, err := swarms.DecodeQuery(data)
	switch {
	case err != nil:
		return Answer{}, err
	case q.Outcome || len(q.Groups) > 0:
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid,
			"query: groups of a grid do not vote: name agents, or ask swarm "+
				"compute, as in sum(alive) by group",
		)
	}
	if most := swarms.MaxState / (4 + 1 + 4); len(q.Agents) > most {
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "query: %d agents: ask for at most %d of this swarm at a time", len(q.Agents), most,
		)
	}
	if _, err := s.groups.owns(q.Agents, s.plane.Layout().Agents, "agent"); err != nil {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "query: agent %v", err)
	}
	states, err := s.plane.Get(ctx, q.Agents)
	if err != nil {
		return Answer{}, err
	}
	found := &batch.AgentStates{Agent: q.Agents, Vote: states, State: make([]float32, len(states)), Width: 1}
	for i, state := range states {
		found.State[i] = float32(state)
	}
	data, err = found.Encode()
	return Answer{Kind: swarms.EntryState, Data: data}, err
}

// compute answers folds of expressions over the grid. It changes nothing.
func (s *gridState) compute(ctx context.Context, data []byte) (Answer, error) {
	if s.computer == nil {
		layout := s.plane.Layout()
		s.computer = computation.New(computation.Shard{
			Device: s.plane.Device(), Memory: s.plane.Memory(), Layout: layout, Vars: raster.Vars(layout),
			First: s.groups.First, Groups: s.groups.Groups, All: s.groups.All,
		})
	}
	return computed(ctx, s.computer, data)
}

// gridBatch is a Batch of observations of agents on a grid.
type gridBatch struct {
	s       *gridState
	entries []*batch.AgentObservations // in the order of the log
	ids     []uint32
	states  []byte
}

// NewBatch implements State.
func (s *gridState) NewBatch() Batch { return &gridBatch{s: s} }

// Add implements Batch.
func (m *gridBatch) Add(o Observations) {
	m.entries = append(m.entries, o.Agents)
	m.ids = append(m.ids, o.Agents.Agent...)
	for _, f := range o.Agents.Features {
		m.states = append(m.states, byte(f))
	}
}

// Observe implements Batch. The vote of an agent is the state that it was given, and groups decide
// nothing.
func (m *gridBatch) Observe(ctx context.Context) (answers []Answer, err error) {
	if err := m.s.plane.Set(ctx, m.ids, m.states); err != nil {
		return nil, err
	}
	states := m.states
	for _, o := range m.entries {
		n := len(o.Agent)
		decisions := make([]byte, n)
		for i := range decisions {
			decisions[i] = kernels.AgentNoVote
		}
		answers = append(answers, Answer{
			Kind: swarms.EntryDecide, Observations: n,
			Body: &batch.AgentDecisions{Agent: o.Agent, Vote: states[:n], Decision: decisions},
		})
		states = states[n:]
	}
	return answers, nil
}
