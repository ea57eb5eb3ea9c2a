package consensus

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Tally is the sum of ballots. Make it with NewTally. It is plain data: Merge and the Cast methods
// change it, and callers that share one between goroutines lock it themselves.
type Tally struct {
	// Counts is the weight of the votes for each candidate.
	Counts []uint64
	// Abstentions and Invalid are the weights of the ballots for no candidate.
	Abstentions, Invalid uint64
	// Total is the weight of all ballots: the sum of Counts, Abstentions and Invalid.
	Total uint64
	// BadWeights is the number of ballots with an invalid weight: not a number, below zero or too
	// large. Such a ballot weighs 0, so it is in no other sum.
	BadWeights uint64
	// Leader is the leader among the agents seen so far.
	Leader Leader
}

// Leader is the leader of a round; the zero value is no leader.
type Leader struct {
	Agent    uint64
	Priority uint32
	Elected  bool
	// Term is the term in which the agent already leads; 0 if it does not lead yet.
	Term uint64
}

// beats reports whether l is preferred to o as the leader: any agent to none, then the later term,
// then the higher priority, then the smaller id.
func (l Leader) beats(o Leader) bool {
	switch {
	case !l.Elected || !o.Elected:
		return l.Elected && !o.Elected
	case l.Term != o.Term:
		return l.Term > o.Term
	case l.Priority != o.Priority:
		return l.Priority > o.Priority
	}
	return l.Agent < o.Agent
}

// NewTally is the tally of no ballots for 1..256 candidates.
func NewTally(candidates int) (Tally, error) {
	if candidates < 1 || candidates > MaxCandidates {
		return Tally{}, fmt.Errorf("tally of %d candidates: %w", candidates, ErrCandidates)
	}
	return Tally{Counts: make([]uint64, candidates)}, nil
}

// Cast counts one-byte ballots that weigh 1 each. A ballot is the index of a candidate or Abstain.
// Cast does not change the leader; see Nominate.
func (t *Tally) Cast(ballots []byte) error {
	if err := t.room(uint64(len(ballots))); err != nil {
		return err
	}
	if len(ballots) <= fewBallots {
		t.castFew(ballots)
		return nil
	}
	var by [MaxCandidates]uint64
	if len(t.Counts) <= planeCandidates {
		countPlanes(&by, ballots)
	} else {
		countBytes(&by, ballots)
	}
	t.add(&by, Abstain, MaxCandidates)
	return nil
}

// Up to fewBallots ballots are counted one by one: to clear and sum the counters of a table takes
// as long as 200 ballots.
const fewBallots = 128

func (t *Tally) castFew(ballots []byte) {
	for _, b := range ballots {
		switch {
		case int(b) < len(t.Counts):
			t.Counts[b]++
		case b == Abstain:
			t.Abstentions++
		default:
			t.Invalid++
		}
	}
	t.Total += uint64(len(ballots))
}

// CastPacked adds n packed ballots that weigh 1 each; packed has PackedLen(n) bytes.
func (t *Tally) CastPacked(packed []byte, n int) error {
	if n < 0 || len(packed) != PackedLen(n) {
		return fmt.Errorf("%d packed ballots in %d bytes: %w", n, len(packed), ErrLength)
	}
	return t.CastPackedFrom(packed, 0, n)
}

// CastPackedFrom adds n packed ballots that weigh 1 each, the first of them ballot number first of
// packed, which may have more.
func (t *Tally) CastPackedFrom(packed []byte, first, n int) error {
	if len(t.Counts) > MaxPacked {
		return fmt.Errorf("packed ballots for %d candidates: %w", len(t.Counts), ErrCandidates)
	}
	if first < 0 || n < 0 || first > 2*len(packed) || n > 2*len(packed)-first {
		return fmt.Errorf("packed ballots %d..%d+%d in %d bytes: %w", first, first, n, len(packed), ErrLength)
	}
	if err := t.room(uint64(n)); err != nil {
		return err
	}
	var by [MaxCandidates]uint64
	end := first + n
	if first%2 == 1 && n > 0 {
		by[packed[first/2]>>4]++
		first++
	}
	if end%2 == 1 && end > first {
		end--
		by[packed[end/2]&0xF]++
	}
	whole := packed[first/2 : end/2]
	if len(whole) <= fewBallots/2 {
		for _, pair := range whole {
			by[pair&0xF]++
			by[pair>>4]++
		}
	} else {
		var pairs [MaxCandidates]uint64
		countBytes(&pairs, whole)
		for v, count := range pairs {
			by[v&0xF] += count
			by[v>>4] += count
		}
	}
	t.add(&by, AbstainPacked, MaxPacked)
	return nil
}

// CastWeighted adds one-byte ballots, each with its weight; both slices have the same length.
func (t *Tally) CastWeighted(ballots []byte, weights []uint32) error {
	return castWeighted(t, ballots, weights)
}

// CastWeighted8 is CastWeighted for weights of a byte, 0..255.
func (t *Tally) CastWeighted8(ballots, weights []byte) error {
	return castWeighted(t, ballots, weights)
}

func castWeighted[W uint8 | uint32](t *Tally, ballots []byte, weights []W) error {
	if len(ballots) != len(weights) {
		return fmt.Errorf("%d ballots with %d weights: %w", len(ballots), len(weights), ErrLength)
	}
	// Two tables in turn: a run of one value waits half as often for the sum before it.
	var by, other [MaxCandidates]uint64
	var sum uint64 // fits: a slice has less than 2^32 elements of the largest weight in any memory
	i := 0
	for ; i+1 < len(ballots); i += 2 {
		v, w := uint64(weights[i]), uint64(weights[i+1])
		by[ballots[i]] += v
		other[ballots[i+1]] += w
		sum += v + w
	}
	if i < len(ballots) {
		by[ballots[i]] += uint64(weights[i])
		sum += uint64(weights[i])
	}
	if err := t.room(sum); err != nil {
		return err
	}
	for v, weight := range other {
		by[v] += weight
	}
	t.add(&by, Abstain, MaxCandidates)
	return nil
}

// CastFractions adds one-byte ballots, each with a fractional weight, which counts as Fixed makes
// it: sums are in units of 1/65536. Both slices have the same length. A ballot whose weight Fixed
// refuses is for nobody and weighs 0; BadWeights counts it.
func (t *Tally) CastFractions(ballots []byte, weights []float32) error {
	if len(ballots) != len(weights) {
		return fmt.Errorf("%d ballots with %d weights: %w", len(ballots), len(weights), ErrLength)
	}
	var by [MaxCandidates]uint64
	var sum, bad uint64
	for i, w := range weights {
		// Float32 times a power of two is exact, and the largest float32 below 65536 is more than
		// half a unit below it: so this is Fixed.
		if !(w >= 0 && w < 65536) {
			bad++
			continue
		}
		v := uint64(math.RoundToEven(float64(w) * One))
		by[ballots[i]] += v
		sum += v
	}
	if _, carry := bits.Add64(t.BadWeights, bad, 0); carry != 0 {
		return fmt.Errorf("%d and %d bad weights: %w", t.BadWeights, bad, ErrOverflow)
	}
	if err := t.room(sum); err != nil {
		return err
	}
	t.BadWeights += bad
	t.add(&by, Abstain, MaxCandidates)
	return nil
}

// room refuses ballots whose weight would overflow Total. No other sum can overflow then.
func (t *Tally) room(weight uint64) error {
	if _, carry := bits.Add64(t.Total, weight, 0); carry != 0 {
		return fmt.Errorf("%d and %d: %w", t.Total, weight, ErrOverflow)
	}
	return nil
}

// add adds the weight of each ballot value below values; room has accepted them.
func (t *Tally) add(by *[MaxCandidates]uint64, abstain, values int) {
	for v, weight := range by[:values] {
		switch {
		case v < len(t.Counts):
			t.Counts[v] += weight
		case v == abstain:
			t.Abstentions += weight
		default:
			t.Invalid += weight
		}
		t.Total += weight
	}
}

// Nominate lets agents first, first+1, ... stand for leader with these priorities.
func (t *Tally) Nominate(first uint64, priorities []uint32) {
	for i, p := range priorities {
		t.Lead(Leader{Agent: first + uint64(i), Priority: p, Elected: true})
	}
}

// Lead lets one agent stand for leader.
func (t *Tally) Lead(l Leader) {
	if l.beats(t.Leader) {
		t.Leader = l
	}
}

// cast is the weight of the votes for candidates: Total without abstentions and invalid ballots.
func (t *Tally) cast() uint64 { return t.Total - t.Abstentions - t.Invalid }

// Check returns ErrSum for a tally that no ballots make, as a received one may be, and
// ErrCandidates outside of 1..256.
func (t *Tally) Check() error {
	if len(t.Counts) < 1 || len(t.Counts) > MaxCandidates {
		return fmt.Errorf("tally of %d candidates: %w", len(t.Counts), ErrCandidates)
	}
	sum, over := bits.Add64(t.Abstentions, t.Invalid, 0)
	for _, n := range t.Counts {
		var carry uint64
		sum, carry = bits.Add64(sum, n, 0)
		over |= carry
	}
	if over != 0 || sum != t.Total {
		return fmt.Errorf("total %d of counts %v, %d abstentions, %d invalid: %w", t.Total, t.Counts, t.Abstentions,
			t.Invalid, ErrSum)
	}
	return nil
}

// Merge adds another tally. It is associative and commutative, and the tally of no ballots changes
// nothing, so partial tallies may be merged in any order and grouping. What it refuses leaves t as
// it was: ErrCandidates, ErrSum, ErrOverflow.
func (t *Tally) Merge(o Tally) error {
	if len(o.Counts) != len(t.Counts) {
		return fmt.Errorf("merge tallies of %d and %d candidates: %w", len(t.Counts), len(o.Counts), ErrCandidates)
	}
	if err := o.Check(); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	if err := t.room(o.Total); err != nil {
		return err
	}
	bad, carry := bits.Add64(t.BadWeights, o.BadWeights, 0)
	if carry != 0 {
		return fmt.Errorf("%d and %d bad weights: %w", t.BadWeights, o.BadWeights, ErrOverflow)
	}
	t.BadWeights = bad
	for c, n := range o.Counts {
		t.Counts[c] += n
	}
	t.Abstentions += o.Abstentions
	t.Invalid += o.Invalid
	t.Total += o.Total
	t.Lead(o.Leader)
	return nil
}

// Clone is a tally that shares no memory with t.
func (t Tally) Clone() Tally {
	t.Counts = slices.Clone(t.Counts)
	return t
}
