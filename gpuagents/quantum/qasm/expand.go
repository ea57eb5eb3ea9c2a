package qasm

import (
	"math"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// maxSteps bounds the time that a text takes: names, operators, and operations that a modifier
// changes. What allocates memory counts as heavy. A Fourier transform with as many gates as a
// circuit may have takes less than half of them.
const (
	maxSteps = 1 << 26
	heavy    = 4
)

// expansion is the circuit that a text makes, as far as it is read.
type expansion struct {
	c         *circuit.Circuit
	old       bool // the text is OpenQASM 2
	gates     map[string]*gate
	condition circuit.Condition // of the present statement
	depth     int               // calls of defined gates that are open
	steps     int
	terms     int // of the angles so far
	// dry checks the body of a gate where it is defined: nothing is appended, and the values of
	// parameters are not known.
	dry bool
}

// The kinds of symbols.
const (
	numbers = iota
	qubits
	bits
)

// symbol is what a name stands for.
type symbol struct {
	kind   int
	number circuit.Angle
	list   []int // qubits or bits
	scalar bool  // it is one qubit or bit and no register
}

// scope has the names of a block.
type scope struct {
	outer *scope
	few   []named // the first names: most scopes have no others
	names map[string]symbol
	gate  bool // the body of a gate: it sees numbers outside, but no qubits and bits
	// variable is the name of the variable of a loop, which has a scope of its own.
	variable string
	value    circuit.Angle
}

// named is a symbol of a scope with its name.
type named struct {
	name string
	symbol
}

// maxFew is the most names that are compared one by one.
const maxFew = 8

// own returns the symbol of a name that the scope itself has.
func (s *scope) own(name string) (v symbol, ok bool) {
	for i := range s.few {
		if s.few[i].name == name {
			return s.few[i].symbol, true
		}
	}
	v, ok = s.names[name]
	return v, ok
}

func (s *scope) find(name string) (v symbol, ok bool) {
	for inGate := false; s != nil; s = s.outer {
		if s.variable == name {
			return symbol{kind: numbers, number: s.value}, true
		}
		if v, ok := s.own(name); ok && (!inGate || v.kind == numbers) {
			return v, true
		}
		inGate = inGate || s.gate
	}
	return symbol{}, false
}

func (e *expansion) define(s *scope, name token, v symbol) error {
	if _, found := s.own(name.text); found {
		return fail(name, "%.40q is declared twice; choose another name", name.text)
	}
	if len(s.few) < maxFew {
		s.few = append(s.few, named{name.text, v})
		return e.step(name, heavy)
	}
	if s.names == nil {
		s.names = map[string]symbol{}
	}
	s.names[name.text] = v
	return e.step(name, heavy)
}

func (e *expansion) step(at token, n int) error {
	if e.steps += n; e.steps > maxSteps {
		return fail(at, "%.40q comes after %d steps of expansion; divide the text", at.text, maxSteps)
	}
	return nil
}

func (e *expansion) declare(s *scope, name token, kind int, size expression) error {
	n, what, taken, limit := 1, "qubits", &e.c.Qubits, circuit.MaxQubits
	registers := &e.c.QubitRegisters
	if kind == bits {
		what, taken, limit, registers = "bits", &e.c.Bits, circuit.MaxBits, &e.c.BitRegisters
	}
	if size != nil {
		var err error
		if n, err = e.integer(size, s, name); err != nil {
			return err
		}
	}
	if n < 1 || n > limit-*taken {
		return fail(name, "%.40q has %d %s behind %d others; declare 1 to %d in all",
			name.text, n, what, *taken, limit)
	}
	v := symbol{kind: kind, scalar: size == nil}
	for i := range n {
		v.list = append(v.list, *taken+i)
	}
	*registers = append(*registers, circuit.Register{Name: name.text, First: *taken, Size: n})
	*taken += n
	return e.define(s, name, v)
}

func (e *expansion) input(s *scope, name token) error {
	if len(e.c.Inputs) == circuit.MaxInputs {
		return fail(name, "%.40q is one input more than %d; use fewer", name.text, circuit.MaxInputs)
	}
	e.c.Inputs = append(e.c.Inputs, name.text)
	return e.define(s, name, symbol{kind: numbers, number: circuit.Input(len(e.c.Inputs) - 1)})
}

// list returns the qubits or bits of an operand. scalar is false for a register and a slice.
func (o operand) list(e *expansion, s *scope, kind int) (list []int, scalar bool, err error) {
	what := [...]string{qubits: "qubit", bits: "bit"}[kind]
	v, ok := s.find(o.name.text)
	if !ok || v.kind != kind {
		return nil, false, fail(o.name, "%.40q is no %s here; declare it before", o.name.text, what)
	}
	if o.first == nil {
		return v.list, v.scalar, e.step(o.name, 1)
	}
	if v.scalar {
		return nil, false, fail(o.name, "%.40q is one %s and has no members; remove the index", o.name.text, what)
	}
	member := func(i int) (int, error) {
		if i < 0 {
			i += len(v.list)
		}
		if i < 0 || i >= len(v.list) {
			return 0, fail(o.name, "%.40q has %d %ss and no member %d; use 0 to %d",
				o.name.text, len(v.list), what, i, len(v.list)-1)
		}
		return i, nil
	}
	span, err := o.span(e, s)
	if err != nil {
		return nil, false, err
	}
	first, err := member(span.first)
	if err != nil {
		return nil, false, err
	}
	if o.last == nil {
		return v.list[first : first+1], true, e.step(o.name, 1)
	}
	if span.last, err = member(span.last); err != nil {
		return nil, false, err
	}
	for i := first; span.has(i); i += span.step {
		list = append(list, v.list[i])
	}
	if len(list) == 0 {
		return nil, false, fail(o.name, "the slice of %.40q is empty; write it as [first:last]", o.name.text)
	}
	return list, false, e.step(o.name, len(list))
}

// span is first, first+step and so on to last.
type span struct{ first, step, last int }

func (r span) has(i int) bool { return r.step > 0 && i <= r.last || r.step < 0 && i >= r.last }

func (o operand) span(e *expansion, s *scope) (r span, err error) {
	r.step = 1
	for _, part := range []struct {
		x  expression
		to *int
	}{{o.first, &r.first}, {o.step, &r.step}, {o.last, &r.last}} {
		if part.x != nil && err == nil {
			*part.to, err = e.integer(part.x, s, o.name)
		}
	}
	if err == nil && r.step == 0 {
		err = fail(o.name, "%.40q has a range with the step 0; use another step", o.name.text)
	}
	return r, err
}

// emit appends a measurement or a reset.
func (e *expansion) emit(at token, op circuit.Op) error {
	op.Line, op.Column, op.If = at.line, at.column, e.condition
	e.c.Ops = append(e.c.Ops, op)
	return e.room(at, 0)
}

// room checks that the circuit has room for n operations more.
func (e *expansion) room(at token, n float64) error {
	if float64(len(e.c.Ops))+n > circuit.MaxOps {
		return fail(at, "%.40q makes more than %d operations; use fewer", at.text, circuit.MaxOps)
	}
	return e.step(at, 1)
}

func (e *expansion) measure(s *scope, word token, from, to operand) error {
	q, _, err := from.list(e, s, qubits)
	if err != nil {
		return err
	}
	c, _, err := to.list(e, s, bits)
	if err != nil {
		return err
	}
	if len(q) != len(c) {
		return fail(word, "%q reads %d qubits into %d bits; use as many bits", word.text, len(q), len(c))
	}
	for i := range q {
		if err := e.emit(word, circuit.Op{Kind: circuit.Measure, Target: q[i], Bit: c[i]}); err != nil {
			return err
		}
	}
	return nil
}

// reset does reset and barrier, which orders nothing: operations are never reordered here.
func (e *expansion) reset(s *scope, word token, all []operand) error {
	for _, o := range all {
		list, _, err := o.list(e, s, qubits)
		if err != nil {
			return err
		}
		for _, q := range list {
			if word.text == "barrier" {
				break
			}
			if err := e.emit(word, circuit.Op{Kind: circuit.Reset, Target: q}); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare returns the condition that bits have a value.
func (e *expansion) compare(s *scope, what operand, compared bool, value expression) (f circuit.Condition, err error) {
	list, _, err := what.list(e, s, bits)
	if err != nil {
		return f, err
	}
	for i := range list {
		if list[i] != list[0]+i {
			return f, fail(what.name, "%.40q has bits that are not side by side; compare a register", what.name.text)
		}
	}
	if !compared && len(list) > 1 {
		return f, fail(what.name, "%.40q has %d bits; compare it with a number, or name one bit",
			what.name.text, len(list))
	}
	v, err := e.integer(value, s, what.name)
	if err == nil && (v < 0 || v>>len(list) != 0) {
		err = fail(what.name, "%.40q has %d bits and never is %d; compare it with another number",
			what.name.text, len(list), v)
	}
	return circuit.Condition{First: list[0], Count: len(list), Value: uint64(v)}, err
}

// branch executes the bodies of if. The condition of an operation is read when the operation takes
// place, so no body may change a bit of the condition and go on.
func (e *expansion) branch(s *scope, word token, f circuit.Condition, then, otherwise action) error {
	if e.condition.Count > 0 {
		return fail(word, "%q stands inside of another if; compare a register that has the bits of both", word.text)
	}
	defer func() { e.condition = circuit.Condition{} }()
	start := len(e.c.Ops)
	e.condition = f
	if err := then(e, s); err != nil {
		return err
	}
	for i, op := range e.c.Ops[start:] {
		goesOn := otherwise != nil || start+i+1 < len(e.c.Ops)
		if op.Kind == circuit.Measure && op.Bit >= f.First && op.Bit < f.First+f.Count && goesOn {
			return &Error{op.Line, op.Column, `"measure" changes a bit of the condition that it stands under; ` +
				"measure into another bit"}
		}
	}
	if otherwise == nil {
		return nil
	}
	f.Not = !f.Not
	e.condition = f
	return otherwise(e, s)
}

// each executes a body for numbers.
func (e *expansion) each(s *scope, name token, set []expression, body action) error {
	for _, x := range set {
		v, err := x(e, s)
		if err != nil {
			return err
		}
		if err := e.turn(s, name, v, body); err != nil {
			return err
		}
	}
	return nil
}

// count executes a body for a range.
func (e *expansion) count(s *scope, name token, r operand, body action) error {
	if e.dry {
		return e.turn(s, name, circuit.Input(0), body)
	}
	span, err := r.span(e, s)
	for i := span.first; err == nil && span.has(i); i += span.step {
		err = e.turn(s, name, circuit.Number(float64(i)), body)
	}
	return err
}

func (e *expansion) turn(s *scope, name token, v circuit.Angle, body action) error {
	if err := e.step(name, heavy); err != nil {
		return err
	}
	return body(e, &scope{outer: s, variable: name.text, value: v})
}

// constantOr returns the value of a constant, or unknown where a parameter has no value yet.
func (e *expansion) constantOr(unknown float64, x expression, s *scope, at token) (float64, error) {
	a, err := x(e, s)
	if err != nil {
		return 0, err
	}
	v, ok := a.Constant()
	if !ok && e.dry {
		return unknown, nil
	}
	if !ok || math.Abs(v) > circuit.MaxOps {
		return 0, fail(at, "%q needs a constant of at most %d; write one", at.text, circuit.MaxOps)
	}
	return v, nil
}
