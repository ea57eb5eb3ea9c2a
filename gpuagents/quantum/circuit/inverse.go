package circuit

import "fmt"

// Inverse returns the circuit that undoes c. It refuses measurements, resets and conditions. It
// shares inputs, registers and controls with c.
func (c *Circuit) Inverse() (*Circuit, error) {
	inverse := *c
	inverse.Ops = make([]Op, len(c.Ops))
	for i, op := range c.Ops {
		if op.Kind > Swap || op.If.Count > 0 {
			return nil, fmt.Errorf("%w: %s it has no inverse; leave measurements, resets and conditions out",
				ErrInvalid, op.place(i))
		}
		op.Unitary = op.Unitary.Inverse()
		inverse.Ops[len(c.Ops)-1-i] = op
	}
	return &inverse, nil
}

// Inverse returns the unitary that undoes u.
func (u Unitary) Inverse() Unitary {
	switch u.Power {
	case 0, 1:
		return Unitary{Theta: u.Theta.Neg(), Phi: u.Lambda.Neg(), Lambda: u.Phi.Neg(), Gamma: u.Gamma.Neg()}
	}
	u.Power = -u.Power
	return u
}
