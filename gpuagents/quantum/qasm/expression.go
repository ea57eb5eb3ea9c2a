package qasm

import (
	"math"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// maxOperators limits an expression, as it is computed by recursion.
const maxOperators = 1024

// expression computes a number in a scope. The number is a constant or depends on inputs.
type expression func(e *expansion, s *scope) (circuit.Angle, error)

var constants = map[string]float64{
	"pi": math.Pi, "π": math.Pi, "tau": 2 * math.Pi, "τ": 2 * math.Pi, "euler": math.E, "ℇ": math.E,
}

var functions = map[string]func(x float64) float64{
	"sin": math.Sin, "cos": math.Cos, "tan": math.Tan, "exp": math.Exp, "ln": math.Log, "log": math.Log,
	"sqrt": math.Sqrt, "arcsin": math.Asin, "arccos": math.Acos, "arctan": math.Atan,
}

var arithmetic = map[string]func(x, y float64) float64{
	"+":  func(x, y float64) float64 { return x + y },
	"-":  func(x, y float64) float64 { return x - y },
	"*":  func(x, y float64) float64 { return x * y },
	"/":  func(x, y float64) float64 { return x / y },
	"%":  math.Mod,
	"**": math.Pow,
	"^":  math.Pow, // of OpenQASM 2
}

func (p *parser) expression() (expression, error) {
	p.operators = 0
	return p.sum()
}

func (p *parser) sum() (expression, error) { return p.binary(p.product, "+", "-") }

func (p *parser) product() (expression, error) { return p.binary(p.unary, "*", "/", "%") }

// binary parses operands with operators of one precedence, which bind to the left.
func (p *parser) binary(operand func() (expression, error), operators ...string) (expression, error) {
	left, err := operand()
	for err == nil {
		op, ok := p.oneOf(operators...)
		if !ok {
			return left, nil
		}
		var right expression
		if right, err = operand(); err == nil {
			left, err = p.combined(op, arithmetic[op.text], left, right)
		}
	}
	return nil, err
}

// combined returns f of two numbers.
func (p *parser) combined(op token, f func(x, y float64) float64, x, y expression) (expression, error) {
	if p.operators++; p.operators > maxOperators {
		return nil, fail(op, "the expression has more than %d operators; name parts of it by const", maxOperators)
	}
	return func(e *expansion, s *scope) (circuit.Angle, error) {
		if err := e.step(op, 1); err != nil {
			return circuit.Angle{}, err
		}
		a, err := x(e, s)
		if err != nil {
			return circuit.Angle{}, err
		}
		b, err := y(e, s)
		if err != nil {
			return circuit.Angle{}, err
		}
		a = join(op.text, f, a, b)
		if v, ok := a.Constant(); ok && (math.IsNaN(v) || math.IsInf(v, 0)) {
			return a, fail(op, "%q gives %v; change its operands", op.text, v)
		}
		return a, nil
	}, nil
}

// join returns f of two numbers, whose operator has a name. Sums with constants and multiples of a
// number stay linear, which is computed faster for many inputs.
func join(name string, f func(x, y float64) float64, x, y circuit.Angle) circuit.Angle {
	v, first := x.Constant()
	w, second := y.Constant()
	switch {
	case first == second:
	case name == "+":
		return x.Plus(y)
	case name == "-":
		return x.Plus(y.Neg())
	case name == "*" && first:
		return y.Times(v)
	case name == "*":
		return x.Times(w)
	case name == "/" && second && w != 0:
		return x.Times(1 / w)
	}
	return circuit.Combine(f, x, y)
}

func literal(v float64) expression {
	return func(*expansion, *scope) (circuit.Angle, error) { return circuit.Number(v), nil }
}

// unary parses a sign or a power, which binds more than a sign.
func (p *parser) unary() (expression, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if sign, ok := p.oneOf("-", "+"); ok {
		x, err := p.unary()
		if err != nil || sign.text == "+" {
			return x, err
		}
		return p.combined(sign, arithmetic["-"], literal(0), x)
	}
	x, err := p.primary()
	if err != nil {
		return nil, err
	}
	power := "**"
	if p.old {
		power = "^"
	}
	op, ok := p.oneOf(power)
	if !ok {
		return x, nil
	}
	y, err := p.unary()
	if err != nil {
		return nil, err
	}
	return p.combined(op, arithmetic[op.text], x, y)
}

func (p *parser) primary() (expression, error) {
	t := p.next()
	switch {
	case t.kind == 'n':
		return literal(t.value), nil
	case t.text == "(" && t.kind == 'o':
		x, err := p.sum()
		if err == nil {
			_, err = p.expect(")")
		}
		return x, err
	case t.kind == 'i' && p.is("("):
		f, ok := functions[t.text]
		if !ok {
			return nil, fail(t, "%.40q is no function; use sin, cos, tan, exp, ln, sqrt, arcsin, arccos or arctan",
				t.text)
		}
		x, err := p.primary()
		if err != nil {
			return nil, err
		}
		return p.combined(t, func(x, _ float64) float64 { return f(x) }, x, literal(0))
	case t.kind == 'i':
		return func(e *expansion, s *scope) (circuit.Angle, error) {
			if v, ok := s.find(t.text); ok && v.kind != numbers {
				return circuit.Angle{}, fail(t, "%.40q is no number; name a constant, an input or a parameter",
					t.text)
			} else if ok {
				return v.number, e.step(t, 1)
			}
			v, ok := constants[t.text]
			if !ok {
				return circuit.Angle{}, fail(t, "%.40q is not defined; declare it by const or input", t.text)
			}
			return circuit.Number(v), e.step(t, 1)
		}, nil
	}
	return nil, fail(t, "%.40q stands where a number is expected; write a number or an expression", t.text)
}

// integer computes an expression that must be a whole number.
func (e *expansion) integer(x expression, s *scope, at token) (int, error) {
	a, err := x(e, s)
	if err != nil {
		return 0, err
	}
	v, ok := a.Constant()
	if !ok || v != math.Trunc(v) || math.Abs(v) > 1<<40 {
		return 0, fail(at, "%.40q needs a constant whole number of at most 2^40; write one", at.text)
	}
	return int(v), nil
}
