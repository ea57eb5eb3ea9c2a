package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// knowText is a swarm whose agents hear their group, and a node of it.
const knowText = "name: x\naddressed: agent\nagents: %d\nagents_per_group: 10\npage_size: 64KiB\n" +
	"features: [a, b]\nseed: 7\nhear: [decision, group, knowledge, leader]\nknowledge: {units: 2, merge: ema}\n" +
	"cell: {kind: gru, params: {hidden: 6}}\nvote: {candidates: [a, b, c], rule: majority}\n"

// nodesOf asks the shards of a swarm for the nodes of all groups.
func (s *sharded) nodesOf(t testing.TB) (all []batch.FusedNodes) {
	t.Helper()
	for k, p := range s.each {
		of := RangeOf(s.of, k)
		var ids []uint32
		for g := range of.Groups {
			ids = append(ids, uint32(of.First+g))
		}
		a := mustApply(t, p, swarms.EntryQuery, swarms.Query{Version: 1, Groups: ids, Knowledge: true})
		f, err := batch.DecodeFusedNodes(a.Data)
		if err != nil || a.Kind != swarms.EntryFused {
			t.Fatalf("DecodeFusedNodes: %v of a %s", err, a.Kind)
		}
		all = append(all, *f)
	}
	return all
}

// TestKnowledge: a swarm of one shard and one of three have the same agents and nodes, and so has a
// state that goes on from the pages of the first. A tick of several steps is as many ticks, and agents
// that hear nothing of their group are others.
func TestKnowledge(t *testing.T) {
	d, store := openHost(t), openStore(t)
	const agents = 330
	text := fmt.Sprintf(knowText, agents)
	open := func(shards int, text string) *sharded { return openSharded(t, d, store, text, shards, agents, nil) }
	one, three, single := open(1, text), open(3, text), open(1, text)
	deaf := open(1, strings.Replace(strings.Replace(text, "group, knowledge, ", "", 1),
		"knowledge: {units: 2, merge: ema}\n", "", 1))
	r := rand.New(rand.NewPCG(25, 11))
	differs := 0
	for step := range 20 {
		o := randomAgents(r, agents, 120, 2)
		n := 1 + step%4
		for _, s := range []*sharded{one, three, single, deaf} {
			s.observe(t, o)
			s.decide(t, swarms.Vote{Version: 1, Priority: swarms.PrioritySeeded})
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
			var nodes []float32
			var updates []uint64
			for _, f := range s.nodesOf(t) {
				nodes, updates = append(nodes, f.Mean...), append(updates, f.Count...)
			}
			if all := one.nodesOf(t)[0]; !slices.Equal(nodes, all.Mean) || !slices.Equal(updates, all.Count) ||
				all.Width != 2 || step == 19 && slices.Max(all.Count) < 15 {
				t.Fatalf("step %d: nodes of %s are %v, %v, want %+v", step, name, nodes, updates, all)
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
				if s != deaf && slices.Max(s.nodesOf(t)[0].Count) != 0 {
					t.Fatal("a reset leaves nodes")
				}
			}
		}
	}
	if differs < 18 {
		t.Errorf("what is heard changed the agents after %d of 20 steps", differs)
	}
	refuses(t, deaf.each[0], swarms.EntryQuery, `{"v":1,"groups":[1],"knowledge":true}`, "no knowledge nodes")
	refuses(t, one.each[0], swarms.EntryQuery, `{"v":1,"agents":[1],"knowledge":true}`, "name the groups")
	refuses(t, one.each[0], swarms.EntryQuery, `{"v":1,"groups":[33],"knowledge":true}`, "group")
}
