package gpujob

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// MaxGates is the largest number of gates of a CircuitGates.
const MaxGates = 1 << 20

// The names of a CircuitGate that are no gates.
const (
	GateMeasure = "measure"
	GateReset   = "reset"
)

// CircuitGates is a circuit as a list of gates, for programs that make circuits.
type CircuitGates struct {
	Qubits int `json:"qubits"`         // 1 to MaxCircuitQubits
	Bits   int `json:"bits,omitempty"` // of a reading, up to 64
	// Inputs are the names of the parameters, in the order of the columns of CircuitSpec.Parameters.
	Inputs []string      `json:"inputs,omitempty"`
	List   []CircuitGate `json:"list"`
}

// CircuitGate is a gate, a measurement or a reset.
type CircuitGate struct {
	// Name is a name of stdgates.inc or qelib1.inc, U, GateMeasure or GateReset.
	Name string `json:"name"`
	// Qubits are the qubits that the gate takes, in the order of OpenQASM. GateMeasure and GateReset
	// take one.
	Qubits []int `json:"qubits"`
	// Angles are the angles that the gate takes, in radians.
	Angles []CircuitAngle `json:"angles,omitempty"`
	// Controls are further qubits that must be 1, and Zeros qubits that must be 0. GateMeasure and
	// GateReset have none.
	Controls []int `json:"controls,omitempty"`
	Zeros    []int `json:"zeros,omitempty"`
	// Bit is the bit of a GateMeasure.
	Bit int `json:"bit,omitempty"`
}

// CircuitAngle is a number or, in JSON a text, an input.
type CircuitAngle struct {
	Value float64
	Input string // empty: Value counts
}

// MarshalJSON implements json.Marshaler.
func (a CircuitAngle) MarshalJSON() ([]byte, error) {
	if a.Input != "" {
		return json.Marshal(a.Input)
	}
	return json.Marshal(a.Value)
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *CircuitAngle) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		return json.Unmarshal(data, &a.Input)
	}
	if err := json.Unmarshal(data, &a.Value); err != nil {
		return fmt.Errorf("an angle is %.60s: use a number, or the name of an input", data)
	}
	return nil
}

// check checks what needs no table of gates.
func (g *CircuitGates) check() error {
	if g.Qubits < 1 || g.Qubits > MaxCircuitQubits {
		return invalid("spec.gates.qubits %d: use 1 to %d", g.Qubits, MaxCircuitQubits)
	}
	if g.Bits < 0 || g.Bits > 64 {
		return invalid("spec.gates.bits %d: use 0 to 64", g.Bits)
	}
	if len(g.List) > MaxGates {
		return invalid("spec.gates.list: %d gates: use at most %d", len(g.List), MaxGates)
	}
	inputs := map[string]bool{"": true}
	for i, name := range g.Inputs {
		if inputs[name] {
			return invalid("spec.gates.inputs[%d] %.60q: it is empty or named twice: use a name for each", i, name)
		}
		inputs[name] = true
	}
	for i := range g.List {
		if err := g.List[i].check(i, g, inputs); err != nil {
			return err
		}
	}
	return nil
}

func (g *CircuitGate) check(i int, of *CircuitGates, inputs map[string]bool) error {
	var seen uint64
	for _, list := range [][]int{g.Qubits, g.Controls, g.Zeros} {
		for _, q := range list {
			if q < 0 || q >= of.Qubits {
				return invalid("spec.gates.list[%d] %.60s: qubit %d is outside of the circuit: use 0 to %d", i, g.Name,
					q, of.Qubits-1)
			}
			if seen>>q&1 != 0 {
				return invalid("spec.gates.list[%d] %.60s: qubit %d is named twice: name each once", i, g.Name, q)
			}
			seen |= 1 << q
		}
	}
	for _, a := range g.Angles {
		if !inputs[a.Input] {
			return invalid("spec.gates.list[%d] %.60s: the angle %.60q is no input: add it to inputs", i, g.Name,
				a.Input)
		}
		if math.IsNaN(a.Value) || math.IsInf(a.Value, 0) {
			return invalid("spec.gates.list[%d] %.60s: an angle is %v: use a finite one", i, g.Name, a.Value)
		}
	}
	switch plain := len(g.Qubits) == 1 && len(g.Angles)+len(g.Controls)+len(g.Zeros) == 0; {
	case g.Name != GateMeasure && g.Name != GateReset:
	case !plain:
		return invalid("spec.gates.list[%d] %s: it takes one qubit and no angles and controls", i, g.Name)
	case g.Name == GateMeasure && (g.Bit < 0 || g.Bit >= of.Bits):
		return invalid("spec.gates.list[%d] %s: bit %d is outside of the %d bits: raise bits", i, g.Name, g.Bit,
			of.Bits)
	}
	return nil
}
