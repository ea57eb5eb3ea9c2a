package consensus_test

import (
	"fmt"

	"github.com/exoswarm/exoswarm/consensus"
)

func Example() {
	tally, err := consensus.NewTally(3)
	if err != nil {
		panic(err)
	}
	ballots := []byte{0, 2, 2, 1, 2, consensus.Abstain}
	if err := tally.Cast(ballots); err != nil {
		panic(err)
	}
	tally.Nominate(0, []uint32{1, 9, 3, 9, 0, 2})
	for _, text := range []string{"plurality", "majority", "majority of all", "quorum 3/5"} {
		rule, err := consensus.ParseRule(text)
		if err != nil {
			panic(err)
		}
		d, err := consensus.Decide(rule, tally)
		if err != nil {
			panic(err)
		}
		fmt.Println(text, d.Winner, d.QuorumMet, d.Leader.Agent)
	}
	// Output:
	// plurality 2 true 1
	// majority 2 true 1
	// majority of all -1 false 1
	// quorum 3/5 2 true 1
}
