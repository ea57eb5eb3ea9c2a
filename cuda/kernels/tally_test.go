package kernels

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTallyWordsAreCurrent holds tally_words.cuh to the Go constants that it repeats.
func TestTallyWordsAreCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("// The numbers of the tally kernels, from the Go constants of this package that say what each " +
		"is.\n" +
		"// Written by: go test ./cuda/kernels -run TestTallyWordsAreCurrent -update\n")
	for _, w := range []struct {
		name  string
		value int
	}{
		{"TALLY_TICKET", TallyTicket},
		{"TALLY_LEADER", TallyLeader},
		{"TALLY_ABSTAIN", TallyAbstain},
		{"TALLY_SLOTS", TallySlots},
		{"PLANE_CANDIDATES", PlaneCandidates},
		{"RESULT_DONE", ResultDone},
		{"RESULT_WINNER", ResultWinner},
		{"RESULT_PRIORITY", ResultPriority},
		{"RESULT_ROUND", ResultRound},
		{"RESULT_TOTAL", ResultTotal},
		{"RESULT_ABSTAIN", ResultAbstain},
		{"RESULT_INVALID", ResultInvalid},
		{"RESULT_UNUSED", ResultUnused},
		{"RESULT_COUNTS", ResultCounts},
		{"RESULT_MET", ResultMet},
		{"RESULT_ELECTED", ResultElected},
		{"RESULT_HAS_LEADER", ResultHasLeader},
		{"REPLY_FLAGS", ReplyFlags},
		{"REPLY_WINNER", ReplyWinner},
		{"REPLY_LEADER", ReplyLeader},
		{"REPLY_PRIORITY", ReplyPriority},
		{"REPLY_ROUND", ReplyRound},
		{"REPLY_ROUND_HIGH", ReplyRoundHigh},
		{"REPLY_ABSTAIN", ReplyAbstain},
		{"REPLY_INVALID", ReplyInvalid},
		{"REPLY_COUNTS", ReplyCounts},
		{"TALLY_THREADS", TallyThreads},
		{"RESIDENT_BLOCKS", ResidentBlocks},
		{"DOORBELL_SEEN", DoorbellSeen},
		{"DOORBELL_SEEN_HIGH", DoorbellSeenHigh},
		{"DOORBELL_STEPS", DoorbellSteps},
		{"DOORBELL_WORDS", DoorbellWords},
		{"TALLY_PRIORITIES", TallyPriorities},
		{"TALLY_ROWS", TallyRows},
		{"TALLY_LANE_BALLOTS", TallyLaneBallots},
		{"RULE_MAJORITY", int(RuleMajority)},
		{"RULE_QUORUM", int(RuleQuorum)},
		{"RULE_UNANIMOUS", int(RuleUnanimous)},
	} {
		fmt.Fprintf(&b, "#define %s %d\n", w.name, w.value)
	}
	fmt.Fprintf(&b, "#define NO_DECISION %#xu\n", NoDecision)
	if *update {
		if err := os.WriteFile("tally_words.cuh", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("tally_words.cuh")
	if err != nil || string(have) != b.String() {
		t.Errorf("tally_words.cuh is not what the constants say (%v); write it anew with -update", err)
	}
}
