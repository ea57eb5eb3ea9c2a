package circuit

import (
	"fmt"
	"math"
)

// maxPower is the largest power of a unitary, so that its phases are finite.
const maxPower = 1 << 20

// Validate reports the first rule that the circuit breaks, as an ErrInvalid with the operation, its
// place in the text and the cure. All that run a circuit rely on these rules.
func (c *Circuit) Validate() error {
	for _, limit := range []struct {
		n, min, max int
		what        string
	}{
		{c.Qubits, 1, MaxQubits, "qubits"},
		{c.Bits, 0, MaxBits, "bits"},
		{len(c.Ops), 0, MaxOps, "operations"},
		{len(c.Inputs), 0, MaxInputs, "inputs"},
	} {
		if limit.n < limit.min || limit.n > limit.max {
			return fmt.Errorf("%w: it has %d %s; give %d to %d",
				ErrInvalid, limit.n, limit.what, limit.min, limit.max)
		}
	}
	for _, list := range []struct {
		registers []Register
		n         int
		what      string
	}{{c.QubitRegisters, c.Qubits, "qubits"}, {c.BitRegisters, c.Bits, "bits"}} {
		for _, r := range list.registers {
			if r.First < 0 || r.Size < 1 || r.First > list.n || r.Size > list.n-r.First {
				return fmt.Errorf("%w: register %q has %d %s from %d on; there are %d",
					ErrInvalid, r.Name, r.Size, list.what, r.First, list.n)
			}
		}
	}
	terms := 0
	for i := range c.Ops {
		op := &c.Ops[i]
		if err := c.validateOp(op); err != nil {
			return fmt.Errorf("%w: %s %w", ErrInvalid, op.place(i), err)
		}
		if terms += op.Unitary.Terms(); terms > MaxTerms {
			return fmt.Errorf("%w: %s: the angles up to here take more than %d operations on inputs; "+
				"compute them before the run and give them as inputs", ErrInvalid, op.place(i), MaxTerms)
		}
	}
	return nil
}

// place names an operation for people.
func (op *Op) place(i int) string {
	if op.Line == 0 {
		return fmt.Sprintf("operation %d, %s:", i, op.Kind)
	}
	return fmt.Sprintf("line %d, column %d: %s:", op.Line, op.Column, op.Kind)
}

// String returns the word for a kind.
func (k Kind) String() string {
	if k < Gate || k > Reset {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return [...]string{Gate: "gate", Swap: "swap", Measure: "measure", Reset: "reset"}[k]
}

// validateOp returns a sentence without the place.
func (c *Circuit) validateOp(op *Op) error {
	if op.Kind < Gate || op.Kind > Reset {
		return fmt.Errorf("is no operation; use the kinds of package circuit")
	}
	if len(op.Controls) > 0 && op.Kind > Swap {
		return fmt.Errorf("takes no controls; use a condition")
	}
	var seen uint64
	qubit := func(q int) error {
		if q < 0 || q >= c.Qubits {
			return fmt.Errorf("qubit %d is outside of the register; use 0 to %d", q, c.Qubits-1)
		}
		if seen>>q&1 == 1 {
			return fmt.Errorf("qubit %d is named twice; name each qubit once", q)
		}
		seen |= 1 << q
		return nil
	}
	if err := qubit(op.Target); err != nil {
		return err
	}
	if op.Kind == Swap {
		if err := qubit(op.Other); err != nil {
			return err
		}
	}
	for _, control := range op.Controls {
		if err := qubit(control.Qubit); err != nil {
			return err
		}
	}
	if op.Kind == Measure && (op.Bit < 0 || op.Bit >= c.Bits) {
		return fmt.Errorf("bit %d is outside of the %d bits; declare more of them", op.Bit, c.Bits)
	}
	if err := c.validateCondition(op.If); err != nil || op.Kind != Gate {
		return err
	}
	return op.Unitary.validate(len(c.Inputs))
}

func (c *Circuit) validateCondition(f Condition) error {
	switch {
	case f.Count < 0 || f.Count > 0 && (f.First < 0 || f.First > c.Bits || f.Count > c.Bits-f.First):
		return fmt.Errorf("its condition reads %d bits from bit %d on; there are %d", f.Count, f.First, c.Bits)
	case f.Count > 0 && f.Count < 64 && f.Value>>f.Count != 0:
		return fmt.Errorf("its condition compares %d bits with %d; give a value of at most %d",
			f.Count, f.Value, uint64(1)<<f.Count-1)
	}
	return nil
}

func (u *Unitary) validate(inputs int) error {
	if !(math.Abs(u.Power) <= maxPower) {
		return fmt.Errorf("its power is %v; give one of at most %d", u.Power, maxPower)
	}
	for _, a := range u.Angles() {
		if v, ok := a.Constant(); ok && (math.IsNaN(v) || math.IsInf(v, 0)) {
			return fmt.Errorf("its angle is %v; give a finite one", v)
		}
		if a.term != nil && a.term.input >= uint(inputs) {
			return fmt.Errorf("its angle reads input %d and the circuit has %d; declare the input",
				int(a.term.input), inputs)
		}
	}
	return nil
}

// Angles returns the angles in the order of the fields.
func (u *Unitary) Angles() [4]Angle { return [4]Angle{u.Theta, u.Phi, u.Lambda, u.Gamma} }

// Terms returns how many operations and inputs the angles have.
func (u *Unitary) Terms() (n int) {
	for _, a := range u.Angles() {
		n += a.Terms()
	}
	return n
}
