package agents

import (
	"math"
	"testing"
)

// TestPriority: leaders are spread over the agents, by seed and by round, and no two priorities of
// a round are equal.
func TestPriority(t *testing.T) {
	for _, n := range []int64{1, 2, 7, 1000, math.MaxUint32} {
		for round := range uint64(50) {
			first := Leading(3, round, n)
			if first < 0 || first >= n || Priority(3, round, n, uint32(first)) != math.MaxUint32 {
				t.Fatalf("round %d of %d agents: %d leads", round, n, first)
			}
			before := (first + n - 1) % n
			if got, want := Priority(3, round, n, uint32(before)), uint32(math.MaxUint32-(n-1)); got != want {
				t.Fatalf("round %d of %d agents: the last has priority %d, want %d", round, n, got, want)
			}
		}
	}
	var led [10]int
	for seed := range uint64(10) {
		for round := range uint64(1000) {
			led[Leading(seed, round, 10)]++
		}
	}
	for agent, n := range led { // 1,000 each, with a deviation of 30
		if n < 850 || n > 1150 {
			t.Errorf("agent %d leads %d of 10,000 rounds", agent, n)
		}
	}
	if a, b := Leading(1, 1, 1<<30), Leading(1, 1, 1<<30); a != b || a == Leading(2, 1, 1<<30) ||
		a == Leading(1, 2, 1<<30) {
		t.Error("the leader is no function of seed and round")
	}
	// docs/protocol.md says so: the leader of round 1 of a million agents with seed 42.
	if got := Leading(42, 1, 1_000_000); got != 950438 {
		t.Errorf("agent %d leads, want 950438", got)
	}
}
