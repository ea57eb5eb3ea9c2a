package expr

import (
	"fmt"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Adam has the settings of torch.optim.Adam, whose formulas it has.
type Adam struct {
	Rate, Beta1, Beta2, Epsilon float64
	// Decay is the factor of the weights that is added to their derivatives.
	Decay float64
}

// DefaultAdam has the defaults of torch.optim.Adam.
var DefaultAdam = Adam{Rate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}

// The inputs of a step that change from step to step, which no text can name.
const (
	stepInput = "adam.step"
	rootInput = "adam.root"
)

// Moments returns the names of the mean and the square of the derivatives of a weight, among the
// inputs and the outputs of a step.
func Moments(weight string) (mean, square string) { return weight + ".m", weight + ".v" }

// Training is a program whose run is one step of training: it computes the loss and new weights and
// moments. Each weight is an input of its name, and an output of the same name and shape; its
// moments are, too, and are 0 before the first step.
type Training struct {
	Program *Program
	Loss    string // the output with the loss before the step
	Weights []string
	Adam    Adam
}

// ParseTraining makes a step of a text with one output, the loss, which is one number of f32.
// weights are the sources that the step changes. Products of more than 64 columns have an order
// that differs between devices: they are ErrType unless inexact is true.
func ParseTraining(text string, weights []string, a Adam, inexact bool, sources ...Source) (*Training, error) {
	p, err := Parse(text, sources...)
	if err != nil {
		return nil, err
	}
	fail := func(format string, args ...any) (*Training, error) {
		return nil, fmt.Errorf("expr: "+format+": %w", append(args, ErrType)...)
	}
	if len(p.g.Outputs) != 1 || len(weights) == 0 {
		return fail("%d outputs and %d weights: use one output, the loss, and a weight at least", len(p.g.Outputs),
			len(weights))
	}
	t := &Training{Program: p, Loss: p.g.Outputs[0].Name, Weights: weights, Adam: a}
	values := make([]Value, len(weights))
	for i, name := range weights {
		at := slices.IndexFunc(p.g.Inputs, func(in ir.Input) bool { return in.Name == name })
		if at < 0 || p.g.Inputs[at].Scalar || name == t.Loss || slices.Contains(weights[:i], name) {
			return fail("weight %.60q: use an array that the text reads, each once", name)
		}
		values[i] = Value{p, p.g.Inputs[at].Node}
	}
	gradients := Grad(Value{p, p.g.Outputs[0].Node}, values...)
	step, root := p.In(stepInput, ir.F32, Shape{Scalar: true}), p.In(rootInput, ir.F32, Shape{Scalar: true})
	for i, name := range weights {
		t.update(name, values[i], gradients[i], step, root)
	}
	if p.err != nil {
		return nil, p.err
	}
	for _, n := range p.g.Nodes {
		small := n.Op != ir.OpMatMul && n.Op != ir.OpOuter || n.Op == ir.OpOuter && n.SmallOuter() ||
			n.Op == ir.OpMatMul && n.SmallProduct()
		if !small && !inexact {
			return fail("%v of %d and %d columns has no fixed order: use weights as second factors and at most %d "+
				"columns, or allow inexact sums", n, n.Args[0].Width, n.Args[1].Width, ir.SmallSide)
		}
	}
	return t, nil
}

// update adds the outputs of a weight: the formulas of PyTorch, each operation rounded.
func (t *Training) update(name string, w, g, step, root Value) {
	p := t.Program
	if p.err != nil {
		return
	}
	number := func(v float64) Value { return p.F32Const(float32(v)) }
	like := func(name string) Value {
		n := *w.n
		n.Imm = uint64(len(p.g.Inputs))
		if len(p.g.Inputs) >= MaxInputs {
			return p.fail(ErrLimit, "a program has at most %d inputs, and each weight has three", MaxInputs)
		}
		v := p.add(n)
		p.g.Inputs = append(p.g.Inputs, ir.Input{Name: name, Node: v.n})
		return v
	}
	mean, square := Moments(name)
	m, v := like(mean), like(square)
	if t.Adam.Decay != 0 {
		g = Add(g, Mul(w, number(t.Adam.Decay)))
	}
	m = Add(m, Mul(Sub(g, m), number(1-t.Adam.Beta1)))
	v = Add(Mul(v, number(t.Adam.Beta2)), Mul(Mul(number(1-t.Adam.Beta2), g), g))
	by := Add(Div(Sqrt(v), root), number(t.Adam.Epsilon))
	p.Out(name, Add(w, Mul(step, Div(m, by))))
	p.Out(mean, m)
	p.Out(square, v)
}

// Step returns the scalar inputs of a step, which are numbered from 1.
func (t *Training) Step(n int64) map[string]float32 {
	first := 1 - math.Pow(t.Adam.Beta1, float64(n))
	second := 1 - math.Pow(t.Adam.Beta2, float64(n))
	return map[string]float32{
		stepInput: float32(-t.Adam.Rate / first), rootInput: float32(math.Sqrt(second)),
	}
}
