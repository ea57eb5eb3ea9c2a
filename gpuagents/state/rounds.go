package state

import (
	"encoding/json"
	"math"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Rounds is the last round in which the agents of a shard have voted, the outcome of the last round
// that was concluded, and the model that the agents have adopted. All are functions of the log:
// every valid vote of a later round moves the round, answered or not. They are therefore the same
// after a replay, and are kept with checkpoints, parked shards and snapshots. A reset of the agents
// removes the outcome, and does not change the round and the model. The goroutine that serves the
// shard uses it.
type Rounds struct {
	last uint64
	// outcome is replaced and never changed; nil: no round was concluded.
	outcome *swarms.Voted
	// adopted is the model that the agents have adopted last, which is replaced and never changed;
	// nil: they have the weights of the specification.
	adopted *swarms.ModelRef
	// concludes says that a vote of the shard is a vote of the swarm, and sets the outcome.
	concludes bool
	// measures says that a vote draws the ballots of the agents, and so changes the state.
	measures bool
}

// take returns the round of a vote, which is the next one if round is 0. It refuses a round that is
// over with CodeRound. Rounds may leave out numbers, and never go back.
func (r *Rounds) take(round uint64) (uint64, error) {
	switch {
	case r.last == math.MaxUint64:
		return 0, jobs.Errorf(
			jobs.CodeRound,
			"vote: the last round of this swarm was %d, and no number is left: make the swarm anew", r.last,
		)
	case round == 0:
		round = r.last + 1
	case round <= r.last:
		return 0, jobs.Errorf(
			jobs.CodeRound,
			"vote: round %d is over: the last round of this swarm was %d: use %d or more, or leave the round out "+
				"for the next one",
			round, r.last, r.last+1,
		)
	}
	r.last = round
	return round, nil
}

// number returns a vote with the number of its round. The entry in the log is not changed: the
// number is added to a copy.
func (r *Rounds) number(vote swarms.Entry) (swarms.Entry, error) {
	v, err := swarms.DecodeVote(vote.Data)
	if err != nil {
		return vote, err
	}
	if v.Round, err = r.take(v.Round); err != nil {
		return vote, err
	}
	vote.Data, err = json.Marshal(v)
	return vote, err
}

// conclude makes a decision the outcome, and returns it with its term. It refuses a round that is
// not later than the round of the outcome, with CodeRound. The last round becomes the round of the
// decision, if it is later.
func (r *Rounds) conclude(v swarms.Voted) (*swarms.Voted, error) {
	if last := r.outcome; last != nil && v.Round <= last.Round {
		return nil, jobs.Errorf(
			jobs.CodeRound, "conclude: round %d is over: round %d of this swarm is concluded: vote again", v.Round,
			last.Round,
		)
	}
	r.outcome = v.InTerm(r.outcome)
	r.last = max(r.last, v.Round)
	return r.outcome, nil
}

// Skip reports whether a replay leaves out an entry that is answered, because the entry does not
// change the state. It keeps the last round the same as in the process that answered the entry.
func (r *Rounds) Skip(e swarms.Entry) bool {
	if !swarms.Asks(e.Kind) || e.Kind == swarms.EntryVote && (r.concludes || r.measures) {
		return false
	}
	if e.Kind == swarms.EntryVote {
		_, _ = r.number(e) // a vote that was refused then is refused now
	}
	return true
}

// Last returns the last round; 0: there was none, or r is nil.
func (r *Rounds) Last() uint64 {
	if r == nil {
		return 0
	}
	return r.last
}

// Outcome returns the outcome of the last round that was concluded, which must not be changed; nil:
// there is none, or r is nil.
func (r *Rounds) Outcome() *swarms.Voted {
	if r == nil {
		return nil
	}
	return r.outcome
}

// Restore sets the last round and the outcome from a checkpoint. It does nothing for nil.
func (r *Rounds) Restore(last uint64, outcome *swarms.Voted) {
	if r != nil {
		r.last, r.outcome = last, outcome
	}
}

// Adopted returns the model that the agents have adopted last, which must not be changed; nil: they
// have the weights of the specification, or r is nil.
func (r *Rounds) Adopted() *swarms.ModelRef {
	if r == nil {
		return nil
	}
	return r.adopted
}

// Adopt sets the model from a checkpoint; nil: the weights of the specification. The agents have
// its weights after Snapshotter.Equip. It does nothing if r is nil.
func (r *Rounds) Adopt(of *swarms.ModelRef) {
	if r != nil {
		r.adopted = of
	}
}

// Forget returns to no round, no outcome and no adopted model.
func (r *Rounds) Forget() {
	r.Restore(0, nil)
	r.Adopt(nil)
}

// merge takes the last round and the outcome of a part of a snapshot, if they are later.
func (r *Rounds) merge(last uint64, outcome *swarms.Voted) {
	r.last = max(r.last, last)
	if outcome != nil && (r.outcome == nil || r.outcome.Round < outcome.Round) {
		r.outcome = outcome
	}
}
