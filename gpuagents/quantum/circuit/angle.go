package circuit

import "math"

// Angle is a number that is known once the inputs of a circuit have values: a constant, or a
// constant and a multiple of a term. The zero Angle is 0.
type Angle struct {
	value, scale float64
	term         *Term // nil for a constant
}

// Term is an operation on angles, or an input.
type Term struct {
	apply func(x, y float64) float64 // nil for an input
	x, y  Angle
	input uint   // the input, or the highest one of x and y
	terms uint32 // operations and inputs, at most MaxTerms+1
}

// Number returns a constant angle.
func Number(v float64) Angle { return Angle{value: v} }

// Input returns the value of an input by its index, from 0.
func Input(i int) Angle { return Angle{scale: 1, term: &Term{input: uint(i), terms: 1}} }

// Combine returns f(x, y). It is computed at once where both are constants.
func Combine(f func(x, y float64) float64, x, y Angle) Angle {
	if x.term == nil && y.term == nil {
		return Number(f(x.value, y.value))
	}
	n := &Term{apply: f, x: x, y: y, terms: 1}
	for _, a := range [2]*Term{x.term, y.term} {
		if a != nil {
			n.input, n.terms = max(n.input, a.input), min(n.terms+a.terms, MaxTerms+1)
		}
	}
	return Angle{scale: 1, term: n}
}

// Plus returns a+b.
func (a Angle) Plus(b Angle) Angle {
	switch {
	case b.term == nil:
		a.value += b.value
		return a
	case a.term == nil:
		b.value += a.value
		return b
	}
	return Combine(func(x, y float64) float64 { return x + y }, a, b)
}

// Times returns k times a.
func (a Angle) Times(k float64) Angle { return Angle{k * a.value, k * a.scale, a.term} }

// Neg returns -a.
func (a Angle) Neg() Angle { return a.Times(-1) }

// Terms returns how many operations and inputs Eval computes, up to MaxTerms+1.
func (a Angle) Terms() int {
	if a.term == nil {
		return 0
	}
	return int(a.term.terms)
}

// Constant returns the value of an angle that depends on no input.
func (a Angle) Constant() (v float64, ok bool) { return a.value, a.term == nil }

// Linear returns the parts of an angle that is value and scale times a term. The term of a constant
// is nil.
func (a Angle) Linear() (value, scale float64, of *Term) { return a.value, a.scale, a.term }

// Eval returns the angle for the values of the inputs. It is NaN where an input is missing.
func (a Angle) Eval(inputs []float64) float64 {
	if a.term == nil {
		return a.value
	}
	return a.value + float64(a.scale*a.term.Eval(inputs))
}

// Input returns the index of an input. ok is false for an operation.
func (t *Term) Input() (i int, ok bool) { return int(t.input), t.apply == nil }

// Eval returns the term for the values of the inputs. It is NaN where an input is missing.
func (t *Term) Eval(inputs []float64) float64 {
	switch {
	case t.apply != nil:
		return t.apply(t.x.Eval(inputs), t.y.Eval(inputs))
	case t.input < uint(len(inputs)):
		return inputs[t.input]
	}
	return math.NaN()
}
