package circuittest_test

import (
	"math"
	"math/cmplx"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit/circuittest"
)

var (
	pi = circuit.Number(math.Pi)
	x  = circuit.Unitary{Theta: pi, Lambda: pi, Gamma: circuit.Number(-math.Pi / 2)}
	h  = circuit.Unitary{Theta: circuit.Number(math.Pi / 2), Lambda: pi, Gamma: circuit.Number(-math.Pi / 4)}
)

func gate(u circuit.Unitary, target int, controls ...circuit.Control) circuit.Op {
	return circuit.Op{Kind: circuit.Gate, Target: target, Controls: controls, Unitary: u}
}

// TestRun: basis states and bits after each kind of operation, with readings that draw decides.
func TestRun(t *testing.T) {
	const r = math.Sqrt2 / 2
	read := circuit.Op{Kind: circuit.Measure, Target: 1, Bit: 2}
	for _, c := range []struct {
		name string
		draw float64
		ops  []circuit.Op
		want [4]complex128
		bits uint64
	}{
		{"nothing", 0, nil, [4]complex128{1}, 0},
		{"x of qubit 1", 0, []circuit.Op{gate(x, 1)}, [4]complex128{2: 1}, 0},
		{"bell", 0, []circuit.Op{gate(h, 0), gate(x, 1, circuit.Control{})}, [4]complex128{0: r, 3: r}, 0},
		{"control at 0", 0, []circuit.Op{gate(x, 1, circuit.Control{Qubit: 0, Zero: true})}, [4]complex128{2: 1}, 0},
		{"swap", 0, []circuit.Op{gate(x, 0), {Kind: circuit.Swap, Target: 1, Other: 0}}, [4]complex128{2: 1}, 0},
		{"measure 1", 0.4, []circuit.Op{gate(h, 1), read}, [4]complex128{2: 1}, 4},
		{"measure 0", 0.6, []circuit.Op{gate(h, 1), read}, [4]complex128{0: 1}, 0},
		{"reset", 0.4, []circuit.Op{gate(x, 1), gate(h, 0), {Kind: circuit.Reset, Target: 0}}, [4]complex128{2: 1}, 0},
		{"condition", 0, []circuit.Op{
			gate(x, 0),
			{Kind: circuit.Measure, Target: 0, Bit: 1},
			{Kind: circuit.Gate, Unitary: x, Target: 1, If: circuit.Condition{First: 1, Count: 2, Value: 1}},
			{Kind: circuit.Gate, Unitary: x, Target: 0, If: circuit.Condition{First: 1, Count: 2, Value: 1, Not: true}},
		}, [4]complex128{3: 1}, 2},
	} {
		got, bits, err := circuittest.Run(&circuit.Circuit{Qubits: 2, Bits: 3, Ops: c.ops}, nil,
			func() float64 { return c.draw })
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for i, want := range c.want {
			if cmplx.Abs(got[i]-want) > 1e-15 || bits != c.bits {
				t.Errorf("%s: amplitude %d is %v and the bits are %b, want %v and %b",
					c.name, i, got[i], bits, want, c.bits)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	good := &circuit.Circuit{Qubits: 1}
	if _, _, err := circuittest.RunFrom(make([]complex128, 4), good, nil, nil); err == nil {
		t.Error("a state of another size is taken")
	}
	for name, c := range map[string]*circuit.Circuit{
		"too many qubits": {Qubits: circuittest.MaxQubits + 1},
		"invalid":         {Qubits: 1, Ops: []circuit.Op{gate(x, 1)}},
		"missing input": {
			Qubits: 1, Inputs: []string{"a"},
			Ops: []circuit.Op{gate(circuit.Unitary{Theta: circuit.Input(0)}, 0)},
		},
	} {
		if _, _, err := circuittest.Run(c, nil, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
