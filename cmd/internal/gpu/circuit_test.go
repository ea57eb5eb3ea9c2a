package gpu

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// TestCircuit: a circuit from the command line to an agent and back.
func TestCircuit(t *testing.T) {
	url := agent(t)
	example := func(name string) string { return filepath.Join("..", "..", "..", "examples", "quantum", name) }
	text, err := run(t, url, "circuit", example("ghz.qasm"), "--shots", "1000", "--seed", "1", "--expect", "IIZZ,XXXX")
	want := regexp.MustCompile(`(?s)^RUN +RESULT +VALUE\n0 +IIZZ +1\.000000\n0 +XXXX +1\.000000\n` +
		`0 +(0000|1111) +5\d\d\n0 +(0000|1111) +4\d\d\n$`)
	if err != nil || !want.MatchString(text) {
		t.Errorf("gpu circuit: %q, error %v", text, err)
	}
	out := filepath.Join(t.TempDir(), "out.npy")
	angles := save(t, "angles.npy", []float64{0, math.Pi}, 2, 1)
	text, err = run(t, url, "circuit", example("teleport.qasm"), "--parameters", angles, "--shots", "50",
		"--expect", "ZII", "--out", out)
	if values := saved[float64](t, out); err != nil || math.Abs(values[0]-1) > 1e-5 || math.Abs(values[1]+1) > 1e-5 ||
		regexp.MustCompile(`(?m)^0 +1`).MatchString(text) || regexp.MustCompile(`(?m)^1 +0`).MatchString(text) {
		t.Errorf("gpu circuit with parameters: %v, %q, error %v", values, text, err)
	}
	numbers := save(t, "x.npy", []float32{1, 0, 1})
	text, err = run(t, url, "circuit", example("ghz.qasm"), "--prepare", numbers, "--encoding", "basis",
		"--return", "state", "--out", out)
	state := saved[float32](t, out)
	if err != nil || len(state) != 32 || !strings.HasPrefix(text, "QUBITS") {
		t.Errorf("gpu circuit --return state: %v, %q, error %v", state, text, err)
	}
	text, err = run(t, url, "circuit", example("qft.qasm"), "--shots", "1000", "--top", "1", "-o", "json")
	testkit.NoError(t, "gpu circuit -o json", err)
	var all []struct{ Output gpujob.CircuitOutput }
	testkit.NoError(t, "decode the result", json.Unmarshal([]byte(text), &all))
	counts := all[0].Output.Counts[0]
	if counts["0000"]+counts["0100"]+counts["1000"]+counts["1100"] != 1000 {
		t.Errorf("gpu circuit -o json: %s", text)
	}
	text, err = run(t, url, "circuit", example("wstate.qasm"), "--shots", "3000", "--top", "2")
	if err != nil || strings.Count(text, "\n") != 3 {
		t.Errorf("gpu circuit --top 2: %q, error %v", text, err)
	}
	text, err = run(t, url, "circuit", example("ghz.qasm"), "--explain")
	if err != nil || !strings.Contains(text, "QUBITS") {
		t.Errorf("gpu circuit --explain: %q, error %v", text, err)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.qasm")
	testkit.NoError(t, "write", os.WriteFile(wrong, []byte("qubit[2] q;\nopaque magic q;\n"), 0o600))
	_, err = run(t, url, "circuit", wrong, "--shots", "1")
	if err == nil || jobs.AsError(err).Code != jobs.CodeInvalid ||
		!strings.Contains(err.Error(), `spec.qasm, line 2, column 1: "opaque"`) {
		t.Errorf("a wrong text: %v", err)
	}
}

// TestCircuitChecksFirst: mistakes of files and flags are found without a server.
func TestCircuitChecksFirst(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good.qasm")
	testkit.NoError(t, "write", os.WriteFile(good, []byte("qubit q; bit c; c = measure q;\n"), 0o600))
	for want, args := range map[string][]string{
		"none.qasm":                 {"none.qasm"},
		"the job asks for nothing":  {good},
		"none.npy":                  {good, "--shots", "1", "--parameters", "none.npy"},
		"counts have no array":      {good, "--shots", "1", "--out", "x.npy"},
		"spec.expect[0]":            {good, "--expect", "A"},
		"there is no prepare":       {good, "--shots", "1", "--encoding", "angle"},
		"use counts, samples":       {good, "--shots", "1", "--return", "all"},
		"--top -1: use 0 or more":   {good, "--shots", "1", "--top", "-1"},
		"spec.parameters.shape [1]": {good, "--shots", "1", "--parameters", save(t, "x.npy", []float32{1})},
	} {
		_, err := run(t, "nats://127.0.0.1:1", append([]string{"circuit"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("gpu circuit %q without a server: %v, want %s", args, err, want)
		}
	}
}
