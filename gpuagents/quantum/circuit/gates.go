package circuit

import (
	"fmt"
	"math"
)

// Shape is how many angles and qubits a gate takes.
type Shape struct{ Angles, Qubits int }

// Mismatch says what is wrong where a gate gets another number of angles or qubits, else nothing.
func (s Shape) Mismatch(name string, angles, qubits int) string {
	switch {
	case angles != s.Angles:
		return fmt.Sprintf("%q takes %d angles and gets %d", name, s.Angles, angles)
	case qubits != s.Qubits:
		return fmt.Sprintf("%q takes %d qubits and gets %d", name, s.Qubits, qubits)
	}
	return ""
}

// ShapeOf returns the shape of a standard gate. ok is false for a name that Append does not know.
func ShapeOf(name string) (s Shape, ok bool) {
	if g, ok := composite[name]; ok {
		return g.Shape, true
	}
	c, ok := controlled[name]
	if !ok {
		c.unitary = name
	}
	g, ok := unitaries[c.unitary]
	return Shape{g.angles, c.controls + 1}, ok
}

// Append appends a standard gate to operations. The names are the names of stdgates.inc of OpenQASM
// 3 and of qelib1.inc of OpenQASM 2, and U of OpenQASM 3. Controls come before targets, as in
// OpenQASM.
//
// All have the phases of stdgates.inc where it has them, and else the phases of Qiskit. u has a
// real corner, as UGate of Qiskit; u2 and u3 are turned to the determinant 1, as in stdgates.inc.
// cu, cu1 and cu3 control the forms with a real corner.
func Append(ops []Op, name string, angles []Angle, qubits ...int) ([]Op, error) {
	shape, ok := ShapeOf(name)
	if !ok {
		return nil, fmt.Errorf("%w: %q is no standard gate; use a name of stdgates.inc or qelib1.inc",
			ErrInvalid, name)
	}
	if wrong := shape.Mismatch(name, len(angles), len(qubits)); wrong != "" {
		return nil, fmt.Errorf("%w: %s", ErrInvalid, wrong)
	}
	return appendGate(ops, name, angles, qubits), nil
}

// appendGate is Append for what ShapeOf and Check accept.
func appendGate(ops []Op, name string, angles []Angle, qubits []int) []Op {
	steps := composite[name].steps
	if steps == nil {
		last := len(qubits) - 1
		unitary := name
		if c, ok := controlled[name]; ok {
			unitary = c.unitary
		}
		return append(ops, Op{
			Kind: Gate, Target: qubits[last], Controls: controls(qubits[:last]), Unitary: unitaries[unitary].of(angles),
		})
	}
	for _, s := range steps {
		if s.name == "swap" {
			last := len(s.on) - 1
			on := pick(qubits, s.on)
			ops = append(ops, Op{Kind: Swap, Target: on[last-1], Other: on[last], Controls: controls(on[:last-1])})
			continue
		}
		n := 0
		if s.angle {
			n = len(angles)
		}
		ops = appendGate(ops, s.name, angles[:n], pick(qubits, s.on))
	}
	return ops
}

func controls(qubits []int) (all []Control) {
	for _, q := range qubits {
		all = append(all, Control{Qubit: q})
	}
	return all
}

func pick(qubits, which []int) []int {
	on := make([]int, len(which))
	for i, w := range which {
		on[i] = qubits[w]
	}
	return on
}

// unitaries are the gates of one qubit, and what cu controls.
var unitaries = map[string]struct {
	angles int
	of     func(a []Angle) Unitary
}{
	"id": {0, u(0, 0, 0, 0)},
	"x":  {0, u(math.Pi, 0, math.Pi, -math.Pi/2)},
	"y":  {0, u(math.Pi, math.Pi/2, math.Pi/2, -math.Pi/2)},
	"h":  {0, u(math.Pi/2, 0, math.Pi, -math.Pi/4)},
	// exp(i pi/4) exp(-i pi/4 X), the principal root of x, and its inverse.
	"sx":   {0, u(math.Pi/2, -math.Pi/2, math.Pi/2, 0)},
	"sxdg": {0, u(-math.Pi/2, -math.Pi/2, math.Pi/2, 0)},
	"z":    {0, u(0, 0, math.Pi, 0)},
	"s":    {0, u(0, 0, math.Pi/2, 0)},
	"sdg":  {0, u(0, 0, -math.Pi/2, 0)},
	"t":    {0, u(0, 0, math.Pi/4, 0)},
	"tdg":  {0, u(0, 0, -math.Pi/4, 0)},
	"p":    {1, func(a []Angle) Unitary { return Unitary{Lambda: a[0]} }},
	"u0":   {1, u(0, 0, 0, 0)}, // its angle is a time to wait
	"rx": {1, func(a []Angle) Unitary {
		return Unitary{Theta: a[0], Phi: Number(-math.Pi / 2), Lambda: Number(math.Pi / 2), Gamma: half(a[0])}
	}},
	"ry": {1, func(a []Angle) Unitary { return Unitary{Theta: a[0], Gamma: half(a[0])} }},
	"rz": {1, func(a []Angle) Unitary { return Unitary{Lambda: a[0], Gamma: half(a[0])} }},
	"U":  {3, func(a []Angle) Unitary { return Unitary{Theta: a[0], Phi: a[1], Lambda: a[2]} }},
	"u": {3, func(a []Angle) Unitary {
		return Unitary{Theta: a[0], Phi: a[1], Lambda: a[2], Gamma: half(a[0])}
	}},
	"u2": {2, func(a []Angle) Unitary {
		theta := Number(math.Pi / 2)
		return Unitary{Theta: theta, Phi: a[0], Lambda: a[1], Gamma: half(theta, a[0], a[1])}
	}},
	"u3": {3, func(a []Angle) Unitary {
		return Unitary{Theta: a[0], Phi: a[1], Lambda: a[2], Gamma: half(a[0], a[1], a[2])}
	}},
	"cu": {4, func(a []Angle) Unitary {
		return Unitary{
			Theta: a[0], Phi: a[1], Lambda: a[2],
			Gamma: half(a[0]).Plus(a[3]),
		}
	}},
}

// u returns a unitary without parameters.
func u(theta, phi, lambda, gamma float64) func([]Angle) Unitary {
	return func([]Angle) Unitary {
		return Unitary{Theta: Number(theta), Phi: Number(phi), Lambda: Number(lambda), Gamma: Number(gamma)}
	}
}

// half returns minus half of a sum of angles.
func half(angles ...Angle) (sum Angle) {
	for _, a := range angles {
		sum = sum.Plus(a.Times(-0.5))
	}
	return sum
}

// controlled are the gates that put controls on a unitary, and the second names of unitaries.
var controlled = map[string]struct {
	unitary  string
	controls int
}{
	"phase": {"p", 0}, "u1": {"p", 0}, "cx": {"x", 1}, "CX": {"x", 1}, "cy": {"y", 1}, "cz": {"z", 1}, "ch": {"h", 1},
	"csx": {"sx", 1}, "cp": {"p", 1}, "cphase": {"p", 1}, "cu1": {"p", 1}, "crx": {"rx", 1}, "cry": {"ry", 1},
	"crz": {"rz", 1}, "cu3": {"u", 1}, "cu": {"cu", 1}, "ccx": {"x", 2}, "c3x": {"x", 3}, "c4x": {"x", 4},
	"c3sqrtx": {"sx", 3},
}

// step is a gate of a composite one. It gets the angles of the composite one or none.
type step struct {
	name  string
	angle bool
	on    []int
}

// composite are the standard gates of several operations.
var composite = map[string]struct {
	Shape
	steps []step
}{
	"swap":  {Shape{0, 2}, []step{{"swap", false, []int{0, 1}}}},
	"cswap": {Shape{0, 3}, []step{{"swap", false, []int{0, 1, 2}}}},
	"rzz":   {Shape{1, 2}, []step{{"cx", false, []int{0, 1}}, {"rz", true, []int{1}}, {"cx", false, []int{0, 1}}}},
	"rxx": {Shape{1, 2}, []step{
		{"h", false, []int{0}},
		{"h", false, []int{1}},
		{"rzz", true, []int{0, 1}},
		{"h", false, []int{0}},
		{"h", false, []int{1}},
	}},
	"rccx": {Shape{0, 3}, []step{
		{"h", false, []int{2}},
		{"t", false, []int{2}},
		{"cx", false, []int{1, 2}},
		{"tdg", false, []int{2}},
		{"cx", false, []int{0, 2}},
		{"t", false, []int{2}},
		{"cx", false, []int{1, 2}},
		{"tdg", false, []int{2}},
		{"h", false, []int{2}},
	}},
	"rc3x": {Shape{0, 4}, []step{
		{"h", false, []int{3}},
		{"t", false, []int{3}},
		{"cx", false, []int{2, 3}},
		{"tdg", false, []int{3}},
		{"h", false, []int{3}},
		{"cx", false, []int{0, 3}},
		{"t", false, []int{3}},
		{"cx", false, []int{1, 3}},
		{"tdg", false, []int{3}},
		{"cx", false, []int{0, 3}},
		{"t", false, []int{3}},
		{"cx", false, []int{1, 3}},
		{"tdg", false, []int{3}},
		{"h", false, []int{3}},
		{"t", false, []int{3}},
		{"cx", false, []int{2, 3}},
		{"tdg", false, []int{3}},
		{"h", false, []int{3}},
	}},
}
