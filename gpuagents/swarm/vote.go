package swarm

import (
	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

var ruleKinds = map[string]consensus.Kind{
	"": consensus.Plurality, swarms.RulePlurality: consensus.Plurality, swarms.RuleMajority: consensus.Majority,
	swarms.RuleQuorum:    consensus.Quorum,
	swarms.RuleUnanimous: consensus.Unanimous,
}

// VoteRule returns the rule of a valid vote.
func VoteRule(v swarms.Vote) (r consensus.Rule, err error) {
	r.Kind = ruleKinds[v.Rule]
	if v.Of == swarms.OfAll {
		r.Of = consensus.All
	}
	if r.Kind == consensus.Quorum {
		r.Quorum.Num, r.Quorum.Den, err = v.Share()
	}
	return r, err
}

// NewVoted returns the answer for a decision.
func NewVoted(d consensus.Decision) swarms.Voted {
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

// NewElected returns the answer for a decision with an elected leader, who votes for the winner.
func NewElected(d consensus.Decision) swarms.Voted {
	v := NewVoted(d)
	if v.Leader != nil {
		vote := d.Winner
		v.Leader.Vote = &vote
	}
	return v
}

// NewBids returns the bids of one of several shards for its answer.
func NewBids(e consensus.Election) []*swarms.Bid {
	all := make([]*swarms.Bid, len(e.Bids))
	for c, l := range e.Bids {
		if l.Elected {
			all[c] = &swarms.Bid{Agent: uint32(l.Agent), Priority: l.Priority, Term: l.Term}
		}
	}
	return all
}
