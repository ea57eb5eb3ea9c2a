package consensus

import "slices"

// None is the winner of a decision in which nobody has won.
const None = -1

// Decision is the outcome of a round.
type Decision struct {
	// Round is the number of the round; Decide leaves it 0.
	Round uint64
	// Winner is the index of the candidate that won, or None.
	Winner int
	// Counts is the weight of the votes for each candidate; it belongs to the decision.
	Counts []uint64
	// Total is the weight of all ballots; Abstentions and Invalid are the weights of ballots for
	// nobody.
	Total, Abstentions, Invalid uint64
	// BadWeights is the number of ballots whose weight was no weight; see Tally.
	BadWeights uint64
	// QuorumMet reports whether the strongest candidate got what the rule asks for; without it
	// nobody wins.
	QuorumMet bool
	// Leader is the leader of the round, also of one that nobody won.
	Leader Leader
}

// Decide applies a rule to a tally: the candidate with the most votes, the smallest index of
// several, wins if it has what the rule asks for. The tally is not changed. An invalid rule is
// ErrRule.
func Decide(r Rule, t Tally) (Decision, error) {
	winner, err := r.Winner(&t)
	if err != nil {
		return Decision{}, err
	}
	return Decision{
		Winner: winner, Counts: slices.Clone(t.Counts), Total: t.Total, Abstentions: t.Abstentions, Invalid: t.Invalid,
		BadWeights: t.BadWeights, QuorumMet: winner != None, Leader: t.Leader,
	}, nil
}

// Winner is the winner of Decide, or None, for callers that decide millions of tallies and need no
// more.
func (r Rule) Winner(t *Tally) (int, error) {
	if err := r.Check(); err != nil {
		return None, err
	}
	best := 0
	for c, n := range t.Counts {
		if n > t.Counts[best] {
			best = c
		}
	}
	if len(t.Counts) == 0 || !r.met(t.Counts[best], t.cast(), t.Total) {
		return None, nil
	}
	return best, nil
}

// Tally is the tally that was decided, so that the decisions of shards can be merged and decided as
// one.
func (d Decision) Tally() Tally {
	return Tally{
		Counts: slices.Clone(d.Counts), Abstentions: d.Abstentions, Invalid: d.Invalid, Total: d.Total,
		BadWeights: d.BadWeights, Leader: d.Leader,
	}
}
