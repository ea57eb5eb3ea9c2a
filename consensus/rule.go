package consensus

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Kind is the condition of a rule on the strongest candidate; the package comment has the sources.
// The kernels use the same numbers.
type Kind uint32

// The kinds of rule.
const (
	Plurality Kind = iota // the most votes
	Majority              // more than half
	Quorum                // at least a fraction
	Weighted              // the most weight
	Unanimous             // every vote
)

var kindNames = []string{"plurality", "majority", "quorum", "weighted", "unanimous"}

// String is the name that ParseRule reads.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint32(k))
}

// Base is the set of ballots whose share majority, quorum and unanimity need.
type Base uint32

// The bases.
const (
	Cast Base = iota // the votes for candidates
	All              // all ballots, with abstentions and invalid ones
)

// Fraction is Num/Den, compared without rounding.
type Fraction struct {
	Num, Den uint32
}

// String is the text that ParseRule reads.
func (f Fraction) String() string { return fmt.Sprintf("%d/%d", f.Num, f.Den) }

// Rule turns a tally into a decision. The zero value is plurality.
type Rule struct {
	Kind Kind
	// Of is the base of Majority, Quorum and Unanimous; the other kinds have none.
	Of Base
	// Quorum is the fraction of Quorum, 0 < Quorum <= 1; the other kinds have none.
	Quorum Fraction
}

// Check returns ErrRule unless the rule exists and its fields are in range.
func (r Rule) Check() error {
	switch {
	case int(r.Kind) >= len(kindNames):
		return fmt.Errorf("%v: %w", r.Kind, ErrRule)
	case r.Of > All:
		return fmt.Errorf("%v of base %d: %w", r.Kind, r.Of, ErrRule)
	case r.Kind == Quorum && (r.Quorum.Num == 0 || r.Quorum.Num > r.Quorum.Den):
		return fmt.Errorf("quorum %v is not in (0, 1]: %w", r.Quorum, ErrRule)
	}
	return nil
}

// String is the text that ParseRule reads.
func (r Rule) String() string {
	s := r.Kind.String()
	if r.Kind == Quorum {
		s += " " + r.Quorum.String()
	}
	if r.Of == All && r.Kind != Plurality && r.Kind != Weighted {
		s += " of all"
	}
	return s
}

// ParseRule reads a rule: plurality, majority, weighted, unanimous, or quorum with a fraction, as
// in "quorum 2/3". After majority, quorum and unanimous " of all" sets the base All; " of cast" is
// the default.
func ParseRule(text string) (Rule, error) {
	var r Rule
	name, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	r.Kind = Kind(len(kindNames))
	for k, n := range kindNames {
		if n == name {
			r.Kind = Kind(k)
		}
	}
	words := strings.Fields(rest)
	if r.Kind == Quorum && len(words) > 0 {
		num, den, ok := strings.Cut(words[0], "/")
		n, errN := strconv.ParseUint(num, 10, 32)
		d, errD := strconv.ParseUint(den, 10, 32)
		if !ok || errN != nil || errD != nil {
			return Rule{}, fmt.Errorf("rule %q: a quorum is a fraction as 2/3: %w", text, ErrRule)
		}
		r.Quorum = Fraction{uint32(n), uint32(d)}
		words = words[1:]
	}
	based := r.Kind == Majority || r.Kind == Quorum || r.Kind == Unanimous
	switch {
	case len(words) == 2 && based && words[0] == "of" && words[1] == "all":
		r.Of = All
	case len(words) == 2 && based && words[0] == "of" && words[1] == "cast":
	case len(words) != 0:
		return Rule{}, fmt.Errorf("rule %q: %q is not understood: %w", text, strings.Join(words, " "), ErrRule)
	}
	if err := r.Check(); err != nil {
		return Rule{}, fmt.Errorf("rule %q: %w", text, err)
	}
	return r, nil
}

// met reports whether a candidate with votes has won; cast counts the votes cast, all everybody.
func (r Rule) met(votes, cast, all uint64) bool {
	base := cast
	if r.Of == All {
		base = all
	}
	if votes == 0 {
		return false
	}
	switch r.Kind {
	case Majority:
		return votes > base-votes // votes <= base, and twice the votes might not fit
	case Quorum:
		vh, vl := bits.Mul64(votes, uint64(r.Quorum.Den))
		qh, ql := bits.Mul64(base, uint64(r.Quorum.Num))
		return vh > qh || vh == qh && vl >= ql
	case Unanimous:
		return votes == base
	}
	return true
}
