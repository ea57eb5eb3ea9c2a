package gpuprocess

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// shards is a swarm of several, asked as a client asks it, one entry at a time.
type shards struct {
	*rig
	of   swarms.Swarm
	spec *swarm.Spec
	last []uint64 // entry by shard
}

// openShards announces a swarm of a number of shards: 900 agents in groups of 10.
func (r *rig) openShards(tb testing.TB, id string, n int) *shards {
	tb.Helper()
	spec, err := swarm.Parse("test.yaml", fmt.Appendf(nil, "name: x\naddressed: agent\nagents: 900\n"+
		"agents_per_group: 10\nshards: %d\npage_size: 64KiB\nfeatures: [a, b]\nseed: 3\n"+
		"cell: {kind: gru, params: {hidden: 5}}\nvote: {candidates: [a, b, c], rule: majority}\ncheckpoint: "+
		"{interval: 1h, entries: 3}\n", n))
	if err != nil {
		tb.Fatalf("swarm.Parse test.yaml: %v", err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		tb.Fatalf("json.Marshal: %v", err)
	}
	s := &shards{r, swarms.Swarm{
		Version: jobs.Version, ID: id, Name: spec.Name, Spec: data, Groups: spec.Groups(),
		Shards: n,
	}, spec, make([]uint64, n)}
	for k := range n {
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			if err := r.conn.Swarms.Log(id, k, d).Create(tb.Context()); err != nil {
				tb.Fatalf("r.conn.Swarms.Log().Create: %v", err)
			}
		}
	}
	r.record(tb, s.of)
	return s
}

// tell appends an entry to the log of each shard that has data.
func (s *shards) tell(tb testing.TB, kind string, data [][]byte) {
	tb.Helper()
	for k, d := range data {
		if d == nil {
			continue
		}
		if err := s.conn.Swarms.Log(s.of.ID, k, swarms.In).Append(tb.Context(), s.last[k],
			swarms.Entry{Kind: kind, Ref: s.last[k] + 1, Data: d}); err != nil {
			tb.Fatalf("s.conn.Swarms.Log().Append: %v", err)
		}
		s.last[k]++
	}
}

// said is the answer of a shard to its last entry.
func (s *shards) said(tb testing.TB, k int, want string) []byte {
	tb.Helper()
	n := s.last[k]
	s.wait(tb, fmt.Sprintf("answer %d of shard %d of %s", n, k, s.of.ID), func() bool {
		last, err := s.conn.Swarms.Log(s.of.ID, k, swarms.Out).Last(tb.Context())
		return err == nil && last.Ref >= n
	})
	r, err := s.conn.Swarms.Log(s.of.ID, k, swarms.Out).Read(tb.Context(), n)
	if err != nil {
		tb.Fatalf("s.conn.Swarms.Log().Read: %v", err)
	}
	defer r.Close()
	e, err := r.Next(tb.Context())
	if err != nil || e.Ref != n || e.Kind != want {
		tb.Fatalf("%s, shard %d: %s to entry %d: %s: %v", s.of.ID, k, e.Kind, e.Ref, e.Data, err)
	}
	return e.Data
}

// round observes, ticks and votes, and returns what is said of that, and what all agents are then.
func (s *shards) round(tb testing.TB, o *batch.AgentObservations, number uint64) []any {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	all := func(kind string, v any) {
		tb.Helper()
		data, err := json.Marshal(v)
		must(err)
		s.tell(tb, kind, slices.Repeat([][]byte{data}, len(s.last)))
	}
	split, err := swarmclient.SplitAgents(s.of, 10, o.Agent)
	must(err)
	data := make([][]byte, len(s.last))
	for k := range data {
		if split.Has(k) {
			data[k], err = split.Observations(o, k).Encode()
			must(err)
		}
	}
	s.tell(tb, swarms.EntryObserve, data)
	given := make([]*batch.AgentDecisions, len(s.last))
	for k := range given {
		if data[k] != nil {
			given[k], err = batch.DecodeAgentDecisions(s.said(tb, k, swarms.EntryDecide))
			must(err)
		}
	}
	decided, err := split.Decisions(given)
	must(err)
	all(swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 2})
	var ticks []swarms.Ticked
	for k := range s.last {
		t, err := swarms.DecodeTicked(s.said(tb, k, swarms.EntryTicked))
		must(err)
		ticks = append(ticks, t)
	}
	ticked, err := swarmclient.MergeTicked(s.of, 10, 3, 2, ticks)
	must(err)
	want := swarms.Vote{
		Version: jobs.Version, Round: number, Rule: swarms.RuleMajority, Of: swarms.OfAll,
		Priority: swarms.PrioritySeeded,
	}
	all(swarms.EntryVote, want)
	var votes []swarms.Voted
	for k := range s.last {
		v, err := swarms.DecodeVoted(s.said(tb, k, swarms.EntryVoted))
		must(err)
		votes = append(votes, v)
	}
	voted, err := swarmclient.MergeVotes(s.of, 10, 3, want, votes)
	must(err)
	ids := make([]uint32, 900)
	for i := range ids {
		ids[i] = uint32(i)
	}
	everybody, err := swarmclient.SplitAgents(s.of, 10, ids)
	must(err)
	for k := range data {
		data[k], err = json.Marshal(swarms.Query{Version: jobs.Version, Agents: everybody.IDs(k)})
		must(err)
	}
	s.tell(tb, swarms.EntryQuery, data)
	are := make([]*batch.AgentStates, len(s.last))
	for k := range are {
		are[k], err = batch.DecodeAgentStates(s.said(tb, k, swarms.EntryState))
		must(err)
	}
	states, err := everybody.AgentStates(are)
	must(err)
	return []any{decided, ticked, voted, states}
}

// inputs are observations of random agents, some of them twice.
func inputs(r *rand.Rand) *batch.AgentObservations {
	o := &batch.AgentObservations{Width: 2}
	for range 200 {
		o.Agent = append(o.Agent, uint32(r.IntN(900)))
		o.Features = append(o.Features, float32(r.NormFloat64()), float32(r.NormFloat64()))
	}
	return o
}

// onDevices are the devices on which each shard was served, in order.
func (s *shards) onDevices() [][]string {
	on := make([][]string, len(s.last))
	for _, line := range strings.Split(s.String(), "\n") {
		for k := range on {
			if strings.Contains(line, "serving shard") &&
				strings.Contains(line, fmt.Sprintf("swarm=%s shard=%d ", s.of.ID, k)) {
				_, rest, _ := strings.Cut(line, " device=")
				name, _, _ := strings.Cut(rest, " ")
				on[k] = append(on[k], name)
			}
		}
	}
	return on
}

// TestShardsOnDevices: a swarm with a shard on each device of an agent is as one of one shard, also
// when a device fails, whose shard goes to another.
func TestShardsOnDevices(t *testing.T) {
	t.Parallel()
	plain := newRig(t)
	plain.start(t, gpuagents.Options{})
	twin := plain.openShards(t, "one", 1)
	s := newSeveral(t, 4, 4, 4)
	three := s.openShards(t, "three", 3)
	r := rand.New(rand.NewPCG(1, 2))
	same := func(round uint64) {
		t.Helper()
		o := inputs(r)
		if d := cmp.Diff(twin.round(t, o, round), three.round(t, o, round)); d != "" {
			t.Fatalf("round %d: %s", round, d)
		}
	}
	same(1)
	var names []string
	of := -1
	for k, on := range three.onDevices() {
		if len(on) != 1 {
			t.Fatalf("shard %d was served on %v", k, on)
		}
		if names = append(names, on[0]); on[0] == "gpu1" {
			of = k
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"gpu0", "gpu1", "gpu2"}) || s.agent.Shards() != 3 {
		t.Fatalf("%d shards on %v", s.agent.Shards(), names)
	}
	s.devices[1].Fail(faults.Launch, 0, 1<<30, device.ErrTransient)
	same(2)
	for k, on := range three.onDevices() {
		if k != of && len(on) != 1 {
			t.Errorf("shard %d of another device was served on %v", k, on)
		}
		if k == of && on[len(on)-1] == "gpu1" {
			t.Errorf("the shard of the device that fails was served on %v", on)
		}
	}
	if levels := s.agent.Levels(); levels[0] != pool.Normal || levels[1] == pool.Normal || levels[2] != pool.Normal ||
		s.agent.Health() != nil {
		t.Errorf("levels %v, health %v", levels, s.agent.Health())
	}
	s.devices[1].Heal()
	same(3)
}
