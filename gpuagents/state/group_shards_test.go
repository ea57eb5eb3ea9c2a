package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// groupShards is the shards of one swarm whose groups are addressed, asked as a client asks them.
type groupShards struct {
	*sharded
}

const shardedGroups = 41

// openGroupShards makes a swarm of shardedGroups groups over some shards.
func openGroupShards(t testing.TB, d device.Device, store snapshot.Store, text string, shards int) groupShards {
	t.Helper()
	text += fmt.Sprintf("groups: %d\n", shardedGroups)
	return groupShards{openSharded(t, d, store, text, shards, 0, nil)}
}

func (s groupShards) observe(t testing.TB, o *batch.Observations) *batch.Decisions {
	t.Helper()
	split, err := swarmclient.SplitGroups(s.of, o.Group)
	if err != nil {
		t.Fatalf("swarmclient.SplitGroups: %v, want no error", err)
	}
	all := make([]*batch.Decisions, len(s.each))
	for k, one := range s.each {
		if !split.Has(k) {
			continue
		}
		a := mustApply(t, one, swarms.EntryObserve, split.GroupObservations(o, k))
		if all[k], err = batch.DecodeDecisions(a.Data); err != nil {
			t.Fatalf("batch.DecodeDecisions: %v, want no error", err)
		}
	}
	d, err := split.GroupDecisions(all)
	if err != nil {
		t.Fatalf("split.GroupDecisions: %v, want no error", err)
	}
	return d
}

// variables returns the variables of all agents and of all groups, in random order.
func (s groupShards) variables(t testing.TB) (*batch.AgentVariables, *batch.GroupVariables) {
	t.Helper()
	groups := make([]uint32, shardedGroups)
	agents := make([]uint32, shardedGroups*s.spec.AgentsPerGroup)
	for _, ids := range [][]uint32{groups, agents} {
		for i := range ids {
			ids[i] = uint32(i)
		}
		rand.New(rand.NewPCG(3, 3)).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	}
	byAgent, err := swarmclient.SplitAgents(s.of, s.spec.AgentsPerGroup, agents)
	byGroup, gerr := swarmclient.SplitGroups(s.of, groups)
	if err := errors.Join(err, gerr); err != nil {
		t.Fatalf("split: %v, want no error", err)
	}
	ofAgents, ofGroups := make([]*batch.AgentVariables, len(s.each)), make([]*batch.GroupVariables, len(s.each))
	for k, one := range s.each {
		ask := func(q swarms.Query) []byte {
			q.Version = jobs.Version
			return mustApply(t, one, swarms.EntryQuery, q).Data
		}
		ofAgents[k], err = batch.DecodeAgentVariables(ask(swarms.Query{Agents: byAgent.IDs(k)}))
		ofGroups[k], gerr = batch.DecodeGroupVariables(ask(swarms.Query{Groups: byGroup.IDs(k)}))
		if err := errors.Join(err, gerr); err != nil {
			t.Fatalf("decode variables: %v, want no error", err)
		}
	}
	a, err := byAgent.AgentVariables(ofAgents)
	g, gerr := byGroup.GroupVariables(ofGroups)
	if err := errors.Join(err, gerr); err != nil {
		t.Fatalf("merge variables: %v, want no error", err)
	}
	return a, g
}

// same compares all variables with another swarm.
func (s groupShards) same(t testing.TB, want groupShards) {
	t.Helper()
	a, g := s.variables(t)
	wantA, wantG := want.variables(t)
	if d := diff(wantA, a) + diff(wantG, g); d != "" {
		t.Fatalf("%d shards, want as %d: %s", len(s.each), len(want.each), d)
	}
}

// TestGroupShards: a swarm of several shards whose groups are addressed decides as one with one
// shard, and has the same variables and nodes. Its groups have the weights of their numbers.
func TestGroupShards(t *testing.T) {
	for name, text := range map[string]string{
		"predictor": keptTexts["predictor"], "lif": keptTexts["lif"],
		"gru":   "name: x\nagents_per_group: 9\npage_size: 64KiB\ncell: {kind: gru, weights: group}\n",
		"drops": "name: x\nagents_per_group: 9\npage_size: 64KiB\nobservations: {late: drop, duplicate: drop}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openHost(t)
			one := openGroupShards(t, d, nil, text, 1)
			var all []groupShards
			for _, shards := range []int{2, 3, 7} {
				all = append(all, openGroupShards(t, d, nil, text, shards))
			}
			r := rand.New(rand.NewPCG(5, 6))
			for range 3 {
				o := observations(r, shardedGroups, 300, len(one.spec.Features))
				o.Value = make([]float64, len(o.Features))
				want := one.observe(t, o)
				for _, s := range all {
					if d := diff(want, s.observe(t, o)); d != "" {
						t.Fatalf("%d shards: %s", len(s.each), d)
					}
				}
			}
			for _, s := range all {
				s.same(t, one)
				for _, f := range []swarms.Fuse{
					{By: swarms.ByAll}, {By: swarms.ByGroup}, {By: swarms.ByGroup, Nodes: 5},
				} {
					f.Version = jobs.Version
					got := s.fuse(t, f)
					want, err := batch.DecodeFusedNodes(mustApply(t, one.each[0], swarms.EntryFuse, f).Data)
					if err != nil {
						t.Fatalf("batch.DecodeFusedNodes: %v, want no error", err)
					}
					if f.By == swarms.ByGroup && f.Nodes == 0 { // each node has agents of one shard
						if d := diff(want, got); d != "" {
							t.Fatalf("%d shards: %s", len(s.each), d)
						}
					}
					if diff(want.Count, got.Count) != "" || diff(want.Node, got.Node) != "" {
						t.Fatalf("%d shards: %+v: counts %v, want %v", len(s.each), f, got.Count, want.Count)
					}
				}
			}
		})
	}
}

// TestGroupShardsRefuse: a shard refuses groups of another shard, and names that shard.
func TestGroupShardsRefuse(t *testing.T) {
	s := openGroupShards(t, openHost(t), nil, keptTexts["predictor"], 2) // groups 0 to 19 and 20 to 40
	o := observations(rand.New(rand.NewPCG(1, 1)), 20, 3, 1)
	for _, c := range []struct {
		shard int
		kind  string
		v     any
		want  string
	}{
		{1, swarms.EntryObserve, o, "has groups 20 to 40: write to the log of shard 0"},
		{0, swarms.EntryQuery, swarms.Query{Version: 1, Groups: []uint32{20}}, "write to the log of shard 1"},
		{0, swarms.EntryQuery, swarms.Query{Version: 1, Groups: []uint32{41}}, "query: group 41 of 41"},
		{0, swarms.EntrySwap, swarms.NewSwap([]swarms.SwapGroup{{Group: 30}}), "write to the log of shard 1"},
	} {
		_, err := s.each[c.shard].Apply(t.Context(), swarms.Entry{Kind: c.kind, Data: encoded(t, c.v)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("shard %d, %s: %v, want %s", c.shard, c.kind, err, c.want)
		}
	}
	if s.each[0].Info().Digest == s.each[1].Info().Digest {
		t.Error("the digests of two shards are equal: a checkpoint of one would be read by the other")
	}
}

// TestGroupShardsKept: a snapshot of a swarm of some shards restores swarms of other numbers of
// shards, and a swap moves states within a shard.
func TestGroupShardsKept(t *testing.T) {
	d, store := openHost(t), openStore(t)
	for _, shards := range []int{1, 3} {
		s := openGroupShards(t, d, store, keptTexts["predictor"], shards)
		s.observe(t, observations(rand.New(rand.NewPCG(2, 9)), shardedGroups, 400, 1))
		name, digests := fmt.Sprintf("of%d", shards), []string{}
		for _, one := range s.each {
			digests = append(digests, take(t, one, name, 9).SHA256)
		}
		from := swarms.SnapshotRef{Name: name, SHA256: digests[0]}
		if shards > 1 {
			from.SHA256 = snapshot.SetDigest(digests)
		}
		for _, to := range []int{1, 2, 3} {
			n := openGroupShards(t, d, store, keptTexts["predictor"], to)
			for _, one := range n.each {
				if err := errors.Join(one.Reset(t.Context()), one.Load(t.Context(), from)); err != nil {
					t.Fatalf("load: %v, want no error", err)
				}
			}
			n.same(t, s)
		}
		// The last shard has group 40: its state goes to group 39, which is of the same shard.
		last := s.each[shards-1]
		_, before := s.variables(t)
		var swapped swarms.Swapped
		take := swarms.NewSwap([]swarms.SwapGroup{{Group: 40, Tag: "a"}})
		if err := json.Unmarshal(mustApply(t, last, swarms.EntrySwap, take).Data, &swapped); err != nil {
			t.Fatalf("json.Unmarshal: %v, want no error", err)
		}
		mustApply(t, last, swarms.EntrySwap, swarms.NewSwap([]swarms.SwapGroup{{
			Group: 39, State: swapped.States[0].State,
		}}))
		_, after := s.variables(t)
		rounds := func(g *batch.GroupVariables, group uint32) uint64 {
			for i, id := range g.Group {
				if id == group {
					return g.Vars[0].Values.([]uint64)[i]
				}
			}
			return 0
		}
		if was, is := rounds(before, 40), rounds(after, 39); was == 0 || is != was || rounds(after, 40) != 0 {
			t.Errorf("%d shards: group 39 has round %d and group 40 round %d, want %d and 0", shards, is,
				rounds(after, 40), was)
		}
	}
}
