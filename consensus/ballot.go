package consensus

import (
	"fmt"
	"math"
)

// Values of ballots, and the numbers of candidates that they allow.
const (
	// Abstain is the one-byte ballot of an agent that abstains, where fewer than MaxCandidates
	// stand.
	Abstain = 0xFF
	// AbstainPacked is the half-byte one, where fewer than MaxPacked stand.
	AbstainPacked = 0xF
	// MaxCandidates is the number of candidates that a byte can name.
	MaxCandidates = 256
	// MaxPacked is the number of candidates that half a byte can name.
	MaxPacked = 16
)

// One is the weight 1 in the fixed point of Fixed: 16 bits behind the point.
const One = 1 << 16

// Fixed is a fractional weight as an integer of 1/65536, rounded to the nearest, of two to the even
// one: 0 <= w < 65536. One more or less is a difference of 1.5e-5, and sums of it are exact, which
// sums of floats are not. Minus zero is zero; NaN, what is below zero by however little, and what
// is too large is ErrWeight.
func Fixed(w float64) (uint32, error) {
	v := math.RoundToEven(w * One)
	if !(w >= 0 && v <= math.MaxUint32) {
		return 0, fmt.Errorf("weight %v: %w", w, ErrWeight)
	}
	return uint32(v), nil
}

// PackedLen is the number of bytes of n packed ballots.
func PackedLen(n int) int { return n/2 + n%2 }

// Pack writes ballots of one byte as packed ones. An abstention becomes AbstainPacked; an invalid
// ballot becomes candidates, which is invalid too. With 15 or 16 candidates no packed value is left
// for an invalid ballot, and with 16 none for an abstention: such a ballot is ErrCandidates. dst
// has PackedLen(len(ballots)) bytes, else it is ErrLength; the half byte behind an odd number is 0.
func Pack(dst, ballots []byte, candidates int) error {
	if candidates < 1 || candidates > MaxPacked {
		return fmt.Errorf("pack for %d candidates: %w", candidates, ErrCandidates)
	}
	if len(dst) != PackedLen(len(ballots)) {
		return fmt.Errorf("pack %d ballots into %d bytes: %w", len(ballots), len(dst), ErrLength)
	}
	clear(dst)
	for i, b := range ballots {
		v := b
		switch {
		case int(b) < candidates:
		case b == Abstain && candidates < MaxPacked:
			v = AbstainPacked
		case b != Abstain && candidates < AbstainPacked:
			v = byte(candidates)
		default:
			return fmt.Errorf("pack ballot %#x for %d candidates: %w", b, candidates, ErrCandidates)
		}
		dst[i/2] |= v << (4 * (i % 2))
	}
	return nil
}

// Unpack writes packed ballots as ballots of one byte, the inverse of Pack: AbstainPacked becomes
// Abstain, unless 16 candidates stand, and any other value stays what it is, a candidate or
// invalid. packed has PackedLen(len(dst)) bytes, else it is ErrLength; 1..16 candidates, else it is
// ErrCandidates.
func Unpack(dst, packed []byte, candidates int) error {
	if candidates < 1 || candidates > MaxPacked {
		return fmt.Errorf("unpack for %d candidates: %w", candidates, ErrCandidates)
	}
	if len(packed) != PackedLen(len(dst)) {
		return fmt.Errorf("unpack %d bytes into %d ballots: %w", len(packed), len(dst), ErrLength)
	}
	last := byte(Abstain)
	if candidates == MaxPacked {
		last = AbstainPacked
	}
	for i := range dst {
		v := packed[i/2] >> (4 * (i % 2)) & 0xF
		if v == AbstainPacked {
			v = last
		}
		dst[i] = v
	}
	return nil
}
