// Package circuit describes quantum circuits: unitaries of one qubit and swaps, each with any
// number of controls, measurements, resets and classical conditions. Package qasm parses OpenQASM
// into a Circuit, and package quantum simulates one. It imports the standard library only.
//
// Qubit 0 is the lowest bit of the index of an amplitude and the last letter of a bit string, as in
// Qiskit.
package circuit

import (
	"errors"
	"fmt"
	"math"
)

// Limits of a circuit.
const (
	MaxQubits = 34      // qubits: 2^34 amplitudes of 8 bytes are 128 GiB
	MaxBits   = 64      // classical bits, so that the bits of a shot are one uint64
	MaxOps    = 1 << 20 // operations
	MaxInputs = 4096    // inputs
	MaxTerms  = 1 << 22 // operations and inputs in all angles together: a run computes each
)

// ErrInvalid is the class of all errors about a circuit or its inputs. The sentence names the
// operation and the cure.
var ErrInvalid = errors.New("invalid circuit")

// Circuit is a list of operations on qubits 0 to Qubits-1 and classical bits 0 to Bits-1. All
// qubits and bits are 0 at first, unless the state is prepared otherwise. A Circuit is read-only
// once made.
type Circuit struct {
	Qubits int
	Bits   int
	// Inputs are the names of the parameters, in the order of their declaration. An Angle refers to
	// them by index. A run of the circuit gives one value for each.
	Inputs []string
	Ops    []Op
	// QubitRegisters and BitRegisters name consecutive qubits and bits, lowest first. They are for
	// output and may be empty.
	QubitRegisters, BitRegisters []Register
}

// Register is a named run of qubits or bits.
type Register struct {
	Name        string
	First, Size int
}

// Kind tells what an Op does.
type Kind uint8

// The kinds of operations.
const (
	Gate    Kind = iota + 1 // applies Unitary to Target
	Swap                    // exchanges Target and Other
	Measure                 // reads Target into Bit; the state collapses
	Reset                   // sets Target to 0: measures it and flips a 1
)

// Op is one operation. Controls are for Gate and Swap only.
type Op struct {
	Kind     Kind
	Target   int
	Other    int // the second qubit of a Swap
	Bit      int // the bit of a Measure
	Controls []Control
	Unitary  Unitary // of a Gate
	// If is the condition under which the operation takes place.
	If Condition
	// Line and Column are the place in the text of the circuit, from 1; 0 without a text.
	Line, Column int
}

// Control is a qubit that must be 1 for the operation to act, or 0 where Zero is set.
type Control struct {
	Qubit int
	Zero  bool
}

// Condition compares bits First to First+Count-1, lowest first, with Value. A Condition with Count
// 0 always holds.
type Condition struct {
	First, Count int
	Value        uint64
	Not          bool // holds where the bits differ from Value
}

// Holds reports whether the condition holds for the bits of a shot.
func (c Condition) Holds(bits uint64) bool {
	if c.Count == 0 {
		return true
	}
	mask := ^uint64(0) >> (64 - c.Count)
	return (bits>>c.First&mask == c.Value) != c.Not
}

// Unitary is exp(i Gamma) U(Theta, Phi, Lambda), raised to Power. U is the one of OpenQASM 3:
//
//	U = 1/2 [ 1+exp(i theta)               -i exp(i lambda) (1-exp(i theta))   ]
//	        [ i exp(i phi) (1-exp(i theta)) exp(i (phi+lambda)) (1+exp(i theta)) ]
//
// that is exp(i theta/2) times the matrix with cos(theta/2) in its corner. Power 0 is read as 1.
// Any other one takes the principal power of the eigenvalues, whose phases are in (-pi, pi].
type Unitary struct {
	Theta, Phi, Lambda, Gamma Angle
	Power                     float64
}

// Matrix is a 2 x 2 matrix by rows.
type Matrix [4]complex128

// Matrix returns the matrix of the unitary for the values of the inputs. A component below 2^-50 is
// a rounding error and is 0. It fails where an angle is not finite.
func (u Unitary) Matrix(inputs []float64) (Matrix, error) {
	var v [4]float64
	for i, a := range u.Angles() {
		v[i] = a.Eval(inputs)
		if math.IsNaN(v[i]) || math.IsInf(v[i], 0) {
			return Matrix{}, fmt.Errorf("%w: an angle is %v; give a finite one", ErrInvalid, v[i])
		}
	}
	m := product(v[0], v[1], v[2], v[3]).clean()
	if u.Power == 0 || u.Power == 1 {
		return m, nil
	}
	return m.power(u.Power).clean(), nil
}

// product returns exp(i gamma) U(theta, phi, lambda). The turns about an axis take one sine.
func product(theta, phi, lambda, gamma float64) Matrix {
	if theta == 0 && phi == 0 && gamma == -lambda/2 {
		sin, cos := math.Sincos(gamma)
		return Matrix{complex(cos, sin), 0, 0, complex(cos, -sin)}
	}
	sin, cos := math.Sincos(theta / 2)
	switch phase := gamma + theta/2; {
	case phase == 0 && phi == 0 && lambda == 0:
		return Matrix{complex(cos, 0), complex(-sin, 0), complex(sin, 0), complex(cos, 0)}
	case phase == 0 && phi == -math.Pi/2 && lambda == math.Pi/2:
		return Matrix{complex(cos, 0), complex(0, -sin), complex(0, -sin), complex(cos, 0)}
	default:
		by, p, l := turn(phase), turn(phi), turn(lambda)
		c, s := by*complex(cos, 0), by*complex(sin, 0)
		return Matrix{c, -l * s, p * s, p * l * c}
	}
}

// turn returns exp(i a).
func turn(a float64) complex128 {
	sin, cos := math.Sincos(a)
	return complex(cos, sin)
}
