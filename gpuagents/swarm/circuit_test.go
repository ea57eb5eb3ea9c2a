package swarm

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

const coins = "// two coins\nqubit[2] q;\nbit[2] c;\nU(pi/2, 0, pi) q;\nc = measure q;\n"

func quantumSpec(cell, more string) string {
	return "name: coins\naddressed: agent\nagents: 512\nfeatures: [a, b]\ncell: {kind: quantum" + cell + "}\n" + more
}

// TestCircuitSpec: the text of a circuit becomes a part of the specification, which decides the
// candidates.
func TestCircuitSpec(t *testing.T) {
	files := fstest.MapFS{
		"coins.qasm": {Data: []byte(coins)}, "empty.qasm": {},
		"large.qasm": {Data: make([]byte, cells.MaxCircuitBytes+9)},
		"wrong.qasm": {Data: []byte("qubit q; bit c;\nc = measure q;\nreset q;")},
	}
	s, err := ParseIn(files, "a.yaml", []byte(quantumSpec(", circuit: coins.qasm, params: {qubits: 2}", "")))
	testkit.NoError(t, "ParseIn", err)
	if d := cmp.Diff([]string{"00", "01", "10", "11"}, s.Vote.Candidates); d != "" || s.Cell.Circuit != coins {
		t.Errorf("candidates: %s; circuit %q", d, s.Cell.Circuit)
	}
	if d := cmp.Diff(s, throughJSON(t, s)); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
	text := quantumSpec(", circuit: coins.qasm", "vote: {candidates: [n, e, s, w]}")
	named, err := ParseIn(files, "a.yaml", []byte(text))
	testkit.NoError(t, "ParseIn", err)
	if named.Vote.Candidates[2] != "s" || named.Continues(s) == nil {
		t.Errorf("names of candidates: %q", named.Vote.Candidates)
	}
	other := *s
	other.Cell.Circuit = strings.Replace(coins, "pi/2", "pi/3", 1)
	if err := s.Continues(&other); err == nil || !strings.Contains(err.Error(), "its circuit is") {
		t.Errorf("a swarm of another circuit continues: %v", err)
	}
	for text, want := range map[string]string{
		quantumSpec("", ""):                                "a.yaml:5: cell kind quantum: its circuit is missing",
		quantumSpec(", circuit: gone.qasm", ""):            "a.yaml:5: circuit: open gone.qasm: file does not exist",
		quantumSpec(", circuit: empty.qasm", ""):           `a.yaml:5: circuit "empty.qasm": it is empty`,
		quantumSpec(", circuit: large.qasm", ""):           "a.yaml:5: invalid circuit: a text of 65537 bytes",
		quantumSpec(", circuit: wrong.qasm", ""):           "a.yaml:5: invalid circuit: line 3, column 1: an op",
		quantumSpec(", circuit: coins.qasm, step: x;", ""): "a.yaml:5: step: the cell quantum has its own",
		quantumSpec(", circuit: coins.qasm", "vote: {candidates: [a, b]}"): "a.yaml:6: 2 candidates: the cell " +
			"quantum votes between 4: [00 01 10 11]",
		quantumSpec(", circuit: coins.qasm", `vote: {candidates: ["11", "10", "01", "00"]}`): "a.yaml:6: candidates " +
			`["11" "10" "01" "00"]: bit strings stand in the order of their numbers: write ["00" "01" "10" "11"]`,
		quantumSpec(", circuit: coins.qasm, params: {qubits: 3}", ""): "a.yaml:5: invalid cell parameter: quantum: " +
			"qubits = 3, and the circuit has 2",
		quantumSpec(", circuit: coins.qasm", "hear: [decision]"): "a.yaml:6: invalid cell parameter: quantum: its " +
			"agents hear nothing",
		quantumSpec(", circuit: coins.qasm", "neighbours: {width: 16, height: 32}"): "a.yaml:6: neighbours: agents " +
			"of the cell quantum have none",
		"name: x\naddressed: agent\nagents: 512\ncell: {circuit: coins.qasm}": "a.yaml:4: circuit: it is for the cell",
	} {
		_, err := ParseIn(files, "a.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
	}
	if _, err := Parse("a.yaml", []byte(quantumSpec(", circuit: coins.qasm", ""))); err == nil ||
		!strings.Contains(err.Error(), "only a spec that is read from a folder can name files") {
		t.Errorf("a name of a file without a folder: %v", err)
	}
}
