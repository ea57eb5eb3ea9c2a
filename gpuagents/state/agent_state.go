package state

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// agentState is the State of a swarm whose agents are addressed, or of one shard of such a swarm.
// Entries and answers have the ids of the swarm; the agents below it have ids from 0 on. The
// goroutine that serves the shard calls Apply, and another one may decode and fill batches
// meanwhile.
type agentState struct {
	memory   *pages.Memory    // the step of agents
	agents   *agents.Agents   // of the shard, with ids from 0 on
	groups   GroupRange       // of the shard
	nodes    GroupRange       // likewise, of knowledge nodes in place of groups
	merge    merging          // of knowledge nodes of several shards; zero: there are none
	seed     uint64           // of the weights and of leaders
	model    *swarms.ModelRef // whose weights the agents begin with; nil: random ones
	weights  *model.Weights   // that other shards share while they are in use; nil: random ones
	every    swarm.Checkpoint
	splitter gpubatch.Splitter

	hear   hearing // inputs that all agents hear; empty: none
	rounds *Rounds // with the outcome that is heard; nil: there is none

	computer *computer        // nil before the first question that needs it
	ranking  *agents.Ranking  // of the goroutine that adds to batches; nil before it needs one
	surveyor *agents.Surveyor // likewise
}

// newAgentState allocates the agents of a shard. Their memory is not open: the caller opens it with
// a store, or resets it. The caller closes the state.
func newAgentState(dev device.Device, b *pages.Budget, spec *swarm.Spec, p GroupRange) (*agentState, error) {
	cell, err := spec.Address()
	if err != nil {
		return nil, err
	}
	n := int64(p.Groups) * int64(spec.AgentsPerGroup)
	o := agents.Options{Seed: spec.Seed, PageBytes: int(spec.PageSize)}
	a, err := agents.NewShard(dev, b, cell, n, p.First, p.All, o)
	if err != nil {
		return nil, err
	}
	nodes := p
	if cell.SharedNodes() > 0 {
		nodes.All = cell.SharedNodes()
		nodes.First, nodes.Groups = a.KnowledgeNodes()
	}
	if cell.NodesBy() != kernels.AgentByGroup { // a shard has all nodes
		nodes = allOf(cell.SharedNodes())
	}
	return &agentState{
		memory: a.Memory(), agents: a, groups: p, nodes: nodes, seed: spec.Seed, every: spec.Checkpoint,
		model: spec.Model(),
		hear:  spec.Hear, merge: mergingOf(spec, p),
	}, nil
}

// Info implements State. The digest covers everything that decides the meaning of a page: the cell,
// its kernels, parameters and weights, the layout, and the groups of the shard.
func (s *agentState) Info() Info {
	a := s.agents
	h := sha256.New()
	fmt.Fprintf(h, "%s by agent, %d, %d inputs\n%+v\n", a.Cell().Cell.Name, a.Len(), a.Cell().Features, a.Layout())
	tick, step := a.Cell().Kernels()
	for _, name := range []string{tick, step, "step_decide"} {
		src, _ := kernels.Lookup(name)
		fmt.Fprintln(h, src.Code)
	}
	h.Write(device.Bytes(a.Cell().ParamBlock()))
	if text := a.Cell().Circuit(); text != "" {
		fmt.Fprintln(h, "circuit", text)
	}
	if s.model == nil {
		h.Write(device.Bytes(a.Cell().Weights(s.seed)))
	} else {
		fmt.Fprintln(h, "model", s.model.SHA256)
	}
	if rows := a.Cell().Rows; rows > 0 {
		fmt.Fprintln(h, "embeds", rows)
	}
	if items := a.Cell().Items; items > 0 {
		fmt.Fprintln(h, "asks", items)
	}
	if len(s.hear) > 0 {
		fmt.Fprintf(h, "hears %q\n", s.hear)
	}
	if a.Cell().Tells() {
		heard := a.Cell().Heard()
		fmt.Fprintln(h, []uint32{heard.Decision, heard.Node, heard.Width, heard.Merge, heard.Rate})
		if n := a.Cell().SharedNodes(); n > 0 {
			fmt.Fprintln(h, n, "nodes")
		}
		if by := a.Cell().NodesBy(); by != kernels.AgentByGroup {
			fmt.Fprintln(h, "by", by)
		}
	}
	if s.groups.Shards > 1 {
		fmt.Fprintln(h, s.groups)
	}
	return Info{
		Cell:       a.Cell().Cell.Name,
		Agents:     a.Len(),
		Stepped:    1,
		Checkpoint: s.every,
		Digest:     hex.EncodeToString(h.Sum(nil)),
	}
}

func (s *agentState) Memory() *pages.Memory { return s.memory }

func (s *agentState) Reset(ctx context.Context) error { return s.agents.Reset(ctx) }

// Restored implements State. The tally is not in the pages, so it is counted from them again.
func (s *agentState) Restored(ctx context.Context) error { return s.agents.Recount(ctx) }

// Close implements State. The memory of the agents is closed with them.
func (s *agentState) Close() error { return errors.Join(s.computer.Close(), s.agents.Close()) }

// Apply implements State. It completes observations after the end of ctx, but neither ticks nor
// fusions, nor elections of a swarm whose pages are not all on the device. So an interrupted tick
// leaves pages that the caller must discard, and an interrupted observation does not exist.
func (s *agentState) Apply(ctx context.Context, e swarms.Entry) (Answer, error) {
	switch e.Kind {
	case swarms.EntryObserve:
		return applyObservations(context.WithoutCancel(ctx), s, e)
	case swarms.EntryTick:
		return s.tick(ctx, e.Data)
	case swarms.EntryQuery:
		return s.query(context.WithoutCancel(ctx), e.Data)
	case swarms.EntryVote:
		return s.vote(ctx, e.Data)
	case swarms.EntryFuse:
		return s.fuse(ctx, e.Data)
	case swarms.EntryCompute:
		return s.compute(ctx, e.Data)
	case swarms.EntryLearn:
		return s.learn(context.WithoutCancel(ctx), e.Data)
	}
	return Answer{}, unknownKind(e)
}

// Decode implements State. The result may share the memory of data. It does not use the device, so
// it may run while another goroutine applies a batch.
func (s *agentState) Decode(data []byte) (Observations, error) {
	o, err := batch.DecodeAgentObservations(data)
	if err == nil {
		err = s.check(o)
	}
	return Observations{Agents: o}, err
}

func (s *agentState) Trace(t *gpubatch.Track) { s.agents.Trace(t) }

func (s *agentState) Reduce(on bool) { s.splitter.Reduced = on }

// check returns a *jobs.Error for observations that do not fit the swarm: too many, of another
// width, of an agent of another shard, not finite, or for a row or an item that does not exist.
// Nothing is applied then.
func (s *agentState) check(o *batch.AgentObservations) error {
	cell := s.agents.Cell()
	switch width := cell.Width(); {
	case len(o.Agent) > swarms.MaxAddressed:
		return jobs.Errorf(
			jobs.CodeInvalid, "%d observations: send at most %d at a time", len(o.Agent), swarms.MaxAddressed,
		)
	case o.Width != width:
		return jobs.Errorf(jobs.CodeInvalid, "observations have %d features, the swarm takes %d", o.Width, width)
	case o.Item != nil && cell.Items == 0:
		return jobs.Errorf(jobs.CodeInvalid, "observations name items, and the swarm has none: leave the column item "+
			"out, or create the swarm with cell.items")
	}
	if bad, err := s.groups.owns(o.Agent, cell.Agents, "agent"); err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "observation %d is for agent %v", bad, err)
	}
	for i, f := range o.Features {
		if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
			return jobs.Errorf(jobs.CodeInvalid, "observation %d: feature %d is %v", i/o.Width, i%o.Width, f)
		}
		if cell.Rows > 0 && !cell.Numbered(f) {
			return jobs.Errorf(jobs.CodeInvalid, "observation %d: feature 0 is %v: it is the number of a row of "+
				"cell.embed, 0 to %d", i, f, cell.Rows-1)
		}
	}
	for i, item := range o.Item {
		if item < kernels.AgentNoItem || int64(item) >= int64(cell.Items) {
			return jobs.Errorf(jobs.CodeInvalid, "observation %d is for item %d: use 0 to %d, or %d to ask for no "+
				"score", i, item, cell.Items-1, kernels.AgentNoItem)
		}
	}
	return nil
}

// tick answers an entry that steps all agents, as many times as it says. When ctx ends, the pages
// are between two positions, and the caller discards them.
func (s *agentState) tick(ctx context.Context, data []byte) (Answer, error) {
	t, err := swarms.DecodeTick(data)
	if err != nil {
		return Answer{}, err
	}
	if err := s.merge.check(t); err != nil {
		return Answer{}, err
	}
	if err := s.listen(context.WithoutCancel(ctx)); err != nil {
		return Answer{}, err
	}
	steps := agents.TickSteps // a drain waits for them
	if s.splitter.Reduced {
		steps = 1
	}
	r, err := s.step(ctx, t, steps)
	if err != nil { // after the end of ctx the pages are between two positions, and are discarded
		return Answer{}, err
	}
	done := swarms.Ticked{
		Version: jobs.Version,
		Stepped: r.Stepped,
		Tally:   r.Tally,
		Decided: make([]uint64, s.agents.Cell().Candidates),
	}
	decisions, err := s.agents.Decisions(context.WithoutCancel(ctx))
	if err != nil {
		return Answer{}, err
	}
	for _, d := range decisions {
		if d == kernels.AgentNoVote {
			done.Undecided++
		} else {
			done.Decided[d]++
		}
	}
	if s.merge.nodes > 0 {
		if done.Sums, err = s.nodeSums(context.WithoutCancel(ctx)); err != nil {
			return Answer{}, err
		}
	}
	data, err = json.Marshal(done)
	return Answer{Kind: swarms.EntryTicked, Data: data, Steps: int64(r.Stepped), Ticked: &done}, err
}

// step steps all agents as a tick says, and checks ctx after each most steps.
func (s *agentState) step(ctx context.Context, t swarms.Tick, most int) (agents.Report, error) {
	wait := context.WithoutCancel(ctx)
	if s.merge.nodes == 0 {
		return s.agents.TickAll(ctx, wait, t.Count, most)
	}
	return s.agents.TickWith(ctx, wait, s.merge.own(swarms.Words(t.Sums)))
}

func (s *agentState) variables() (kernels.Layout, []raster.Var) {
	l, cell := s.agents.Layout(), s.agents.Cell()
	all := raster.Vars(l)
	if cell.Measures() { // the parts of amplitudes: re01 is the real part of |01>
		of := all[kernels.QuantumVarState]
		all = all[:kernels.QuantumVarState]
		for r := range 1 << cell.Qubits() {
			for part, name := range []string{"re", "im"} {
				of.Name, of.First, of.Count = fmt.Sprintf("%s%0*b", name, cell.Qubits(), r), 2*r+part, 1
				all = append(all, of)
			}
		}
		return l, all
	}
	if cell.Cell.Name != "gru" {
		return l, all
	}
	row := all[kernels.AgentVarRow]
	row.Name, row.Count = "hidden", int(cell.Value("hidden"))
	input := row
	input.Name, input.First, input.Count = "input", l.Vars[row.Of].Width/2, cell.Features
	all[kernels.AgentVarRow] = row
	return l, append(all, input)
}

func (s *agentState) compute(ctx context.Context, data []byte) (Answer, error) {
	if err := s.agents.Settle(context.WithoutCancel(ctx)); err != nil {
		return Answer{}, err
	}
	if s.computer == nil {
		layout, vars := s.variables()
		s.computer = newComputer(computedShard{
			Device: s.agents.Device(), Memory: s.memory, Layout: layout, Vars: vars,
			First: s.groups.First, Groups: s.groups.Groups, All: s.groups.All, Candidates: s.agents.Cell().Candidates,
		})
	}
	return computed(ctx, s.computer, data)
}

// query answers the states of agents or groups, in the order of the question. It reads pages where
// they are: it moves none to the device.
func (s *agentState) query(ctx context.Context, data []byte) (Answer, error) {
	q, err := swarms.DecodeQuery(data)
	if err != nil {
		return Answer{}, err
	}
	if q.Outcome {
		return s.outcome()
	}
	if q.Sums {
		return s.sums(ctx)
	}
	if q.Knowledge {
		return s.knowledge(ctx, q.Groups)
	}
	a := s.agents
	what, ids, size, row := "agent", q.Agents, a.Cell().Agents, 4+1+4*a.StateWidth()
	if len(q.Groups) > 0 {
		what, ids, size, row = "group", q.Groups, 1, 4+1+8+4*a.Cell().Candidates
	}
	if most := swarms.MaxState / row; len(ids) > most {
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "query: %d %ss: ask for at most %d of this swarm at a time", len(ids), what, most,
		)
	}
	if _, err := s.groups.owns(ids, size, what); err != nil {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "query: %s %v", what, err)
	}
	own := s.groups.local(nil, ids, size)
	if len(q.Groups) > 0 {
		found, err := a.GroupStates(ctx, own)
		if err != nil {
			return Answer{}, err
		}
		found.Group = ids
		data, err = found.Encode()
		return Answer{Kind: swarms.EntryState, Data: data}, err
	}
	found, err := a.AgentStates(ctx, own)
	if err != nil {
		return Answer{}, err
	}
	found.Agent = ids
	data, err = found.Encode()
	return Answer{Kind: swarms.EntryState, Data: data}, err
}
