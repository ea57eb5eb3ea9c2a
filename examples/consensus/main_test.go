package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// TestConsensus: agents that hear the decision are right more often by a tenth of all votes.
func TestConsensus(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("run: %v", err)
	}
	var alone, together float64
	lines := strings.Split(out.String(), "\n")
	for i, to := range []*float64{&alone, &together} {
		if _, err := fmt.Sscan(lines[i][strings.Index(lines[i], ":")+1:], to); err != nil {
			t.Fatalf("%q: %v", lines[i], err)
		}
	}
	if alone < 60 || together < alone+8 {
		t.Errorf("agents are right:\n%s", &out)
	}
}
