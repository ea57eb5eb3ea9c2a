package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// hearText is a swarm whose agents hear both.
const hearText = "name: x\naddressed: agent\nagents: %d\nagents_per_group: 10\npage_size: 64KiB\n" +
	"features: [a, b]\nseed: 7\nhear: [leader, decision]\ncell: {kind: gru, params: {hidden: 6}}\n" +
	"vote: {candidates: [a, b, c], rule: majority}\n"

// decide votes in a swarm of any number of shards, as a client does, and returns the outcome.
func (s *sharded) decide(t testing.TB, v swarms.Vote) swarms.Voted {
	t.Helper()
	var all []swarms.Voted
	for _, one := range s.each {
		got, err := swarms.DecodeVoted(mustApply(t, one, swarms.EntryVote, v).Data)
		if err != nil {
			t.Fatalf("swarms.DecodeVoted: %v", err)
		}
		all, v.Round = append(all, got), got.Round
	}
	if len(s.each) == 1 {
		return all[0]
	}
	sum, err := swarmclient.MergeVotes(s.of, s.spec.AgentsPerGroup, len(s.spec.Vote.Candidates), v, all)
	if err != nil {
		t.Fatalf("swarmclient.MergeVotes: %v", err)
	}
	for i, one := range s.each {
		got, err := swarms.DecodeVoted(mustApply(t, one, swarms.EntryConclude, sum).Data)
		if err != nil || i > 0 && got.Term != all[0].Term {
			t.Fatalf("swarms.DecodeVoted: %v, term %d, want %d", err, got.Term, all[0].Term)
		}
		all[0] = got
	}
	return all[0]
}

// outcomeOf asks a state for its outcome.
func outcomeOf(t testing.TB, p State) swarms.Voted {
	t.Helper()
	v, err := swarms.DecodeVoted(mustApply(t, p, swarms.EntryQuery, swarms.Query{Version: 1, Outcome: true}).Data)
	if err != nil {
		t.Fatalf("swarms.DecodeVoted: %v", err)
	}
	return v
}

// TestOutcomeHeard: a swarm of one shard and one of three, whose agents hear, have the same
// outcomes and the same agents, through snapshots and resets. Agents that hear nothing have others.
// Rounds and terms only grow, and no term has two leaders.
func TestOutcomeHeard(t *testing.T) {
	d, store := openHost(t), openStore(t)
	const agents = 330
	open := func(shards int, text string) *sharded { return openSharded(t, d, store, text, shards, agents, nil) }
	text := fmt.Sprintf(hearText, agents)
	one, three := open(1, text), open(3, text)
	// The same inputs, with zeros for what is heard.
	deaf := open(1, strings.Replace(strings.Replace(text, "hear: [leader, decision]\n", "", 1), "features: [a, b]",
		"features: [a, b, c, d]", 1))
	r := rand.New(rand.NewPCG(25, 2))
	leaders := map[uint64]uint32{}
	var last swarms.Voted
	differs, term := 0, uint64(0)
	for step := range 40 {
		o := randomAgents(r, agents, 120, 2)
		one.observe(t, o)
		three.observe(t, o)
		wide := *o
		wide.Width, wide.Features = 4, nil
		for pair := range slices.Chunk(o.Features, 2) {
			wide.Features = append(wide.Features, pair[0], pair[1], 0, 0)
		}
		deaf.observe(t, &wide)
		v := swarms.Vote{Version: jobs.Version, Rule: swarms.RulePlurality}
		v.Priority = []string{"", swarms.PrioritySeeded, swarms.PriorityElected, swarms.PriorityElected}[r.IntN(4)]
		if v.Priority == swarms.PrioritySeeded || r.IntN(4) == 0 {
			v.Rule = swarms.RuleMajority
		}
		if r.IntN(4) == 0 {
			v.Round = last.Round + 1 + uint64(r.IntN(5))
		}
		got, want := three.decide(t, v), one.decide(t, v)
		if d := diff(want, got); d != "" {
			t.Fatalf("step %d: difference (-one shard +three):\n%s", step, d)
		}
		if d := diff(outcomeOf(t, one.each[0]), want); d != "" {
			t.Fatalf("step %d: difference (-outcome +vote):\n%s", step, d)
		}
		if want.Leader == nil {
			if want.Winner != nil || want.Term != 0 || v.Priority != swarms.PriorityElected {
				t.Fatalf("step %d: no leader: %+v", step, want)
			}
			want.Term = term // for the comparison with the next one
		} else if of, ok := leaders[want.Term]; ok && of != want.Leader.Agent {
			t.Fatalf("step %d: agents %d and %d lead in term %d", step, of, want.Leader.Agent, want.Term)
		} else {
			leaders[want.Term] = want.Leader.Agent
			if want.Leader.Vote == nil && want.Abstentions == 0 {
				t.Fatalf("step %d: %+v", step, want)
			}
			if v.Priority == swarms.PriorityElected && (want.Winner == nil || *want.Leader.Vote != *want.Winner) {
				t.Fatalf("step %d: the leader does not vote for the winner: %+v", step, want)
			}
		}
		if want.Round <= last.Round || want.Term < term || want.Term > want.Round {
			t.Fatalf("step %d: %+v after %+v", step, want, last)
		}
		last, term = want, want.Term
		one.tick(t, 1+step%3)
		three.tick(t, 1+step%3)
		deaf.tick(t, 1+step%3)
		ids := one.everyAgent()
		a, b := one.states(t, ids), three.states(t, ids)
		if !slices.Equal(a.State, b.State) || !slices.Equal(a.Vote, b.Vote) {
			t.Fatalf("step %d: the agents of three shards differ from the agents of one shard", step)
		}
		if !slices.Equal(a.State, deaf.states(t, ids).State) {
			differs++
		}
		if step == 20 {
			for _, s := range []*sharded{one, three} {
				for _, p := range s.each {
					mustApply(t, p, swarms.EntryReset, swarms.Reset{Version: jobs.Version})
					if of := outcomeOf(t, p); of.Round != 0 || p.rounds.Last() != last.Round {
						t.Fatalf("after a reset: %+v, round %d, want %d", of, p.rounds.Last(), last.Round)
					}
				}
			}
			mustApply(t, deaf.each[0], swarms.EntryReset, swarms.Reset{Version: jobs.Version})
		}
	}
	if differs < 30 || len(leaders) < 5 {
		t.Errorf("what is heard changed the agents after %d of 40 steps, and %d led", differs, len(leaders))
	}
}

// TestOutcomeReplayed: a state that applies what Skip leaves of the log has the agents and the
// outcome of the first, also from the middle on with what a checkpoint holds.
func TestOutcomeReplayed(t *testing.T) {
	d, r := openHost(t), rand.New(rand.NewPCG(25, 3))
	const agents = 330
	open := func() *Snapshotter {
		return openSharded(t, d, nil, fmt.Sprintf(hearText, agents), 1, agents, nil).each[0]
	}
	first, second, kept := open(), open(), open()
	const entries = 120
	for i := range entries {
		e := swarms.Entry{Seq: uint64(i + 1), Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
		switch r.IntN(5) {
		case 0:
			e.Kind, e.Data = swarms.EntryObserve, encoded(t, randomAgents(r, agents, 50, 2))
		case 1:
			e.Kind, e.Data = swarms.EntryVote, encoded(t, swarms.Vote{
				Version: 1, Round: uint64(r.IntN(60)), Rule: []string{"", swarms.RuleUnanimous}[r.IntN(2)],
				Priority: []string{swarms.PrioritySeeded, swarms.PriorityElected}[r.IntN(2)],
			})
		case 2:
			e.Kind, e.Data = swarms.EntryQuery, []byte(`{"v":1,"outcome":true}`)
		}
		_, err := first.Apply(t.Context(), e)
		if refused := (*jobs.Error)(nil); err != nil && !errors.As(err, &refused) {
			t.Fatalf("entry %d: %v", e.Seq, err)
		}
		for _, p := range []*Snapshotter{second, kept} {
			if p == kept && i < entries/2 || p.rounds.Skip(e) {
				continue
			}
			if _, again := p.Apply(t.Context(), e); fmt.Sprint(again) != fmt.Sprint(err) {
				t.Fatalf("entry %d: %v, in the replay %v", e.Seq, err, again)
			}
		}
		if i == entries/2-1 {
			note, err := json.Marshal(first.rounds.Outcome())
			if err != nil {
				t.Fatalf("json.Marshal: %v", err)
			}
			var of *swarms.Voted
			if err := json.Unmarshal(note, &of); err != nil || of == nil {
				t.Fatalf("json.Unmarshal: %v of %s", err, note)
			}
			all, err := first.Memory().Pack(t.Context())
			if err != nil {
				t.Fatalf("Pack: %v", err)
			}
			if err := kept.Memory().Unpack(t.Context(), all); err != nil {
				t.Fatalf("Unpack: %v", err)
			}
			if err := kept.Restored(t.Context()); err != nil {
				t.Fatalf("Restored: %v", err)
			}
			kept.rounds.Restore(first.rounds.Last(), of)
		}
	}
	want := contents(t, first.Memory())
	for name, p := range map[string]*Snapshotter{"the replay": second, "the checkpoint": kept} {
		if !slices.Equal(contents(t, p.Memory()), want) {
			t.Errorf("%s has other agents", name)
		}
		if d := diff(outcomeOf(t, first), outcomeOf(t, p)); d != "" {
			t.Errorf("%s: difference (-first +second):\n%s", name, d)
		}
	}
}

// TestConcludeRefused: a decision that the swarm cannot have made is refused, with the field and
// the cure, and changes nothing.
func TestConcludeRefused(t *testing.T) {
	d := openHost(t)
	const agents = 330
	three := openSharded(t, d, nil, fmt.Sprintf(hearText, agents), 3, agents, nil)
	p := three.each[1]
	good := `{"v":1,"round":4,"winner":1,"counts":[10,200,20],"abstentions":100,"quorum_met":true,` +
		`"leader":{"agent":329,"priority":1,"vote":2}}`
	mustApply(t, p, swarms.EntryConclude, json.RawMessage(good))
	for change, want := range map[string]string{
		`"round":4 -> "round":0`:                    "rounds count from 1",
		`[10,200,20] -> [10,200]`:                   "counts of 2 candidates",
		`[10,200,20] -> [10,200,21]`:                "the swarm has 330 agents",
		`[10,200,20] -> [10,200,19]`:                "leave out 1 agents",
		`"winner":1 -> "winner":3`:                  "winner 3: use 0 to 2",
		`"winner":1 -> "winner":-1`:                 "winner -1: use 0 to 2",
		`"agent":329 -> "agent":330`:                "leader 330",
		`"vote":2 -> "vote":3`:                      "vote 3 of the leader",
		`"abstentions":100 -> "loser":1`:            "unknown field",
		`"round":4 -> "bids":[null],"round":4`:      "only the agents of a shard bid",
		`[10,200,20] -> [1,18446744073709551615,1]`: "the swarm has 330 agents",
	} {
		from, to, _ := strings.Cut(change, " -> ")
		refuses(t, p, swarms.EntryConclude, strings.Replace(good, from, to, 1), want)
	}
	for _, round := range []string{"3", "4"} {
		e := swarms.Entry{
			Kind: swarms.EntryConclude, Data: []byte(strings.Replace(good, `"round":4`, `"round":`+round, 1)),
		}
		over := (*jobs.Error)(nil)
		if _, err := p.Apply(t.Context(), e); !errors.As(err, &over) || over.Code != jobs.CodeRound {
			t.Errorf("round %s after round 4: error %v, want CodeRound", round, err)
		}
	}
	if of := outcomeOf(t, p); of.Round != 4 || of.Term != 4 || *of.Winner != 1 {
		t.Errorf("after refusals: %+v", of)
	}
	one := openSharded(t, d, nil, fmt.Sprintf(hearText, agents), 1, agents, nil)
	refuses(t, one.each[0], swarms.EntryConclude, good, "conclude")
}
