// Package circuittest is an obvious simulator of circuits: the reference of the tests of packages
// circuit, qasm and quantum. It holds all amplitudes as complex128 and applies one operation at a
// time.
package circuittest

import (
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// MaxQubits is the largest circuit that Run takes: 2^24 amplitudes are 256 MiB.
const MaxQubits = 24

// Run executes a circuit from |0...0>. It returns the amplitudes, whose index has qubit 0 as its
// lowest bit, and the classical bits. inputs are the values of c.Inputs. A measurement and a reset
// call draw once: the qubit is read as 1 where draw() is below the probability of 1. draw returns
// values from 0 to 1, 1 excluded, and may be nil for a circuit without measurements and resets.
func Run(c *circuit.Circuit, inputs []float64, draw func() float64) (
	amplitudes []complex128, bits uint64, err error,
) {
	if c.Qubits < 0 || c.Qubits > MaxQubits {
		return nil, 0, fmt.Errorf("%w: it has %d qubits; at most %d are run here",
			circuit.ErrInvalid, c.Qubits, MaxQubits)
	}
	state := make([]complex128, 1<<c.Qubits)
	state[0] = 1
	return RunFrom(state, c, inputs, draw)
}

// RunFrom is Run from the amplitudes of state, 2^Qubits of norm 1, which it leaves as they are.
func RunFrom(state []complex128, c *circuit.Circuit, inputs []float64, draw func() float64) (
	amplitudes []complex128, bits uint64, err error,
) {
	if err := c.Validate(); err != nil {
		return nil, 0, err
	}
	if len(state) != 1<<c.Qubits {
		return nil, 0, fmt.Errorf("%w: the state has %d amplitudes; give 2^%d",
			circuit.ErrInvalid, len(state), c.Qubits)
	}
	a := append([]complex128(nil), state...)
	for _, op := range c.Ops {
		if !op.If.Holds(bits) {
			continue
		}
		target := 1 << op.Target
		switch op.Kind {
		case circuit.Gate:
			m, err := op.Unitary.Matrix(inputs)
			if err != nil {
				return nil, 0, fmt.Errorf("line %d, column %d: %w", op.Line, op.Column, err)
			}
			for i := range a {
				if i&target == 0 && acts(op.Controls, i) {
					x, y := a[i], a[i|target]
					a[i], a[i|target] = m[0]*x+m[1]*y, m[2]*x+m[3]*y
				}
			}
		case circuit.Swap:
			other := 1 << op.Other
			for i := range a {
				if j := i ^ target ^ other; i&target != 0 && i&other == 0 && acts(op.Controls, i) {
					a[i], a[j] = a[j], a[i]
				}
			}
		case circuit.Measure:
			bits &^= 1 << op.Bit
			if collapse(a, target, draw) {
				bits |= 1 << op.Bit
			}
		case circuit.Reset:
			if collapse(a, target, draw) {
				for i := range a {
					if i&target == 0 {
						a[i], a[i|target] = a[i|target], 0
					}
				}
			}
		}
	}
	return a, bits, nil
}

// acts reports whether the controls hold in a basis state.
func acts(controls []circuit.Control, state int) bool {
	for _, c := range controls {
		if state>>c.Qubit&1 == 1 == c.Zero {
			return false
		}
	}
	return true
}

// collapse reads the qubit with the mask target and leaves a state of norm 1.
func collapse(a []complex128, target int, draw func() float64) (one bool) {
	var weight [2]float64
	for i, v := range a {
		w := real(v)*real(v) + imag(v)*imag(v)
		if i&target == 0 {
			weight[0] += w
		} else {
			weight[1] += w
		}
	}
	one = draw()*(weight[0]+weight[1]) < weight[1]
	keep := weight[0]
	if one {
		keep = weight[1]
	}
	scale := complex(1/math.Sqrt(keep), 0)
	for i := range a {
		if (i&target != 0) == one {
			a[i] *= scale
		} else {
			a[i] = 0
		}
	}
	return one
}
