package qasm

import "strings"

// action executes a statement: it declares names in the scope or appends operations to the circuit.
type action func(e *expansion, s *scope) error

// parser makes actions of tokens.
type parser struct {
	tokens    []token
	at        int
	old       bool // the text is OpenQASM 2
	depth     int  // of the recursion, at most MaxDepth
	blocks    int  // open blocks and bodies
	inGate    bool
	operators int // in the present expression
}

func (p *parser) peek() token { return p.tokens[p.at] }

// next returns a token and moves behind it, but not behind the end.
func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != 0 {
		p.at++
	}
	return t
}

// is reports whether a word or an operator comes next.
func (p *parser) is(text string) bool {
	t := p.peek()
	return t.text == text && (t.kind == 'i' || t.kind == 'o')
}

func (p *parser) accept(text string) bool {
	ok := p.is(text)
	if ok {
		p.at++
	}
	return ok
}

func (p *parser) oneOf(texts ...string) (token, bool) {
	for _, text := range texts {
		if p.is(text) {
			return p.next(), true
		}
	}
	return token{}, false
}

func (p *parser) expect(text string) (token, error) {
	t := p.next()
	if t.text != text || t.kind != 'i' && t.kind != 'o' {
		return t, fail(t, "%.40q stands where %q is expected; write %[2]s before it", t.text, text)
	}
	return t, nil
}

func (p *parser) name() (token, error) {
	t := p.next()
	if t.kind != 'i' {
		return t, fail(t, "%.40q stands where a name is expected; write a name", t.text)
	}
	return t, nil
}

func (p *parser) enter() error {
	if p.depth++; p.depth > MaxDepth {
		return fail(p.peek(), "%.40q is more than %d levels deep; divide the text", p.peek().text, MaxDepth)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// newer are the words of OpenQASM 3 that begin a statement. In OpenQASM 2 they are names.
var newer = " array bit bool box break cal complex const continue ctrl def defcal defcalgrammar delay duration end " +
	"extern float for gphase input int inv let negctrl nop output pow pragma qubit return stretch switch uint while "

// refused are the words that begin a statement outside of the subset, in addition to newer ones.
var refused = " angle opaque "

// statement parses a statement of any kind.
func (p *parser) statement() (action, error) {
	t := p.next()
	is := func(words string) bool { return strings.Contains(words, " "+t.text+" ") }
	switch {
	case t.text == ";" && t.kind == 'o':
		return func(*expansion, *scope) error { return nil }, nil
	case t.kind != 'i':
		return nil, fail(t, "%.40q stands where a statement is expected; remove it", t.text)
	case p.old && is(newer):
		return p.call(t)
	case is(" include qreg creg qubit bit gate input ") && p.blocks > 0:
		return nil, fail(t, "%q stands inside of a block; write it outside", t.text)
	case is(" measure reset if ") && p.inGate:
		return nil, fail(t, "%q stands inside of a gate; a gate has gates only", t.text)
	}
	switch t.text {
	case "OPENQASM":
		return nil, fail(t, "%q is not the first statement; write it once, at the beginning", t.text)
	case "include":
		return p.include()
	case "qreg", "creg", "qubit", "bit":
		return p.register(t)
	case "gate":
		return p.gate()
	case "input":
		return p.input()
	case "const":
		return p.constant()
	case "let":
		return p.alias()
	case "measure":
		return p.measure(t)
	case "reset", "barrier":
		return p.qubitsOnly(t)
	case "if":
		return p.condition(t)
	case "for":
		return p.loop(t)
	case "ctrl", "negctrl", "inv", "pow", "gphase":
		return p.call(t)
	}
	if is(newer) || is(refused) {
		return nil, fail(t, "%q is not part of the subset; use gates, const, measure, reset, if and for", t.text)
	}
	if p.is("=") || p.is("[") {
		return p.assignment(t)
	}
	return p.call(t)
}

func (p *parser) end() error {
	_, err := p.expect(";")
	return err
}

// body parses a block or one statement, which has a scope of its own.
func (p *parser) body() (action, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	p.blocks++
	defer func() { p.blocks-- }()
	at := p.peek()
	if !p.accept("{") {
		one, err := p.statement()
		return inside(at, []action{one}), err
	}
	var all []action
	for !p.accept("}") {
		if t := p.peek(); t.kind == 0 {
			return nil, fail(t, `the text ends inside of a block; close it with "}"`)
		}
		one, err := p.statement()
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return inside(at, all), nil
}

// inside executes actions in a new scope.
func inside(at token, all []action) action {
	return func(e *expansion, outer *scope) error {
		if err := e.step(at, 1+len(all)); err != nil {
			return err
		}
		s := &scope{outer: outer}
		for _, run := range all {
			if err := run(e, s); err != nil {
				return err
			}
		}
		return nil
	}
}

func (p *parser) include() (action, error) {
	file := p.next()
	names := map[string]string{"stdgates.inc": stdgates, "qelib1.inc": qelib1}[file.text]
	if file.kind != 's' || names == "" {
		return nil, fail(file, "%.40q is no file that can be included; use stdgates.inc or qelib1.inc", file.text)
	}
	return func(e *expansion, _ *scope) error {
		for name := range strings.FieldsSeq(names) {
			if g := e.gates[name]; g != nil && g.body != nil {
				return fail(file, "%q defines %q again; include it before your gates, or rename the gate",
					file.text, name)
			}
			e.builtin(name)
		}
		return nil
	}, p.end()
}

// register parses the declaration of qubits or bits: qreg q[2], qubit[2] q, bit c = measure q.
func (p *parser) register(word token) (action, error) {
	old := word.text == "qreg" || word.text == "creg"
	size := expression(nil)
	var name token
	var err error
	if old {
		name, err = p.name()
	}
	if err == nil && p.accept("[") {
		if size, err = p.expression(); err == nil {
			_, err = p.expect("]")
		}
	}
	if err == nil && !old {
		name, err = p.name()
	}
	if err != nil {
		return nil, err
	}
	kind := qubits
	if word.text == "creg" || word.text == "bit" {
		kind = bits
	}
	declare := func(e *expansion, s *scope) error { return e.declare(s, name, kind, size) }
	if word.text != "bit" || !p.accept("=") {
		return declare, p.end()
	}
	read, err := p.reading(operand{name: name})
	return func(e *expansion, s *scope) error {
		if err := declare(e, s); err != nil {
			return err
		}
		return read(e, s)
	}, err
}

// number parses the type of a number, and reports whether it is a whole one.
func (p *parser) number(types ...string) (whole bool, err error) {
	t, ok := p.oneOf(types...)
	if !ok {
		t = p.peek()
		return false, fail(t, "%.40q is no type that is taken here; use %s", t.text, strings.Join(types, " or "))
	}
	if p.accept("[") {
		if _, err := p.expression(); err != nil {
			return false, err
		}
		if _, err := p.expect("]"); err != nil {
			return false, err
		}
	}
	return t.text == "int" || t.text == "uint", nil
}

func (p *parser) input() (action, error) {
	if _, err := p.number("float", "angle"); err != nil {
		return nil, err
	}
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	return func(e *expansion, s *scope) error { return e.input(s, name) }, p.end()
}

func (p *parser) constant() (action, error) {
	whole, err := p.number("float", "angle", "int", "uint")
	if err != nil {
		return nil, err
	}
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	if _, err := p.expect("="); err != nil {
		return nil, err
	}
	value, err := p.expression()
	if err != nil {
		return nil, err
	}
	return func(e *expansion, s *scope) error {
		if whole {
			if _, err := e.integer(value, s, name); err != nil {
				return err
			}
		}
		v, err := value(e, s)
		if err != nil {
			return err
		}
		if _, ok := v.Constant(); !ok && !e.dry {
			return fail(name, "%.40q depends on an input; write the expression where it is used", name.text)
		}
		return e.define(s, name, symbol{kind: numbers, number: v})
	}, p.end()
}

// alias parses let a = q[0:2] ++ r.
func (p *parser) alias() (action, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	if _, err := p.expect("="); err != nil {
		return nil, err
	}
	var parts []operand
	for more := true; more; more = p.accept("++") {
		part, err := p.operand()
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return func(e *expansion, s *scope) error {
		joined := symbol{kind: qubits}
		for i, part := range parts {
			if v, ok := s.find(part.name.text); ok && i == 0 && v.kind == bits {
				joined.kind = bits
			}
			list, _, err := part.list(e, s, joined.kind)
			if err != nil {
				return err
			}
			joined.list = append(joined.list, list...)
			if len(joined.list) > 64 {
				return fail(part.name, "%.40q has more than 64 members; join fewer registers", name.text)
			}
		}
		return e.define(s, name, joined)
	}, p.end()
}

// operand is a register, a member or a slice of one.
type operand struct {
	name              token
	first, step, last expression // of name[first:step:last]; only first of name[first]
}

func (p *parser) operand() (o operand, err error) {
	if o.name, err = p.name(); err != nil || !p.accept("[") {
		return o, err
	}
	if o.first, o.step, o.last, err = p.span(); err == nil {
		_, err = p.expect("]")
	}
	return o, err
}

// span parses first, first:last and first:step:last.
func (p *parser) span() (first, step, last expression, err error) {
	if first, err = p.expression(); err != nil || !p.accept(":") {
		return first, nil, nil, err
	}
	if last, err = p.expression(); err != nil || !p.accept(":") {
		return first, nil, last, err
	}
	step = last
	last, err = p.expression()
	return first, step, last, err
}

func (p *parser) operands(end string) (all []operand, err error) {
	if p.accept(end) {
		return nil, nil
	}
	for {
		o, err := p.operand()
		if err != nil {
			return nil, err
		}
		all = append(all, o)
		if !p.accept(",") {
			_, err := p.expect(end)
			return all, err
		}
	}
}

// qubitsOnly parses reset and barrier.
func (p *parser) qubitsOnly(word token) (action, error) {
	all, err := p.operands(";")
	if err == nil && word.text == "reset" && len(all) != 1 {
		err = fail(word, "%q takes one qubit or register; write one statement for each", word.text)
	}
	return func(e *expansion, s *scope) error { return e.reset(s, word, all) }, err
}

// measure parses measure q -> c. A measurement without a bit is refused: nothing would read it.
func (p *parser) measure(word token) (action, error) {
	from, err := p.operand()
	if err != nil {
		return nil, err
	}
	if !p.accept("->") {
		return nil, fail(word, `%q has no bit; write "-> c" behind the qubit, or reset`, word.text)
	}
	to, err := p.operand()
	if err != nil {
		return nil, err
	}
	return func(e *expansion, s *scope) error { return e.measure(s, word, from, to) }, p.end()
}

// assignment parses c[0] = measure q[0], behind the name.
func (p *parser) assignment(name token) (action, error) {
	p.at--
	to, err := p.operand()
	if err != nil {
		return nil, err
	}
	if _, err := p.expect("="); err != nil {
		return nil, err
	}
	if !p.is("measure") {
		return nil, fail(name, "%.40q gets a value that is not measured; only \"= measure\" is part of the subset",
			name.text)
	}
	if p.inGate {
		return nil, fail(name, "%.40q is measured inside of a gate; a gate has gates only", name.text)
	}
	return p.reading(to)
}

// reading parses measure q behind the equals sign.
func (p *parser) reading(to operand) (action, error) {
	word, err := p.expect("measure")
	if err != nil {
		return nil, err
	}
	from, err := p.operand()
	if err != nil {
		return nil, err
	}
	return func(e *expansion, s *scope) error { return e.measure(s, word, from, to) }, p.end()
}

// condition parses if, behind the word.
func (p *parser) condition(word token) (action, error) {
	if _, err := p.expect("("); err != nil {
		return nil, err
	}
	not := p.accept("!")
	what, err := p.operand()
	if err != nil {
		return nil, err
	}
	value := literal(1)
	op, compared := p.oneOf("==", "!=")
	if compared && not {
		return nil, fail(op, `"!" and %q do not go together; use one of them`, op.text)
	}
	if compared {
		not = op.text == "!="
		if p.accept("true") {
			value = literal(1)
		} else if p.accept("false") {
			value = literal(0)
		} else if value, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if _, err := p.expect(")"); err != nil {
		return nil, err
	}
	then, err := p.body()
	if err != nil {
		return nil, err
	}
	var otherwise action
	if p.accept("else") {
		if otherwise, err = p.body(); err != nil {
			return nil, err
		}
	}
	return func(e *expansion, s *scope) error {
		f, err := e.compare(s, what, compared, value)
		if err != nil {
			return err
		}
		f.Not = not
		return e.branch(s, word, f, then, otherwise)
	}, nil
}

// loop parses for, behind the word: for int i in [0:3] and for int i in {1, 2}.
func (p *parser) loop(word token) (action, error) {
	if p.is("int") || p.is("uint") || p.is("float") || p.is("angle") {
		if _, err := p.number("int", "uint", "float", "angle"); err != nil {
			return nil, err
		}
	}
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	if _, err := p.expect("in"); err != nil {
		return nil, err
	}
	open, ok := p.oneOf("[", "{")
	if !ok {
		return nil, fail(p.peek(), "%.40q is no range; write [first:last] or {1, 2}", p.peek().text)
	}
	var set []expression
	var first, step, last expression
	if open.text == "[" {
		if first, step, last, err = p.span(); err == nil && last == nil {
			err = fail(open, "the range has no end; write [first:last]")
		}
		if err == nil {
			_, err = p.expect("]")
		}
	} else {
		for more := true; more && err == nil; more = p.accept(",") {
			var x expression
			x, err = p.expression()
			set = append(set, x)
		}
		if err == nil {
			_, err = p.expect("}")
		}
	}
	if err != nil {
		return nil, err
	}
	body, err := p.body()
	if err != nil {
		return nil, err
	}
	return func(e *expansion, s *scope) error {
		if set != nil {
			return e.each(s, name, set, body)
		}
		return e.count(s, name, operand{name: name, first: first, step: step, last: last}, body)
	}, nil
}

// gate parses the definition of a gate, behind the word.
func (p *parser) gate() (action, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	g := &gate{}
	if p.accept("(") {
		if g.angles, err = p.names(")"); err != nil {
			return nil, err
		}
	}
	if g.qubits, err = p.names("{"); err != nil {
		return nil, err
	}
	p.at-- // the body begins with the brace
	p.inGate = true
	g.body, err = p.body()
	p.inGate = false
	return func(e *expansion, s *scope) error { return e.defineGate(s, name, g) }, err
}

func (p *parser) names(end string) (all []token, err error) {
	if p.accept(end) {
		return nil, nil
	}
	for {
		t, err := p.name()
		if err != nil {
			return nil, err
		}
		all = append(all, t)
		if !p.accept(",") {
			_, err := p.expect(end)
			return all, err
		}
	}
}
