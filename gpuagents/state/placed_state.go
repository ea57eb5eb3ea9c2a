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
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/computation"
	"github.com/exoswarm/exoswarm/gpuagents/graph"
	"github.com/exoswarm/exoswarm/gpuagents/grid"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/timeline"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// placedState is the State of a swarm whose agents have neighbours: they are on a grid or on a graph,
// and have one shard. An observation sets the state of an agent and steps nothing. The goroutine that
// serves the shard calls Apply, and another one may decode and fill batches meanwhile.
type placedState struct {
	place    place
	texts    placeTexts
	digest   string
	groups   GroupRange
	every    swarm.Checkpoint
	reduced  bool                  // few steps are put into the stream at a time
	computer *computation.Computer // nil before the first question that needs it
}

// place is agents on a grid or a graph, each of which has a state that is a byte.
type place interface {
	Len() int64
	Layout() kernels.Layout
	Memory() *pages.Memory
	Device() device.Device
	// Set and Get write and read the states of agents.
	Set(ctx context.Context, ids []uint32, states []byte) error
	Get(ctx context.Context, ids []uint32) ([]byte, error)
	// Tick makes n steps and returns how many agents are in each state after the last one.
	Tick(ctx, wait context.Context, n, most int) (tally []uint64, err error)
	Reset(ctx context.Context) error
	Close() error
}

// placeTexts are what answers say about a place.
type placeTexts struct {
	cell, on string // the cell, and where its agents are
	states   string // what an observation may set
	most     byte   // the largest state
	expr     string // an expression that users may ask instead
}

// newPlacedState allocates the place of a swarm. Its memory is not open: the caller opens it with a
// store, or resets it. The caller closes the state.
func newPlacedState(dev device.Device, b *pages.Budget, spec *swarm.Spec, p GroupRange) (*placedState, error) {
	cell, err := spec.Address()
	if err != nil {
		return nil, err
	}
	s := &placedState{groups: p, every: spec.Checkpoint}
	if spec.OnGraph() {
		return s, s.openGraph(dev, b, spec, cell)
	}
	return s, s.openGrid(dev, b, spec, cell)
}

// openGrid makes the place a grid.
func (s *placedState) openGrid(dev device.Device, b *pages.Budget, spec *swarm.Spec, cell *cells.Addressed) error {
	n := spec.Neighbours
	plane, err := grid.New(dev, b, cell, grid.Options{
		Width: n.Width, Height: n.Height, Periodic: n.Periodic, PageBytes: int(spec.PageSize),
	})
	if err != nil {
		return err
	}
	s.place = plane
	s.texts = placeTexts{cells.LifeName, "a grid", "0 for dead or 1 for alive", 1, "(alive)"}
	s.digest = digestOf(fmt.Sprintf("life on a grid, %v\n%+v", n, plane.Layout()), plane.Kernel())
	return nil
}

// openGraph makes the place a graph.
func (s *placedState) openGraph(dev device.Device, b *pages.Budget, spec *swarm.Spec, cell *cells.Addressed) error {
	n := spec.Neighbours
	rows, err := spec.Rows()
	if err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "swarm spec: %v", err)
	}
	links := graph.Links{Rows: rows, Degree: n.Random.Degree, Rewire: 1, Seed: n.Random.Seed}
	if n.Ring != (swarm.Ring{}) {
		links = graph.Links{Degree: 2 * n.Ring.Reach, Rewire: n.Ring.Rewire, Seed: n.Ring.Seed}
	}
	network, err := graph.New(dev, b, cell, graph.Options{
		Agents: spec.Agents, Links: links, Seed: spec.Seed, PageBytes: int(spec.PageSize),
	})
	if room := (*graph.RoomError)(nil); errors.As(err, &room) {
		return jobs.Errorf(jobs.CodeDevice, "%v", room)
	}
	if err != nil {
		return err
	}
	s.place = network
	s.texts = placeTexts{
		cells.SIRName, "a graph", "0 for susceptible, 1 for infected or 2 for recovered", 2, "(state == 1)",
	}
	s.digest = digestOf(fmt.Sprintf("sir on a graph, %v, %d agents, infection %v, recovery %v, seed %d\n%+v", n,
		spec.Agents, cell.Value("infection"), cell.Value("recovery"), spec.Seed, network.Layout()), network.Kernels()...)
	return nil
}

// digestOf returns the digest of a description and the texts of kernels.
func digestOf(what string, names ...string) string {
	h := sha256.New()
	fmt.Fprintln(h, what)
	for _, name := range names {
		src, _ := kernels.Lookup(name)
		fmt.Fprintln(h, src.Code)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Info implements State. The digest covers everything that decides the meaning of a page: the cell,
// its kernels, the layout and the neighbours.
func (s *placedState) Info() Info {
	return Info{Cell: s.texts.cell, Agents: s.place.Len(), Stepped: 1, Checkpoint: s.every, Digest: s.digest}
}

// Memory implements State.
func (s *placedState) Memory() *pages.Memory { return s.place.Memory() }

// Reset implements State.
func (s *placedState) Reset(ctx context.Context) error { return s.place.Reset(ctx) }

// Restored implements State. What is derived from the pages, a tick derives anew.
func (s *placedState) Restored(context.Context) error { return nil }

// Trace implements State. Its batches have no stages.
func (s *placedState) Trace(*timeline.Track) {}

// Reduce implements State.
func (s *placedState) Reduce(on bool) { s.reduced = on }

// Close implements State. The memory of the place is closed with it.
func (s *placedState) Close() error { return errors.Join(s.computer.Close(), s.place.Close()) }

// Apply implements State. It completes observations after the end of ctx, but not ticks: after an
// interrupted tick the caller discards the pages.
func (s *placedState) Apply(ctx context.Context, e swarms.Entry) (Answer, error) {
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
			jobs.CodeInvalid, "vote: agents on %s do not vote: exoswarm swarm tick counts those in each state, and so "+
				"does swarm compute, as in sum%s", s.texts.on, s.texts.expr,
		)
	case swarms.EntryFuse:
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "fuse: agents on %s have no embeddings: ask swarm compute, as in mean%s by group",
			s.texts.on, s.texts.expr,
		)
	}
	return Answer{}, unknownKind(e)
}

// Decode implements State. An observation that does not fit the swarm refuses the entry.
func (s *placedState) Decode(data []byte) (Observations, error) {
	o, err := batch.DecodeAgentObservations(data)
	if err == nil {
		err = s.check(o)
	}
	return Observations{Agents: o}, err
}

// check returns a *jobs.Error for observations that do not fit the swarm: too many, of an agent that
// is not there, or of a state that no agent has. Nothing is applied then.
func (s *placedState) check(o *batch.AgentObservations) error {
	switch {
	case len(o.Agent) > swarms.MaxAddressed:
		return jobs.Errorf(
			jobs.CodeInvalid, "%d observations: send at most %d at a time", len(o.Agent), swarms.MaxAddressed,
		)
	case o.Width != 1:
		return jobs.Errorf(jobs.CodeInvalid, "observations have %d features, the swarm takes 1", o.Width)
	}
	if bad, err := s.groups.owns(o.Agent, s.place.Layout().Agents, "agent"); err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "observation %d is for agent %v", bad, err)
	}
	for i, f := range o.Features {
		if !(f >= 0 && f <= float32(s.texts.most)) || f != float32(byte(f)) { // a NaN is none
			return jobs.Errorf(jobs.CodeInvalid, "observation %d: agent %d has the state %v: use %s", i, o.Agent[i], f,
				s.texts.states)
		}
	}
	return nil
}

// Steps that are put into the stream before the end of a context is looked at: a drain waits
// for so many.
const (
	placedSteps   = 64
	placedReduced = 1
)

// tick answers an entry that makes steps.
func (s *placedState) tick(ctx context.Context, data []byte) (Answer, error) {
	t, err := swarms.DecodeTick(data)
	if err != nil {
		return Answer{}, err
	}
	steps := placedSteps
	if s.reduced {
		steps = placedReduced
	}
	tally, err := s.place.Tick(ctx, context.WithoutCancel(ctx), t.Count, steps)
	if err != nil { // after the end of ctx the pages are between two positions, and are discarded
		return Answer{}, err
	}
	n := uint64(s.place.Len())
	done := swarms.Ticked{
		Version: jobs.Version, Stepped: uint64(t.Count) * n, Tally: tally,
		Decided: make([]uint64, len(tally)), Undecided: uint64(s.groups.Groups),
	}
	data, err = json.Marshal(done)
	return Answer{Kind: swarms.EntryTicked, Data: data, Steps: int64(done.Stepped), Ticked: &done}, err
}

// query answers the states of agents, in the order of the question.
func (s *placedState) query(ctx context.Context, data []byte) (Answer, error) {
	q, err := swarms.DecodeQuery(data)
	switch {
	case err != nil:
		return Answer{}, err
	case q.Outcome || len(q.Groups) > 0:
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid,
			"query: groups of %s do not vote: name agents, or ask swarm compute, as in sum%s by group",
			s.texts.on, s.texts.expr,
		)
	}
	if most := swarms.MaxState / (4 + 1 + 4); len(q.Agents) > most {
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "query: %d agents: ask for at most %d of this swarm at a time", len(q.Agents), most,
		)
	}
	if _, err := s.groups.owns(q.Agents, s.place.Layout().Agents, "agent"); err != nil {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "query: agent %v", err)
	}
	states, err := s.place.Get(ctx, q.Agents)
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

// compute answers folds of expressions over the agents. It changes nothing.
func (s *placedState) compute(ctx context.Context, data []byte) (Answer, error) {
	if s.computer == nil {
		layout := s.place.Layout()
		s.computer = computation.New(computation.Shard{
			Device: s.place.Device(), Memory: s.place.Memory(), Layout: layout, Vars: raster.Vars(layout),
			First: s.groups.First, Groups: s.groups.Groups, All: s.groups.All,
		})
	}
	return computed(ctx, s.computer, data)
}

// placedBatch is a Batch of observations of agents that have neighbours.
type placedBatch struct {
	s       *placedState
	entries []*batch.AgentObservations // in the order of the log
	ids     []uint32
	states  []byte
}

// NewBatch implements State.
func (s *placedState) NewBatch() Batch { return &placedBatch{s: s} }

// Add implements Batch.
func (m *placedBatch) Add(o Observations) {
	m.entries = append(m.entries, o.Agents)
	m.ids = append(m.ids, o.Agents.Agent...)
	for _, f := range o.Agents.Features {
		m.states = append(m.states, byte(f))
	}
}

// Observe implements Batch. The vote of an agent is the state that it was given, and groups decide
// nothing.
func (m *placedBatch) Observe(ctx context.Context) (answers []Answer, err error) {
	if err := m.s.place.Set(ctx, m.ids, m.states); err != nil {
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
