package cells_test

import (
	"errors"
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit/circuittest"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/qasm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

const head = "OPENQASM 3.0;\ninclude \"stdgates.inc\";\n"

// TestQuantumRefuses: what the cell does not run is refused with its place and the cure.
func TestQuantumRefuses(t *testing.T) {
	const measured = "qubit[2] q; bit[2] c;\n"
	for _, of := range []struct {
		text     string
		values   map[string]float64
		features int
		want     string
	}{
		{"qubit q; opaque g;", nil, 1, "line 3, column 10"},
		{"qubit[7] q; bit c; c = measure q[0];", nil, 1, "7 qubits, and an agent has at most 6: use a job"},
		{"qubit[2] q; h q;", nil, 1, "0 bits are the ballot: declare and measure 1 to 4"},
		{"qubit[6] q; bit[5] c; c = measure q[0:4];", nil, 1, "5 bits are the ballot"},
		{"qubit[2] q; bit[2] c; c[0] = measure q[0];", nil, 1, "a bit is never measured: declare as many"},
		{measured + "c = measure q;\nh q[1];", nil, 1, "line 5, column 1: an operation behind the measurement"},
		{measured + "c = measure q;\nif (c[0]) x q[1];", nil, 1, "line 5, column 11: a condition"},
		{measured + "c[0] = measure q[0];\nc[0] = measure q[1];", nil, 1, "line 5, column 8: bit 0 is measured twice"},
		{measured + "h q;\nreset q[1];\nc = measure q;", nil, 1, "line 5, column 1: a reset behind a gate"},
		{measured + "reset q[1];\nc = measure q;", nil, 1, "it resets some qubits: reset all"},
		{measured + "c = measure q;", map[string]float64{"qubits": 3}, 1, "qubits = 3, and the circuit has 2"},
		{measured + "c = measure q;", map[string]float64{"qubist": 2}, 1, `did you mean "qubits"?`},
		{measured + "c = measure q;", nil, 3, "3 features turn 2 qubits: name 1 to 2"},
		{"input float qubits;" + measured + "c = measure q;", nil, 1, "choose another name"},
		{"input float a; qubit q; bit c; rx(1/a) q; c = measure q;", nil, 1, "for the inputs a = [0]"},
		{measured + "for int i in [0:1024] { h q[0]; cx q[0], q[1]; }\nc = measure q;", nil, 1, "2050 gates after"},
		{strings.Repeat("//;\n", 1<<14) + "qubit q;", nil, 1, "use at most 65536"},
	} {
		_, err := cells.AddressQuantum(head+of.text, of.values, 2, of.features, cells.Voting{})
		if err == nil || !strings.Contains(err.Error(), of.want) ||
			!errors.Is(err, cells.ErrCircuit) && !errors.Is(err, cells.ErrParameter) {
			t.Errorf("%.80q: %v, want %q", of.text, err, of.want)
		}
	}
}

// TestQuantumCandidates: candidates are the readings, and ballots have each bit where it is
// measured into.
func TestQuantumCandidates(t *testing.T) {
	if d := cmp.Diff(cells.QuantumCandidates(head+"qubit[3] q; bit[2] c; c[1] = measure q[0]; c[0] = measure q[2];"),
		[]string{"00", "01", "10", "11"}); d != "" {
		t.Errorf("candidates: %s", d)
	}
	if got := cells.QuantumCandidates("qubit q;"); got != nil {
		t.Errorf("a circuit without bits has the candidates %q", got)
	}
}

// TestQuantumTable: the gates of a table have the effect of the circuit, beside an obvious
// simulator, and tables of all angles have one length.
func TestQuantumTable(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range testkit.Of(300, 60) {
		n := 1 + r.IntN(kernels.QuantumMostQubits)
		text := head + fmt.Sprintf("input float a; input float b; qubit[%d] q; bit c;\n", n)
		for range r.IntN(30) {
			on := r.Perm(n)
			one := []string{"h", "x", "t", "sx", "ry(a)", "rz(2*a - b)", "p(b)", "u3(a, b, 0.3)", "rx(1)"}
			switch {
			case n > 1 && r.IntN(4) == 0:
				text += fmt.Sprintf("swap q[%d], q[%d];\n", on[0], on[1])
			case n > 2 && r.IntN(4) == 0:
				text += fmt.Sprintf("negctrl @ ctrl @ %s q[%d], q[%d], q[%d];\n", one[r.IntN(len(one))], on[0], on[1],
					on[2])
			case n > 1 && r.IntN(2) == 0:
				two := []string{"cx", "cz", "cp(b)", "crx(a)"}
				text += fmt.Sprintf("%s q[%d], q[%d];\n", two[r.IntN(len(two))], on[0], on[1])
			default:
				text += fmt.Sprintf("%s q[%d];\n", one[r.IntN(len(one))], on[0])
			}
		}
		c, err := qasm.Parse(text)
		testkit.NoError(t, "qasm.Parse", err)
		cell, err := cells.AddressQuantum(text+"c = measure q[0];", map[string]float64{"a": 0.25}, 2, n, cells.Voting{})
		testkit.NoError(t, "AddressQuantum", err)
		angles := []float32{r.Float32() * 7, r.Float32() * 7}
		if r.IntN(3) == 0 {
			angles[r.IntN(2)] = 0
		}
		table, err := cell.AnglesTable(angles)
		if err != nil || len(table) != len(cell.Weights(1)) {
			t.Fatalf("AnglesTable: %d words, %v, want %d", len(table), err, len(cell.Weights(1)))
		}
		want, _, err := circuittest.Run(c, []float64{float64(angles[0]), float64(angles[1])}, nil)
		testkit.NoError(t, "circuittest.Run", err)
		for i, got := range runTable(table, n) {
			if cmplx.Abs(got-want[i]) > 1e-5 {
				t.Fatalf("%s\nangles %v: amplitude %d is %v, want %v", text, angles, i, got, want[i])
			}
		}
	}
}

// runTable is a table in complex128, from |0...0>.
func runTable(table []uint32, qubits int) []complex128 {
	state := make([]complex128, 1<<qubits)
	state[0] = 1
	for g := range int(table[kernels.QuantumTableCount]) {
		w := table[kernels.QuantumTableGates+g*kernels.QuantumGateWords:][:kernels.QuantumGateWords]
		var m [4]complex128
		for i := range m {
			part := func(k int) float64 { return float64(math.Float32frombits(w[kernels.QuantumGateMatrix+2*i+k])) }
			m[i] = complex(part(0), part(1))
		}
		mask := uint64(w[kernels.QuantumGateMask]) | uint64(w[kernels.QuantumGateMask+1])<<32
		for r := range state {
			q := r | 1<<(w[0]>>4)
			switch {
			case mask>>r&1 == 0:
			case w[0]&15 == kernels.QuantumFactor:
				state[r] *= m[3*(r>>(w[0]>>4)&1)]
			case q != r:
				state[r], state[q] = m[0]*state[r]+m[1]*state[q], m[2]*state[r]+m[3]*state[q]
			}
		}
	}
	return state
}
