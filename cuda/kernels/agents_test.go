package kernels

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestAgentWordsAreCurrent holds agents_words.cuh to the Go constants that it repeats.
func TestAgentWordsAreCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("// The numbers of the agent-addressed kernels, from the Go constants of this package that say " +
		"what each is.\n" +
		"// Written by: go test ./cuda/kernels -run TestAgentWordsAreCurrent -update\n#pragma once\n\n")
	for _, w := range []struct {
		name  string
		value int
	}{
		{"AGENT_CANDIDATES", AgentCandidates},
		{"AGENT_RULE", AgentRule},
		{"AGENT_QUORUM", AgentQuorum},
		{"AGENT_FEATURES", AgentFeatures},
		{"AGENT_DECAY", AgentDecay},
		{"AGENT_THRESHOLD", AgentThreshold},
		{"AGENT_TRACE_RATE", AgentTraceRate},
		{"AGENT_VAR_ROUND", AgentVarRound},
		{"AGENT_VAR_COUNTS", AgentVarCounts},
		{"AGENT_VAR_VOTE", AgentVarVote},
		{"AGENT_VAR_INPUT", AgentVarInput},
		{"AGENT_VAR_ROW", AgentVarRow},
		{"AGENT_VAR_POTENTIAL", AgentVarPotential},
		{"AGENT_VAR_TRACE", AgentVarTrace},
		{"AGENT_VAR_KNOWLEDGE", AgentVarKnowledge},
		{"AGENT_VAR_UPDATES", AgentVarUpdates},
		{"AGENT_VAR_UPDATED", AgentVarUpdated},
		{"AGENT_VAR_LEARNED", AgentVarLearned},
		{"AGENT_MOST_NODE", AgentMostNode},
		{"AGENT_MERGE_MAX", AgentMergeMax},
		{"AGENT_MERGE_EMA", AgentMergeEMA},
		{"AGENT_MERGE_ATTENTION", AgentMergeAttention},
		{"AGENT_BY_GROUP", AgentByGroup},
		{"AGENT_BY_VOTE", AgentByVote},
		{"AGENT_BY_KEY", AgentByKey},
		{"AGENT_LINES", AgentLines},
		{"AGENT_WEIGHT_BITS", AgentWeightBits},
		{"AGENT_NODE_BITS", AgentNodeBits},
		{"AGENT_NODE_MERGED", AgentNodeMerged},
		{"AGENT_NODE_LEARNED", AgentNodeLearned},
		{"AGENT_MOST_CANDIDATES", AgentMostCandidates},
		{"AGENT_NO_VOTE", AgentNoVote},
		{"AGENT_HOST_BIT", AgentHostBit},
		{"AGENT_SPAN", AgentSpan},
		{"AGENT_SPAN_LEAKY", AgentSpanLeaky},
		{"AGENT_SPAN_GROUPS", AgentSpanGroups},
		{"AGENT_HEADED", AgentHeaded},
		{"AGENT_TICK_SILENT", AgentTickSilent},
		{"AGENT_TICK_COUNT", AgentTickCount},
		{"AGENT_TICK_PUBLISH", AgentTickPublish},
		{"AGENT_TICKET", AgentTicket},
		{"AGENT_STEPPED", AgentStepped},
		{"AGENT_OUTSIDE", AgentOutside},
		{"AGENT_REFUSED", AgentRefused},
		{"AGENT_SUM", AgentSum},
		{"AGENT_TALLY", AgentTally},
		{"AGENT_DONE", AgentDone},
		{"AGENT_RESULT_TALLY", AgentResultTally},
	} {
		fmt.Fprintf(&b, "#define %s %d\n", w.name, w.value)
	}
	for _, f := range []struct {
		name  string
		value float32
	}{
		{"AGENT_INPUT", AgentInput},
		{"AGENT_GRU_INPUT", AgentGRUInput},
		{"AGENT_UNIT_SCALE", 1 << AgentUnitBits},
		{"AGENT_INPUT_SCALE", 1 << AgentInputBits},
		{"AGENT_FARTHEST", AgentFarthest},
	} {
		fmt.Fprintf(&b, "#define %s %.9ef\n", f.name, f.value)
	}
	if *update {
		if err := os.WriteFile("agents_words.cuh", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("agents_words.cuh")
	if err != nil || string(have) != b.String() {
		t.Errorf("agents_words.cuh is not what the constants say (%v); write it anew with -update", err)
	}
}

// TestQuantumWordsAreCurrent holds quantum_words.cuh to the Go constants that it repeats.
func TestQuantumWordsAreCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("// The numbers of the quantum cell, from the constants of quantum.go that say what each is.\n" +
		"// Written by: go test ./cuda/kernels -run TestQuantumWordsAreCurrent -update\n#pragma once\n\n")
	for _, w := range []struct {
		name  string
		value int
	}{
		{"QUANTUM_KEY", QuantumKey},
		{"QUANTUM_FIRST", QuantumFirst},
		{"QUANTUM_ROUND", QuantumRound},
		{"QUANTUM_VAR_DRAWS", QuantumVarDraws},
		{"QUANTUM_VAR_STATE", QuantumVarState},
		{"QUANTUM_TABLE_COUNT", QuantumTableCount},
		{"QUANTUM_TABLE_FRESH", QuantumTableFresh},
		{"QUANTUM_TABLE_PLACES", QuantumTablePlaces},
		{"QUANTUM_TABLE_GATES", QuantumTableGates},
		{"QUANTUM_GATE_MATRIX", QuantumGateMatrix},
		{"QUANTUM_GATE_WORDS", QuantumGateWords},
		{"QUANTUM_REAL", QuantumReal},
		{"QUANTUM_MIXED", QuantumMixed},
		{"QUANTUM_EXCHANGE", QuantumExchange},
		{"QUANTUM_FACTOR", QuantumFactor},
		{"QUANTUM_NO_PLACE", QuantumNoPlace},
		{"QUANTUM_BLOCK", QuantumBlock},
		{"QUANTUM_SPAN", QuantumSpan},
		{"QUANTUM_ANGLE", QuantumAngle},
		{"QUANTUM_WEIGHT", QuantumWeight},
		{"QUANTUM_DRIFT", QuantumDrift},
		{"QUANTUM_VOTE", QuantumVote},
	} {
		fmt.Fprintf(&b, "#define %s %du\n", w.name, w.value)
	}
	if *update {
		if err := os.WriteFile("quantum_words.cuh", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("quantum_words.cuh")
	if err != nil || string(have) != b.String() {
		t.Errorf("quantum_words.cuh is not what the constants say (%v); write it anew with -update", err)
	}
}

// TestAgentPool: the shared memory of nodes by key has a row for each sum, and rows begin four
// banks apart.
func TestAgentPool(t *testing.T) {
	for _, c := range []struct{ nodes, width, merge, bytes, blocks int }{
		{128, 4, AgentMergeMean, 0, 9},
		{129, 4, AgentMergeMax, 4 * 5 * 132, 8},
		{1024, 4, AgentMergeEMA, 4 * 5 * 1028, 5},
		{1024, 4, AgentMergeAttention, 4 * 9 * 1028, 3},
		{1028, 1, AgentMergeMean, 4 * 2 * 1028, 6},
		{1029, 1, AgentMergeMean, 4 * 2 * 1060, 6},
	} {
		bytes := AgentPool(c.nodes, c.width, c.merge)
		if blocks := AgentToldBlocks(8, bytes, 9, 0); bytes != c.bytes || blocks != c.blocks {
			t.Errorf("%+v: %d bytes, %d blocks on an H100", c, bytes, blocks)
		}
	}
	for _, c := range []struct{ class, major, minor, blocks int }{
		{8, 7, 5, 0}, {8, 8, 0, 3}, {8, 8, 6, 2}, {32, 8, 9, 1}, {16, 9, 0, 4}, {8, 12, 0, 2},
	} {
		if n := AgentToldBlocks(c.class, 20<<10, c.major, c.minor); n != c.blocks {
			t.Errorf("%+v: %d blocks", c, n)
		}
	}
}
