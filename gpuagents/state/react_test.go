package state

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestReactions: a swarm with rules has the agents and the outcomes of a twin without, whose caller
// makes the ticks and the resets behind each vote. A replay of the log, from its start and from a
// checkpoint behind any entry, has them too.
func TestReactions(t *testing.T) {
	d, r := openHost(t), rand.New(rand.NewPCG(25, 8))
	const agents = 330
	text := fmt.Sprintf(hearText, agents)
	rules := text + "on_decision: [changed -> tick 2, \"none -> reset, tick 1, emit y\", \"a -> emit x, submit z\"]\n" +
		"jobs: {z: {pool: cpu, kind: k, tenant: acme}}\n"
	open := func(text string) *Snapshotter { return openSharded(t, d, nil, text, 1, agents, nil).each[0] }
	first, twin, replay := open(rules), open(text), open(rules)
	winner := -1
	done := map[string]int{}
	for i := range 200 {
		e := swarms.Entry{Seq: uint64(i + 1), Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
		switch r.IntN(6) {
		case 0, 1:
			e.Kind, e.Data = swarms.EntryObserve, encoded(t, randomAgents(r, agents, 200, 2))
		case 2, 3:
			e.Kind, e.Data = swarms.EntryVote, encoded(t, swarms.Vote{
				Version: 1, Rule: []string{swarms.RulePlurality, swarms.RuleUnanimous}[r.IntN(2)],
				Priority: []string{swarms.PrioritySeeded, swarms.PriorityElected}[r.IntN(2)],
			})
		case 4:
			if e.Kind, e.Data = swarms.EntryQuery, []byte(`{"v":1,"outcome":true}`); r.IntN(4) == 0 {
				e.Kind, e.Data, winner = swarms.EntryReset, []byte(`{"v":1}`), -1
			}
		}
		a, err := first.Apply(t.Context(), e)
		if err != nil {
			t.Fatalf("entry %d: %v", e.Seq, err)
		}
		if _, err := twin.Apply(t.Context(), e); err != nil {
			t.Fatalf("entry %d of the twin: %v", e.Seq, err)
		}
		if e.Kind == swarms.EntryVote {
			now := -1
			if w := a.Voted.Winner; w != nil {
				now = *w
			}
			var want []string
			tick := func(n int) {
				want = append(want, fmt.Sprint("tick ", n))
				mustApply(t, twin, swarms.EntryTick, swarms.Tick{Version: 1, Count: n})
			}
			reset := func() { // the outcome stays, unlike with an entry
				want = append(want, "reset")
				if err := twin.Reset(t.Context()); err != nil {
					t.Fatalf("Reset: %v", err)
				}
			}
			if now != winner {
				tick(2)
			}
			switch now {
			case 0:
				id := first.swarm.JobID("acme", "z", e.Seq, 3)
				want = append(want, "emit x", "submit "+id)
			case -1:
				reset()
				tick(1)
				want = append(want, "emit y")
			}
			var got []string
			for _, did := range a.Voted.Reactions {
				got = append(got, did.String())
				done[did.Action]++
			}
			if !slices.Equal(got, want) {
				t.Fatalf("entry %d: %v, want %v", e.Seq, got, want)
			}
			of, err := swarms.DecodeVoted(a.Data)
			if d := diff(a.Voted.Reactions, of.Reactions); err != nil || d != "" {
				t.Fatalf("entry %d: error %v, difference (-voted +answer):\n%s", e.Seq, err, d)
			}
			winner = now
		}
		if !replay.rounds.Skip(e) {
			if _, err := replay.Apply(t.Context(), e); err != nil {
				t.Fatalf("entry %d of the replay: %v", e.Seq, err)
			}
		}
		if r.IntN(20) == 0 { // the replay goes on from what a checkpoint of the first holds
			note, err := json.Marshal(first.rounds.Outcome())
			if err != nil {
				t.Fatalf("json.Marshal: %v", err)
			}
			var of *swarms.Voted
			if err := json.Unmarshal(note, &of); err != nil {
				t.Fatalf("json.Unmarshal: %v", err)
			}
			all, err := first.Memory().Pack(t.Context())
			if err != nil {
				t.Fatalf("Pack: %v", err)
			}
			replay = open(rules)
			if err := replay.Memory().Unpack(t.Context(), all); err != nil {
				t.Fatalf("Unpack: %v", err)
			}
			if err := replay.Restored(t.Context()); err != nil {
				t.Fatalf("Restored: %v", err)
			}
			replay.rounds.Restore(first.rounds.Last(), of)
		}
		want := contents(t, first.Memory())
		for name, p := range map[string]*Snapshotter{"twin": twin, "replay": replay} {
			if !slices.Equal(contents(t, p.Memory()), want) {
				t.Fatalf("entry %d, %s: the %s has other agents", e.Seq, e.Kind, name)
			}
		}
		if d := diff(outcomeOf(t, first), outcomeOf(t, replay)); d != "" {
			t.Fatalf("entry %d: difference (-first +replay):\n%s", e.Seq, d)
		}
	}
	if done["tick"] < 10 || done["reset"] < 5 || done["emit"] < 5 || done["submit"] < 5 {
		t.Errorf("reactions %v: too few of a kind", done)
	}
}
