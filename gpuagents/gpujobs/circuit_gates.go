package gpujobs

import (
	"slices"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/qasm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// circuitOf returns the circuit of a specification, which is checked.
func circuitOf(s *gpujob.CircuitSpec) (*circuit.Circuit, error) {
	if s.Gates == nil {
		return qasm.Parse(s.QASM)
	}
	g := s.Gates
	c := &circuit.Circuit{Qubits: g.Qubits, Bits: g.Bits, Inputs: g.Inputs}
	for i, of := range g.List {
		switch of.Name {
		case gpujob.GateMeasure:
			c.Ops = append(c.Ops, circuit.Op{Kind: circuit.Measure, Target: of.Qubits[0], Bit: of.Bit})
			continue
		case gpujob.GateReset:
			c.Ops = append(c.Ops, circuit.Op{Kind: circuit.Reset, Target: of.Qubits[0]})
			continue
		}
		angles := make([]circuit.Angle, len(of.Angles))
		for k, a := range of.Angles {
			angles[k] = circuit.Number(a.Value)
			if a.Input != "" {
				angles[k] = circuit.Input(slices.Index(g.Inputs, a.Input))
			}
		}
		first := len(c.Ops)
		var err error
		if c.Ops, err = circuit.Append(c.Ops, of.Name, angles, of.Qubits...); err != nil {
			return nil, jobs.Errorf(jobs.CodeInvalid, "spec.gates.list[%d]: %v", i, err)
		}
		// A gate is a product of operations, and so is the gate with controls.
		for k := first; k < len(c.Ops); k++ {
			op := &c.Ops[k]
			op.Controls = slices.Clone(op.Controls)
			for _, q := range of.Controls {
				op.Controls = append(op.Controls, circuit.Control{Qubit: q})
			}
			for _, q := range of.Zeros {
				op.Controls = append(op.Controls, circuit.Control{Qubit: q, Zero: true})
			}
		}
	}
	return c, c.Validate()
}
