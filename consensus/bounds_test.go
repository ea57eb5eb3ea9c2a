package consensus

import "testing"

// TestRulesAtTheirBounds: the least number of votes that wins, and one fewer, also where products
// pass 64 bits.
func TestRulesAtTheirBounds(t *testing.T) {
	const huge = 1 << 63
	for _, c := range []struct {
		rule             Rule
		votes, cast, all uint64
		met              bool
	}{
		{Rule{Kind: Majority}, 5, 10, 10, false},
		{Rule{Kind: Majority}, 6, 10, 10, true},
		{Rule{Kind: Majority}, huge, 2*huge - 1, 2*huge - 1, true},
		{Rule{Kind: Majority}, huge - 1, 2*huge - 1, 2*huge - 1, false},
		{Rule{Kind: Majority, Of: All}, 5, 5, 10, false},
		{Rule{Kind: Majority, Of: All}, 6, 6, 10, true},
		{Rule{Kind: Quorum, Quorum: Fraction{2, 3}}, 6, 9, 9, true},
		{Rule{Kind: Quorum, Quorum: Fraction{2, 3}}, 5, 9, 9, false},
		{Rule{Kind: Quorum, Quorum: Fraction{1, 3}}, huge, huge, huge, true},
		{Rule{Kind: Quorum, Quorum: Fraction{3, 4}}, huge / 2, huge, huge, false},
		{Rule{Kind: Quorum, Quorum: Fraction{3, 4}}, huge / 4 * 3, huge, huge, true},
		{Rule{Kind: Quorum, Quorum: Fraction{3, 4}}, huge/4*3 - 1, huge, huge, false},
		{Rule{Kind: Unanimous}, 9, 9, 10, true},
		{Rule{Kind: Unanimous}, 8, 9, 10, false},
		{Rule{Kind: Unanimous, Of: All}, 9, 9, 10, false},
		{Rule{Kind: Unanimous}, 0, 0, 0, false},
		{Rule{Kind: Plurality}, 0, 9, 9, false},
		{Rule{Kind: Plurality}, 1, 9, 9, true},
	} {
		if got := c.rule.met(c.votes, c.cast, c.all); got != c.met {
			t.Errorf("%+v: %d of %d cast, %d in all: %v", c.rule, c.votes, c.cast, c.all, got)
		}
	}
}
