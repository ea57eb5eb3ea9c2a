package consensus

import "errors"

// The errors of this package; each error it returns wraps one of them.
var (
	// ErrCandidates: a number of candidates outside 1..256, or of packed ballots outside 1..16, or
	// two tallies of different numbers.
	ErrCandidates = errors.New("wrong number of candidates")
	// ErrRule: a rule that does not exist or has no valid fraction.
	ErrRule = errors.New("invalid rule")
	// ErrLength: slices of one call whose lengths do not fit together.
	ErrLength = errors.New("lengths do not fit")
	// ErrWeight: a weight that is no number, negative or too large.
	ErrWeight = errors.New("invalid weight")
	// ErrOverflow: the sum of all weights does not fit 64 bits. The tally is as it was.
	ErrOverflow = errors.New("tally overflows")
	// ErrSum: a tally whose counts, abstentions and invalid ballots are not its total. No ballots
	// make such a tally.
	ErrSum = errors.New("tally is not the sum of its parts")
	// ErrRound: a round number that is not above the last closed round.
	ErrRound = errors.New("wrong round")
	// ErrBid: a candidate with votes and no bid of a voter, or with a bid and no votes.
	ErrBid = errors.New("bids do not fit the votes")
)
