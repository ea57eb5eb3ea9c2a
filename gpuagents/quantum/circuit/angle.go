package circuit

import "math"

// Angle is a number that is known once the inputs of a circuit have values: a constant, an input, or
// an expression of both. The zero Angle is 0.
type Angle struct {
	value float64
	node  *node // nil for a constant
}

// node is an operation on angles, or an input.
type node struct {
	apply func(x, y float64) float64 // nil for an input
	x, y  Angle
	input uint   // the input, or the highest one of x and y
	terms uint32 // operations and inputs, at most MaxTerms+1
}

// Number returns a constant angle.
func Number(v float64) Angle { return Angle{value: v} }

// Input returns the value of an input by its index, from 0.
func Input(i int) Angle { return Angle{node: &node{input: uint(i), terms: 1}} }

// Combine returns f(x, y). It is computed at once where both are constants.
func Combine(f func(x, y float64) float64, x, y Angle) Angle {
	if x.node == nil && y.node == nil {
		return Number(f(x.value, y.value))
	}
	n := &node{apply: f, x: x, y: y, terms: 1}
	for _, a := range [2]*node{x.node, y.node} {
		if a != nil {
			n.input, n.terms = max(n.input, a.input), min(n.terms+a.terms, MaxTerms+1)
		}
	}
	return Angle{node: n}
}

// Terms returns how many operations and inputs Eval computes, up to MaxTerms+1.
func (a Angle) Terms() int {
	if a.node == nil {
		return 0
	}
	return int(a.node.terms)
}

// Neg returns -a.
func (a Angle) Neg() Angle {
	return Combine(func(x, _ float64) float64 { return -x }, a, Angle{})
}

// Constant returns the value of an angle that depends on no input.
func (a Angle) Constant() (v float64, ok bool) { return a.value, a.node == nil }

// Eval returns the angle for the values of the inputs. It is NaN where an input is missing.
func (a Angle) Eval(inputs []float64) float64 {
	switch {
	case a.node == nil:
		return a.value
	case a.node.apply != nil:
		return a.node.apply(a.node.x.Eval(inputs), a.node.y.Eval(inputs))
	case a.node.input < uint(len(inputs)):
		return inputs[a.node.input]
	}
	return math.NaN()
}
