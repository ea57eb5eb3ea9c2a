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
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/graph"
	"github.com/exoswarm/exoswarm/gpuagents/grid"
	"github.com/exoswarm/exoswarm/gpuagents/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/space"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/team"
	"github.com/exoswarm/exoswarm/gpuagents/timeline"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// placedState is the State of a swarm whose agents have neighbours: they are on a grid, on a graph or in
// a box, and have one shard. An observation sets the state of an agent and steps nothing. The goroutine that
// serves the shard calls Apply, and another one may decode and fill batches meanwhile.
type placedState struct {
	place    place
	texts    placeTexts
	digest   string
	groups   GroupRange
	every    swarm.Checkpoint
	reduced  bool         // few steps are put into the stream at a time
	computer *computer    // nil before the first question that needs it
	pictures []raster.Var // that the place draws itself
}

// place is agents on a grid, on a graph or in a box, each of which has a state that is a byte, and its
// vote.
type place interface {
	Len() int64
	Layout() kernels.Layout
	Memory() *pages.Memory
	Device() device.Device
	// Set applies values to some agents, as many to each as there are columns, and Get returns their states
	// and as many values of each.
	Set(ctx context.Context, ids []uint32, values []float32) error
	Get(ctx context.Context, ids []uint32) (states []byte, values []float32, err error)
	// Tick makes n steps and returns how many agents are in each state after the last one.
	Tick(ctx, wait context.Context, n, most int) (tally []uint64, err error)
	Reset(ctx context.Context) error
	Close() error
}

// gridPlace is a grid as a place: values are states.
type gridPlace struct{ *grid.Plane }

func (p gridPlace) Set(ctx context.Context, ids []uint32, values []float32) error {
	states := make([]byte, len(values))
	for i, v := range values {
		states[i] = byte(v)
	}
	return p.Plane.Set(ctx, ids, states)
}

func (p gridPlace) Get(ctx context.Context, ids []uint32) (states []byte, values []float32, err error) {
	states, err = p.Plane.Get(ctx, ids)
	for _, s := range states {
		values = append(values, float32(s))
	}
	return states, values, err
}

// placeTexts are what a swarm takes, and what answers say about it.
type placeTexts struct {
	cell, on string  // the cell, and where its agents are
	expr     string  // an expression that users may ask instead
	columns  []input // what an observation sets
	// votes says that the value of an observation is the state of the agent. Else it has none before the
	// next tick.
	votes bool
}

// input is a value of an observation.
type input struct {
	name, use string // and the values that it may have
	valid     func(v float32) bool
}

// stateUpTo returns a function that reports whether a value is a state.
func stateUpTo(most byte) func(v float32) bool {
	return func(v float32) bool { return v >= 0 && v <= float32(most) && v == float32(byte(v)) } // no NaN is
}

// newPlacedState allocates the place of a swarm. Its memory is not open: the caller opens it with a
// store, or resets it. The caller closes the state.
func newPlacedState(dev device.Device, b *pages.Budget, spec *swarm.Spec, p GroupRange,
	members []team.Member,
) (*placedState, error) {
	cell, err := spec.Address()
	if err != nil {
		return nil, err
	}
	s := &placedState{groups: p, every: spec.Checkpoint}
	if spec.OnLattice() {
		return s, s.openLattice(dev, b, spec, cell)
	}
	if spec.OnGraph() {
		return s, s.openGraph(dev, b, spec, cell, members)
	}
	if spec.InBox() {
		return s, s.openBox(dev, b, spec, cell)
	}
	return s, s.openGrid(dev, b, spec, cell, members)
}

// openLattice makes the place a grid or a graph on which agents make a step that a user has written.
func (s *placedState) openLattice(dev device.Device, b *pages.Budget, spec *swarm.Spec, cell *cells.Addressed) error {
	step, err := lattice.Compile(dev, cell)
	if err := refusedStep(dev, err, spec.Cell.Step); err != nil {
		return err
	}
	rows, err := spec.Rows()
	if err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "swarm spec: %v", err)
	}
	field, err := lattice.New(dev, b, cell, step, spec.Lattice(rows))
	if err != nil {
		return err
	}
	on := "on a grid"
	if s.place = field; spec.OnGraph() {
		on = "on a graph"
	}
	by := cell.Vars()[cell.Voted()].Name
	s.texts = placeTexts{cell: cells.CustomName, on: on, expr: "(" + by + ")"}
	for _, at := range cell.Settable() {
		v := cell.Vars()[at]
		s.texts.columns = append(s.texts.columns, input{
			v.Name, lattice.Use(v), func(value float32) bool { return lattice.Valid(v, value) },
		})
	}
	s.digest = placeDigest(fmt.Sprintf("custom %s, %v, voting by %s\n%s", on, spec.Neighbours, by,
		cell.Cell.Source), spec, cell, field.Layout(), nil)
	return nil
}

// openGrid makes the place a grid.
func (s *placedState) openGrid(dev device.Device, b *pages.Budget, spec *swarm.Spec, cell *cells.Addressed,
	members []team.Member,
) error {
	o := spec.Grid()
	o.Members = members
	plane, err := grid.New(dev, b, cell, o)
	if err != nil {
		return err
	}
	s.place = gridPlace{plane}
	s.texts = placeTexts{
		cell: cells.LifeName, on: "on a grid", expr: "(alive)", votes: true,
		columns: []input{{"state", "0 for dead or 1 for alive", stateUpTo(1)}},
	}
	s.digest = digestOf(fmt.Sprintf("life on a grid, %v\n%+v", spec.Neighbours, plane.Layout()), plane.Kernel())
	return nil
}

// openGraph makes the place a graph.
func (s *placedState) openGraph(dev device.Device, b *pages.Budget, spec *swarm.Spec, cell *cells.Addressed,
	members []team.Member,
) error {
	rows, err := spec.Rows()
	if err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "swarm spec: %v", err)
	}
	o := spec.Network(spec.Links(rows))
	o.Members = members
	network, err := graph.New(dev, b, cell, o)
	if room := (*graph.RoomError)(nil); errors.As(err, &room) {
		return jobs.Errorf(jobs.CodeDevice, "%v", room)
	}
	if err != nil {
		return err
	}
	s.place = network
	s.pictures = []raster.Var{{Name: "infected", Draw: network.Picture}}
	if cell.Spikes() {
		s.pictures[0].Name = "spikes"
	}
	s.texts = placeTexts{
		cell: cells.SIRName, on: "on a graph", expr: "(state == 1)", votes: true,
		columns: []input{
			{"state", "0 for susceptible, 1 for infected or 2 for recovered", stateUpTo(graphset.States - 1)},
		},
	}
	if cell.Spikes() {
		s.texts = placeTexts{
			cell: cell.Cell.Name, on: "on a graph", expr: "(spike)",
			columns: []input{{
				"current", "a number from -1e6 to 1e6",
				func(v float32) bool { return v >= -graph.MaxCurrent && v <= graph.MaxCurrent }, // no NaN is
			}},
		}
	}
	s.digest = placeDigest(fmt.Sprintf("%s on a graph, %v", s.texts.cell, spec.Neighbours), spec, cell,
		network.Layout(), network.Kernels())
	return nil
}

// openBox makes the place a box.
func (s *placedState) openBox(dev device.Device, b *pages.Budget, spec *swarm.Spec, cell *cells.Addressed) error {
	n := spec.Neighbours.Space
	box, err := space.New(dev, b, cell, spec.Box())
	if room := (*space.RoomError)(nil); errors.As(err, &room) {
		return jobs.Errorf(jobs.CodeDevice, "%v", room)
	}
	if err != nil {
		return err
	}
	s.place = box
	s.pictures = []raster.Var{{Name: "places", Draw: box.Picture}}
	s.texts = placeTexts{cell: cell.Cell.Name, on: "in a box", expr: "(state)"}
	for k, name := range cells.BoxFeatures(cell.Cell.Name, len(n.Sides())) {
		use := fmt.Sprintf("a speed from %v to %v, the radius", -n.Radius, n.Radius)
		if k < len(n.Sides()) {
			use = fmt.Sprintf("0 or more, below the side, %v", n.Sides()[k])
		}
		s.texts.columns = append(s.texts.columns, input{name, use, func(v float32) bool { return box.Valid(k, v) }})
	}
	s.digest = placeDigest(fmt.Sprintf("%s in a %v", s.texts.cell, n), spec, cell, box.Layout(), box.Kernels())
	return nil
}

// placeDigest returns the digest of agents that are somewhere.
func placeDigest(what string, spec *swarm.Spec, cell *cells.Addressed, l kernels.Layout, names []string) string {
	what += fmt.Sprintf(", %d agents, seed %d", spec.Agents, spec.Seed)
	for _, p := range cell.Cell.Params {
		what += fmt.Sprintf(", %s %v", p.Name, cell.Value(p.Name))
	}
	return digestOf(fmt.Sprintf("%s\n%+v", what, l), names...)
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
	case o.Width != len(s.texts.columns):
		return jobs.Errorf(jobs.CodeInvalid, "observations have %d features, the swarm takes %d", o.Width,
			len(s.texts.columns))
	}
	if bad, err := s.groups.owns(o.Agent, s.place.Layout().Agents, "agent"); err != nil {
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

// Steps that are put into the stream before the end of a context is looked at: a drain waits
// for so many.
const (
	placedSteps   = 64
	placedReduced = 1
)

// tick answers an entry that makes steps.
func (s *placedState) tick(ctx context.Context, data []byte) (Answer, error) {
	t, err := swarms.DecodeTick(data)
	if err == nil {
		err = merging{}.check(t)
	}
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
			"query: groups %s do not vote: name agents, or ask swarm compute, as in sum%s by group",
			s.texts.on, s.texts.expr,
		)
	}
	if most := swarms.MaxState / (4 + 1 + 4*len(s.texts.columns)); len(q.Agents) > most {
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "query: %d agents: ask for at most %d of this swarm at a time", len(q.Agents), most,
		)
	}
	if _, err := s.groups.owns(q.Agents, s.place.Layout().Agents, "agent"); err != nil {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "query: agent %v", err)
	}
	states, values, err := s.place.Get(ctx, q.Agents)
	if err != nil {
		return Answer{}, err
	}
	found := &batch.AgentStates{Agent: q.Agents, Vote: states, State: values, Width: len(s.texts.columns)}
	data, err = found.Encode()
	return Answer{Kind: swarms.EntryState, Data: data}, err
}

// compute answers folds of expressions over the agents. It changes nothing.
func (s *placedState) compute(ctx context.Context, data []byte) (Answer, error) {
	if s.computer == nil {
		layout := s.place.Layout()
		s.computer = newComputer(computedShard{
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
	values  []float32
}

// NewBatch implements State.
func (s *placedState) NewBatch() Batch { return &placedBatch{s: s} }

// Add implements Batch.
func (m *placedBatch) Add(o Observations) {
	m.entries = append(m.entries, o.Agents)
	m.ids = append(m.ids, o.Agents.Agent...)
	m.values = append(m.values, o.Agents.Features...)
}

// Observe implements Batch. The vote of an agent is the state that it was given, or none, and groups
// decide nothing.
func (m *placedBatch) Observe(ctx context.Context) (answers []Answer, err error) {
	if err := m.s.place.Set(ctx, m.ids, m.values); err != nil {
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
