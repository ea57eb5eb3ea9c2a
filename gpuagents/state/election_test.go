package state

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// openElected opens the shards of a swarm with a number of frames each; 0: one for each page.
func openElected(t *testing.T, d device.Device, text string, shards, frames int) *sharded {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text+fmt.Sprintf("shards: %d\n", shards)))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	spec.PageSize = testPage
	s := &sharded{spec: spec}
	for k := range shards {
		b := pages.NewBudget(int64(frames)*testPage, 1<<30)
		s.each = append(s.each, openShard(t, d, b, nil, spec, spec.Groups(), k, nil))
	}
	s.of = s.each[0].swarm
	return s
}

// votes returns the votes of all agents in the order of their ids.
func (s *sharded) votes(t *testing.T) []byte {
	t.Helper()
	all, votes := s.states(t, s.everyAgent()), make([]byte, s.spec.Agents)
	for i, id := range all.Agent {
		votes[id] = all.Vote[i]
	}
	return votes
}

// TestElectedLeader: in swarms of several cells, shards and frames, a loop over all agents finds
// the same leader. The leader votes for the winner, and keeps its term as long as it does. A round
// that nobody wins has no leader and no term.
func TestElectedLeader(t *testing.T) {
	testkit.Checks(t, 25)
	d := openNamed(t, *opentest.Name)
	texts := []string{votedTexts["gru h7"], votedTexts["leaky"], votedTexts["gru h8 bf16"]}
	seen := map[string]int{}
	check := func(rt *rapid.T) {
		text := rapid.SampledFrom(texts).Draw(rt, "text")
		frames := rapid.SampledFrom([]int{0, 2, 3, 5}).Draw(rt, "frames")
		s := openElected(t, d, text, rapid.IntRange(1, 4).Draw(rt, "shards"), frames)
		r := rand.New(rand.NewPCG(61, rapid.Uint64().Draw(rt, "seed")))
		n, features := int(s.spec.Agents), len(s.spec.Features)
		var last *swarms.Voted
		for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
			switch rapid.IntRange(0, 9).Draw(rt, "entry") {
			case 0:
				s.tick(t, 1+r.IntN(2))
			case 1:
				for _, p := range s.each {
					mustApply(t, p, swarms.EntryReset, swarms.Reset{Version: jobs.Version})
				}
				last = nil
			default:
				o := randomAgents(r, n, 1+r.IntN(40), features)
				if last != nil && last.Leader != nil { // it may change its mind
					o.Agent[0] = last.Leader.Agent
				}
				for i := range o.Features {
					o.Features[i] *= float32(1 + r.IntN(9))
				}
				s.observe(t, o)
			}
			got := s.decide(t, swarms.Vote{
				Version: jobs.Version, Priority: swarms.PriorityElected,
				Rule: rapid.SampledFrom([]string{swarms.RulePlurality, swarms.RuleMajority, swarms.RuleUnanimous}).
					Draw(rt, "rule"),
			})
			votes, want := s.votes(t), got
			want.Leader = plainLeader(s.spec.Seed, got, votes, last)
			if d := diff(*want.InTerm(last), got); d != "" {
				rt.Fatalf("after %+v: difference (-want +got):\n%s", last, d)
			}
			switch {
			case got.Leader == nil:
				seen["none"]++
				if got.Winner != nil || got.Term != 0 {
					rt.Fatalf("no leader: %+v", got)
				}
			case int(votes[got.Leader.Agent]) != *got.Winner:
				rt.Fatalf("%+v leads and votes for %d", got, votes[got.Leader.Agent])
			case last != nil && last.Leader != nil && got.Term == last.Term:
				seen["stays"]++
			case last != nil && last.Leader != nil:
				seen["changes"]++
				if int(votes[last.Leader.Agent]) == *got.Winner {
					rt.Fatalf("%+v has lost the lead and votes for the winner: %+v", last.Leader, got)
				}
			}
			last = &got
		}
	}
	rapid.Check(t, check)
	// Of some 70 rounds a third has no leader. Few draws change the leader, so a run may have none.
	for _, what := range []string{"none", "stays", "changes"} {
		for tries := 0; seen[what] == 0; tries++ {
			if tries == 10 {
				t.Fatalf("no round of %q: %v", what, seen)
			}
			rapid.Check(t, check)
		}
	}
}

// TestElectionFails: an election that fails or that a drain ends leaves no bids and no round
// behind, and answers as one that did not fail.
func TestElectionFails(t *testing.T) {
	for _, frames := range []int{0, 2} {
		d := faults.New(openHost(t))
		s := openElected(t, d, votedTexts["gru h7"], 1, frames).each[0]
		mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 3})
		vote := swarms.Entry{Kind: swarms.EntryVote, Data: []byte(`{"v":1,"round":5,"priority":"elected"}`)}
		another := swarms.Entry{Kind: swarms.EntryVote}
		want, err := s.Apply(t.Context(), vote)
		if err != nil {
			t.Fatalf("s.Apply: %v, want no error", err)
		}
		again := func(what string) {
			t.Helper()
			if s.rounds.Last() != 0 { // else the vote would be refused
				t.Errorf("%d frames, %s: round %d, want 0", frames, what, s.rounds.Last())
			}
			s.rounds.Restore(0, nil) // without the incumbent
			got, err := s.Apply(t.Context(), vote)
			if err != nil || string(got.Data) != string(want.Data) {
				t.Errorf("%d frames, %s: %s, %v, want %s", frames, what, got.Data, err, want.Data)
			}
		}
		for after := range 2 + 5*frames {
			another.Data = fmt.Appendf(nil, `{"v":1,"round":%d,"priority":"elected"}`, 70+after)
			for _, op := range []faults.Op{faults.Launch, faults.Wait} {
				s.rounds.Restore(0, nil)
				d.Fail(op, after, 1, device.ErrTransient)
				_, err := s.Apply(t.Context(), another) // whose bids are others
				d.Heal()
				what := fmt.Sprintf("%v %d fails", op, after)
				if err == nil { // it has no such operation
					s.rounds.Restore(0, nil)
				} else if !errors.Is(err, gpubatch.ErrDevice) {
					t.Errorf("%d frames, %s: error %v, want an ErrDevice", frames, what, err)
				}
				again(what)
			}
		}
		s.rounds.Restore(0, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(jobs.ErrDrain)
		if _, err := s.Apply(ctx, another); frames == 0 && err != nil || frames > 0 && !errors.Is(err, jobs.ErrDrain) {
			t.Errorf("%d frames: a drain: %v", frames, err)
		} else if err != nil {
			again("a drain")
		}
	}
}

// TestElectionOfWrittenVotes: a vote is refused while groups count votes that their agents do not
// have, as in pages that a program has written, and not after a tick.
func TestElectionOfWrittenVotes(t *testing.T) {
	s := openElected(t, openHost(t), votedTexts["gru h7"], 1, 0).each[0]
	page := make([]byte, testPage)
	page[layoutOf(s.State).Offsets[kernels.AgentVarCounts]] = 2
	if err := s.Memory().Write(t.Context(), 1, page); err != nil {
		t.Fatalf("Write: %v, want no error", err)
	}
	if err := s.Restored(t.Context()); err != nil {
		t.Fatalf("Restored: %v, want no error", err)
	}
	refuses(t, s, swarms.EntryVote, `{"v":1,"priority":"elected"}`, "tick the swarm first")
	mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1})
	mustApply(t, s, swarms.EntryVote, swarms.Vote{Version: jobs.Version, Priority: swarms.PriorityElected})
}

// votesBefore are the answers of a version without elections to the votes of
// TestVotesOfEarlierVersions, and behind them the digest of the agents, which hear their leader.
//
//go:embed testdata/votes-before-elections.txt
var votesBefore string

// TestVotesOfEarlierVersions: a log of an earlier version, which elects nobody, replays to the
// answers and the agents that it had.
func TestVotesOfEarlierVersions(t *testing.T) {
	d, r := openHost(t), rand.New(rand.NewPCG(61, 1))
	const agents = 330
	one := openSharded(t, d, nil, fmt.Sprintf(hearText, agents), 1, agents, nil)
	three := openSharded(t, d, nil, fmt.Sprintf(hearText, agents), 3, agents, nil)
	var got []string
	for i, vote := range []string{
		`{"v":1}`, `{"v":1,"priority":"uniform"}`, `{"v":1,"priority":"seeded"}`,
		`{"v":1,"round":45,"rule":"majority","priority":"seeded"}`, `{"v":1,"rule":"unanimous","priority":"seeded"}`,
		`{"v":1,"rule":"quorum","quorum":"1/3","of":"all"}`, `{"v":1,"priority":"seeded"}`,
	} {
		o := randomAgents(r, agents, 200, 2)
		e := swarms.Entry{Kind: swarms.EntryVote, Data: []byte(vote)}
		for _, s := range []*sharded{one, three} {
			s.observe(t, o)
			for k, p := range s.each {
				a, err := p.Apply(t.Context(), e)
				if err != nil {
					t.Fatalf("%s: %v", vote, err)
				}
				got = append(got, fmt.Sprintf("%d of %d: %s", k, len(s.each), a.Data))
			}
		}
		for _, p := range three.each {
			e := swarms.Entry{Kind: swarms.EntryConclude, Data: fmt.Appendf(nil, `{"v":1,"round":%d,"winner":1,`+
				`"counts":[%d,230,0],"abstentions":%d,"quorum_met":true,"leader":{"agent":%d,"priority":5,"vote":2}}`,
				20+10*i, i, 100-i, i/2)}
			a, err := p.Apply(t.Context(), e)
			if err != nil {
				t.Fatalf("%s: %v", e.Data, err)
			}
			got = append(got, string(a.Data))
		}
		one.tick(t, 1)
		three.tick(t, 1)
	}
	sum := sha256.New()
	for _, p := range slices.Concat(one.each, three.each) {
		sum.Write(contents(t, p.Memory()))
	}
	got = append(got, fmt.Sprintf("%x", sum.Sum(nil)))
	if text := strings.Join(got, "\n") + "\n"; text != votesBefore {
		t.Errorf("answers:\n%s", text)
	}
}
