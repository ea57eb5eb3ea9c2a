// Package qasm parses OpenQASM 2 and a subset of OpenQASM 3 into circuits. A text is expanded while
// it is read: gates become unitaries and swaps, loops are unrolled, and constant expressions are
// computed.
//
// The subset of OpenQASM 3 has qubit, bit, const, input float and input angle, let, gate, gphase, U
// and all gates of stdgates.inc, the modifiers ctrl, negctrl, inv and pow, measure, reset, barrier,
// if with bits, and for over constants. "/" divides as real numbers, also integers. All else is
// refused with its place.
//
// Phases are as in the specification for OpenQASM 3, where U(theta, phi, lambda) has the factor
// exp(i theta/2) and u2 and u3 have the determinant 1. In OpenQASM 2, which cannot tell, U, u2 and
// u3 have a real corner, as in Qiskit.
package qasm

import (
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// Limits of a text. The limits of package circuit come on top.
const (
	MaxText  = 1 << 20 // bytes
	MaxDepth = 16      // nested blocks, parentheses and operators in front of others, and nested calls of gates
)

// Error is what is wrong with a text, at a place in it. It is of the class circuit.ErrInvalid.
type Error struct {
	Line, Column int // from 1, in characters
	Text         string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Text)
}

// Unwrap returns circuit.ErrInvalid.
func (e *Error) Unwrap() error { return circuit.ErrInvalid }

func fail(t token, format string, args ...any) error {
	return &Error{t.line, t.column, fmt.Sprintf(format, args...)}
}

// The names of the gates that an include defines.
const (
	stdgates = "p x y z h s sdg t tdg sx rx ry rz cx cy cz cp crx cry crz ch swap ccx cswap cu CX phase cphase id " +
		"u1 u2 u3"
	qelib1 = "u3 u2 u1 cx id u0 u p x y z h s sdg t tdg rx ry rz sx sxdg cz cy swap ch ccx cswap crx cry crz cu1 " +
		"cp cu3 csx cu rxx rzz rccx rc3x c3x c3sqrtx c4x"
)

// Parse returns the circuit of a text. A text without a version is OpenQASM 3. Errors are *Error.
// It ends after a bounded number of steps for any text, and the circuit is valid.
func Parse(text string) (*circuit.Circuit, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	e := &expansion{c: &circuit.Circuit{}, gates: map[string]*gate{}}
	globals := &scope{}
	if p.accept("OPENQASM") {
		version := p.next()
		major, _, _ := strings.Cut(version.text, ".")
		if p.old = major == "2"; version.kind != 'n' || !p.old && major != "3" {
			return nil, fail(version, "%.40q is no version that is read; write OPENQASM 2.0 or 3.0", version.text)
		}
		if _, err := p.expect(";"); err != nil {
			return nil, err
		}
	}
	e.old = p.old
	e.builtin("U")
	if p.old {
		e.builtin("CX")
	}
	for p.peek().kind != 0 {
		run, err := p.statement()
		if err != nil {
			return nil, err
		}
		if err := run(e, globals); err != nil {
			return nil, err
		}
	}
	if e.c.Qubits == 0 {
		return nil, fail(p.peek(), "the text has no qubits; declare some")
	}
	return e.c, e.c.Validate()
}
