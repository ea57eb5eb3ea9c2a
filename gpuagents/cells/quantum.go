package cells

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/qasm"
)

// QuantumName is the cell whose agents are qubits; see AddressQuantum.
const QuantumName = "quantum"

// MaxCircuitBytes is the largest text of the circuit of a cell.
const MaxCircuitBytes = 64 << 10

// ErrCircuit is a circuit that the cell quantum does not run.
var ErrCircuit = errors.New("invalid circuit")

// quantumAddressed describes the cell without a circuit.
var quantumAddressed = &Cell{
	Name: QuantumName,
	Doc: "agents of 1 to 6 qubits: an observation turns qubit i by RY of feature i, a tick runs `cell.circuit`, and " +
		"a ballot is a measurement. Inputs of the circuit are further parameters",
	Params: []Param{{
		Name: "qubits", Default: 0, Min: 0, Max: kernels.QuantumMostQubits, Integer: true,
		Doc: "qubits of an agent; 0: as many as the circuit has",
	}},
}

// quantumCircuit is the circuit of agents.
type quantumCircuit struct {
	text         string
	qubits, bits int
	inputs       []string
	fresh        bool   // a tick begins with all qubits 0
	places       uint32 // kernels.QuantumTablePlaces
	gates        []quantumGate
}

// quantumGate is a gate of one qubit, with controls or without.
type quantumGate struct {
	target   int
	mask     uint64 // of amplitudes whose controls hold
	controls bool
	factors  []circuit.Unitary // the matrix is their product, the first one applied first
}

// QuantumCandidates returns the candidates of a circuit: the readings of its bits as bit strings,
// whose last letter is bit 0, in the order of their numbers. It is nil for a circuit that the cell
// does not run.
func QuantumCandidates(text string) (names []string) {
	c, err := readCircuit(text)
	if err != nil {
		return nil
	}
	for reading := range 1 << c.bits {
		names = append(names, fmt.Sprintf("%0*b", c.bits, reading))
	}
	return names
}

// AddressQuantum returns the cell quantum with a circuit in OpenQASM, which has 1 to
// kernels.QuantumMostQubits qubits, gates, and measurements at its end. Candidates are the readings
// of its bits. values are parameters by name: qubits, and the inputs of the circuit, 0 where they
// are left out. features are 1 to the number of qubits. The error is an ErrCircuit or an
// ErrParameter.
func AddressQuantum(text string, values map[string]float64, agents, features int, voting Voting) (*Addressed, error) {
	c, err := readCircuit(text)
	if err != nil {
		return nil, err
	}
	cell := *quantumAddressed
	cell.Params = slices.Clone(cell.Params)
	for _, name := range c.inputs {
		if name == cell.Params[0].Name {
			return nil, fmt.Errorf("%w: its input %s is called as a parameter of the cell: choose another name",
				ErrCircuit, name)
		}
		cell.Params = append(cell.Params, Param{
			Name: name, Min: -math.MaxFloat32, Max: math.MaxFloat32, Doc: "of the circuit",
		})
	}
	b, err := cell.Bind(values, agents, features, voting)
	if err != nil {
		return nil, err
	}
	if n := int(b.Value("qubits")); n != 0 && n != c.qubits {
		return nil, fmt.Errorf("%w: %s: qubits = %d, and the circuit has %d: leave it out", ErrParameter, QuantumName,
			n, c.qubits)
	}
	if features > c.qubits {
		return nil, fmt.Errorf("%w: %s: %d features turn %d qubits: name 1 to %d", ErrParameter, QuantumName, features,
			c.qubits, c.qubits)
	}
	a := &Addressed{Bound: b, Candidates: 1 << c.bits, circuit: c}
	_, err = c.table(a.angles())
	return a, err
}

// readCircuit returns the circuit of a text. The error is an ErrCircuit.
func readCircuit(text string) (*quantumCircuit, error) {
	if len(text) > MaxCircuitBytes {
		return nil, fmt.Errorf("%w: a text of %d bytes: use at most %d", ErrCircuit, len(text), MaxCircuitBytes)
	}
	of, err := qasm.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCircuit, err)
	}
	if of.Qubits > kernels.QuantumMostQubits {
		return nil, fmt.Errorf("%w: %d qubits, and an agent has at most %d: use a job of kind circuit for more",
			ErrCircuit, of.Qubits, kernels.QuantumMostQubits)
	}
	if of.Bits < 1 || of.Bits > kernels.QuantumMostBits {
		return nil, fmt.Errorf("%w: %d bits are the ballot: declare and measure 1 to %d", ErrCircuit, of.Bits,
			kernels.QuantumMostBits)
	}
	c := &quantumCircuit{
		text: text, qubits: of.Qubits, bits: of.Bits, inputs: of.Inputs, places: math.MaxUint32,
	}
	r := circuitReader{quantumCircuit: c, last: make([]int, of.Qubits)}
	for i := range of.Ops {
		if wrong := r.add(&of.Ops[i]); wrong != "" {
			return nil, fmt.Errorf("%w: line %d, column %d: %s", ErrCircuit, of.Ops[i].Line, of.Ops[i].Column, wrong)
		}
	}
	switch all := uint64(1)<<of.Qubits - 1; {
	case r.reset != 0 && r.reset != all:
		return nil, fmt.Errorf("%w: it resets some qubits: reset all of them at the begin, so that each tick starts "+
			"at 0, or none", ErrCircuit)
	case r.set != 1<<of.Bits-1:
		return nil, fmt.Errorf("%w: a bit is never measured: declare as many bits as are measured", ErrCircuit)
	case len(c.gates) > kernels.QuantumMostGates:
		return nil, fmt.Errorf("%w: %d gates after fusing: use at most %d", ErrCircuit, len(c.gates),
			kernels.QuantumMostGates)
	}
	c.fresh = r.reset != 0
	return c, nil
}

// circuitReader adds the operations of a circuit to the circuit of a cell.
type circuitReader struct {
	*quantumCircuit
	// last is by qubit one more than its last gate, if that has no controls and nothing follows on the
	// qubit.
	last                     []int
	reset, touched, measured uint64 // qubits
	set                      uint64 // bits that are measured
}

// add adds an operation, or says what is wrong with it. Gates are fused by their form and not by
// their angles.
func (r *circuitReader) add(op *circuit.Op) (wrong string) {
	qubits, all := uint64(1)<<op.Target, uint64(1)<<(1<<r.qubits)-1
	if r.qubits == 6 {
		all = math.MaxUint64
	}
	mask := all
	for _, control := range op.Controls {
		qubits |= 1 << control.Qubit
		for i := range 1 << r.qubits {
			if (i>>control.Qubit&1 == 0) != control.Zero {
				mask &^= 1 << i
			}
		}
	}
	if op.Kind == circuit.Swap {
		qubits |= 1 << op.Other
	}
	switch {
	case op.If.Count > 0:
		return "a condition: the bits are the ballot and are not read: leave it out"
	case qubits&r.measured != 0:
		return "an operation behind the measurement of its qubit: the ballot is drawn at the end: put measurements last"
	case op.Kind == circuit.Reset && r.touched&qubits != 0:
		return "a reset behind a gate on its qubit: reset all qubits at the begin, or leave it out"
	case op.Kind == circuit.Reset:
		r.reset |= qubits
		return ""
	case op.Kind == circuit.Measure && r.set>>op.Bit&1 != 0:
		return fmt.Sprintf("bit %d is measured twice: measure another one", op.Bit)
	case op.Kind == circuit.Measure:
		r.measured, r.set = r.measured|qubits, r.set|1<<op.Bit
		r.places ^= uint32(kernels.QuantumNoPlace^op.Bit) << (4 * op.Target)
		return ""
	}
	r.touched |= qubits
	if op.Kind == circuit.Swap { // three exchanges
		ones := func(q int) (m uint64) {
			for i := range 1 << r.qubits {
				m |= uint64(i>>q&1) << i
			}
			return m
		}
		x, _ := circuit.Append(nil, "x", nil, 0)
		for _, on := range [3][2]int{{op.Target, op.Other}, {op.Other, op.Target}, {op.Target, op.Other}} {
			r.gates = append(r.gates, quantumGate{on[0], mask & ones(on[1]), true, []circuit.Unitary{x[0].Unitary}})
		}
	} else if at := r.last[op.Target]; len(op.Controls) == 0 && at > 0 {
		r.gates[at-1].factors = append(r.gates[at-1].factors, op.Unitary)
		return ""
	} else {
		r.gates = append(r.gates, quantumGate{op.Target, mask, len(op.Controls) > 0, []circuit.Unitary{op.Unitary}})
	}
	for q := range r.last {
		if qubits>>q&1 != 0 {
			r.last[q] = 0
		}
	}
	if op.Kind == circuit.Gate && len(op.Controls) == 0 {
		r.last[op.Target] = len(r.gates)
	}
	return ""
}

// angles returns the inputs of the circuit from the parameters.
func (a *Addressed) angles() (all []float64) {
	for _, name := range a.circuit.inputs {
		all = append(all, a.values[name])
	}
	return all
}

// Angles returns the number of inputs of the circuit of a quantum cell; 0 of other cells.
func (a *Addressed) Angles() int {
	if a.circuit == nil {
		return 0
	}
	return len(a.circuit.inputs)
}

// Measures reports whether ballots are measurements, which a vote makes: the cell is quantum.
func (a *Addressed) Measures() bool { return a.circuit != nil }

// Qubits returns the number of qubits of an agent, and Circuit the text of its circuit, of a
// quantum cell.
func (a *Addressed) Qubits() int { return a.circuit.qubits }

// Circuit returns the text of the circuit; empty: the cell is not quantum.
func (a *Addressed) Circuit() string {
	if a.circuit == nil {
		return ""
	}
	return a.circuit.text
}

// AnglesTable returns the weights table of a quantum cell with other angles for the inputs of its
// circuit. Tables of all angles have one length. The error is an ErrParameter.
func (a *Addressed) AnglesTable(angles []float32) ([]uint32, error) {
	if len(angles) != a.Angles() {
		return nil, fmt.Errorf("%w: %s: %d angles, and the circuit has %d inputs", ErrParameter, a.Cell.Name,
			len(angles), a.Angles())
	}
	all := make([]float64, len(angles))
	for i, v := range angles {
		if all[i] = float64(v); math.IsNaN(all[i]) || math.IsInf(all[i], 0) {
			return nil, fmt.Errorf("%w: %s: angles[%d] is %v: give a finite one", ErrParameter, QuantumName, i, v)
		}
	}
	return a.circuit.table(all)
}

// table returns the weights table for angles: matrices are products in float64, rounded once. The
// error is an ErrParameter.
func (c *quantumCircuit) table(angles []float64) ([]uint32, error) {
	t := make([]uint32, kernels.QuantumTableGates, kernels.QuantumTableGates+kernels.QuantumGateWords*len(c.gates))
	t[kernels.QuantumTableCount], t[kernels.QuantumTablePlaces] = uint32(len(c.gates)), c.places
	if c.fresh {
		t[kernels.QuantumTableFresh] = 1
	}
	for _, g := range c.gates {
		m := circuit.Matrix{1, 0, 0, 1}
		for _, f := range g.factors {
			by, err := f.Matrix(angles)
			if err != nil {
				return nil, fmt.Errorf("%w: %s: for the inputs %s = %v: %w", ErrParameter, QuantumName,
					strings.Join(c.inputs, ", "), angles, err)
			}
			m = circuit.Matrix{
				by[0]*m[0] + by[1]*m[2], by[0]*m[1] + by[1]*m[3], by[2]*m[0] + by[3]*m[2], by[2]*m[1] + by[3]*m[3],
			}
		}
		t = g.append(t, m, c.qubits)
	}
	return t, nil
}

// append appends a gate with its matrix to a table.
func (g *quantumGate) append(t []uint32, m circuit.Matrix, qubits int) []uint32 {
	var of [4]complex64
	for i, v := range m {
		of[i] = complex(rounded(real(v)), rounded(imag(v)))
	}
	kind, mask := uint32(kernels.QuantumDense), g.mask
	isReal := !slices.ContainsFunc(of[:], func(v complex64) bool { return imag(v) != 0 })
	switch {
	case of[1] == 0 && of[2] == 0:
		kind = kernels.QuantumFactor
		for i := range 1 << qubits {
			if of[3*(i>>g.target&1)] == 1 { // it does not change
				mask &^= 1 << i
			}
		}
	case of == [4]complex64{0, 1, 1, 0}:
		kind = kernels.QuantumExchange
	case isReal && !g.controls:
		kind = kernels.QuantumReal
	case imag(of[0]) == 0 && real(of[1]) == 0 && real(of[2]) == 0 && imag(of[3]) == 0 && !g.controls:
		kind = kernels.QuantumMixed
	}
	t = append(t, kind|uint32(g.target)<<4, 0, uint32(mask), uint32(mask>>32))
	for _, v := range of {
		t = append(t, math.Float32bits(real(v)), math.Float32bits(imag(v)))
	}
	return t
}

// rounded returns a part of a matrix in float32. One that is 0 but for the rounding of a product is
// 0.
func rounded(v float64) float32 {
	if math.Abs(v) < 0x1p-50 {
		return 0
	}
	return float32(v)
}
