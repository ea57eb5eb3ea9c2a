package state

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// knowText is a swarm whose agents hear their group, and a node of it.
const knowText = "name: x\naddressed: agent\nagents: %d\nagents_per_group: 10\npage_size: 64KiB\n" +
	"features: [a, b]\nseed: 7\nhear: [decision, group, knowledge, leader]\nknowledge: {units: 2, merge: ema}\n" +
	"cell: {kind: gru, params: {hidden: 6}}\nvote: {candidates: [a, b, c], rule: majority}\n"

// nodesOf asks the shards of a swarm for all nodes.
func (s *sharded) nodesOf(t testing.TB) *batch.KnownNodes {
	t.Helper()
	n := s.spec.KnowledgeNodes()
	var ids []uint32
	for k := range n {
		ids = append(ids, uint32(k))
	}
	split, err := swarmclient.SplitNodes(s.of, s.spec.SharedNodes(), s.spec.MergesNodes(), ids)
	if err != nil {
		t.Fatalf("swarmclient.SplitNodes: %v", err)
	}
	all := make([]*batch.KnownNodes, len(s.each))
	for k, p := range s.each {
		a := mustApply(t, p, swarms.EntryQuery, swarms.Query{Version: 1, Groups: split.IDs(k), Knowledge: true})
		if all[k], err = batch.DecodeKnownNodes(a.Data); err != nil || a.Kind != swarms.EntryKnown {
			t.Fatalf("DecodeKnownNodes: %v of a %s", err, a.Kind)
		}
	}
	nodes, err := split.KnownNodes(all)
	if err != nil {
		t.Fatalf("KnownNodes: %v", err)
	}
	return nodes
}

// learn merges values into nodes of the shards of a swarm.
func (s *sharded) learn(t testing.TB, l swarms.Learn) {
	t.Helper()
	split, err := swarmclient.SplitNodes(s.of, s.spec.SharedNodes(), s.spec.MergesNodes(), l.Nodes)
	if err != nil {
		t.Fatalf("swarmclient.SplitNodes: %v", err)
	}
	for k, p := range s.each {
		if split.Has(k) {
			mustApply(t, p, swarms.EntryLearn, split.Lessons(l, k))
		}
	}
}

// TestKnowledge: a swarm of one shard and one of three have the same agents and nodes, and so has a
// state that goes on from the pages of the first. A tick of several steps is as many ticks, and
// agents that hear nothing of their group are others.
//
// Nodes are of groups, of runs of groups that do not end with pages, and by vote and by key, whose
// sums are merged over the shards. Some learn.
func TestKnowledge(t *testing.T) {
	for _, nodes := range []string{
		"merge: ema", "nodes: 3, merge: ema", "nodes: 12, merge: ema", "nodes: 33, merge: ema",
		"merge: attention", "nodes: 6, merge: attention, focus: 4", "by: vote, merge: ema", "by: vote, merge: max",
		"by: vote, merge: attention", "by: key, nodes: 7, merge: ema", "by: key, nodes: 11, merge: attention",
		"by: key, nodes: 1, merge: mean",
	} {
		t.Run(nodes, func(t *testing.T) { testKnowledge(t, nodes) })
	}
}

// testKnowledge is TestKnowledge for some nodes.
func testKnowledge(t *testing.T, some string) {
	d, store := openHost(t), openStore(t)
	const agents = 330
	const shards = 3
	text := strings.Replace(fmt.Sprintf(knowText, agents), "merge: ema", some, 1)
	open := func(shards int, text string) *sharded { return openSharded(t, d, store, text, shards, agents, nil) }
	one, three, single := open(1, text), open(shards, text), open(1, text)
	deaf := open(1, strings.Replace(strings.Replace(text, "group, knowledge, ", "", 1),
		"knowledge: {units: 2, "+some+"}\n", "", 1))
	r := rand.New(rand.NewPCG(25, 11))
	differs := 0
	for step := range 20 {
		o := randomAgents(r, agents, 120, 2)
		n := 1 + step%4
		lesson, err := swarms.DecodeLearn(randomLesson(t, r, len(one.nodesOf(t).Node), 2).Data)
		if err != nil {
			t.Fatalf("DecodeLearn: %v", err)
		}
		for _, s := range []*sharded{one, three, single, deaf} {
			s.observe(t, o)
			s.decide(t, swarms.Vote{Version: 1, Priority: swarms.PrioritySeeded})
			if step%3 == 1 && s != deaf {
				s.learn(t, lesson)
			}
			if s != single {
				s.tick(t, n)
				continue
			}
			for range n {
				s.tick(t, 1)
			}
		}
		ids := one.everyAgent()
		want := one.states(t, ids)
		for name, s := range map[string]*sharded{"three shards": three, "single ticks": single} {
			got := s.states(t, ids)
			if !slices.Equal(got.State, want.State) || !slices.Equal(got.Vote, want.Vote) {
				t.Fatalf("step %d: agents of %s differ", step, name)
			}
			nodes, like := s.nodesOf(t), one.nodesOf(t)
			if s.spec.MergesNodes() {
				nodes.Age = like.Age // other groups have the copies
			}
			if !reflect.DeepEqual(nodes, like) || like.Width != 2 || step == 19 && slices.Max(like.Updates) < 15 {
				t.Fatalf("step %d: nodes of %s are %+v, want %+v", step, name, nodes, like)
			}
		}
		if !slices.Equal(want.State, deaf.states(t, ids).State) {
			differs++
		}
		if step%5 == 4 { // another process goes on from the pages
			next := open(1, text)
			pages, err := single.each[0].Memory().Pack(t.Context())
			if err != nil {
				t.Fatalf("Pack: %v", err)
			}
			if err := next.each[0].Memory().Unpack(t.Context(), pages); err != nil {
				t.Fatalf("Unpack: %v", err)
			}
			if err := next.each[0].Restored(t.Context()); err != nil {
				t.Fatalf("Restored: %v", err)
			}
			next.each[0].rounds.Restore(single.each[0].rounds.Last(), single.each[0].rounds.Outcome())
			single = next
		}
		if step == 12 {
			for _, s := range []*sharded{one, three, single, deaf} {
				for _, p := range s.each {
					mustApply(t, p, swarms.EntryReset, swarms.Reset{Version: 1})
				}
				if s != deaf && slices.Max(s.nodesOf(t).Updates) != 0 {
					t.Fatal("a reset leaves nodes")
				}
			}
		}
	}
	if differs < 18 {
		t.Errorf("what is heard changed the agents after %d of 20 steps", differs)
	}
	last := one.spec.KnowledgeNodes()
	for _, c := range []struct {
		of               *sharded
		kind, data, want string
	}{
		{deaf, swarms.EntryQuery, `{"v":1,"groups":[1],"knowledge":true}`, "no knowledge nodes"},
		{one, swarms.EntryQuery, `{"v":1,"agents":[1],"knowledge":true}`, "name the groups"},
		{one, swarms.EntryQuery, fmt.Sprintf(`{"v":1,"groups":[%d],"knowledge":true}`, last), "node"},
		{deaf, swarms.EntryLearn, `{"v":1,"nodes":[1],"values":[0,0]}`, "no knowledge nodes: write hear"},
		{one, swarms.EntryLearn, `{"v":1,"nodes":[1],"values":[0]}`, "2 units: use 2 values"},
		{one, swarms.EntryLearn, `{"v":1,"nodes":[1,0],"values":[0,0,0]}`, "3 values for 2 nodes"},
		{one, swarms.EntryLearn, `{"v":1,"nodes":[],"values":[]}`, "0 nodes: use 1 to"},
		{one, swarms.EntryLearn, fmt.Sprintf(`{"v":1,"nodes":[0,%d],"values":[0,0,0,0]}`, last), "row 2: node"},
		{one, swarms.EntryLearn, `{"v":1,"nodes":[2,1,2],"values":[0,0,0,0,0,0]}`, "row 3: row 1 has node 2 too"},
		{one, swarms.EntryLearn, `{"v":1,"nodes":[1,2],"values":[0,0,0,1.25]}`, "row 2, node 2: value 2 is 1.25"},
		{one, swarms.EntryLearn, `{"v":1,"nodes":[1],"values":[0,1e39]}`, "learn"},
		{one, swarms.EntryLearn, `{"v":1,"nodes":[1],"values":[0,NaN]}`, "learn"},
		{three, swarms.EntryLearn, fmt.Sprintf(`{"v":1,"nodes":[%d],"values":[0,0]}`, last-1), "log of shard 2"},
	} {
		if c.of != three || !three.spec.MergesNodes() {
			refuses(t, c.of.each[0], c.kind, c.data, c.want)
		}
	}
}

// TestSumsRefused: a swarm takes the sums of nodes that have agents of several shards, and needs
// them, and takes none that its agents cannot have.
func TestSumsRefused(t *testing.T) {
	d, store := openHost(t), openStore(t)
	const agents = 330
	open := func(shards int, some string) *sharded {
		text := strings.Replace(fmt.Sprintf(knowText, agents), "merge: ema", some, 1)
		return openSharded(t, d, store, text, shards, agents, nil)
	}
	plain, one, mean := open(3, "nodes: 3"), open(1, "by: vote"), open(3, "by: key, nodes: 2")
	largest, focused := open(3, "by: vote, merge: max"), open(2, "by: vote, merge: attention")
	sums := func(words ...uint64) string {
		data, err := json.Marshal(swarms.Tick{Version: 1, Count: 1, Sums: swarms.PutWords(words)})
		if err != nil {
			t.Fatalf("Marshal: %v", err)
		}
		return string(data)
	}
	negative := ^uint64(0) - 1<<14 // -(2^14 + 1)
	for _, c := range []struct {
		of               *sharded
		kind, data, want string
	}{
		{plain, swarms.EntryQuery, `{"v":1,"sums":true}`, "only a swarm of several shards"},
		{one, swarms.EntryQuery, `{"v":1,"sums":true}`, "only a swarm of several shards"},
		{mean, swarms.EntryQuery, `{"v":1,"sums":true,"groups":[1]}`, "beside the outcome or the sums"},
		{mean, swarms.EntryQuery, `{"v":1,"sums":true,"outcome":true}`, "ask for one of them"},
		{plain, swarms.EntryTick, sums(0, 0, 0), "leave them out"},
		{one, swarms.EntryTick, sums(0, 0, 0), "leave them out"},
		{mean, swarms.EntryTick, `{"v":1,"count":1}`, "ask each shard for its sums"},
		{mean, swarms.EntryTick, `{"v":1,"count":2,"sums":"AAAA"}`, "count 2 with sums"},
		{mean, swarms.EntryTick, `{"v":1,"count":1,"sums":"AAAA"}`, "sums of 3 bytes"},
		{mean, swarms.EntryTick, sums(0, 0, 0), "3 words: the swarm has 2 nodes of 2 units: use 3 for each"},
		{mean, swarms.EntryTick, sums(0, 0, 0, 0, 0, agents+1), "node 1 has a count of 331, and 330 are left"},
		{mean, swarms.EntryTick, sums(0, 0, 200, 0, 0, 131), "node 1 has a count of 131, and 130 are left"},
		{mean, swarms.EntryTick, sums(0, 1<<14+1, 1, 0, 0, 0), "node 0, unit 2: a sum of 16385"},
		{mean, swarms.EntryTick, sums(0, 0, 0, negative, 0, 1), "node 1, unit 1: a sum of -16385"},
		{mean, swarms.EntryTick, sums(0, 0, 0, 1<<63, 0, 1), "unit 1: a sum of -9223372036854775808"},
		{largest, swarms.EntryTick, sums(1<<15+1, 0, 1, 0, 0, 0, 0, 0, 0), "a sum of 32769 by max"},
		{largest, swarms.EntryTick, sums(1, 0, 0, 0, 0, 0, 0, 0, 0), "a sum of 1 by max of a count of 0"},
		{focused, swarms.EntryTick, sums(0, 0, agents<<16+1, 0, 0, 0, 0, 0, 0), "node 0 has a count"},
	} {
		refuses(t, c.of.each[0], c.kind, c.data, c.want)
	}
	for _, s := range []*sharded{mean, largest, focused} {
		s.tick(t, 2) // what its own agents have
	}
	mustApply(t, focused.each[0], swarms.EntryTick, json.RawMessage(sums(agents<<30, 0, agents<<16, 0, 0, 0, 0, 0, 0)))
}

// TestMergingTurns: sums go to the order of a shard and back, and nodes to their sums.
func TestMergingTurns(t *testing.T) {
	for _, m := range []merging{{nodes: 1, units: 3}, {nodes: 7, units: 2, first: 5}, {nodes: 4, units: 1, first: 1}} {
		var sums []uint64
		for i := range m.nodes * (m.units + 1) {
			sums = append(sums, uint64(i))
		}
		own := m.own(slices.Clone(sums))
		if got := m.whole(own); !slices.Equal(got, sums) {
			t.Errorf("%+v: %v, want %v", m, got, sums)
		}
		for node := range m.nodes {
			at := int(m.local([]uint32{uint32(node)})[0])
			if got, want := own[at*(m.units+1)], sums[node*(m.units+1)]; got != want {
				t.Errorf("%+v: node %d has the sums %d, want %d", m, node, got, want)
			}
		}
	}
}
