package state

import (
	"encoding/json"
	"math"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Rounds is the last round in which the agents of a shard have voted. It is a function of the log:
// every valid vote of a later round moves it, answered or not. It is therefore the same after a
// replay, and is kept with checkpoints, parked shards and snapshots. A reset of the agents does not
// change it. The goroutine that serves the shard uses it.
type Rounds struct{ last uint64 }

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

// Skip notes an entry that a replay does not apply, because it is answered and does not change the
// state. It keeps the rounds the same as in the process that answered the entry.
func (r *Rounds) Skip(e swarms.Entry) {
	if e.Kind == swarms.EntryVote {
		_, _ = r.number(e) // a vote that was refused then is refused now
	}
}

// Last returns the last round; 0: there was none, or r is nil.
func (r *Rounds) Last() uint64 {
	if r == nil {
		return 0
	}
	return r.last
}

// Restore sets the last round to that of a checkpoint. It does nothing for nil.
func (r *Rounds) Restore(last uint64) {
	if r != nil {
		r.last = last
	}
}
