package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const gruText = "name: x\naddressed: agent\nagents: 3300\nagents_per_group: 33\npage_size: 64KiB\nfeatures: [a, b]\n" +
	"seed: 3\n" +
	"cell: {kind: gru, params: {hidden: 5}}\nvote: {candidates: [a, b, c], rule: majority}\n"

func openAgentState(t *testing.T, d device.Device, text string) *agentState {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	p, err := newWhole(d, nil, spec, spec.Groups())
	if err != nil {
		t.Fatalf("newWhole: %v, want no error", err)
	}
	testkit.Close(t, p)
	return p.(*agentState)
}

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if e, ok := v.(interface{ Encode() ([]byte, error) }); ok {
		data, err = e.Encode()
	}
	if err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	return data
}

func mustApply(t testing.TB, p State, kind string, v any) Answer {
	t.Helper()
	a, err := p.Apply(t.Context(), swarms.Entry{Kind: kind, Data: encoded(t, v)})
	if err != nil {
		t.Fatalf("entry %s %+v: %v, want an answer", kind, v, err)
	}
	return a
}

// randomAgents are observations of random agents, some of them of an agent that has one already.
func randomAgents(r *rand.Rand, agents, n, features int) *batch.AgentObservations {
	o := &batch.AgentObservations{Width: features}
	for i := range n {
		id := uint32(r.IntN(agents))
		if i > 0 && r.IntN(8) == 0 {
			id = o.Agent[r.IntN(i)]
		}
		o.Agent = append(o.Agent, id)
		for range features {
			o.Features = append(o.Features, float32(r.NormFloat64()))
		}
	}
	return o
}

// randomFor is randomAgents for a cell: with an embedding the numbers of rows, and with items an
// item or none for each observation, in most entries.
func randomFor(r *rand.Rand, agents, n int, cell *cells.Addressed) *batch.AgentObservations {
	o := randomAgents(r, agents, n, cell.Width())
	if cell.Rows > 0 {
		for i := range o.Features {
			o.Features[i] = float32(r.IntN(cell.Rows))
		}
	}
	if cell.Items > 0 && r.IntN(4) > 0 {
		o.Item = []int32{}
		for range n {
			o.Item = append(o.Item, r.Int32N(int32(cell.Items)+1)-1)
		}
	}
	return o
}

// TestAgentState compares the answers to a log with what Agents say of themselves, and what is
// queried with their memory.
func TestAgentState(t *testing.T) {
	for name, text := range map[string]string{
		"gru":  gruText,
		"bf16": strings.Replace(gruText, "hidden: 5", "hidden: 5, bf16: 1", 1),
		"leaky": "name: x\naddressed: agent\nagents: 3000\nagents_per_group: 10\npage_size: 64KiB\ncell: {kind: " +
			"leaky}\nvote: {rule: quorum, quorum: 0.3}\n",
	} {
		t.Run(name, func(t *testing.T) {
			d := openHost(t)
			s, twin := openAgentState(t, d, text), openAgentState(t, d, text).agents
			features := s.agents.Cell().Features
			r := rand.New(rand.NewPCG(1, 2))
			for _, ticks := range []int{agents.TickSteps + 1, 2} {
				o := randomAgents(r, int(twin.Len()), 300, features)
				a := mustApply(t, s, swarms.EntryObserve, o)
				got, err := batch.DecodeAgentDecisions(a.Data)
				if err != nil || a.Kind != swarms.EntryDecide || a.Observations != 300 {
					t.Fatalf("answer %q of %d observations, %v, want %q of 300",
						a.Kind, a.Observations, err, swarms.EntryDecide)
				}
				want, err := twin.Observe(t.Context(), o.Agent, o.Features)
				if err != nil {
					t.Fatalf("twin.Observe: %v, want no error", err)
				}
				if d := diff(&batch.AgentDecisions{Agent: o.Agent, Vote: want.Votes, Decision: want.Decisions},
					got); d != "" {
					t.Fatalf("difference (-want +got):\n%s", d)
				}
				a = mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: ticks})
				ticked, err := swarms.DecodeTicked(a.Data)
				if err != nil || a.Kind != swarms.EntryTicked {
					t.Fatalf("the tick is answered with %q, %v, want %q", a.Kind, err, swarms.EntryTicked)
				}
				report, err := twin.Tick(t.Context(), ticks)
				if err != nil {
					t.Fatalf("twin.Tick: %v, want no error", err)
				}
				decisions, err := twin.Decisions(t.Context())
				if err != nil {
					t.Fatalf("twin.Decisions: %v, want no error", err)
				}
				expect := swarms.Ticked{
					Version: jobs.Version, Stepped: report.Stepped, Tally: report.Tally,
					Decided: make([]uint64, twin.Cell().Candidates),
				}
				all := make([]uint32, twin.Groups())
				for g, d := range decisions {
					all[g] = uint32(g)
					if d == kernels.AgentNoVote {
						expect.Undecided++
					} else {
						expect.Decided[d]++
					}
				}
				if d := diff(expect, ticked); d != "" {
					t.Fatalf("difference (-want +got):\n%s", d)
				}
				groups, err := batch.DecodeGroupStates(mustApply(t, s, swarms.EntryQuery,
					swarms.Query{Version: jobs.Version, Groups: all}).Data)
				if err != nil {
					t.Fatalf("batch.DecodeGroupStates: %v, want no error", err)
				}
				if d := diff(&batch.GroupStates{
					Group: all, Decision: decisions, Round: device.Of[uint64](column(t, twin, kernels.AgentVarRound)),
					Counts:     device.Of[uint32](column(t, twin, kernels.AgentVarCounts)),
					Candidates: twin.Cell().Candidates,
				}, groups); d != "" {
					t.Fatalf("difference (-want +got):\n%s", d)
				}
			}
			checkStates(t, s, twin)
		})
	}
}

// checkStates queries runs of ids and single ones, in no order, and compares with the memory of the
// twin.
func checkStates(t *testing.T, s *agentState, twin *agents.Agents) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	var ids []uint32
	for range 40 {
		first := uint32(r.IntN(int(twin.Len()) - 100))
		for k := range uint32(1 + r.IntN(60)) {
			ids = append(ids, first+k)
		}
	}
	ids = append(ids, uint32(twin.Len()-1), 0, 0)
	got, err := batch.DecodeAgentStates(mustApply(t, s, swarms.EntryQuery,
		swarms.Query{Version: jobs.Version, Agents: ids}).Data)
	if err != nil {
		t.Fatalf("batch.DecodeAgentStates: %v, want no error", err)
	}
	vars := []int{kernels.AgentVarPotential, kernels.AgentVarTrace}
	wide, width := 1, 1
	if twin.Cell().Cell.Name == "gru" {
		vars, wide, width = []int{kernels.AgentVarRow}, 16, 5 // units, and behind them inputs
	}
	want := &batch.AgentStates{Agent: ids, Width: len(vars) * width}
	votes := column(t, twin, kernels.AgentVarVote)
	var states [][]float64
	for _, v := range vars {
		states = append(states, values(t, twin, v))
	}
	for _, id := range ids {
		want.Vote = append(want.Vote, votes[id]-1)
		for _, all := range states {
			for _, x := range all[int(id)*wide:][:width] {
				want.State = append(want.State, float32(x))
			}
		}
	}
	if d := diff(want, got); d != "" {
		t.Fatalf("difference (-want +got):\n%s", d)
	}
}

// TestAgentStateRefuses: what a stranger may write is refused with a sentence, and neither a page
// nor a mark of one changes.
func TestAgentStateRefuses(t *testing.T) {
	s := openAgentState(t, openHost(t), gruText)
	o := func(change func(o *batch.AgentObservations)) []byte {
		v := &batch.AgentObservations{Agent: []uint32{1, 2}, Features: []float32{1, 2, 3, 4}, Width: 2}
		change(v)
		return encoded(t, v)
	}
	mustApply(t, s, swarms.EntryObserve, randomAgents(rand.New(rand.NewPCG(1, 1)), 3300, 50, 2))
	clear(s.memory.Dirty())
	want := pagesOf(t, s.agents)
	many := make([]uint32, swarms.MaxAddressed+1)
	for _, c := range []struct {
		kind, says string
		data       []byte
	}{
		{
			swarms.EntryObserve, "observation 1 is for agent 3300 of 3300",
			o(func(o *batch.AgentObservations) { o.Agent[1] = 3300 }),
		},
		{
			swarms.EntryObserve, "observation 0 is for agent 4294967295",
			o(func(o *batch.AgentObservations) { o.Agent[0] = math.MaxUint32 }),
		},
		{
			swarms.EntryObserve, "observation 1: feature 0 is NaN",
			o(func(o *batch.AgentObservations) { o.Features[2] = float32(math.NaN()) }),
		},
		{
			swarms.EntryObserve, "observation 0: feature 1 is -Inf",
			o(func(o *batch.AgentObservations) { o.Features[1] = float32(math.Inf(-1)) }),
		},
		{
			swarms.EntryObserve, "observations have 4 features, the swarm takes 2",
			o(func(o *batch.AgentObservations) { o.Agent, o.Width = o.Agent[:1], 4 }),
		},
		{swarms.EntryObserve, "65537 observations: send at most 65536", o(func(o *batch.AgentObservations) {
			o.Agent, o.Features = many, make([]float32, 2*len(many))
		})},
		{
			swarms.EntryObserve, "batch of agent-observations: its schema says",
			encoded(t, &batch.Observations{Width: 1}),
		},
		{swarms.EntryObserve, "batch of agent-observations: not an Arrow IPC stream", []byte("agent,a,b\n1,2,3\n")},
		{swarms.EntryTick, "tick: count 10001", []byte(`{"v":1,"count":10001}`)},
		{swarms.EntryTick, "tick: count 0", []byte(`{"v":1}`)},
		{swarms.EntryQuery, "query: agent 3300 of 3300", []byte(`{"v":1,"agents":[3299,3300]}`)},
		{swarms.EntryQuery, "query: group 100 of 100", []byte(`{"v":1,"groups":[100]}`)},
		{
			swarms.EntryQuery, "query: 65536 agents: ask for at most 39321 of this swarm at a time",
			encoded(t, swarms.Query{Version: 1, Agents: many[1:]}),
		},
		{swarms.EntryDecide, `kind "decide": this swarm does not take it`, nil},
	} {
		_, err := s.Apply(t.Context(), swarms.Entry{Kind: c.kind, Data: c.data})
		var refused *jobs.Error
		if !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid ||
			!strings.HasPrefix(refused.Message, c.says) {
			t.Errorf("%s: got %v, want %s", c.kind, err, c.says)
		}
		if slices.Contains(s.memory.Dirty(), true) || !bytes.Equal(want, pagesOf(t, s.agents)) {
			t.Fatalf("%s: %s: it changed something", c.kind, c.says)
		}
	}
	if a := mustApply(t, s, swarms.EntryObserve, &batch.AgentObservations{Width: 2}); a.Observations != 0 ||
		a.Kind != swarms.EntryDecide {
		t.Errorf("no observations: %+v", a)
	}
}

// TestLargestQuery: the most that may be asked of a swarm fits a message of the queue.
func TestLargestQuery(t *testing.T) {
	s := openAgentState(t, openHost(t), strings.Replace(gruText, "hidden: 5", "hidden: 32", 1))
	for _, q := range []swarms.Query{
		{Agents: make([]uint32, swarms.MaxState/(4+1+4*32))}, {Groups: make([]uint32, swarms.MaxState/(4+1+8+4*3))},
	} {
		q.Version = jobs.Version
		if n := len(mustApply(t, s, swarms.EntryQuery, q).Data); n > jobs.MaxMessage-4096 || n < swarms.MaxState/2 {
			t.Errorf("%d ids: an answer of %d bytes", len(q.Agents)+len(q.Groups), n)
		}
	}
}

// TestAgentStateRestored: agents whose pages were written from others' go on as those do, with the
// tally.
func TestAgentStateRestored(t *testing.T) {
	d := openHost(t)
	a, b := openAgentState(t, d, gruText), openAgentState(t, d, gruText)
	r := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		mustApply(t, a, swarms.EntryObserve, randomAgents(r, 3300, 400, 2))
		mustApply(t, b, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1}) // what reset must forget
	}
	for range 2 { // the second one forgets what came behind the first
		if err := b.Reset(t.Context()); err != nil {
			t.Fatalf("b.Reset: %v, want no error", err)
		}
		out, err := b.agents.Observe(t.Context(), []uint32{7}, []float32{1, 1})
		if err != nil || out.Tally[0]+out.Tally[1]+out.Tally[2] != 1 {
			t.Fatalf("one of the agents votes: %v, %v", out.Tally, err)
		}
	}
	if err := b.Reset(t.Context()); err != nil {
		t.Fatalf("b.Reset: %v, want no error", err)
	}
	copied := 0
	for page, dirty := range a.memory.Dirty() {
		if b.memory.Dirty()[page] {
			t.Errorf("page %d is marked after a reset", page)
		}
		if !dirty {
			continue
		}
		copied++
		content := make([]byte, a.memory.PageBytes())
		if err := errors.Join(a.memory.Read(t.Context(), uint64(page), content),
			b.memory.Write(t.Context(), uint64(page), content)); err != nil {
			t.Fatalf("joined errors: %v, want no error", err)
		}
	}
	if err := b.Restored(t.Context()); err != nil || copied < 2 {
		t.Fatalf("after %d copied pages: %v, want 2 or more and no error", copied, err)
	}
	o := randomAgents(r, 3300, 400, 2)
	var outcomes []agents.Outcome
	for _, s := range []*agentState{a, b} {
		out, err := s.agents.Observe(t.Context(), o.Agent, o.Features)
		if err != nil {
			t.Fatalf("agents.Observe: %v, want no error", err)
		}
		outcomes = append(outcomes, out)
	}
	if d := diff(outcomes[0], outcomes[1]); d != "" {
		t.Fatalf("difference (-want +got):\n%s", d)
	}
	if a.Info() != b.Info() {
		t.Error("the same swarm means something else")
	}
	for _, other := range []string{"seed: 4", "seed: 3\nfeatures: [a]"} {
		text := strings.Replace(gruText, "seed: 3", other, 1)
		if strings.Contains(other, "features") {
			text = strings.Replace(text, "features: [a, b]\n", "", 1)
		}
		if openAgentState(t, d, text).Info().Digest == a.Info().Digest {
			t.Errorf("%s: the pages mean the same", other)
		}
	}
}

// TestTickCancelled: ticks end between two launches when the agent drains, with its reason, and are
// no refusal.
func TestTickCancelled(t *testing.T) {
	s := openAgentState(t, openHost(t), gruText)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrDrain)
	_, err := s.Apply(ctx, swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":10000}`)})
	if refused := (*jobs.Error)(nil); !errors.Is(err, jobs.ErrDrain) || errors.As(err, &refused) {
		t.Fatalf("%v, want %v and no refusal", err, jobs.ErrDrain)
	}
}

// TestNewAgentState: a record that does not fit its spec is laid to the record, a device that is
// too small is not.
func TestNewAgentState(t *testing.T) {
	d, err := cuda.Open(t.Context(), "host", cuda.Options{MemoryLimit: 1 << 20})
	if err != nil {
		t.Fatalf("cuda.Open: %v, want no error", err)
	}
	for groups, agents := range map[int]int64{99: 3300, 30_000: 33 * 30_000} {
		spec, err := swarm.Parse("test.yaml", []byte(strings.Replace(gruText, "3300", fmt.Sprint(agents), 1)))
		if err != nil {
			t.Fatalf("swarm.Parse: %v, want no error", err)
		}
		_, err = newWhole(d, nil, spec, groups)
		if refused := (*jobs.Error)(nil); err == nil || errors.As(err, &refused) != (groups == 99) {
			t.Errorf("%d groups: %v", groups, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Errorf("d.Close: %v, want no error", err)
	}
}
