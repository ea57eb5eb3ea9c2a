package quantum

import (
	"math"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/internal/plan"
)

// gate is a gate of a plan with what its matrix is made of.
type gate struct {
	plan.Gate
	// factors are the unitaries whose product the matrix is, the first one applied first. It is empty
	// for a gate whose matrix is known.
	factors []factor
	last    bool // the factor of a Phase is the last element of the product
	cond    circuit.Condition
	// before is one more than the gate before this one on the target; 0: there is none.
	before int
	// collapse marks the gate that leaves a qubit at the value that was read.
	collapse bool
}

// factor is a unitary of an operation, or a matrix.
type factor struct {
	unitary *circuit.Unitary // nil: matrix
	matrix  circuit.Matrix
}

// product returns the matrix of a gate for the values of the inputs.
func (g *gate) product(inputs []float64) (circuit.Matrix, error) {
	m := circuit.Matrix{1, 0, 0, 1}
	for i, f := range g.factors {
		by := f.matrix
		if f.unitary != nil {
			var err error
			if by, err = f.unitary.Matrix(inputs); err != nil {
				return m, err
			}
		}
		if i == 0 {
			m = by
		} else {
			m = multiply(by, m)
		}
	}
	if g.last {
		m[0] = m[3]
	}
	return m, nil
}

// multiply returns the matrix of b behind a.
func multiply(b, a circuit.Matrix) circuit.Matrix {
	return circuit.Matrix{
		b[0]*a[0] + b[1]*a[2], b[0]*a[1] + b[1]*a[3],
		b[2]*a[0] + b[3]*a[2], b[2]*a[1] + b[3]*a[3],
	}
}

// clean replaces parts that are 0, 1 or -1 but for the rounding of angles, so that matrices have
// the class that they have on paper. float32 does not see the difference.
func clean(m circuit.Matrix) circuit.Matrix {
	const rounding = 1e-15
	part := func(v float64) float64 {
		for _, exact := range [3]float64{0, 1, -1} {
			if math.Abs(v-exact) < rounding {
				return exact
			}
		}
		return v
	}
	for i, v := range m {
		m[i] = complex(part(real(v)), part(imag(v)))
	}
	return m
}

// classOf returns the class of a known matrix.
func classOf(m circuit.Matrix) plan.Class {
	switch {
	case m[1] == 0 && m[2] == 0:
		return plan.Diagonal
	case m[0] == 0 && m[3] == 0 && m[1] == 1 && m[2] == 1:
		return plan.Exchange
	case m[0] == 0 && m[3] == 0:
		return plan.Flip
	case imag(m[0]) == 0 && imag(m[1]) == 0 && imag(m[2]) == 0 && imag(m[3]) == 0:
		return plan.Real
	case imag(m[0]) == 0 && real(m[1]) == 0 && real(m[2]) == 0 && imag(m[3]) == 0:
		return plan.Mixed
	}
	return plan.Dense
}

// known reports whether a unitary depends on no input.
func known(u *circuit.Unitary) bool {
	for _, a := range [4]circuit.Angle{u.Theta, u.Phi, u.Lambda, u.Gamma} {
		if _, ok := a.Constant(); !ok {
			return false
		}
	}
	return true
}

// newGate returns a gate of one unitary without a condition. The class of a gate that depends on
// inputs follows from its form and not from their values, so that all rows have one plan.
func newGate(u *circuit.Unitary, target int, controls, values uint64) (gate, error) {
	g := gate{Gate: plan.Gate{Target: target, Controls: controls, Values: values}}
	if known(u) {
		m, err := u.Matrix(nil)
		if err != nil {
			return g, err
		}
		g.set(clean(m))
		return g, nil
	}
	g.PerRow, g.factors, g.Class = true, []factor{{unitary: u}}, plan.Dense
	if theta, ok := u.Theta.Constant(); ok && math.Abs(math.Sin(theta/2)) < 1e-15 {
		g.Class = plan.Diagonal
		if gamma, ok := u.Gamma.Constant(); ok && gamma == 0 && theta == 0 {
			g.toPhase(true)
		}
	}
	return g, nil
}

// set gives the gate a known matrix.
func (g *gate) set(m circuit.Matrix) {
	g.PerRow, g.factors, g.Matrix, g.Class = false, nil, m, classOf(m)
	if g.Class != plan.Diagonal {
		return
	}
	if m[0] == 1 {
		g.Matrix[0] = m[3]
		g.toPhase(true)
	} else if m[3] == 1 {
		g.toPhase(false)
	}
}

// toPhase makes the target of a diagonal gate, one of whose elements is 1, a control.
func (g *gate) toPhase(one bool) {
	g.Class, g.last, g.Controls = plan.Phase, one, g.Controls|1<<g.Target
	if one {
		g.Values |= 1 << g.Target
	}
}

// none reports whether the gate changes nothing.
func (g *gate) none() bool { return g.Class == plan.Phase && !g.PerRow && g.Matrix[0] == 1 }

// fuse puts a gate behind this one, with which it shares the only qubit, into this one. It reports
// whether it has: diagonal gates stay alone unless the other one is dense, because they go into any
// pass.
func (g *gate) fuse(next *gate) bool {
	diagonal := func(c plan.Class) bool { return c >= plan.Diagonal }
	switch {
	case g.Class == plan.Phase || next.Class == plan.Phase, g.collapse:
		return false
	case diagonal(g.Class) != diagonal(next.Class) && g.Class != plan.Dense && next.Class != plan.Dense:
		return false
	case !g.PerRow && !next.PerRow:
		g.set(clean(multiply(next.Matrix, g.Matrix)))
		return true
	}
	if !diagonal(g.Class) || !diagonal(next.Class) {
		g.Class = plan.Dense
	}
	for _, of := range []*gate{g, next} {
		if !of.PerRow {
			of.factors = []factor{{matrix: of.Matrix}}
		}
	}
	g.factors, g.PerRow = append(g.factors, next.factors...), true
	return true
}
