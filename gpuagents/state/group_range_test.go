package state

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// sharded is the shards of one swarm, asked as a client asks them.
type sharded struct {
	of   swarms.Swarm
	spec *swarm.Spec
	each []*Snapshotter
}

// openSharded makes a swarm with a number of shards. It has agents agents; 0: as many as the text
// says.
func openSharded(t testing.TB, d device.Device, store snapshot.Store, text string, shards int, agents int64,
	from *swarms.SnapshotRef,
) *sharded {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text+fmt.Sprintf("shards: %d\n", shards)))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	if agents != 0 {
		spec.Agents = agents
	}
	s := &sharded{spec: spec}
	for k := range shards {
		s.each = append(s.each, openShard(t, d, nil, store, spec, spec.Groups(), k, from))
	}
	s.of = s.each[0].swarm
	return s
}

func (s *sharded) observe(t testing.TB, o *batch.AgentObservations) *batch.AgentDecisions {
	t.Helper()
	split, err := swarmclient.SplitAgents(s.of, s.spec.AgentsPerGroup, o.Agent)
	if err != nil {
		t.Fatalf("swarmclient.SplitAgents: %v, want no error", err)
	}
	all := make([]*batch.AgentDecisions, len(s.each))
	for k, one := range s.each {
		if !split.Has(k) {
			continue
		}
		a := mustApply(t, one, swarms.EntryObserve, split.Observations(o, k))
		if all[k], err = batch.DecodeAgentDecisions(a.Data); err != nil {
			t.Fatalf("batch.DecodeAgentDecisions: %v, want no error", err)
		}
	}
	d, err := split.Decisions(all)
	if err != nil {
		t.Fatalf("split.Decisions: %v, want no error", err)
	}
	return d
}

func (s *sharded) tick(t testing.TB, count int) swarms.Ticked {
	t.Helper()
	for s.spec.MergesNodes() && count > 1 {
		s.tick(t, 1)
		count--
	}
	var all []swarms.Ticked
	tick := swarms.Tick{Version: jobs.Version, Count: count, Sums: s.sums(t)}
	for _, one := range s.each {
		got, err := swarms.DecodeTicked(mustApply(t, one, swarms.EntryTick, tick).Data)
		if err != nil {
			t.Fatalf("swarms.DecodeTicked: %v, want no error", err)
		}
		all = append(all, got)
	}
	sum, err := swarmclient.MergeTicked(s.of, s.spec.AgentsPerGroup, len(s.spec.Vote.Candidates), count, all)
	if err != nil {
		t.Fatalf("swarmclient.MergeTicked: %v, want no error", err)
	}
	return sum
}

// sums returns the sums of nodes with agents of several shards; nil: no node has such agents.
func (s *sharded) sums(t testing.TB) []byte {
	t.Helper()
	if !s.spec.MergesNodes() {
		return nil
	}
	var all [][]byte
	for _, one := range s.each {
		got, err := swarms.DecodeNodeSums(mustApply(t, one, swarms.EntryQuery, swarms.Query{
			Version: jobs.Version, Sums: true,
		}).Data)
		if err != nil {
			t.Fatalf("swarms.DecodeNodeSums: %v, want no error", err)
		}
		all = append(all, got.Words)
	}
	sums, err := swarmclient.MergeSums(s.spec.KnowledgeNodes(), s.spec.Knowledge.Units, s.spec.Knowledge.Merge, all)
	if err != nil {
		t.Fatalf("swarmclient.MergeSums: %v, want no error", err)
	}
	return sums
}

func (s *sharded) vote(t testing.TB, v swarms.Vote) swarms.Voted {
	t.Helper()
	var all []swarms.Voted
	for _, one := range s.each {
		one.rounds.Restore(0, nil) // rounds have tests of their own
		got, err := swarms.DecodeVoted(mustApply(t, one, swarms.EntryVote, v).Data)
		if err != nil {
			t.Fatalf("swarms.DecodeVoted: %v, want no error", err)
		}
		all = append(all, got)
	}
	sum, err := swarmclient.MergeVotes(s.of, s.spec.AgentsPerGroup, len(s.spec.Vote.Candidates), v, all)
	if err != nil {
		t.Fatalf("swarmclient.MergeVotes: %v, want no error", err)
	}
	return sum
}

func (s *sharded) fuse(t testing.TB, f swarms.Fuse) *batch.FusedNodes {
	t.Helper()
	f.Sums = true
	var all []*batch.FusedSums
	for _, one := range s.each {
		got, err := batch.DecodeFusedSums(mustApply(t, one, swarms.EntryFuse, f).Data)
		if err != nil {
			t.Fatalf("batch.DecodeFusedSums: %v, want no error", err)
		}
		all = append(all, got)
	}
	sum, err := swarmclient.MergeFused(s.of, s.spec.AgentsPerGroup, len(s.spec.Vote.Candidates), f, all)
	if err != nil {
		t.Fatalf("swarmclient.MergeFused: %v, want no error", err)
	}
	return sum
}

// states are the states of agents, groups the states of all groups.
func (s *sharded) states(t testing.TB, ids []uint32) *batch.AgentStates {
	t.Helper()
	split, err := swarmclient.SplitAgents(s.of, s.spec.AgentsPerGroup, ids)
	if err != nil {
		t.Fatalf("swarmclient.SplitAgents: %v, want no error", err)
	}
	all := make([]*batch.AgentStates, len(s.each))
	for k, one := range s.each {
		if !split.Has(k) {
			continue
		}
		if all[k], err = batch.DecodeAgentStates(mustApply(t, one, swarms.EntryQuery,
			swarms.Query{Version: jobs.Version, Agents: split.IDs(k)}).Data); err != nil {
			t.Fatalf("batch.DecodeAgentStates: %v, want no error", err)
		}
	}
	a, err := split.AgentStates(all)
	if err != nil {
		t.Fatalf("split.AgentStates: %v, want no error", err)
	}
	return a
}

func (s *sharded) groups(t testing.TB) *batch.GroupStates {
	t.Helper()
	ids := make([]uint32, s.of.Groups)
	for i := range ids {
		ids[i] = uint32(i)
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	split, err := swarmclient.SplitGroups(s.of, ids)
	if err != nil {
		t.Fatalf("swarmclient.SplitGroups: %v, want no error", err)
	}
	all := make([]*batch.GroupStates, len(s.each))
	for k, one := range s.each {
		if all[k], err = batch.DecodeGroupStates(mustApply(t, one, swarms.EntryQuery,
			swarms.Query{Version: jobs.Version, Groups: split.IDs(k)}).Data); err != nil {
			t.Fatalf("batch.DecodeGroupStates: %v, want no error", err)
		}
	}
	g, err := split.GroupStates(all)
	if err != nil {
		t.Fatalf("split.GroupStates: %v, want no error", err)
	}
	return g
}

// everyAgent is all ids, in no order.
func (s *sharded) everyAgent() []uint32 {
	ids := make([]uint32, s.spec.Agents)
	for i := range ids {
		ids[i] = uint32(i)
	}
	rand.New(rand.NewPCG(2, 2)).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

// same: two swarms have the same agents and groups, and decide alike under every rule.
func (s *sharded) same(t testing.TB, o *sharded, round uint64) {
	t.Helper()
	for _, v := range []swarms.Vote{
		{},
		{Rule: swarms.RulePlurality, Priority: swarms.PriorityUniform},
		{Rule: swarms.RuleMajority},
		{Rule: swarms.RuleMajority, Of: swarms.OfAll},
		{Rule: swarms.RuleQuorum, Quorum: "2/5", Of: swarms.OfAll},
		{Rule: swarms.RuleQuorum, Quorum: "0.9"},
		{Rule: swarms.RuleUnanimous},
		{Rule: swarms.RuleUnanimous, Of: swarms.OfAll},
	} {
		v.Version = jobs.Version
		for _, priority := range []string{v.Priority, swarms.PrioritySeeded} {
			round++
			v.Priority, v.Round = priority, round
			if d := diff(o.vote(t, v), s.vote(t, v)); d != "" {
				t.Fatalf("%d and %d shards: %+v: %s", len(o.each), len(s.each), v, d)
			}
		}
	}
	// Votes of quantum change what agents vote for.
	if d := diff(o.states(t, s.everyAgent()), s.states(t, s.everyAgent())); d != "" {
		t.Fatalf("%d and %d shards: agents: %s", len(o.each), len(s.each), d)
	}
	if d := diff(o.groups(t), s.groups(t)); d != "" {
		t.Fatalf("%d and %d shards: groups: %s", len(o.each), len(s.each), d)
	}
}

// TestShards: swarms of several shards hold, decide and answer the same as a swarm of one shard,
// whatever the cuts. Their nodes equal a fusion.Total of their shards. Nodes with groups of one
// shard alone equal the nodes of one shard to the bit.
func TestShards(t *testing.T) {
	for name, text := range map[string]string{
		"gru": gruText, "bf16": strings.Replace(gruText, "hidden: 5", "hidden: 5, bf16: 1", 1),
		"leaky": keptTexts["leaky by agent"], "quantum": keptTexts["quantum"], "items": askingText,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openHost(t)
			twin := openSharded(t, d, nil, text, 1, 0, nil)
			var all []*sharded
			for _, shards := range []int{2, 3, 7} {
				all = append(all, openSharded(t, d, nil, text, shards, 0, nil))
			}
			r := rand.New(rand.NewPCG(5, 6))
			for i := range 3 {
				o := randomFor(r, int(twin.spec.Agents), 1+200*i, cellOf(twin.each[0]))
				decided := twin.observe(t, o)
				for _, s := range all {
					if d := diff(decided, s.observe(t, o), cmpopts.EquateNaNs()); d != "" {
						t.Fatalf("%d shards: %s", len(s.each), d)
					}
					if i == 0 { // most have not stepped
						s.same(t, twin, 100)
					}
				}
				ticked := twin.tick(t, 1+i)
				for _, s := range all {
					if d := diff(ticked, s.tick(t, 1+i)); d != "" {
						t.Fatalf("%d shards: %s", len(s.each), d)
					}
				}
				if i == 0 {
					continue
				}
				for _, s := range all {
					s.same(t, twin, uint64(1000*i))
					for _, f := range fuses(twin.of.Groups) {
						if name == "quantum" { // it has no embeddings
							break
						}
						f.Version = jobs.Version
						s.sameFuse(t, twin, f)
					}
				}
			}
		})
	}
}

// sameFuse compares a fusion with the fusion of one shard, and with the total of plain fusions
// of the agents of each shard.
func (s *sharded) sameFuse(t testing.TB, twin *sharded, f swarms.Fuse) {
	t.Helper()
	got := s.fuse(t, f)
	one, err := batch.DecodeFusedNodes(mustApply(t, twin.each[0], swarms.EntryFuse, f).Data)
	if err != nil {
		t.Fatalf("batch.DecodeFusedNodes: %v, want no error", err)
	}
	if !slices.Equal(got.Count, one.Count) || !slices.Equal(got.Node, one.Node) {
		t.Fatalf("%d shards: %+v: counts %v of nodes %v, want %v of %v", len(s.each), f, got.Count, got.Node, one.Count,
			one.Node)
	}
	nodes, width := len(one.Node), one.Width
	states := allStates(t, twin.each[0].State.(*agentState))
	const dim = 8 // nodes want a multiple of it: what pads embeddings is zeros
	total := fusion.Total{
		Dim: dim, Sums: make([]float64, nodes*dim), Weights: make([]uint64, nodes), Counts: make([]uint64, nodes),
	}
	shardsOf := make([]int, nodes)
	for k := range s.each {
		first, end := s.of.ShardGroups(k)
		members, weights, rows := []uint32(nil), []uint32(nil), []float32(nil)
		for id := first * s.spec.AgentsPerGroup; id < end*s.spec.AgentsPerGroup; id++ {
			weight, node := uint32(consensus.One), uint32(0)
			if states.Vote[id] == batch.NoVote {
				weight = 0
			}
			switch f.By {
			case swarms.ByVote:
				if node = uint32(states.Vote[id]); states.Vote[id] == batch.NoVote {
					node = fusion.None
				}
			case swarms.ByGroup:
				node = uint32(id / s.spec.AgentsPerGroup * nodes / s.of.Groups)
			}
			members, weights, rows = append(members, node), append(weights, weight),
				append(append(rows, states.State[id*states.Width:][:width]...), make([]float32, dim-width)...)
		}
		part := fusion.Nodes{
			Dim: dim, Sums: make([]float32, nodes*dim), Weights: make([]uint64, nodes),
			Counts: make([]uint64, nodes),
		}
		if _, err := part.Accumulate(members, rows, weights); err != nil {
			t.Fatalf("part.Accumulate: %v, want no error", err)
		}
		for node, w := range part.Weights {
			if w > 0 {
				shardsOf[node]++
			}
			total.Weights[node] += w
		}
		for i, v := range part.Sums {
			total.Sums[i] += float64(v)
		}
	}
	want := make([]float32, nodes*dim)
	if err := total.Means(want); err != nil {
		t.Fatalf("total.Means: %v, want no error", err)
	}
	for i := range got.Mean {
		if want := want[i/width*dim+i%width]; math.Float32bits(got.Mean[i]) != math.Float32bits(want) {
			t.Fatalf("%d shards: %+v: node %d: %v, want %v", len(s.each), f, i/width, got.Mean[i], want)
		}
		if shardsOf[i/width] == 1 && math.Float32bits(got.Mean[i]) != math.Float32bits(one.Mean[i]) {
			t.Fatalf("%d shards: %+v: node %d of one shard: %v, of one alone %v", len(s.each), f, i/width, got.Mean[i],
				one.Mean[i])
		}
		if math.Abs(float64(got.Mean[i]-one.Mean[i])) > 1e-5 {
			t.Fatalf("%d shards: %+v: node %d: %v, of one shard %v", len(s.each), f, i/width, got.Mean[i], one.Mean[i])
		}
	}
}

// TestShardRefuses: a shard refuses what is another's, and says whose it is.
func TestShardRefuses(t *testing.T) {
	d := openHost(t)
	s := openSharded(t, d, nil, gruText, 3, 0, nil) // groups 0 to 32, 33 to 65 and 66 to 99
	for _, c := range []struct {
		shard int
		kind  string
		v     any
		says  string
	}{
		{1, swarms.EntryObserve, &batch.AgentObservations{
			Agent: []uint32{1089, 1088}, Features: make([]float32, 4),
			Width: 2,
		}, "observation 1 is for agent 1088: shard 1 of 3 has agents 1089 to 2177: write to the log of " +
			"shard 0"},
		{
			1, swarms.EntryObserve, &batch.AgentObservations{
				Agent: []uint32{2178}, Features: make([]float32, 2),
				Width: 2,
			},
			"observation 0 is for agent 2178: shard 1 of 3 has agents 1089 to 2177: write to the log of shard 2",
		},
		{
			2, swarms.EntryObserve, &batch.AgentObservations{
				Agent: []uint32{3300}, Features: make([]float32, 2),
				Width: 2,
			},
			"observation 0 is for agent 3300 of 3300",
		},
		{0, swarms.EntryQuery, swarms.Query{Version: 1, Agents: []uint32{0, 3299}}, "query: agent 3299: shard 0 of 3 " +
			"has agents 0 to 1088: write to the log of shard 2"},
		{
			2, swarms.EntryQuery,
			swarms.Query{Version: 1, Groups: []uint32{99, 33}},
			"query: group 33: shard 2 of 3 has " +
				"groups 66 to 99: write to the log of shard 1",
		},
		{2, swarms.EntryQuery, swarms.Query{Version: 1, Groups: []uint32{100}}, "query: group 100 of 100"},
		{
			2, swarms.EntryFuse,
			swarms.Fuse{Version: 1, By: swarms.ByGroup, Nodes: 101},
			"fuse: nodes 101: the swarm has " +
				"100 groups",
		},
	} {
		_, err := s.each[c.shard].Apply(t.Context(), swarms.Entry{Kind: c.kind, Data: encoded(t, c.v)})
		var refused *jobs.Error
		if !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid ||
			!strings.HasPrefix(refused.Message, c.says) {
			t.Errorf("shard %d, %s: %v, want %s", c.shard, c.kind, err, c.says)
		}
	}
	for text, h := range map[string]GroupRange{
		"its record has 2 shards, its spec 1":                            {Shards: 2, Groups: 50, All: 100},
		"its record has 99 groups, its spec 3300 agents in groups of 33": {Shards: 1, Groups: 99, All: 99},
	} {
		spec, err := swarm.Parse("test.yaml", []byte(gruText))
		if err != nil {
			t.Fatalf("swarm.Parse: %v, want no error", err)
		}
		var refused *jobs.Error
		if _, err := New(d, nil, spec, h); !errors.As(err, &refused) || !strings.HasPrefix(refused.Message, text) {
			t.Errorf("%v, want %s", err, text)
		}
	}
	spec, err := swarm.Parse("test.yaml", []byte(keptTexts["predictor"]))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	if _, err := New(d, nil, spec, GroupRange{Shards: 2, Groups: 1, All: 2}); err == nil ||
		!strings.Contains(err.Error(), "its record has 2 shards, its spec 1: write the same in both") {
		t.Errorf("New: %v, want the numbers of shards in its text", err)
	}
	a, b := s.each[0].Info().Digest, s.each[1].Info().Digest
	if a == b {
		t.Error("pages of two shards mean the same")
	}
}

// TestShardsKept: snapshots of swarms of one and of several shards go on in swarms of one and of
// several, also of more and of fewer groups; what is missing, or is of another swarm, is said.
func TestShardsKept(t *testing.T) {
	for name, text := range map[string]string{"gru": gruText, "leaky": keptTexts["leaky by agent"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, store := openHost(t), openStore(t)
			twin := openSharded(t, d, store, text, 1, 0, nil)
			r := rand.New(rand.NewPCG(7, 8))
			o := randomAgents(r, int(twin.spec.Agents), 300, len(twin.spec.Features))
			next := randomAgents(r, int(twin.spec.Agents)/2, 300, len(twin.spec.Features))
			for _, shards := range []int{1, 3, 7} {
				s := twin
				if shards > 1 {
					s = openSharded(t, d, store, text, shards, 0, nil)
				}
				s.observe(t, o)
				s.tick(t, 3)
				name := fmt.Sprintf("of%d", shards)
				var digests []string
				for k, one := range s.each {
					done := take(t, one, name, uint64(9+k))
					if again := take(t, one, name, uint64(9+k)); again != done {
						t.Fatalf("%+v, and again %+v", done, again)
					}
					digests = append(digests, done.SHA256)
				}
				from := &swarms.SnapshotRef{Name: name, SHA256: digests[0]}
				if shards > 1 {
					from.SHA256 = snapshot.SetDigest(digests)
				}
				parts, digest, err := snapshot.ReadSet(t.Context(), store, name)
				if err != nil || len(parts) != shards || digest != from.SHA256 {
					t.Fatalf("the set has %d parts and the digest %s, %v, want %d and %s",
						len(parts), digest, err, shards, from.SHA256)
				}
				for _, to := range []int{1, 2, 5} {
					for _, agents := range []int64{0, twin.spec.Agents * 2, twin.spec.Agents / 2} {
						if agents != 0 && to != 2 {
							continue
						}
						n := openSharded(t, d, store, text, to, agents, from)
						for _, one := range n.each {
							if err := one.Reset(t.Context()); err != nil {
								t.Fatalf("one.Reset: %v, want no error", err)
							}
							if err := one.Load(t.Context(), *from); err != nil {
								t.Fatalf("one.Load: %v, want no error", err)
							}
						}
						ids := n.everyAgent()
						ids = slices.DeleteFunc(ids, func(id uint32) bool { return int64(id) >= twin.spec.Agents })
						if d := diff(s.states(t, ids), n.states(t, ids)); d != "" {
							t.Fatalf("%d shards to %d with %d agents: %s", shards, to, agents, d)
						}
						if agents == 0 {
							n.same(t, s, uint64(100*to))
						}
						if agents > 0 && agents > twin.spec.Agents &&
							n.states(t, []uint32{uint32(agents - 1)}).Vote[0] != batch.NoVote {
							t.Error("an agent that was added has stepped")
						}
					}
				}
				if shards == 3 {
					s.keptRefused(t, store, name, digests)
				}
			}
			// All go on alike.
			a, b := openSharded(t, d, store, text, 2, 0, &swarms.SnapshotRef{}), twin
			_, digest, err := snapshot.ReadSet(t.Context(), store, "of7")
			if err != nil {
				t.Fatalf("snapshot.ReadSet: %v, want no error", err)
			}
			for _, one := range a.each {
				if err := errors.Join(one.Reset(t.Context()),
					one.Load(t.Context(), swarms.SnapshotRef{Name: "of7", SHA256: digest})); err != nil {
					t.Fatalf("joined errors: %v, want no error", err)
				}
			}
			if d := diff(b.observe(t, next), a.observe(t, next)); d != "" {
				t.Fatalf("difference (-want +got):\n%s", d)
			}
			a.same(t, b, 1)
		})
	}
}

// keptRefused has shards begin as what they cannot.
func (s *sharded) keptRefused(t *testing.T, store snapshot.Store, name string, digests []string) {
	t.Helper()
	own := swarms.SnapshotRef{Name: snapshot.PartName(name, 1), SHA256: digests[1]}
	if err := s.each[1].Load(t.Context(), own); err != nil { // as its base
		t.Errorf("Load: %v, want no error", err)
	}
	set := snapshot.SetDigest(digests)
	for want, c := range map[string]struct {
		shard int
		from  swarms.SnapshotRef
	}{
		"it has shard 1 of 3 of a swarm alone":                {0, own},
		"its manifest has the SHA-256 " + set:                 {0, swarms.SnapshotRef{Name: name, SHA256: digests[0]}},
		"snapshot nothing: snapshot not found":                {0, swarms.SnapshotRef{Name: "nothing", SHA256: set}},
		"snapshot half-shard1: snapshot not found":            {0, swarms.SnapshotRef{Name: "half", SHA256: set}},
		"mixed-shard1 is not of shard 1 of 3 of the swarm":    {0, swarms.SnapshotRef{Name: "mixed", SHA256: set}},
		"snapshot whole: snapshot does not fit: whole-shard0": {0, swarms.SnapshotRef{Name: "whole", SHA256: set}},
	} {
		switch c.from.Name {
		case "half":
			take(t, s.each[0], "half", 20)
		case "mixed":
			other := *s.each[1]
			other.swarm.ID = "other"
			take(t, s.each[0], "mixed", 20)
			take(t, &other, "mixed", 20)
			take(t, s.each[2], "mixed", 20)
		case "whole":
			one := openSharded(t, openHost(t), store, gruText, 1, 0, nil)
			take(t, one.each[0], "whole-shard0", 20)
		}
		var refused *jobs.Error
		if err := s.each[c.shard].Load(t.Context(), c.from); !errors.As(err, &refused) ||
			!strings.Contains(refused.Message, want) {
			t.Errorf("%s: %v, want %s", c.from.Name, err, want)
		}
	}
	long := strings.Repeat("a", 58)
	_, err := s.each[0].Apply(t.Context(), swarms.Entry{
		Seq: 1, Kind: swarms.EntrySnapshot,
		Data: []byte(`{"v":1,"name":"` + long + `"}`),
	})
	if err == nil || !strings.Contains(err.Error(), "choose a shorter name") {
		t.Errorf("Apply: %v, want %q in its text", err, "choose a shorter name")
	}
}
