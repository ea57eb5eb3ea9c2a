package state

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// Tally counts the votes and the decisions of an answer by candidate, in the order of the
// candidates of the swarm.
type Tally struct {
	// Votes are the votes of agents; with the rule weighted, the sums of their weights.
	Votes []uint64
	// Decided are the decisions for each candidate, and Undecided is the number of groups that met
	// no rule.
	Decided   []uint64
	Undecided uint64
}

// Tally returns the counts of an answer that is not encoded yet, for a swarm with a number of
// candidates. The counts of an answer without votes are 0. Any goroutine may call it.
func (a Answer) Tally(candidates int) Tally {
	t := Tally{Votes: make([]uint64, candidates), Decided: make([]uint64, candidates)}
	switch body := a.Body.(type) {
	case *batch.Decisions:
		for i, d := range body.Decision {
			switch {
			case body.Dropped != nil && body.Dropped[i] != batch.Applied:
			case int(d) < candidates:
				t.Decided[d]++
			default:
				t.Undecided++
			}
		}
		for i, n := range body.Counts { // 0 in the rows of dropped observations
			t.Votes[i%candidates] += uint64(n)
		}
	case *batch.AgentDecisions:
		t.addAgents(body)
	}
	if a.Ticked != nil {
		copy(t.Votes, a.Ticked.Tally)
		copy(t.Decided, a.Ticked.Decided)
		t.Undecided = a.Ticked.Undecided
	}
	return t
}

// addAgents counts the votes of agents and the decisions of their groups. A refused vote counts
// nowhere.
func (t *Tally) addAgents(d *batch.AgentDecisions) {
	var votes, decisions [kernels.AgentNoVote + 1]uint64
	for i, v := range d.Vote {
		votes[v]++
		decisions[d.Decision[i]]++
	}
	for c := range t.Votes {
		t.Votes[c], t.Decided[c] = votes[c], decisions[c]
	}
	t.Undecided = decisions[kernels.AgentNoVote]
}
