package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers"
)

// allStates queries every agent of a swarm.
func allStates(t testing.TB, s *agentState) *batch.AgentStates {
	t.Helper()
	ids := make([]uint32, s.agents.Len())
	for i := range ids {
		ids[i] = uint32(i)
	}
	states, err := s.agents.AgentStates(t.Context(), ids)
	if err != nil {
		t.Fatalf("agents.AgentStates: %v, want no error", err)
	}
	return states
}

// plainFuse is a fuse of agents that were queried: one Nodes.Accumulate, in which agents without a
// step weigh nothing.
func plainFuse(t testing.TB, a *agents.Agents, states *batch.AgentStates, f swarms.Fuse) fusion.Nodes {
	t.Helper()
	_, width := a.StateVars() // of a leaky its potential, without the trace
	count := map[string]int{swarms.ByAll: 1, swarms.ByVote: a.Cell().Candidates, swarms.ByGroup: f.Nodes}[f.By]
	if f.By == swarms.ByGroup && f.Nodes == 0 {
		count = a.Groups()
	}
	nodes := fusion.Nodes{
		Dim: width, Sums: make([]float32, count*width), Weights: make([]uint64, count),
		Counts: make([]uint64, count),
	}
	members, weights := make([]uint32, a.Len()), make([]uint32, a.Len())
	var rows []float32
	for i, id := range states.Agent {
		if weights[i] = consensus.One; states.Vote[i] == batch.NoVote {
			weights[i] = 0
		}
		rows = append(rows, states.State[i*states.Width:][:width]...)
		switch f.By {
		case swarms.ByVote:
			if members[i] = uint32(states.Vote[i]); states.Vote[i] == batch.NoVote {
				members[i] = fusion.None
			}
		case swarms.ByGroup:
			members[i] = uint32(int(id) / a.Cell().Agents * count / a.Groups())
		}
	}
	if _, err := nodes.Accumulate(members, rows, weights); err != nil {
		t.Fatalf("nodes.Accumulate: %v, want no error", err)
	}
	for m, w := range nodes.Weights {
		nodes.Counts[m] = w / consensus.One
	}
	return nodes
}

// sameNodes says that nodes are the same to the bit.
func sameNodes(a, b fusion.Nodes) bool {
	return a.Dim == b.Dim && slices.Equal(device.Bytes(a.Sums), device.Bytes(b.Sums)) &&
		slices.Equal(a.Counts, b.Counts) && slices.Equal(a.Weights, b.Weights)
}

// fuses are the fusions of a swarm with a number of groups.
func fuses(groups int) []swarms.Fuse {
	return []swarms.Fuse{
		{By: swarms.ByAll},
		{By: swarms.ByVote},
		{By: swarms.ByGroup},
		{By: swarms.ByGroup, Nodes: 1},
		{By: swarms.ByGroup, Nodes: 7},
		{By: swarms.ByGroup, Nodes: groups - 1},
	}
}

// checkFuses compares all fusions of a swarm, in windows of several sizes, with plain ones, and the
// answers to the entries.
func checkFuses(t testing.TB, s *agentState) {
	t.Helper()
	a, states := s.agents, allStates(t, s)
	for _, f := range fuses(a.Groups()) {
		want := plainFuse(t, a, states, f)
		for bytes, reduced := range map[int64]bool{1: false, 3000: true, agents.FuseWindow: false} {
			got, halved, err := a.FuseParts(t.Context(), &gpubatch.Splitter{Reduced: reduced}, f, bytes)
			if err != nil || halved != 0 {
				t.Fatalf("%+v in windows of %d bytes: halved %d times: %v", f, bytes, halved, err)
			}
			if !sameNodes(want, got) { // cmp.Diff takes longer than all else
				t.Fatalf("%+v in windows of %d bytes: %s", f, bytes, cmp.Diff(want, got))
			}
		}
		f.Version = jobs.Version
		data, err := s.Apply(t.Context(), swarms.Entry{
			Kind: swarms.EntryFuse,
			Data: fmt.Appendf(nil, `{"v":1,"by":%q,"nodes":%d}`, f.By, f.Nodes),
		})
		if err != nil || data.Kind != swarms.EntryFused {
			t.Fatalf("the fusion is answered with %q, %v, want %q", data.Kind, err, swarms.EntryFused)
		}
		answer, err := batch.DecodeFusedNodes(data.Data)
		if err != nil {
			t.Fatalf("batch.DecodeFusedNodes: %v, want no error", err)
		}
		mean := make([]float32, len(want.Sums))
		if err := want.Means(mean); err != nil {
			t.Fatalf("want.Means: %v, want no error", err)
		}
		if !slices.Equal(answer.Count, want.Counts) || !bytes.Equal(device.Bytes(answer.Mean), device.Bytes(mean)) ||
			len(answer.Node) != want.Len() || int(answer.Node[want.Len()-1]) != want.Len()-1 {
			t.Fatalf("%+v: %+v, want %v and %v", f, answer, want.Counts, mean)
		}
	}
}

// checkRounds compares votes under all rules with the queried votes of agents, counted with package
// consensus, and leaders with a search of all priorities. Without an incumbent, and with several, a
// loop over all agents finds the same leader.
func checkRounds(t testing.TB, s *agentState, round uint64) {
	t.Helper()
	a, states := s.agents, allStates(t, s)
	defer func(was *Rounds) { s.rounds = was }(s.rounds)
	n := uint32(a.Len())
	for i, leader := range []uint32{n, 0, n - 1, n / 2, uint32(round*7919) % n} {
		outcome := &swarms.Voted{Leader: &swarms.Leader{Agent: leader}, Term: 3}
		if i == 0 {
			outcome = nil
		}
		s.rounds = &Rounds{outcome: outcome}
		for _, rule := range []string{swarms.RulePlurality, swarms.RuleMajority, swarms.RuleUnanimous} {
			data := fmt.Appendf(nil, `{"v":1,"round":%d,"rule":%q,"priority":"elected"}`, round, rule)
			answer, err := s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryVote, Data: data})
			if err != nil {
				t.Fatalf("s.Apply: %v, want no error", err)
			}
			got, err := swarms.DecodeVoted(answer.Data)
			if err != nil {
				t.Fatalf("swarms.DecodeVoted: %v, want no error", err)
			}
			if d := diff(plainLeader(s.seed, got, states.Vote, outcome), got.Leader); d != "" {
				t.Fatalf("%s after %+v: difference (-want +got):\n%s", data, outcome, d)
			}
		}
	}
	for _, v := range []swarms.Vote{
		{},
		{Rule: swarms.RulePlurality},
		{Rule: swarms.RuleMajority},
		{Rule: swarms.RuleMajority, Of: swarms.OfAll},
		{Rule: swarms.RuleQuorum, Quorum: "1/3"},
		{Rule: swarms.RuleQuorum, Quorum: "0.7", Of: swarms.OfAll},
		{Rule: swarms.RuleUnanimous, Of: swarms.OfCast},
	} {
		for _, v.Priority = range []string{"", swarms.PriorityUniform, swarms.PrioritySeeded} {
			want, err := consensus.NewTally(a.Cell().Candidates)
			if err == nil {
				err = want.Cast(states.Vote)
			}
			if err != nil {
				t.Fatalf("consensus.NewTally: %v, want no error", err)
			}
			for id := range states.Agent {
				l := consensus.Leader{Agent: uint64(id), Elected: true}
				if v.Priority == swarms.PrioritySeeded {
					l.Priority = agents.Priority(s.seed, round, a.Len(), uint32(id))
				}
				want.Lead(l)
			}
			text := v.Rule
			if text == "" {
				text = swarms.RulePlurality
			}
			if v.Quorum != "" {
				text += map[string]string{"1/3": " 1/3", "0.7": " 7/10"}[v.Quorum]
			}
			if v.Of != "" {
				text += " of " + v.Of
			}
			rule, err := consensus.ParseRule(text)
			if err != nil {
				t.Fatalf("consensus.ParseRule: %v, want no error", err)
			}
			d, err := consensus.Decide(rule, want)
			if err != nil {
				t.Fatalf("consensus.Decide: %v, want no error", err)
			}
			expect := swarms.Voted{
				Version: jobs.Version, Round: round, Counts: d.Counts, Abstentions: d.Abstentions,
				QuorumMet: d.QuorumMet,
				Leader:    &swarms.Leader{Agent: uint32(d.Leader.Agent), Priority: d.Leader.Priority},
			}
			if d.Winner != consensus.None {
				expect.Winner = &d.Winner
			}
			answer, err := s.Apply(t.Context(), swarms.Entry{
				Kind: swarms.EntryVote,
				Data: fmt.Appendf(nil, `{"v":1,"round":%d,"rule":%q,"quorum":%q,"of":%q,"priority":%q}`, round, v.Rule,
					v.Quorum, v.Of, v.Priority),
			})
			if err != nil || answer.Kind != swarms.EntryVoted {
				t.Fatalf("the vote is answered with %q, %v, want %q", answer.Kind, err, swarms.EntryVoted)
			}
			got, err := swarms.DecodeVoted(answer.Data)
			if err != nil {
				t.Fatalf("swarms.DecodeVoted: %v, want no error", err)
			}
			if d := diff(expect, got); d != "" {
				t.Fatalf("%+v: difference (-want +got):\n%s", v, d)
			}
		}
	}
}

// plainLeader returns the elected leader of a decision by a loop over the votes of all agents.
func plainLeader(seed uint64, v swarms.Voted, votes []byte, last *swarms.Voted) (leads *swarms.Leader) {
	draw := consensus.NewDraw(seed, v.Round)
	for id, vote := range votes {
		if v.Winner == nil || int(vote) != *v.Winner {
			continue
		}
		l := &swarms.Leader{Agent: uint32(id), Priority: draw.Priority(uint32(id)), Vote: v.Winner}
		if last != nil && last.Leader != nil && last.Leader.Agent == l.Agent {
			return l
		}
		if leads == nil || l.Priority > leads.Priority {
			leads = l
		}
	}
	return leads
}

// votedTexts are swarms of some pages of 4 KiB, and of one of 64.
var votedTexts = map[string]string{
	"gru h7": pagedTexts["gru"], "leaky": pagedTexts["leaky"],
	"gru h16 bf16": strings.Replace(pagedTexts["gru"], "hidden: 7", "hidden: 12, bf16: 1", 1),
	"gru h32": strings.Replace(strings.Replace(pagedTexts["gru"], "hidden: 7", "hidden: 32", 1),
		"agents_per_group: 15", "agents_per_group: 5", 1),
	"gru h8 bf16": strings.Replace(pagedTexts["gru"], "hidden: 7", "hidden: 8, bf16: 1", 1),
	"single":      strings.Replace(pagedTexts["leaky"], "agents_per_group: 10", "agents_per_group: 1", 1),
}

// stir brings some entries into a swarm: some of its agents, or all, have stepped then.
func stir(t testing.TB, r *rand.Rand, s *agentState, entries int) {
	t.Helper()
	for range entries {
		e := randomEntry(t, r, s)
		if _, err := s.Apply(t.Context(), e); err != nil {
			t.Fatalf("%s: s.Apply: %v, want no error", e.Kind, err)
		}
	}
}

// TestVotesAndFuses: votes and fusions agree to the bit with queried agents, before and after
// steps, with a frame for each page and with few, also on pages that do not exist. They change
// neither pages nor marks.
func TestVotesAndFuses(t *testing.T) {
	for name, text := range votedTexts {
		for _, frames := range []int{0, 2, 5}[:testkit.Of(3, 2)] {
			t.Run(fmt.Sprint(name, frames), func(t *testing.T) {
				b := pages.NewBudget(int64(frames)*testPage, 1<<30)
				s := openPaged(t, openNamed(t, *opentest.Name), b, text).(*agentState)
				testkit.Close(t, s)
				r := rand.New(rand.NewPCG(uint64(frames), 7))
				checkRounds(t, s, 1)
				checkFuses(t, s)
				if slices.Contains(s.memory.Made(), true) {
					t.Error("a page was made")
				}
				o := &batch.AgentObservations{
					Agent:    []uint32{3, uint32(s.agents.Len()) / 2},
					Features: make([]float32, 2*s.agents.Cell().Features), Width: s.agents.Cell().Features,
				}
				for i := range o.Features {
					o.Features[i] = 0.5
				}
				mustApply(t, s, swarms.EntryObserve, o) // of one or two pages of all
				checkFuses(t, s)
				for i := range 3 {
					stir(t, r, s, 1+2*i)
					pages, marks := contents(t, s.memory), slices.Clone(s.memory.Dirty())
					checkRounds(t, s, uint64(i+2))
					checkFuses(t, s)
					if !bytes.Equal(pages, contents(t, s.memory)) || !slices.Equal(marks, s.memory.Dirty()) {
						t.Fatal("votes or fusions have changed pages or marks")
					}
				}
			})
		}
	}
}

// TestFuseNotFinite: an embedding with a NaN or an infinity is in no node; those with subnormals
// and sums beyond float32 are.
func TestFuseNotFinite(t *testing.T) {
	for _, cell := range []string{"gru h7", "leaky", "gru h8 bf16"} {
		s := openPaged(t, openNamed(t, *opentest.Name), nil, votedTexts[cell]).(*agentState)
		mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1})
		a := s.agents
		r := rand.New(rand.NewPCG(1, 9))
		vars, _ := a.StateVars()
		of := a.Layout().Vars[vars[0]]
		for page := range a.Memory().Count() {
			content := make([]byte, testPage)
			if err := s.memory.Read(t.Context(), uint64(page), content); err != nil {
				t.Fatalf("memory.Read: %v, want no error", err)
			}
			for i := range a.Layout().Slots * a.Layout().Agents {
				v := []float32{
					float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 1e-40, math.MaxFloat32,
					-1, 3,
				}[r.IntN(7)]
				if to := content[int(a.Layout().Offsets[vars[0]])+
					i*of.Width*of.Elem.Bytes():]; of.Elem == kernels.BF16 {
					device.Of[uint16](to[:2])[0] = device.ToBF16(v)
				} else {
					device.Of[float32](to[:4])[0] = v
				}
			}
			if err := s.memory.Write(t.Context(), uint64(page), content); err != nil {
				t.Fatalf("memory.Write: %v, want no error", err)
			}
		}
		states := allStates(t, s)
		for _, f := range fuses(a.Groups()) {
			want := plainFuse(t, a, states, f)
			got, err := a.Fuse(t.Context(), f.By, f.Nodes)
			if err != nil {
				t.Fatalf("a.Fuse: %v, want no error", err)
			}
			if !bytes.Equal(device.Bytes(want.Sums), device.Bytes(got.Sums)) || !slices.Equal(want.Counts, got.Counts) {
				t.Errorf("%s, %+v: %v and %v, want %v and %v", cell, f, got.Counts, got.Sums, want.Counts, want.Sums)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("s.Close: %v, want no error", err)
		}
	}
}

// TestFuseLong: a node has runs of runs, with many agents and small pages.
func TestFuseLong(t *testing.T) {
	text := "name: x\naddressed: agent\nagents: 20000\nagents_per_group: 8\ncell: {kind: leaky}\n"
	s := openPaged(t, openNamed(t, *opentest.Name), pages.NewBudget(40*testPage, 1<<30), text).(*agentState)
	testkit.Close(t, s)
	stir(t, rand.New(rand.NewPCG(4, 4)), s, 2)
	mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 3})
	for range 3 {
		mustApply(t, s, swarms.EntryObserve, randomAgents(rand.New(rand.NewPCG(4, 5)), 20000, 10000, 1))
	}
	checkRounds(t, s, math.MaxUint64)
	checkFuses(t, s)
}

// TestVotesAfterRestore: what a swarm whose pages are in a store votes and knows is the same in the
// next process.
func TestVotesAfterRestore(t *testing.T) {
	for name, text := range votedTexts {
		t.Run(name, func(t *testing.T) {
			ctx, disk, d := t.Context(), newDisk(), openNamed(t, *opentest.Name)
			ok := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%v, want no error", err)
				}
			}
			var answers [2][]Answer
			for process := range answers {
				s, store := openPaged(t, d, pages.NewBudget(int64(3+4*process)*testPage, 0), text).(*agentState),
					disk.open(t)
				ok(s.Memory().Open(ctx, store))
				ok(s.Restored(ctx))
				if process == 0 {
					stir(t, rand.New(rand.NewPCG(8, 8)), s, 5)
					ok(s.Memory().Checkpoint(ctx, []byte("note")))
				}
				checkRounds(t, s, 5)
				for _, f := range fuses(s.agents.Groups()) {
					f.Version = jobs.Version
					answers[process] = append(answers[process], mustApply(t, s, swarms.EntryFuse, f))
				}
				answers[process] = append(answers[process],
					mustApply(t, s, swarms.EntryVote,
						swarms.Vote{Version: jobs.Version, Round: 4, Priority: swarms.PrioritySeeded}))
				ok(errors.Join(s.Close(), store.Close()))
			}
			if d := diff(answers[0], answers[1], cmp.AllowUnexported(Answer{})); d != "" {
				t.Fatalf("difference (-want +got):\n%s", d)
			}
		})
	}
}

// TestFuseHalves: a fusion that the device has no room to make in one pass goes in windows, in
// smaller ones if there is too little room for those, and one for which there is none is an error
// of the device that has changed nothing.
func TestFuseHalves(t *testing.T) {
	d := faults.New(openHost(t))
	s := openPaged(t, d, nil, pagedTexts["gru"]).(*agentState)
	testkit.Close(t, s)
	stir(t, rand.New(rand.NewPCG(2, 2)), s, 4)
	for _, f := range fuses(s.agents.Groups()) {
		f.Version = jobs.Version
		want := mustApply(t, s, swarms.EntryFuse, f)
		for after := range 2 {
			d.Fail(faults.Alloc, after, 1, device.ErrOutOfMemory)
			got := mustApply(t, s, swarms.EntryFuse, f)
			d.Heal()
			if got.Halved != 0 || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("%+v, no room for one pass: halved %d times, another answer", f, got.Halved)
			}
		}
		for after := range 4 {
			s.Reduce(true) // no fusion in one pass
			d.Fail(faults.Alloc, after, 2, device.ErrOutOfMemory)
			got := mustApply(t, s, swarms.EntryFuse, f)
			d.Heal()
			s.Reduce(false)
			if got.Halved == 0 || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("%+v, the allocation after %d fails: halved %d times, another answer", f, after, got.Halved)
			}
		}
		d.Fail(faults.Alloc, 0, 1000, device.ErrOutOfMemory)
		_, err := s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryFuse, Data: encoded(t, f)})
		d.Heal()
		if !errors.Is(err, gpubatch.ErrDevice) || gpubatch.ClassOf(err) != gpubatch.ClassMemory {
			t.Errorf("%+v without room: %v", f, err)
		}
	}
}

// TestVoteFuseRefuse: what a stranger may ask is refused with a sentence; a drain ends a fusion
// with its reason, and no vote.
func TestVoteFuseRefuse(t *testing.T) {
	s := openAgentState(t, openHost(t), gruText)
	for _, c := range []struct{ kind, data, says string }{
		{
			swarms.EntryVote, `{"v":1,"round":1,"rule":"quorum","quorum":"3/2"}`,
			`vote: quorum "3/2": use a share above 0 and at most 1`,
		},
		{swarms.EntryFuse, `{"v":1,"by":"agent"}`, `fuse: by "agent": use group, vote or all`},
		{swarms.EntryFuse, `{"v":1,"by":"group","nodes":101}`, "fuse: nodes 101: the swarm has 100 groups: use at " +
			"most as many"},
	} {
		_, err := s.Apply(t.Context(), swarms.Entry{Kind: c.kind, Data: []byte(c.data)})
		var refused *jobs.Error
		if !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid ||
			!strings.HasPrefix(refused.Message, c.says) {
			t.Errorf("%s: got %v, want %s", c.data, err, c.says)
		}
	}
	wide := openAgentState(t, openHost(t), strings.NewReplacer("3300", "33000", "agents_per_group: 33",
		"agents_per_group: 1", "hidden: 5", "hidden: 32").Replace(gruText))
	most := swarms.MaxState / (4 + 8 + 4*32)
	_, err := wide.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryFuse, Data: []byte(`{"v":1,"by":"group"}`)})
	if want := fmt.Sprintf("fuse: 33000 nodes: ask for at most %d of this swarm", most); err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if n := len(mustApply(t, wide, swarms.EntryFuse,
		swarms.Fuse{Version: jobs.Version, By: swarms.ByGroup, Nodes: most}).Data); n > jobs.MaxMessage-4096 {
		t.Errorf("an answer of %d bytes", n)
	}
	for _, f := range []swarms.Fuse{{By: swarms.ByGroup, Nodes: 101}, {By: "x"}, {By: swarms.ByAll, Nodes: 1}} {
		if _, err := s.agents.Fuse(t.Context(), f.By, f.Nodes); !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("%+v: %v, want %v", f, err, agents.ErrInvalid)
		}
	}
	if _, err := s.agents.Vote(t.Context(), consensus.Rule{Kind: 9}, 1, false); !errors.Is(err, consensus.ErrRule) {
		t.Errorf("agents.Vote: %v, want %v", err, consensus.ErrRule)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrDrain)
	if _, err := s.Apply(ctx, swarms.Entry{Kind: swarms.EntryFuse, Data: []byte(`{"v":1,"by":"all"}`)}); !errors.Is(err,
		jobs.ErrDrain) {
		t.Errorf("fuse: %v, want %v", err, jobs.ErrDrain)
	}
	if _, err := s.Apply(ctx, swarms.Entry{Kind: swarms.EntryVote, Data: []byte(`{"v":1,"round":1}`)}); err != nil {
		t.Errorf("s.Apply: %v, want no error", err)
	}
}

// counted is a store that counts pages that are put.
type counted struct {
	pages.Store
	puts atomic.Int64
}

func (s *counted) Put(ctx context.Context, tier int, page uint64, content []byte, kind tiers.Kind) error {
	s.puts.Add(1)
	return s.Store.Put(ctx, tier, page, content, kind)
}

// TestFusePutsNothing: pages that pass the device for a fusion go without being written, and the
// next checkpoint has none to write.
func TestFusePutsNothing(t *testing.T) {
	s, store := openPaged(t, openNamed(t, *opentest.Name), pages.NewBudget(3*testPage, 0),
		pagedTexts["gru"]).(*agentState), &counted{Store: newDisk().open(t)}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v, want no error", err)
		}
	}
	ctx := t.Context()
	defer func() { ok(errors.Join(s.Close(), store.Close())) }()
	ok(s.Memory().Open(ctx, store))
	mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 2})
	ok(s.Memory().Checkpoint(ctx, []byte("ticked")))
	before := store.puts.Load()
	if before == 0 {
		t.Fatal("a checkpoint of a tick puts no page")
	}
	for _, f := range fuses(s.agents.Groups()) {
		f.Version = jobs.Version
		mustApply(t, s, swarms.EntryFuse, f)
	}
	mustApply(t, s, swarms.EntryVote, swarms.Vote{Version: jobs.Version, Round: 1})
	ok(s.Memory().Checkpoint(ctx, []byte("fused")))
	if n := store.puts.Load() - before; n != 0 {
		t.Errorf("%d pages were put", n)
	}
}
