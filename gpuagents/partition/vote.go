package partition

import (
	"fmt"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// kinds of rules by their names in a job.
var kinds = map[string]consensus.Kind{
	"": consensus.Plurality, swarms.RulePlurality: consensus.Plurality, swarms.RuleMajority: consensus.Majority,
	swarms.RuleQuorum:    consensus.Quorum,
	swarms.RuleUnanimous: consensus.Unanimous,
}

// Rule is that of a vote which is valid.
func Rule(v swarms.Vote) (r consensus.Rule, err error) {
	r.Kind = kinds[v.Rule]
	if v.Of == swarms.OfAll {
		r.Of = consensus.All
	}
	if r.Kind == consensus.Quorum {
		r.Quorum.Num, r.Quorum.Den, err = v.Share()
	}
	return r, err
}

// Voted is the decision of all agents of the swarm by the tallies of its shards, under the rule of
// the whole; what a shard has decided by itself is not looked at. The leader is elected by the bids of
// the shards, or is the one of the shards' leaders that beats the others.
func Voted(s swarms.Swarm, perGroup, candidates int, want swarms.Vote, of []swarms.Voted) (swarms.Voted, error) {
	rule, err := Rule(want)
	if err != nil {
		return swarms.Voted{}, err
	}
	for k, v := range of {
		if v.Round != want.Round {
			return swarms.Voted{}, fmt.Errorf("shard %d: round %d, not %d: %w", k, v.Round, want.Round, ErrAnswer)
		}
	}
	if want.Priority == swarms.PriorityElected {
		return elected(s, perGroup, candidates, rule, of)
	}
	sum, err := consensus.NewTally(candidates)
	if err != nil {
		return swarms.Voted{}, err
	}
	for k, v := range of {
		t := consensus.Tally{Counts: v.Counts, Abstentions: v.Abstentions, Total: agentsOf(s, perGroup, k)}
		if v.Leader == nil {
			return swarms.Voted{}, fmt.Errorf("shard %d: no leader: %w", k, ErrAnswer)
		}
		t.Leader = consensus.Leader{Agent: uint64(v.Leader.Agent), Priority: v.Leader.Priority, Elected: true}
		if err := sum.Merge(t); err != nil {
			return swarms.Voted{}, fmt.Errorf("shard %d: %w: %w", k, ErrAnswer, err)
		}
	}
	d, err := consensus.Decide(rule, sum)
	if err != nil {
		return swarms.Voted{}, err
	}
	d.Round = want.Round
	all := Decided(d)
	for _, v := range of {
		if v.Leader.Agent == all.Leader.Agent {
			all.Leader.Vote = v.Leader.Vote
		}
	}
	return all, nil
}

// elected is the decision of the shards of a swarm whose leader is elected.
func elected(
	s swarms.Swarm, perGroup, candidates int, rule consensus.Rule, of []swarms.Voted,
) (swarms.Voted, error) {
	sum, err := consensus.NewElection(candidates)
	if err != nil {
		return swarms.Voted{}, err
	}
	for k, v := range of {
		e := consensus.Election{
			Tally: consensus.Tally{Counts: v.Counts, Abstentions: v.Abstentions, Total: agentsOf(s, perGroup, k)},
			Bids:  make([]consensus.Leader, len(v.Bids)),
		}
		first, end := s.ShardGroups(k)
		for c, b := range v.Bids {
			if b == nil {
				continue
			}
			e.Bids[c] = consensus.Leader{Agent: uint64(b.Agent), Priority: b.Priority, Term: b.Term, Elected: true}
			if g := int(b.Agent) / perGroup; g < first || g >= end {
				return swarms.Voted{}, fmt.Errorf("shard %d: a bid of the foreign agent %d: %w", k, b.Agent, ErrAnswer)
			}
		}
		if err := sum.Merge(e); err != nil {
			return swarms.Voted{}, fmt.Errorf("shard %d: %w: %w", k, ErrAnswer, err)
		}
	}
	d, err := sum.Decide(rule)
	d.Round = of[0].Round
	return Elected(d), err
}

// Decided is a decision as an answer has it.
func Decided(d consensus.Decision) swarms.Voted {
	v := swarms.Voted{
		Version: jobs.Version, Round: d.Round, Counts: d.Counts, Abstentions: d.Abstentions, QuorumMet: d.QuorumMet,
	}
	if d.Leader.Elected {
		v.Leader = &swarms.Leader{Agent: uint32(d.Leader.Agent), Priority: d.Leader.Priority}
	}
	if d.Winner != consensus.None {
		v.Winner = &d.Winner
	}
	return v
}

// Elected is Decided for a decision with an elected leader, which votes for the winner.
func Elected(d consensus.Decision) swarms.Voted {
	v := Decided(d)
	if v.Leader != nil {
		vote := d.Winner
		v.Leader.Vote = &vote
	}
	return v
}

// Bids are those of the agents of one of several shards as an answer has them.
func Bids(e consensus.Election) []*swarms.Bid {
	all := make([]*swarms.Bid, len(e.Bids))
	for c, l := range e.Bids {
		if l.Elected {
			all[c] = &swarms.Bid{Agent: uint32(l.Agent), Priority: l.Priority, Term: l.Term}
		}
	}
	return all
}
