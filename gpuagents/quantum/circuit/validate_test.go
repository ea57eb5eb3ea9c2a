package circuit_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// valid is a circuit with each kind of operation, for tests to break.
func valid() *circuit.Circuit {
	return &circuit.Circuit{
		Qubits: 3, Bits: 2, Inputs: []string{"theta"},
		QubitRegisters: []circuit.Register{{Name: "q", Size: 3}},
		BitRegisters:   []circuit.Register{{Name: "c", Size: 2}},
		Ops: []circuit.Op{
			{
				Kind: circuit.Gate, Target: 2, Controls: []circuit.Control{{Qubit: 0}, {Qubit: 1, Zero: true}},
				Unitary: circuit.Unitary{Theta: circuit.Input(0), Power: 0.5}, Line: 3, Column: 5,
			},
			{Kind: circuit.Swap, Target: 0, Other: 1, Controls: []circuit.Control{{Qubit: 2}}},
			{Kind: circuit.Measure, Target: 1, Bit: 1},
			{Kind: circuit.Reset, Target: 1, If: circuit.Condition{First: 0, Count: 2, Value: 3}},
		},
	}
}

func TestValidate(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, damage := range map[string]func(c *circuit.Circuit){
		"it has 0 qubits; give 1 to 34":      func(c *circuit.Circuit) { c.Qubits = 0 },
		"it has 35 qubits; give 1 to 34":     func(c *circuit.Circuit) { c.Qubits = 35 },
		"it has 65 bits; give 0 to 64":       func(c *circuit.Circuit) { c.Bits = 65 },
		"it has 4097 inputs; give 0 to 4096": func(c *circuit.Circuit) { c.Inputs = make([]string, 4097) },
		"it has 1048577 operations; give 0 to 1048576": func(c *circuit.Circuit) {
			c.Ops = make([]circuit.Op, 1<<20+1)
		},
		`"q" has 3 qubits from 1 on; there are 3`: func(c *circuit.Circuit) { c.QubitRegisters[0].First = 1 },
		`"c" has 0 bits from 0 on; there are 2`:   func(c *circuit.Circuit) { c.BitRegisters[0].Size = 0 },
		"operation 2, kind 9: is no operation; use the kinds of package circuit": func(c *circuit.Circuit) {
			c.Ops[2].Kind = 9
		},
		"operation 3, reset: takes no controls; use a condition": func(c *circuit.Circuit) {
			c.Ops[3].Controls = make([]circuit.Control, 1)
		},
		"line 3, column 5: gate: qubit 3 is outside of the register; use 0 to 2": func(c *circuit.Circuit) {
			c.Ops[0].Target = 3
		},
		"line 3, column 5: gate: qubit -1 is outside of the register; use 0 to 2": func(c *circuit.Circuit) {
			c.Ops[0].Controls[1].Qubit = -1
		},
		"line 3, column 5: gate: qubit 2 is named twice; name each qubit once": func(c *circuit.Circuit) {
			c.Ops[0].Controls[1].Qubit = 2
		},
		"swap: qubit 0 is named twice; name each qubit once": func(c *circuit.Circuit) { c.Ops[1].Other = 0 },
		"operation 2, measure: bit 2 is outside of the 2 bits; declare more of them": func(c *circuit.Circuit) {
			c.Ops[2].Bit = 2
		},
		"operation 3, reset: its condition reads 2 bits from bit 1 on; there are 2": func(c *circuit.Circuit) {
			c.Ops[3].If.First = 1
		},
		"reset: its condition compares 2 bits with 4; give a value of at most 3": func(c *circuit.Circuit) {
			c.Ops[3].If.Value = 4
		},
		"line 3, column 5: gate: its power is NaN; give one of at most 1048576": func(c *circuit.Circuit) {
			c.Ops[0].Unitary.Power = math.NaN()
		},
		"line 3, column 5: gate: its angle is +Inf; give a finite one": func(c *circuit.Circuit) {
			c.Ops[0].Unitary.Gamma = circuit.Number(math.Inf(1))
		},
		"gate: its angle reads input 1 and the circuit has 1; declare the input": func(c *circuit.Circuit) {
			c.Ops[0].Unitary.Phi = circuit.Combine(math.Max, circuit.Input(1), circuit.Input(0))
		},
		"gate: its angle reads input -1 and the circuit has 1; declare the input": func(c *circuit.Circuit) {
			c.Ops[0].Unitary.Phi = circuit.Input(-1)
		},
		"take more than 4194304 operations on inputs": func(c *circuit.Circuit) {
			a := circuit.Input(0)
			for range 30 {
				a = circuit.Combine(math.Max, a, a)
			}
			c.Ops[0].Unitary.Theta = a
		},
	} {
		c := valid()
		damage(c)
		if err := c.Validate(); !errors.Is(err, circuit.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %q, want %q", err, want)
		}
	}
}

func TestInverseRefuses(t *testing.T) {
	c := valid()
	for _, op := range []circuit.Op{
		c.Ops[2], c.Ops[3], {Kind: circuit.Gate, If: circuit.Condition{Count: 1}},
	} {
		c.Ops = []circuit.Op{op}
		if _, err := c.Inverse(); !errors.Is(err, circuit.ErrInvalid) {
			t.Errorf("%s: the error is %v", op.Kind, err)
		}
	}
}

func TestAngle(t *testing.T) {
	sum := func(x, y float64) float64 { return x + y }
	a := circuit.Combine(sum, circuit.Input(1), circuit.Number(2)).Neg()
	if v := a.Eval([]float64{5, 7}); v != -9 {
		t.Errorf("-(input 1 + 2) is %v, want -9", v)
	}
	if v := a.Eval([]float64{5}); !math.IsNaN(v) {
		t.Errorf("an angle without its input is %v", v)
	}
	if v, ok := a.Constant(); ok {
		t.Errorf("an angle with an input is the constant %v", v)
	}
	if v, ok := circuit.Combine(sum, circuit.Number(1), circuit.Number(2)).Constant(); v != 3 || !ok {
		t.Errorf("1 + 2 is %v, %v", v, ok)
	}
	if v := circuit.Input(0).Times(3).Plus(circuit.Number(1)).Plus(circuit.Input(1)).Eval([]float64{5, 7}); v != 23 {
		t.Errorf("3 input 0 + 1 + input 1 is %v, want 23", v)
	}
	if value, scale, of := circuit.Input(2).Times(4).Plus(circuit.Number(1)).Times(-0.5).Linear(); value != -0.5 ||
		scale != -2 || of == nil {
		t.Errorf("-(4 input 2 + 1)/2 is %v and %v times %v", value, scale, of)
	}
	if n := a.Terms(); n != 2 {
		t.Errorf("the angle has %d terms, want 2", n)
	}
}
