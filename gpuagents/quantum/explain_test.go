package quantum

import (
	"math"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// qft is the quantum Fourier transform with its swaps.
func (b *builder) qft() *builder {
	for q := b.Qubits - 1; q >= 0; q-- {
		b.gate("h", nil, q)
		for k := q - 1; k >= 0; k-- {
			b.gate("cp", []float64{math.Pi / float64(uint64(1)<<(q-k))}, k, q)
		}
	}
	for q := range b.Qubits / 2 {
		b.gate("swap", nil, q, b.Qubits-1-q)
	}
	return b
}

// basicQFT is qft in the gates of QASMBench: cu1 is u1, cx, u1, cx, u1.
func (b *builder) basicQFT() *builder {
	for q := b.Qubits - 1; q >= 0; q-- {
		b.gate("h", nil, q)
		for k := q - 1; k >= 0; k-- {
			half := math.Pi / float64(uint64(2)<<(q-k))
			b.gate("u1", []float64{half}, k).gate("cx", nil, k, q).gate("u1", []float64{-half}, q)
			b.gate("cx", nil, k, q).gate("u1", []float64{half}, q)
		}
	}
	return b
}

// ising is a chain in a field, one step of Trotter, as ising_n34 of QASMBench has it.
func (b *builder) ising() *builder {
	for q := range b.Qubits {
		b.gate("h", nil, q)
	}
	for q := range b.Qubits {
		b.gate("rz", []float64{0.3}, q).gate("rx", []float64{0.7}, q)
	}
	for _, first := range []int{0, 1} {
		for q := first; q+1 < b.Qubits; q += 2 {
			b.gate("cx", nil, q, q+1).gate("rz", []float64{0.4}, q+1).gate("cx", nil, q, q+1)
		}
	}
	for q := range b.Qubits {
		b.gate("rz", []float64{0.3}, q).gate("rx", []float64{0.7}, q)
	}
	return b
}

// TestExplain: large circuits take few passes.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name  string
		b     *builder
		most  int
		gates int
	}{
		{"QFT of 29 qubits", build(t, 29, 0).qft(), 4, 435},
		{"QFT of 29 qubits in basic gates", build(t, 29, 0).basicQFT(), 8, 2059},
		{"Ising chain of 33 qubits", build(t, 33, 0).ising(), 6, 261},
		{"Ising chain of 34 qubits", build(t, 34, 0).ising(), 6, 269},
	} {
		e, err := Explain(&c.b.Circuit)
		testkit.NoError(t, c.name, err)
		t.Logf("%s, %d operations:\n%s", c.name, len(c.b.Ops), e)
		if len(e.Passes) > c.most || !strings.Contains(e.String(), "passes") {
			t.Errorf("%s: %d passes, want at most %d", c.name, len(e.Passes), c.most)
		}
	}
	if _, err := Explain(&circuit.Circuit{}); err == nil {
		t.Error("an empty circuit is explained")
	}
}
