package qasm

import (
	"math"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// gate is a standard gate, which has no body, or a defined one.
type gate struct {
	angles, qubits []token
	body           action
	outer          *scope // where it is defined
}

// builtin makes a standard gate known.
func (e *expansion) builtin(name string) { e.gates[name] = &gate{} }

// defineGate checks a gate once, with parameters of unknown value, and makes it known.
func (e *expansion) defineGate(s *scope, name token, g *gate) error {
	// Versions of qelib1.inc differ, so texts of OpenQASM 2 define gates that the present one has.
	known := e.gates[name.text]
	replaces := e.old && known != nil && known.body == nil && name.text != "U" && name.text != "CX"
	if known != nil && !replaces || name.text == "gphase" && !e.old {
		return fail(name, "%.40q is a gate already; choose another name", name.text)
	}
	if n := len(g.qubits); n == 0 || n > circuit.MaxQubits {
		return fail(name, "%.40q has %d qubits; name 1 to %d", name.text, n, circuit.MaxQubits)
	}
	g.outer = s
	angles := make([]circuit.Angle, len(g.angles))
	for i := range angles {
		angles[i] = circuit.Input(0)
	}
	on := make([]int, len(g.qubits))
	for i := range on {
		on[i] = i
	}
	e.dry = true
	err := g.run(e, angles, on)
	e.dry = false
	e.gates[name.text] = g
	return err
}

// run executes the body.
func (g *gate) run(e *expansion, angles []circuit.Angle, on []int) error {
	s := &scope{outer: g.outer, gate: true, few: make([]named, 0, min(maxFew, len(g.angles)+len(g.qubits)))}
	for i, name := range g.angles {
		if err := e.define(s, name, symbol{kind: numbers, number: angles[i]}); err != nil {
			return err
		}
	}
	for i, name := range g.qubits {
		if err := e.define(s, name, symbol{kind: qubits, list: on[i : i+1], scalar: true}); err != nil {
			return err
		}
	}
	return g.body(e, s)
}

// modifier is ctrl, negctrl, inv or pow.
type modifier struct {
	word     token
	argument expression // nil for none
}

// call is a gate on operands.
type call struct {
	name      token
	modifiers []modifier // the outermost first
	angles    []expression
	on        []operand
	// gate is what the name stands for when the call is first checked: a gate that replaces it later
	// changes no call before.
	gate *gate
}

// call parses a gate with its modifiers, from its first word on.
func (p *parser) call(t token) (action, error) {
	c := &call{}
	for strings.Contains(" ctrl negctrl inv pow ", " "+t.text+" ") && !p.old {
		m := modifier{word: t}
		if t.text == "pow" && !p.is("(") {
			return nil, fail(t, `%q has no exponent; write "pow(2) @"`, t.text)
		}
		if t.text != "inv" && p.accept("(") {
			var err error
			if m.argument, err = p.expression(); err != nil {
				return nil, err
			}
			if _, err = p.expect(")"); err != nil {
				return nil, err
			}
		}
		if _, err := p.expect("@"); err != nil {
			return nil, err
		}
		c.modifiers = append(c.modifiers, m)
		var err error
		if t, err = p.name(); err != nil {
			return nil, err
		}
	}
	c.name = t
	if p.accept("(") && !p.accept(")") {
		for more := true; more; more = p.accept(",") {
			x, err := p.expression()
			if err != nil {
				return nil, err
			}
			c.angles = append(c.angles, x)
		}
		if _, err := p.expect(")"); err != nil {
			return nil, err
		}
	}
	var err error
	c.on, err = p.operands(";")
	return func(e *expansion, s *scope) error { return c.run(e, s) }, err
}

// run appends the operations of a call for each member of its registers.
func (c *call) run(e *expansion, s *scope) error {
	if err := e.step(c.name, 1+len(c.modifiers)); err != nil {
		return err
	}
	shape, err := c.shape(e)
	if err != nil {
		return err
	}
	arguments := make([]float64, len(c.modifiers)) // controls or exponents
	controls := 0
	for i, m := range c.modifiers {
		arguments[i] = 1
		if m.argument != nil {
			if arguments[i], err = e.constantOr(1, m.argument, s, m.word); err != nil {
				return err
			}
		}
		if m.word.text == "ctrl" || m.word.text == "negctrl" {
			if n := arguments[i]; n < 1 || n > circuit.MaxQubits || n != math.Trunc(n) {
				return fail(m.word, "%q takes 1 to %d qubits and not %v; change the number",
					m.word.text, circuit.MaxQubits, n)
			}
			controls += int(arguments[i])
		}
	}
	if wrong := shape.Mismatch(c.name.text, len(c.angles), len(c.on)-controls); wrong != "" {
		return fail(c.name, "%s; change the call", wrong)
	}
	angles := make([]circuit.Angle, len(c.angles))
	for i, x := range c.angles {
		if angles[i], err = x(e, s); err != nil {
			return err
		}
	}
	lists := make([][]int, len(c.on))
	calls := 1
	for i, o := range c.on {
		list, scalar, err := o.list(e, s, qubits)
		if err != nil {
			return err
		}
		if !scalar && calls > 1 && calls != len(list) && len(list) > 1 {
			return fail(o.name, "%.40q has %d qubits beside a register of %d; use registers of one size",
				o.name.text, len(list), calls)
		}
		calls, lists[i] = max(calls, len(list)), list
	}
	for i := range calls {
		if err := e.step(c.name, heavy); err != nil {
			return err
		}
		on := make([]int, len(lists))
		var seen uint64
		for k, list := range lists {
			on[k] = list[min(i, len(list)-1)]
			if seen>>on[k]&1 == 1 {
				return fail(c.on[k].name, "%.40q names a qubit that the gate has already; name each qubit once",
					c.on[k].name.text)
			}
			seen |= 1 << on[k]
		}
		if e.dry {
			continue
		}
		if err := c.once(e, arguments, angles, on, controls); err != nil {
			return err
		}
	}
	return nil
}

// shape returns what the gate takes without modifiers.
func (c *call) shape(e *expansion) (shape circuit.Shape, err error) {
	if c.name.text == "gphase" && !e.old {
		return circuit.Shape{Angles: 1}, nil
	}
	if c.gate == nil {
		c.gate = e.gates[c.name.text]
	}
	g := c.gate
	if g == nil {
		return shape, fail(c.name, "%.40q is no gate here; define it before, or include stdgates.inc or qelib1.inc",
			c.name.text)
	}
	if g.body != nil {
		return circuit.Shape{Angles: len(g.angles), Qubits: len(g.qubits)}, nil
	}
	shape, _ = circuit.ShapeOf(c.name.text)
	return shape, nil
}

// floating is the target of a global phase until a control or the end of the outermost call gives
// it one.
const floating = -1

// once appends the operations of a call on single qubits: the controls of all modifiers come first.
func (c *call) once(e *expansion, arguments []float64, angles []circuit.Angle, on []int, controls int) error {
	start := len(e.c.Ops)
	if err := c.base(e, angles, on[controls:]); err != nil {
		return err
	}
	for i, m := range slices.Backward(c.modifiers) {
		if err := e.step(m.word, 2*(len(e.c.Ops)-start)); err != nil {
			return err
		}
		ops := e.c.Ops[start:]
		switch m.word.text {
		case "inv":
			invert(ops)
		case "pow":
			if err := e.power(m.word, start, arguments[i]); err != nil {
				return err
			}
		default:
			n := int(arguments[i])
			if err := e.step(m.word, n*len(ops)); err != nil {
				return err
			}
			control(ops, on[controls-n:controls], m.word.text == "negctrl")
			controls -= n
		}
	}
	if e.depth > 0 {
		return nil
	}
	ops := e.c.Ops[start:]
	for i := range ops {
		op := &ops[i]
		op.Line, op.Column, op.If = c.name.line, c.name.column, e.condition
		if op.Target == floating {
			op.Target = 0
		}
		e.terms += op.Unitary.Terms()
	}
	if e.c.Qubits == 0 {
		return fail(c.name, "%q stands before all qubits; declare them first", c.name.text)
	}
	if e.terms > circuit.MaxTerms {
		return fail(c.name, "%.40q brings the angles to more than %d operations on inputs; use fewer",
			c.name.text, circuit.MaxTerms)
	}
	return nil
}

// base appends the operations of the gate without modifiers.
func (c *call) base(e *expansion, angles []circuit.Angle, on []int) (err error) {
	name := c.name.text
	if name == "gphase" && !e.old {
		e.c.Ops = append(e.c.Ops, circuit.Op{
			Kind: circuit.Gate, Target: floating, Unitary: circuit.Unitary{Gamma: angles[0]},
		})
		return e.room(c.name, 0)
	}
	if g := c.gate; g.body != nil {
		if e.depth++; e.depth > MaxDepth {
			return fail(c.name, "%.40q is called %d levels deep; use at most %d", name, e.depth, MaxDepth)
		}
		defer func() { e.depth-- }()
		return g.run(e, angles, on)
	}
	if e.old {
		switch name {
		case "U", "u3":
			name = "u"
		case "u2":
			name, angles = "u", []circuit.Angle{circuit.Number(math.Pi / 2), angles[0], angles[1]}
		}
	}
	if n := len(e.c.Ops); n == cap(e.c.Ops) {
		e.c.Ops = slices.Grow(e.c.Ops, max(n, 64)) // append grows long slices by a quarter
	}
	if e.c.Ops, err = circuit.Append(e.c.Ops, name, angles, on...); err != nil {
		return fail(c.name, "%v", err)
	}
	return e.room(c.name, 0)
}

// invert makes operations their inverse.
func invert(ops []circuit.Op) {
	slices.Reverse(ops)
	for i := range ops {
		ops[i].Unitary = ops[i].Unitary.Inverse()
	}
}

// control puts qubits in front of the controls of operations. A global phase takes the last of them
// as its target: under a control it is a phase of that qubit.
func control(ops []circuit.Op, on []int, zero bool) {
	all := make([]circuit.Control, len(on))
	for i, q := range on {
		all[i] = circuit.Control{Qubit: q, Zero: zero}
	}
	for i := range ops {
		op, more := &ops[i], all
		if op.Target == floating {
			op.Target, more = on[len(on)-1], all[:len(all)-1]
			op.Unitary.Lambda = op.Unitary.Gamma
			if zero {
				op.Unitary.Lambda = op.Unitary.Gamma.Neg()
			} else {
				op.Unitary.Gamma = circuit.Angle{}
			}
		}
		op.Controls = append(slices.Clip(more), op.Controls...)
	}
}

// power raises the operations from start on to the power k. A fraction is the principal power of
// one unitary.
func (e *expansion) power(word token, start int, k float64) error {
	ops := e.c.Ops[start:]
	if k != math.Trunc(k) {
		if len(ops) != 1 || ops[0].Kind != circuit.Gate {
			return fail(word, "%q has the exponent %v on several operations; use a whole number", word.text, k)
		}
		u := &ops[0].Unitary
		if u.Power == 0 {
			u.Power = 1
		}
		// The principal power of a power is the product only where phases stay in (-pi, pi].
		if u.Power > 1 || u.Power <= -1 || u.Power*k == 0 {
			return fail(word, "%q has the exponent %v on the power %v; multiply them in one", word.text, k, u.Power)
		}
		u.Power *= k
		return nil
	}
	if k < 0 {
		invert(ops)
		k = -k
	}
	if err := e.room(word, (k-1)*float64(len(ops))); err != nil {
		return err
	}
	if err := e.step(word, int(k)*len(ops)); err != nil {
		return err
	}
	if k == 0 {
		e.c.Ops = e.c.Ops[:start]
		return nil
	}
	for range int(k) - 1 {
		e.c.Ops = append(e.c.Ops, ops...)
	}
	return nil
}
