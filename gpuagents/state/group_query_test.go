package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// idList is ids as JSON has them.
func idList(ids []uint32) string { return strings.ReplaceAll(fmt.Sprint(ids), " ", ",") }

// someIDs returns ids below a number: scattered, in runs, or all the same.
func someIDs(r *rand.Rand, all, most int) []uint32 {
	ids := make([]uint32, 1+r.IntN(most))
	from, width := r.IntN(all), 1+r.IntN(all)
	for i := range ids {
		ids[i] = uint32((from + r.IntN(width)) % all)
	}
	switch r.IntN(3) {
	case 0:
		slices.Sort(ids)
	case 1:
		for i := range ids {
			ids[i] = uint32((from + i) % all)
		}
	}
	return ids
}

// groupQuestion is an entry that asks a swarm whose groups are addressed.
func groupQuestion(r *rand.Rand, groups, agents int) swarms.Entry {
	switch r.IntN(5) {
	case 4:
		return swarms.Entry{Kind: swarms.EntryCompute, Data: []byte([]string{
			`{"v":1,"text":"sum(round); m = count(agent % 3 == 1)"}`,
			`{"v":1,"text":"max(f32(round) * 0.5) by group where round > 1"}`,
		}[r.IntN(2)])}
	case 0:
		return swarms.Entry{Kind: swarms.EntryQuery, Data: fmt.Appendf(nil, `{"v":1,"groups":%s}`,
			idList(someIDs(r, groups, 60)))}
	case 1:
		return swarms.Entry{Kind: swarms.EntryFuse, Data: []byte([]string{
			`{"v":1,"by":"all"}`, `{"v":1,"by":"group"}`,
			`{"v":1,"by":"group","nodes":3}`,
		}[r.IntN(3)])}
	}
	return swarms.Entry{Kind: swarms.EntryQuery, Data: fmt.Appendf(nil, `{"v":1,"agents":%s}`,
		idList(someIDs(r, groups*agents, 400)))}
}

// plainVariable reads a variable of agents, or of groups, element by element, from all pages of a
// swarm.
func plainVariable(s *groupState, pages []byte, v int, ids []uint32) batch.Variable {
	l, of := s.layout, s.layout.Vars[v]
	size := of.Elem.Bytes()
	element := func(id uint32, c int) []byte {
		group, agent, agents := int(id), 0, 1
		if !of.Group {
			group, agent, agents = int(id)/l.Agents, int(id)%l.Agents, l.Agents
		}
		page, slot := group/l.Slots, group%l.Slots
		if of.Together {
			return pages[page*l.PageBytes+int(l.Offsets[v])+((slot*agents+agent)*of.Width+c)*size:][:size]
		}
		return pages[page*l.PageBytes+int(l.Offsets[v])+((c*l.Slots+slot)*agents+agent)*size:][:size]
	}
	out := batch.Variable{Name: of.Name, Width: of.Width}
	var f32 []float32
	var u64 []uint64
	var u32 []uint32
	var i64 []int64
	var u8 []uint8
	for _, id := range ids {
		for c := range of.Width {
			switch e := element(id, c); of.Elem {
			case kernels.F32:
				f32 = append(f32, math.Float32frombits(binary.LittleEndian.Uint32(e)))
			case kernels.BF16:
				f32 = append(f32, math.Float32frombits(uint32(binary.LittleEndian.Uint16(e))<<16))
			case kernels.U64:
				u64 = append(u64, binary.LittleEndian.Uint64(e))
			case kernels.U32:
				u32 = append(u32, binary.LittleEndian.Uint32(e))
			case kernels.I64:
				i64 = append(i64, int64(binary.LittleEndian.Uint64(e)))
			case kernels.U8:
				u8 = append(u8, e[0])
			}
		}
	}
	switch of.Elem {
	case kernels.U64:
		out.Values = u64
	case kernels.U32:
		out.Values = u32
	case kernels.I64:
		out.Values = i64
	case kernels.U8:
		out.Values = u8
	default:
		out.Values = f32
	}
	return out
}

// plainVariables are all variables of agents, or of groups, and the embeddings of agents.
func plainVariables(s *groupState, pages []byte, ids []uint32, groups bool) (vars []batch.Variable, embedding []float32,
	width int,
) {
	for v, of := range s.layout.Vars {
		if of.Group == groups {
			vars = append(vars, plainVariable(s, pages, v, ids))
		}
	}
	if groups {
		return vars, nil, 0
	}
	of, _ := s.bound.Embedding()
	for i := range ids {
		n := 0
		for _, v := range of {
			one := plainVariable(s, pages, v, ids[i:i+1])
			embedding, n = append(embedding, one.Values.([]float32)...), n+one.Width
		}
		width = n
	}
	return vars, embedding, width
}

// plainGroupFuse is a fusion as one Nodes.Accumulate of all agents by id. Agents of groups without
// observations weigh nothing.
func plainGroupFuse(t testing.TB, s *groupState, pages []byte, n int) fusion.Nodes {
	t.Helper()
	ids := make([]uint32, s.groups*s.layout.Agents)
	members, weights := make([]uint32, len(ids)), make([]uint32, len(ids))
	for i := range ids {
		ids[i] = uint32(i)
		group := i / s.layout.Agents
		members[i] = uint32(group * n / s.groups)
		if plainVariable(s, pages, 0, []uint32{uint32(group)}).Values.([]uint64)[0] > 0 {
			weights[i] = consensus.One
		}
	}
	_, embedding, width := plainVariables(s, pages, ids, false)
	nodes := fusion.Nodes{
		Dim: width, Sums: make([]float32, n*width), Weights: make([]uint64, n),
		Counts: make([]uint64, n),
	}
	if _, err := nodes.Accumulate(members, embedding, weights); err != nil {
		t.Fatalf("nodes.Accumulate: %v, want no error", err)
	}
	for node, w := range nodes.Weights {
		nodes.Counts[node] = w / consensus.One
	}
	return nodes
}

// checkQuestions asks a swarm at random and compares the answers with the plain ones of its pages,
// which no question changes.
func checkQuestions(t testing.TB, r *rand.Rand, p State, s *groupState) {
	t.Helper()
	pages, dirty, made := contents(t, s.memory), slices.Clone(s.memory.Dirty()), slices.Clone(s.memory.Made())
	ask := func(kind, text string) Answer {
		t.Helper()
		a, err := p.Apply(t.Context(), swarms.Entry{Kind: kind, Data: []byte(text)})
		if err != nil {
			t.Fatalf("%s: p.Apply: %v, want no error", text, err)
		}
		return a
	}
	for range testkit.Of(6, 2) {
		ids := someIDs(r, s.groups*s.layout.Agents, 500)
		a := ask(swarms.EntryQuery, fmt.Sprintf(`{"v":1,"agents":%s}`, idList(ids)))
		got, err := batch.DecodeAgentVariables(a.Data)
		if err != nil || a.Kind != swarms.EntryState {
			t.Fatalf("the query is answered with %q, %v, want %q", a.Kind, err, swarms.EntryState)
		}
		want := &batch.AgentVariables{Agent: ids}
		want.Vars, want.Embedding, want.Width = plainVariables(s, pages, ids, false)
		if !same(want, got) {
			t.Fatalf("agents %v: %s", ids, cmp.Diff(want, got))
		}
		ids = someIDs(r, s.groups, 60)
		groups, err := batch.DecodeGroupVariables(ask(swarms.EntryQuery,
			fmt.Sprintf(`{"v":1,"groups":%s}`, idList(ids))).Data)
		if err != nil {
			t.Fatalf("batch.DecodeGroupVariables: %v, want no error", err)
		}
		every := &batch.GroupVariables{Group: ids}
		every.Vars, _, _ = plainVariables(s, pages, ids, true)
		if !same(every, groups) {
			t.Fatalf("groups %v: %s", ids, cmp.Diff(every, groups))
		}
	}
	for text, n := range map[string]int{
		`"by":"all"`: 1, `"by":"group"`: s.groups, `"by":"group","nodes":7`: 7,
		fmt.Sprintf(`"by":"group","nodes":%d`, s.groups-1): s.groups - 1,
	} {
		want := plainGroupFuse(t, s, pages, n)
		for _, bytes := range []int{1, 100_000, fuseWindow} {
			if got, err := s.fuseAll(t.Context(), n, 0, n, bytes); err != nil || !sameNodes(want, got) {
				t.Fatalf("%d nodes in windows of %d bytes: %v: %s", n, bytes, err, cmp.Diff(want, got))
			}
		}
		a := ask(swarms.EntryFuse, `{"v":1,`+text+`}`)
		got, err := batch.DecodeFusedNodes(a.Data)
		if err != nil || a.Kind != swarms.EntryFused {
			t.Fatalf("the fusion is answered with %q, %v, want %q", a.Kind, err, swarms.EntryFused)
		}
		mean := make([]float32, len(want.Sums))
		if err := want.Means(mean); err != nil {
			t.Fatalf("want.Means: %v, want no error", err)
		}
		if len(got.Node) != n || !slices.Equal(got.Count, want.Counts) ||
			!bytes.Equal(device.Bytes(got.Mean), device.Bytes(mean)) {
			t.Fatalf("%s: %+v, want %v and %v", text, got, want.Counts, mean)
		}
	}
	if !bytes.Equal(pages, contents(t, s.memory)) || !slices.Equal(dirty, s.memory.Dirty()) ||
		!slices.Equal(made, s.memory.Made()) {
		t.Fatal("a question has changed pages, or marked or made some")
	}
}

// same compares to the bit: what is not a number is as good as any other.
func same(a, b interface{ Encode() ([]byte, error) }) bool {
	one, err := a.Encode()
	other, oerr := b.Encode()
	return err == nil && oerr == nil && bytes.Equal(one, other)
}

var questionTexts = map[string]string{
	"predictor": "name: x\nagents_per_group: 21\npage_size: 64KiB\n",
	"lif":       "name: x\nagents_per_group: 170\npage_size: 64KiB\ncell: {kind: lif}\nfeatures: [a, b]\n",
	"leaky":     "name: x\nagents_per_group: 150\npage_size: 64KiB\ncell: {kind: leaky}\n",
	"gru": "name: x\nagents_per_group: 33\npage_size: 64KiB\ncell: {kind: gru, params: {hidden: 5}}\n" +
		"features: [a, b]\n",
	"own": "name: x\nagents_per_group: 33\npage_size: 64KiB\ncell: {kind: gru, weights: group, params: " +
		"{hidden: 5}}\nfeatures: [a, b]\nobservations: {late: drop, duplicate: drop}\n",
}

// questionGroups are on 4 to 6 pages; some of them see nothing.
const questionGroups = 110

// TestGroupsQueryFuse: of every cell, with a frame for each page and with two, what is answered is
// what stands in the pages. The swarm that a snapshot makes answers the same.
func TestGroupsQueryFuse(t *testing.T) {
	for name, text := range questionTexts {
		for budgeted, b := range map[string]*pages.Budget{"resident": nil, "paged": pages.NewBudget(2*64<<10, 1<<30)} {
			t.Run(name+" "+budgeted, func(t *testing.T) {
				d, store := openHost(t), openStore(t)
				open := func(from *swarms.SnapshotRef) (*Snapshotter, *groupState) {
					t.Helper()
					k := openSnapshotterIn(t, d, b, store, text, questionGroups, from)
					return k, k.State.(*groupState)
				}
				k, s := open(nil)
				if n := len(s.memory.Made()); n < 3 || s.memory.Resident() != (b == nil) {
					t.Fatalf("%d pages, all on the device: %v", n, s.memory.Resident())
				}
				r := rand.New(rand.NewPCG(7, 8))
				checkQuestions(t, r, k, s) // nobody has seen anything, and there are no pages
				for _, groups := range []int{questionGroups / 2, questionGroups - 9} {
					data, err := observations(r, groups, 300, s.inputs).Encode()
					if err != nil {
						t.Fatalf("Encode: %v, want no error", err)
					}
					if _, err := k.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryObserve, Data: data}); err != nil {
						t.Fatalf("k.Apply: %v, want no error", err)
					}
					checkQuestions(t, r, k, s)
				}
				kept := take(t, k, "kept", 9)
				if err := s.Close(); err != nil { // frames for the other
					t.Fatalf("s.Close: %v, want no error", err)
				}
				again, restored := open(&swarms.SnapshotRef{Name: "kept", SHA256: kept.SHA256})
				if err := again.Load(t.Context(), *again.swarm.From); err != nil {
					t.Fatalf("again.Load: %v, want no error", err)
				}
				checkQuestions(t, r, again, restored)
			})
		}
	}
}

// customState is the state of a swarm with a custom cell without its kernel, which the host device
// has no compiler for, in pages of random bytes. Some groups have seen nothing, and of an agent
// here and there a value is not finite.
func customState(t *testing.T, d device.Device, types map[string]string, embedding []string) *groupState {
	t.Helper()
	of := celltest.Leaky(20)
	spec := swarm.Spec{
		Name: "x", Cell: swarm.Cell{
			Kind: "custom", State: types, Embedding: embedding, Step: of.Step,
			Params: of.Params,
		}, AgentsPerGroup: 37,
		Features: []string{"a", "b"}, Vote: swarm.Vote{Candidates: of.Candidates, Rule: "weighted"}, PageSize: 64 << 10,
	}
	b, err := spec.Bind()
	if err != nil {
		t.Fatalf("spec.Bind: %v, want no error", err)
	}
	l, err := b.Layout(int(spec.PageSize))
	if err != nil {
		t.Fatalf("b.Layout: %v, want no error", err)
	}
	s := &groupState{bound: b, layout: l, groups: questionGroups, has: allOf(questionGroups), inputs: 2}
	count := (s.groups + l.Slots - 1) / l.Slots
	if s.memory, err = pages.NewMemory(d, nil, 0, l.PageBytes, count); err != nil {
		t.Fatalf("pages.NewMemory: %v, want no error", err)
	}
	testkit.Close(t, s)
	r := rand.New(rand.NewPCG(1, 1))
	for page := range count {
		content := make([]byte, l.PageBytes)
		for i := range content {
			content[i] = byte(r.Uint32())
		}
		for v, of := range l.Vars {
			switch n := l.Slots * of.Width * l.Agents; {
			case of.Group && of.Name == "round":
				for slot, rounds := 3,
					device.Of[uint64](content[l.Offsets[v]:][:8*l.Slots]); slot < l.Slots; slot += 5 {
					rounds[slot] = 0
				}
			case !of.Group && of.Elem == kernels.F32:
				for i, all := 0, device.Of[float32](content[l.Offsets[v]:][:4*n]); i < n; i++ {
					if all[i] = float32(r.NormFloat64()); r.IntN(500) == 0 {
						all[i] = float32(math.Inf(1))
					}
				}
			case !of.Group && of.Elem == kernels.BF16:
				for i, all := 0, device.Of[uint16](content[l.Offsets[v]:][:2*n]); i < n; i++ {
					all[i] = uint16(math.Float32bits(float32(r.NormFloat64())) >> 16)
				}
			}
		}
		if page == 1 {
			continue // one that is not there
		}
		if err := s.memory.Write(t.Context(), uint64(page), content); err != nil {
			t.Fatalf("memory.Write: %v, want no error", err)
		}
	}
	return s
}

// TestGroupsQueryCustom: a query returns variables of all types, and the embeddings that a spec
// names, in its order.
func TestGroupsQueryCustom(t *testing.T) {
	types := map[string]string{"a": "f32[3]", "b": "bf16[2]", "c": "u8[5]", "d": "u64", "e": "u32[2]", "f": "bf16"}
	d := openHost(t)
	for _, embedding := range [][]string{nil, {"f", "a"}, {"b"}} {
		s := customState(t, d, types, embedding)
		checkQuestions(t, rand.New(rand.NewPCG(3, 4)), s, s)
	}
	s := customState(t, d, map[string]string{"c": "u8[5]"}, nil)
	a, err := s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryQuery, Data: []byte(`{"v":1,"agents":[0,40]}`)})
	if err != nil {
		t.Fatalf("s.Apply: %v, want no error", err)
	}
	if got, err := batch.DecodeAgentVariables(a.Data); err != nil || got.Width != 0 || len(got.Vars) != 1 ||
		len(got.Vars[0].Values.([]uint8)) != 10 {
		t.Errorf("%+v, error %v; want one variable of 10 values and no embedding", got, err)
	}
	refuses(t, s, swarms.EntryFuse, `{"v":1,"by":"all"}`, "the cell keeps no float variable")
}

// refuses checks that an entry is refused with a sentence.
func refuses(t *testing.T, p State, kind, data, want string) {
	t.Helper()
	_, err := p.Apply(t.Context(), swarms.Entry{Kind: kind, Data: []byte(data)})
	var refused *jobs.Error
	if !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid || !strings.Contains(err.Error(), want) {
		t.Errorf("%s %.100s: %v, want %q", kind, data, err, want)
	}
}

// TestGroupsRefuse: what cannot be answered is refused, and changes nothing. What can be is less
// than a message takes.
func TestGroupsRefuse(t *testing.T) {
	s := openGroupState(t, openHost(t), questionTexts["leaky"], questionGroups)
	many := func(n int) string { return idList(make([]uint32, n)) }
	for _, c := range []struct{ kind, data, want string }{
		{swarms.EntryQuery, `{"v":1,"agents":[16500]}`, "query: agent 16500 of 16500"},
		{swarms.EntryQuery, `{"v":1,"groups":[0,110]}`, "query: group 110 of 110"},
		{swarms.EntryQuery, `{"v":1,"agents":[4294967296]}`, "query: "},
		{swarms.EntryQuery, `{"v":1}`, "it names 0 agents and 0 groups"},
		{swarms.EntryQuery, `{"v":1,"agents":` + many(49153) + `}`, "query: 49153 agents: ask for at most 49152 of " +
			"this swarm at a time"},
		{swarms.EntryQuery, `{"v":1,"groups":` + many(49153) + `}`, "query: 49153 groups: ask for at most 35108"},
		{swarms.EntryFuse, `{"v":1,"by":"vote"}`, "keep no vote: fuse by group or all"},
		{swarms.EntryFuse, `{"v":1,"by":"group","nodes":111}`, "fuse: nodes 111: the swarm has 110 groups"},
		{swarms.EntryVote, `{"v":1,"round":1}`, "keep no vote"},
		{swarms.EntryTick, `{"v":1,"count":1}`, "step by observations"},
		{"what", `{}`, `kind "what": this swarm does not take it`},
	} {
		refuses(t, s, c.kind, c.data, c.want)
	}
	types := map[string]string{}
	for i := range kernels.MaxCustomVars { // the most columns
		types[fmt.Sprintf("v%d", i)] = "bf16[4]"
	}
	c := customState(t, openHost(t), types, nil)
	row := 4 + 2*4*4*kernels.MaxCustomVars
	refuses(t, c, swarms.EntryQuery, `{"v":1,"agents":`+many(swarms.MaxState/row+1)+`}`,
		fmt.Sprintf("ask for at most %d of", swarms.MaxState/row))
	for data, of := range map[string]*groupState{
		`{"v":1,"agents":` + many(49152) + `}`:               s,
		`{"v":1,"groups":` + many(35108) + `}`:               s,
		`{"v":1,"agents":` + many(swarms.MaxState/row) + `}`: c,
	} {
		a, err := of.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryQuery, Data: []byte(data)})
		if err != nil || len(a.Data) > 1<<20-4096 {
			t.Errorf("%d bytes: %v", len(a.Data), err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrDrain)
	if _, err := s.Apply(ctx, swarms.Entry{Kind: swarms.EntryFuse, Data: []byte(`{"v":1,"by":"all"}`)}); !errors.Is(err,
		jobs.ErrDrain) {
		t.Errorf("a fusion that a drain ends: %v", err)
	}
}
