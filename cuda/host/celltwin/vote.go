package celltwin

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// tally is one round's ballots: the votes of the agents of one group. All sums are of integers, so
// the order of the agents does not matter.
type tally struct {
	counts   [kernels.VoteCandidates]uint32 // by candidate
	priority uint32                         // of the leader
	leader   uint32                         // the number of an agent in its group
	cast     bool
}

// vote counts the vote of an agent; a higher priority leads, of two equal ones the smaller index.
func (t *tally) vote(agent, candidate, count, priority uint32) {
	t.counts[candidate] += count
	if !t.cast || priority > t.priority || priority == t.priority && agent < t.leader {
		t.priority, t.leader, t.cast = priority, agent, true
	}
}

// lower turns ballots for anomalous into ballots for suspicious.
func (t *tally) lower() {
	t.counts[kernels.VoteSuspicious] += t.counts[kernels.VoteAnomalous]
	t.counts[kernels.VoteAnomalous] = 0
}

// decide returns the outcome under a rule. Agents without weight have no vote.
func (t *tally) decide(rule kernels.Rule, quorum uint32) uint32 {
	return decision(t.counts[:], rule, quorum)
}

// decision is the outcome of a vote under a rule, as consensus.Decide has it where nobody abstains
// or those who do are not counted: the candidate with the most votes, the smallest index of
// several, or NoDecision when the rule asks for more than it got, or nobody has a vote. quorum is a
// fraction in 16.16 fixed point; 0, which is no quorum, asks for one vote.
func decision(counts []uint32, rule kernels.Rule, quorum uint32) uint32 {
	winner, total := 0, uint64(0)
	for c, n := range counts {
		total += uint64(n)
		if n > counts[winner] {
			winner = c
		}
	}
	votes := uint64(counts[winner])
	met := votes > 0
	switch rule {
	case kernels.RuleMajority:
		met = 2*votes > total
	case kernels.RuleQuorum:
		met = met && votes<<16 >= uint64(quorum)*total
	case kernels.RuleUnanimous:
		met = met && votes == total
	}
	if !met {
		return kernels.NoDecision
	}
	return uint32(winner)
}

// electRound advances the round of a group from seen by a compare-and-swap and returns the new
// round. The kernel publishes the leader only if its swap succeeds.
func electRound(round *uint64, seen uint64) uint64 {
	atomic.CompareAndSwapUint64(round, seen, seen+1)
	return seen + 1
}
