package state

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// neighbourState is the State of a swarm whose agents have neighbours: they are on a grid, on a
// graph or in a box, and have one shard. An observation sets the state of an agent and steps
// nothing. The goroutine that serves the shard calls Apply, and another one may decode and fill
// batches meanwhile.
type neighbourState struct {
	topology topology
	texts    texts
	digest   string
	groups   GroupRange
	every    swarm.Checkpoint
	reduced  bool         // few steps are put into the stream at a time
	computer *computer    // nil before the first question that needs it
	pictures []raster.Var // that the topology draws itself
}

// topology is a set of agents with neighbours. Each agent has a one-byte state, which is also its
// vote.
type topology interface {
	Len() int64
	Layout() kernels.Layout
	Memory() *pages.Memory
	Device() device.Device
	// Set applies values to some agents, as many to each as there are columns, and Get returns their
	// states and as many values of each.
	Set(ctx context.Context, ids []uint32, values []float32) error
	Get(ctx context.Context, ids []uint32) (states []byte, values []float32, err error)
	// Tick makes n steps and returns how many agents are in each state after the last one.
	Tick(ctx, wait context.Context, n, most int) (tally []uint64, err error)
	Reset(ctx context.Context) error
	Close() error
}

// texts are what a swarm takes, and what answers say about it.
type texts struct {
	cell, on string  // the cell, and where its agents are
	expr     string  // an expression that users may ask instead
	columns  []input // what an observation sets
	// votes says that the value of an observation is the state of the agent. Else it has none before
	// the next tick.
	votes bool
}

type input struct {
	name, use string // and the values that it may have
	valid     func(v float32) bool
}

// stateUpTo returns a function that reports whether a value is a state.
func stateUpTo(most byte) func(v float32) bool {
	return func(v float32) bool { return v >= 0 && v <= float32(most) && v == float32(byte(v)) } // no NaN is
}

// Info implements State. The digest covers everything that decides the meaning of a page: the cell,
// its kernels, the layout and the neighbours.
func (s *neighbourState) Info() Info {
	return Info{Cell: s.texts.cell, Agents: s.topology.Len(), Stepped: 1, Checkpoint: s.every, Digest: s.digest}
}

func (s *neighbourState) Memory() *pages.Memory { return s.topology.Memory() }

func (s *neighbourState) Reset(ctx context.Context) error { return s.topology.Reset(ctx) }

// Restored implements State. A tick derives all further state from the pages.
func (s *neighbourState) Restored(context.Context) error { return nil }

// Trace implements State. Its batches have no stages.
func (s *neighbourState) Trace(*gpubatch.Track) {}

func (s *neighbourState) Reduce(on bool) { s.reduced = on }

// Close implements State. The memory of the topology is closed with it.
func (s *neighbourState) Close() error { return errors.Join(s.computer.Close(), s.topology.Close()) }

// Apply implements State. It completes observations after the end of ctx, but not ticks: after an
// interrupted tick the caller discards the pages.
func (s *neighbourState) Apply(ctx context.Context, e swarms.Entry) (Answer, error) {
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
			jobs.CodeInvalid, "vote: agents %s do not vote: exoswarm swarm tick counts those in each state, and so "+
				"does swarm compute, as in sum%s", s.texts.on, s.texts.expr,
		)
	case swarms.EntryLearn:
		return Answer{}, noKnowledge("learn")
	case swarms.EntryFuse:
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "fuse: agents %s have no embeddings: ask swarm compute, as in mean%s by group",
			s.texts.on, s.texts.expr,
		)
	}
	return Answer{}, unknownKind(e)
}

// Decode implements State. An observation that does not fit the swarm refuses the entry.
func (s *neighbourState) Decode(data []byte) (Observations, error) {
	o, err := batch.DecodeAgentObservations(data)
	if err == nil {
		err = s.check(o)
	}
	return Observations{Agents: o}, err
}

// check returns a *jobs.Error for observations that do not fit the swarm: too many, of an agent
// that is not there, or of a state that no agent has. Nothing is applied then.
func (s *neighbourState) check(o *batch.AgentObservations) error {
	switch {
	case len(o.Agent) > swarms.MaxAddressed:
		return jobs.Errorf(
			jobs.CodeInvalid, "%d observations: send at most %d at a time", len(o.Agent), swarms.MaxAddressed,
		)
	case o.Width != len(s.texts.columns):
		return jobs.Errorf(jobs.CodeInvalid, "observations have %d features, the swarm takes %d", o.Width,
			len(s.texts.columns))
	}
	if bad, err := s.groups.owns(o.Agent, s.topology.Layout().Agents, "agent"); err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "observation %d is for agent %v", bad, err)
	}
	for i, f := range o.Features {
		if c := s.texts.columns[i%o.Width]; !c.valid(f) {
			return jobs.Errorf(jobs.CodeInvalid, "observation %d: agent %d has the %s %v: use %s", i/o.Width,
				o.Agent[i/o.Width], c.name, f, c.use)
		}
	}
	return nil
}

// Steps that are put into the stream before ctx is checked. A drain waits for them.
const (
	tickSteps   = 64
	tickReduced = 1
)

func (s *neighbourState) tick(ctx context.Context, data []byte) (Answer, error) {
	t, err := swarms.DecodeTick(data)
	if err == nil {
		err = merging{}.check(t)
	}
	if err != nil {
		return Answer{}, err
	}
	steps := tickSteps
	if s.reduced {
		steps = tickReduced
	}
	tally, err := s.topology.Tick(ctx, context.WithoutCancel(ctx), t.Count, steps)
	if err != nil { // after the end of ctx the pages are between two positions, and are discarded
		return Answer{}, err
	}
	n := uint64(s.topology.Len())
	done := swarms.Ticked{
		Version: jobs.Version, Stepped: uint64(t.Count) * n, Tally: tally,
		Decided: make([]uint64, len(tally)), Undecided: uint64(s.groups.Groups),
	}
	data, err = json.Marshal(done)
	return Answer{Kind: swarms.EntryTicked, Data: data, Steps: int64(done.Stepped), Ticked: &done}, err
}

// query answers the states of agents, in the order of the question.
func (s *neighbourState) query(ctx context.Context, data []byte) (Answer, error) {
	q, err := swarms.DecodeQuery(data)
	switch {
	case err != nil:
		return Answer{}, err
	case q.Outcome || len(q.Groups) > 0:
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid,
			"query: groups %s do not vote: name agents, or ask swarm compute, as in sum%s by group",
			s.texts.on, s.texts.expr,
		)
	}
	if most := swarms.MaxState / (4 + 1 + 4*len(s.texts.columns)); len(q.Agents) > most {
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "query: %d agents: ask for at most %d of this swarm at a time", len(q.Agents), most,
		)
	}
	if _, err := s.groups.owns(q.Agents, s.topology.Layout().Agents, "agent"); err != nil {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "query: agent %v", err)
	}
	states, values, err := s.topology.Get(ctx, q.Agents)
	if err != nil {
		return Answer{}, err
	}
	found := &batch.AgentStates{Agent: q.Agents, Vote: states, State: values, Width: len(s.texts.columns)}
	data, err = found.Encode()
	return Answer{Kind: swarms.EntryState, Data: data}, err
}

// compute answers folds of expressions over the agents. It changes nothing.
func (s *neighbourState) compute(ctx context.Context, data []byte) (Answer, error) {
	if s.computer == nil {
		layout := s.topology.Layout()
		s.computer = newComputer(computedShard{
			Device: s.topology.Device(), Memory: s.topology.Memory(), Layout: layout, Vars: raster.Vars(layout),
			First: s.groups.First, Groups: s.groups.Groups, All: s.groups.All,
		})
	}
	return computed(ctx, s.computer, data)
}

type neighbourBatch struct {
	s       *neighbourState
	entries []*batch.AgentObservations // in the order of the log
	ids     []uint32
	values  []float32
}

func (s *neighbourState) NewBatch() Batch { return &neighbourBatch{s: s} }

func (m *neighbourBatch) Add(o Observations) {
	m.entries = append(m.entries, o.Agents)
	m.ids = append(m.ids, o.Agents.Agent...)
	m.values = append(m.values, o.Agents.Features...)
}

// Observe implements Batch. The vote of an agent is the state that it was given, or none, and
// groups decide nothing.
func (m *neighbourBatch) Observe(ctx context.Context) (answers []Answer, err error) {
	if err := m.s.topology.Set(ctx, m.ids, m.values); err != nil {
		return nil, err
	}
	votes := make([]byte, len(m.ids))
	for i := range votes {
		if votes[i] = kernels.AgentNoVote; m.s.texts.votes { // of swarms whose agents take a value each
			votes[i] = byte(m.values[i])
		}
	}
	for _, o := range m.entries {
		n := len(o.Agent)
		decisions := make([]byte, n)
		for i := range decisions {
			decisions[i] = kernels.AgentNoVote
		}
		answers = append(answers, Answer{
			Kind: swarms.EntryDecide, Observations: n,
			Body: &batch.AgentDecisions{Agent: o.Agent, Vote: votes[:n], Decision: decisions},
		})
		votes = votes[n:]
	}
	return answers, nil
}
