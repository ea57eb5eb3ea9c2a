package consensus

import "fmt"

// Draw gives the agents of a round their priorities. All agents have different ones, and each has
// the same chance of the highest.
type Draw struct{ key, salt uint32 }

// NewDraw returns the draw of a round of a swarm with a seed.
func NewDraw(seed, round uint64) Draw {
	mix := func(z uint64) uint64 { // the finaliser of splitmix64
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		return z ^ z>>31
	}
	const step = 0x9E3779B97F4A7C15
	z := mix(mix(seed+step) ^ round + step)
	return Draw{key: uint32(z >> 32), salt: uint32(z)}
}

// Words returns the two numbers from which a kernel computes priorities.
func (d Draw) Words() (key, salt uint32) { return d.key, d.salt }

// DrawOf returns the draw with these Words.
func DrawOf(key, salt uint32) Draw { return Draw{key, salt} }

// Priority returns the priority of an agent. Each step maps different numbers to different ones, so
// no two agents have the same priority. The multipliers are from the hash lowbias32.
func (d Draw) Priority(agent uint32) uint32 {
	x := agent ^ d.key
	x = (x ^ x>>16) * 0x7FEB352D
	x = (x ^ x>>15 ^ d.salt) * 0x846CA68B
	return x ^ x>>16
}

// Election is a round in which the voters for the winner elect one of them as their leader. Ballots
// weigh 1.
type Election struct {
	// Tally has the ballots. Its leader has no meaning.
	Tally Tally
	// Bids has the best bid of the agents that vote for each candidate; nobody if none votes for it.
	Bids []Leader
}

// NewElection returns an election without ballots for 1 to 256 candidates.
func NewElection(candidates int) (Election, error) {
	t, err := NewTally(candidates)
	return Election{Tally: t, Bids: make([]Leader, len(t.Counts))}, err
}

// Bid has an agent that votes for a candidate bid for the lead.
func (e *Election) Bid(candidate int, l Leader) {
	if l.beats(e.Bids[candidate]) {
		e.Bids[candidate] = l
	}
}

// Merge adds the ballots and bids of other agents. It is associative and commutative. What it
// refuses leaves e as it was: it returns the errors of Tally.Merge, and ErrBid for a candidate with
// votes and no bid, or a bid and no votes.
func (e *Election) Merge(o Election) error {
	if len(o.Bids) != len(e.Bids) {
		return fmt.Errorf("merge bids for %d and %d candidates: %w", len(e.Bids), len(o.Bids), ErrCandidates)
	}
	if len(o.Tally.Counts) == len(o.Bids) {
		for c, l := range o.Bids {
			if l.Elected != (o.Tally.Counts[c] > 0) {
				return fmt.Errorf("merge: candidate %d has %d votes: %w", c, o.Tally.Counts[c], ErrBid)
			}
		}
	}
	if err := e.Tally.Merge(o.Tally); err != nil {
		return err
	}
	for c, l := range o.Bids {
		e.Bid(c, l)
	}
	return nil
}

// Decide returns the decision by a rule, with the best bid for the winner as the leader. An invalid
// rule is an ErrRule.
func (e Election) Decide(r Rule) (Decision, error) {
	t := e.Tally
	t.Leader = Leader{}
	d, err := Decide(r, t)
	if err == nil && d.Winner != None {
		d.Leader = e.Bids[d.Winner]
	}
	return d, err
}
