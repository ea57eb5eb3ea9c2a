package state

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// mustCompute returns the answer to a text.
func mustCompute(t testing.TB, s State, want swarms.Compute) swarms.Computed {
	t.Helper()
	want.Version = 1
	c, err := swarms.DecodeComputed(mustApply(t, s, swarms.EntryCompute, want).Data)
	if err != nil {
		t.Fatalf("%q: DecodeComputed: %v, want no error", want.Text, err)
	}
	return c
}

// numbers are the values of an output, as text.
func numbers(t testing.TB, o swarms.ComputedOutput) (all []string) {
	t.Helper()
	f, err := expr.FoldOf(o.Fold, o.Type)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(o.N) / 8 {
		all = append(all, f.Text(expr.PartialAt(o.N, o.Bits, i)))
	}
	return all
}

// TestCompute compares folds of expressions with folds of the states that a query returns.
func TestCompute(t *testing.T) {
	for name, text := range map[string]string{
		"gru":  gruText,
		"bf16": strings.Replace(gruText, "hidden: 5", "hidden: 5, bf16: 1", 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := openAgentState(t, openNamed(t, *opentest.Name), text)
			r := rand.New(rand.NewPCG(24, 1))
			mustApply(t, s, swarms.EntryObserve, randomAgents(r, int(s.agents.Len()), 1500, 2))
			states := allStates(t, s)
			const per = 33
			want := map[string][]string{}
			sums, counts := make([]float64, 4), make([]int, 4)
			most, own := math.Inf(-1), make([]int, 100)
			for i, vote := range states.Vote {
				node := 3
				if vote != batch.NoVote {
					node = int(vote)
				}
				for _, v := range states.State[i*states.Width:][:5] {
					sums[node] += math.Abs(float64(v))
					counts[node]++
					if vote == 1 && v > 0.01 {
						own[i/per]++
					}
					most = math.Max(most, float64(v))
				}
			}
			if counts[1] == 0 || counts[3] == 0 {
				t.Fatalf("votes by candidate: %v, want some of candidate 1 and some agents that have none", counts)
			}
			for _, n := range own {
				want["own"] = append(want["own"], fmt.Sprint(n))
			}
			c := mustCompute(t, s, swarms.Compute{Text: "mean(abs(hidden)) where vote == 1; top = max(hidden); " +
				"n = count(true) where vote == 255; ids = sum(agent) where agent >= 3298"})
			got := []string{}
			for _, o := range c.Outputs {
				got = append(got, numbers(t, o)...)
			}
			mean := sums[1] / float64(counts[1])
			if v := c.Outputs[0]; math.Abs(number(t, v, 0)-mean) > 1e-12*mean {
				t.Errorf("the mean of the voters for candidate 1 is %s, want %v", got[0], mean)
			}
			if w := fmt.Sprintf("%v %d 6597", most, counts[3]/5); strings.Join(got[1:], " ") != w {
				t.Errorf("results %q, want %s", got[1:], w)
			}
			by := mustCompute(t, s, swarms.Compute{Text: "sum(abs(hidden)) by vote"})
			for k := range 3 {
				if v := number(t, by.Outputs[0], k); math.Abs(v-sums[k]) > 1e-12*sums[k] {
					t.Errorf("candidate %d: sum %v, want %v", k, v, sums[k])
				}
			}
			groups := mustCompute(t, s, swarms.Compute{Text: "own = count(hidden > 0.01) by group where vote == 1"})
			if got := numbers(t, groups.Outputs[0]); fmt.Sprint(got) != fmt.Sprint(want["own"]) {
				t.Errorf("by group: %v, want %v", got, want["own"])
			}
			part := mustCompute(t, s, swarms.Compute{
				Text: "own = count(hidden > 0.01) by group where vote == 1", First: 31, Groups: 12,
			})
			if got := numbers(t, part.Outputs[0]); part.First != 31 ||
				fmt.Sprint(got) != fmt.Sprint(want["own"][31:43]) {
				t.Errorf("groups from %d: %v, want from 31 %v", part.First, got, want["own"][31:43])
			}
		})
	}
}

// number returns one value of an output.
func number(t testing.TB, o swarms.ComputedOutput, i int) float64 {
	t.Helper()
	f, err := expr.FoldOf(o.Fold, o.Type)
	if err != nil {
		t.Fatal(err)
	}
	v, _ := f.Number(expr.PartialAt(o.N, o.Bits, i))
	return v
}

// TestComputeShards: the merged results of shards equal the results of one shard, sums except for
// the last bits.
func TestComputeShards(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	one := openAgentState(t, d, gruText)
	r := rand.New(rand.NewPCG(24, 2))
	o := randomAgents(r, 3300, 900, 2)
	mustApply(t, one, swarms.EntryObserve, o)
	text := strings.Replace(gruText, "seed: 3\n", "seed: 3\nshards: 3\n", 1)
	spec, err := swarm.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	record := swarms.Swarm{Groups: 100, Shards: 3}
	var shards []*agentState
	for k := range 3 {
		s, err := New(d, nil, spec, RangeOf(record, k))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		shards = append(shards, s.(*agentState))
		own := &batch.AgentObservations{Width: 2}
		first, end := record.ShardGroups(k)
		for i, id := range o.Agent {
			if g := int(id) / 33; g >= first && g < end {
				own.Agent, own.Features = append(own.Agent, id), append(own.Features, o.Features[2*i:][:2]...)
			}
		}
		mustApply(t, s, swarms.EntryObserve, own)
	}
	for _, want := range []swarms.Compute{
		{Text: "sum(agent) by vote; m = max(hidden) by vote; n = count(hidden > 0) by vote"},
		{Text: "mean(hidden) by group; i = min(group) by group"},
		{Text: "mean(hidden) by group", First: 30, Groups: 41},
		{Text: "x = sum(hidden); any(group == 99); all(hidden < 2) where vote == 0"},
	} {
		want.Text = strings.Replace(want.Text, "any(", "y = any(", 1)
		var all []swarms.Computed
		for _, s := range shards {
			all = append(all, mustCompute(t, s, want))
		}
		got, err := swarmclient.MergeComputed(all)
		if err != nil {
			t.Fatal(err)
		}
		whole := mustCompute(t, one, want)
		if got.First != whole.First || got.Nodes != whole.Nodes || len(got.Outputs) != len(whole.Outputs) {
			t.Fatalf("%+v: %d nodes from %d, want %d from %d", want, got.Nodes, got.First, whole.Nodes, whole.First)
		}
		for k, o := range whole.Outputs {
			for i := range whole.Nodes {
				a, b := number(t, got.Outputs[k], i), number(t, o, i)
				if a != b && math.Abs(a-b) > 1e-13*math.Abs(b) && !(a != a && b != b) {
					t.Errorf("%q, output %d, node %d: %v of three shards, %v of one", want.Text, k, i, a, b)
				}
			}
		}
	}
}

// TestComputeRefused: mistakes are answered with what is wrong and what there is.
func TestComputeRefused(t *testing.T) {
	s := openAgentState(t, openHost(t), gruText)
	groups := openPaged(t, openHost(t), nil, pagedTexts["lif"])
	t.Cleanup(func() { groups.Close() })
	text := func(s string) string {
		data, err := json.Marshal(swarms.Compute{Version: 1, Text: s})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, c := range []struct {
		s          State
		data, want string
	}{
		{s, text("mean(hiden)"), `no variable "hiden": use one of [agent counts group hidden input round vote]`},
		{s, text("mean(hidden) where vote"), "where: it is u8: use a condition"},
		{s, text("mean(hidden) by cell"), "by cell: use by group, by vote, by all"},
		{s, text("mean(hidden) by group; x = sum(vote)"), "all outputs of a text have the same by"},
		{s, text("hidden"), "use one of sum, mean, min, max, count, any, all of one value"},
		{s, text("sum(cumsum(vote))"), "cumsum: only operations of each agent alone"},
		{s, text("sum(hidden) where input > 0"), "where: rows of 2, the value has rows of 5"},
		{s, text("sum(hidden"), `expected "," or ")"`},
		{s, text(""), "the text is empty"},
		{s, text("sum(" + strings.Repeat("-", 10<<20) + "1)"), "bytes of JSON: at most 1048576 are taken"},
		{s, text("sum(" + strings.Repeat("-", 64<<10) + "1)"), "the text has 65542 bytes: use at most 65536"},
		{s, text("sum(" + strings.Repeat("-", 1000) + "1)"), "more than 200 levels"},
		{s, `{"v":1,"text":"sum(vote)","first":3}`, "only a text by group has them"},
		{s, `{"v":1,"text":"sum(vote) by group","first":90,"groups":11}`, "the swarm has 100 groups"},
		{s, `{"v":1,"text":"sum(vote) by group","first":-1}`, "use 0 or more"},
		{s, `{"v":1,"text":"sum(vote)","by":"x"}`, `unknown field "by"`},
		{groups, text("mean(hidden)"), `there is no variable "hidden"`},
		{groups, text("count(true) by vote"), "keep no vote"},
	} {
		refuses(t, c.s, swarms.EntryCompute, c.data, c.want)
	}
}
