package swarms

import "github.com/exoswarm/exoswarm/jobs"

// DecodeConclude reads the data of an EntryConclude, as DecodeTick does.
func DecodeConclude(data []byte) (v Voted, err error) {
	return v, decodeEntry("conclude", data, &v, &v.Version)
}

// Check returns an error unless a swarm with this number of agents and candidates can have made the
// decision. It is a *jobs.Error that names the field, its value and the cure.
func (v Voted) Check(agents int64, candidates int) error {
	if v.Round == 0 {
		return invalid("conclude: round 0: rounds count from 1: use the round of the merged answers")
	}
	if len(v.Reactions) > 0 {
		return invalid("conclude: %d reactions: only the agents of a swarm react: leave them out", len(v.Reactions))
	}
	if len(v.Bids) > 0 {
		return invalid("conclude: %d bids: only the agents of a shard bid: leave them out", len(v.Bids))
	}
	if len(v.Counts) != candidates {
		return invalid("conclude: counts of %d candidates: the swarm has %d: use one count for each", len(v.Counts),
			candidates)
	}
	left := uint64(agents)
	for _, n := range append([]uint64{v.Abstentions}, v.Counts...) {
		if n > left {
			return invalid("conclude: counts %v and %d abstentions: the swarm has %d agents: add the answers of "+
				"all shards once", v.Counts, v.Abstentions, agents)
		}
		left -= n
	}
	if left > 0 {
		return invalid("conclude: counts %v and %d abstentions leave out %d agents: add the answers of all shards",
			v.Counts, v.Abstentions, left)
	}
	if w := v.Winner; w != nil && (*w < 0 || *w >= candidates) {
		return invalid("conclude: winner %d: use 0 to %d, or leave it out", *w, candidates-1)
	}
	if v.Leader == nil {
		return nil
	}
	if int64(v.Leader.Agent) >= agents {
		return invalid("conclude: leader %d: use an agent from 0 to %d", v.Leader.Agent, agents-1)
	}
	if b := v.Leader.Vote; b != nil && (*b < 0 || *b >= candidates) {
		return invalid("conclude: vote %d of the leader: use 0 to %d, or leave it out", *b, candidates-1)
	}
	return nil
}

// InTerm returns the decision as the outcome that follows last; nil: it is the first. The leader
// stays in its term, and another leader begins the term that has the number of the round. A round
// without a leader is in no term.
func (v Voted) InTerm(last *Voted) *Voted {
	v.Version, v.Term = jobs.Version, v.Round
	switch {
	case v.Leader == nil:
		v.Term = 0
	case last != nil && last.Leader != nil && last.Leader.Agent == v.Leader.Agent:
		v.Term = last.Term
	}
	return &v
}
