package expr_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

const gradRows = 6

// gradSources are the inputs of TestGrad. All but i are f32.
var gradSources = []expr.Source{
	{Name: "x", Type: ir.F32, Rows: gradRows, Width: 4},
	{Name: "v", Type: ir.F32, Rows: gradRows},
	{Name: "u", Type: ir.F32, Rows: gradRows},
	{Name: "w", Type: ir.F32, Rows: 4, Width: 3},
	{Name: "z", Type: ir.F32, Rows: 3, Width: 4},
	{Name: "b", Type: ir.F32, Rows: 1, Width: 4},
	{Name: "c", Type: ir.F32, Rows: 1, Width: 1},
	{Name: "a", Type: ir.F32, Scalar: true},
	{Name: "t", Type: ir.F32, Rows: 5},
	{Name: "i", Type: ir.I32, Rows: gradRows},
}

// gradInputs returns values of the inputs. They are near 1, so that roots and logarithms exist.
func gradInputs(r *rand.Rand) map[string][]float64 {
	in := map[string][]float64{}
	for _, s := range gradSources {
		v := make([]float64, max(s.Rows, 1)*max(s.Width, 1))
		for k := range v {
			v[k] = float64(float32(0.4 + 1.2*r.Float64()))
			if s.Type == ir.I32 {
				v[k] = float64(r.IntN(7) - 1)
			}
		}
		in[s.Name] = v
	}
	return in
}

// gradError returns the difference between the derivative of the output l by an input, which is the
// output g, and central differences of l, beside the length of the derivative.
func gradError(p *expr.Program, name string, in map[string][]float64) (relative float64, g []float64) {
	g = evaluate(p, gradRows, in)["g"]
	difference, length := 0.0, 0.0
	for k := range in[name] {
		at := in[name][k]
		const h = 1e-5
		loss := func(v float64) float64 {
			in[name][k] = v
			return evaluate(p, gradRows, in)["l"][0]
		}
		want := (8*(loss(at+h)-loss(at-h)) - (loss(at+2*h) - loss(at-2*h))) / (12 * h)
		in[name][k] = at
		if len(g) != len(in[name]) {
			return math.Inf(1), g
		}
		difference += (g[k] - want) * (g[k] - want)
		length += want*want + g[k]*g[k]
	}
	return math.Sqrt(difference) / max(math.Sqrt(length), 1e-3), g
}

// gradLosses are losses by all operations that have a derivative.
var gradLosses = []string{
	"sum(x * v + u)", "mean(x / (v + b))", "sum(-x - v * x)", "sum(abs(x - 1) * v)", "sum(sqrt(x) * u)",
	"mean(exp(x * v))", "sum(log(x + v) * b)", "sum(tanh(x * u - 1))", "sum(floor(x * 10) * v)",
	"sum(min(x, v) * u)", "sum(max(x, b) * v)", "sum(max(x, c) * min(v, a))", "sum(select(x > v, x * x, v * u))",
	"sum(clamp(x, 0.6, 1.2) * v)", "sum(relu(x - v))", "mean(sigmoid(x * v))", "sum(softmax(x) * b * v)",
	"sum(normalize(x * v) * b)", "max(x * v)", "min(x * v)", "sum(row_max(x) * v)", "sum(row_min(x * b) * u)",
	"sum(row_sum(x * v) * u)", "sum(row_mean(x) * v * v)", "sum(col_sum(x * v) * b)", "mean(col_mean(x * x))",
	"mean(square(matmul(x, w)))", "sum(matmul(matmul(x * v, w), z) * b)", "sum(tanh(matmul(x, w)) * u)",
	"sum(matmul(x, w))", "sum(gather(t, i) * v)", "sum(square(gather(t, i)) * x)", "sum(x)", "mean(b + v)",
	"sum(x / b)",
	"sum(x * a) * c", "sum(v) where x > 1", "mean(x * v) where v < 1", "sum(bf16(x) * v)", "sum(v) * c * a",
	"mean(b * b + c + v)", "sum(v * b)", "sum(x * len(v))", "mean(log(softmax(matmul(x, w))) * v)",
	"sum(x + v + b + c + a)",
}

// TestGrad: the derivatives of all operations are central differences, in float64.
func TestGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for _, loss := range gradLosses {
		in := gradInputs(r)
		for _, s := range gradSources {
			if s.Type != ir.F32 {
				continue
			}
			p, err := expr.Parse(fmt.Sprintf("l0 := %s; l = l0; g = grad(l0, %s)", loss, s.Name), gradSources...)
			if err != nil {
				if !strings.Contains(err.Error(), "does not depend on") {
					t.Errorf("%s by %s: %v", loss, s.Name, err)
				}
				continue
			}
			if off, g := gradError(p, s.Name, in); off > 1e-6 {
				t.Errorf("%s by %s: %v, %.3g from central differences\n%s", loss, s.Name, g, off, expr.Text(p))
			}
		}
	}
}

// randomGrad returns a random program with a loss l and its derivative g by the input of a name.
func randomGrad(r *rand.Rand) (p *expr.Program, name string) {
	p = expr.New()
	var pool []expr.Value
	inputs := map[string]expr.Value{}
	for _, s := range gradSources {
		shape := expr.Shape{Width: s.Width, Scalar: s.Scalar, One: s.Rows == 1}
		if s.Rows == 3 || s.Rows == 4 {
			shape.Rows = s.Rows
		}
		if s.Name == "t" || s.Name == "i" {
			continue
		}
		inputs[s.Name] = p.In(s.Name, s.Type, shape)
		if shape.Rows == 0 {
			pool = append(pool, inputs[s.Name])
		}
	}
	pick := func() expr.Value { return pool[len(pool)-1-min(r.IntN(len(pool)), r.IntN(len(pool)))] }
	for range 3 + r.IntN(12) {
		a, b := pick(), pick()
		if !matches(a, b) {
			continue
		}
		v := a
		width, rows := a.Width()
		switch r.IntN(12) {
		case 0, 1:
			v = expr.Add(a, b)
		case 2, 3:
			v = expr.Mul(a, b)
		case 4:
			v = expr.Sub(a, b)
		case 5:
			v = expr.Div(a, expr.Add(expr.Abs(b), p.F32Const(1)))
		case 6:
			v = expr.Tanh(a)
		case 7:
			v = expr.Exp(expr.Neg(expr.Abs(a)))
		case 8:
			v = expr.Sqrt(expr.Add(expr.Mul(a, a), p.F32Const(0.5)))
		case 9:
			v = expr.Select(expr.Less(a, b), a, expr.Max(b, a))
		case 10:
			if rows {
				v = expr.ReduceRows(ir.Fold(r.IntN(3)), a)
			}
		case 11:
			switch {
			case rows && width == 4:
				v = expr.MatMul(a, inputs["w"])
			case rows && width == 3:
				v = expr.MatMul(a, inputs["z"])
			default:
				v = expr.SumColumns(a)
			}
		}
		pool = append(pool, v)
	}
	loss := pick()
	if width, rows := loss.Width(); rows || width > 1 {
		loss = expr.Mean(expr.Tanh(loss))
	}
	name = []string{"x", "v", "u", "w", "z", "b", "c", "a"}[r.IntN(8)]
	p.Out("l", loss)
	p.Out("g", expr.Grad(loss, inputs[name])[0])
	return p, name
}

// TestRandomGrad: the derivatives of random programs are central differences, in float64.
func TestRandomGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 9))
	for n := range testkit.Of(3000, 150) {
		p, name := randomGrad(r)
		if err := p.Err(); err != nil {
			if !strings.Contains(err.Error(), "does not depend on") {
				t.Fatalf("program %d: %v", n, err)
			}
			continue
		}
		if off, g := gradError(p, name, gradInputs(r)); off > 1e-6 {
			t.Errorf("program %d by %s: %v, %.3g from central differences\n%s", n, name, g, off, expr.Text(p))
		}
	}
}

// TestRandomGradKernels: random programs with derivatives give the bits of the interpreter, fused
// and not.
func TestRandomGradKernels(t *testing.T) {
	d, s := open(t)
	c := &checker{d: d, s: s}
	r := rand.New(rand.NewPCG(3, 9))
	for range testkit.Of(100, 6) {
		p, _ := randomGrad(r)
		if p.Err() != nil {
			continue
		}
		rows := []int64{1, 100, 128, 129, 1000}[r.IntN(5)]
		in, scalars := map[string]expr.Array{"": {Rows: rows}}, map[string]bool{"a": true}
		for _, src := range gradSources {
			n := max(src.Rows, 1)
			if src.Rows == gradRows {
				n = rows
			}
			in[src.Name] = expr.Array{Data: fill(r, src.Type, n*max(src.Width, 1)), Rows: n}
		}
		c.add(t, "random derivative", p, in, scalars, 4*r.Int64N(2))
	}
	c.run()
}

// TestGradCorners: derivatives where a function has a corner, and of inputs that stand for equal
// elements.
func TestGradCorners(t *testing.T) {
	in := map[string]expr.Array{
		"x": vector(-1, 0, 2, 2), "y": vector(-1, 3, 2, 0), "c": vector(5),
		"i": {Data: device.Bytes([]int32{-3, 1, 1, 9}), Rows: 4},
		"t": vector(1, 2, 3),
	}
	sources := []expr.Source{
		{Name: "x", Type: ir.F32, Rows: 4},
		{Name: "y", Type: ir.F32, Rows: 4},
		{Name: "c", Type: ir.F32, Rows: 1},
		{Name: "i", Type: ir.I32, Rows: 4},
		{Name: "t", Type: ir.F32, Rows: 3},
	}
	for text, want := range map[string][]float32{
		"grad(sum(relu(x)), x)":                 {0, 0, 1, 1},
		"grad(sum(abs(x)), x)":                  {-1, 0, 1, 1},
		"grad(sum(max(x, y)), x)":               {0, 0, 0, 1},
		"grad(sum(max(x, y)), y)":               {1, 1, 1, 0},
		"grad(sum(min(x, y)), x)":               {0, 1, 0, 0},
		"grad(max(x), x)":                       {0, 0, 0.5, 0.5},
		"grad(sum(x), x)":                       {1, 1, 1, 1},
		"grad(sum(x) * 3, x)":                   {3, 3, 3, 3},
		"grad(sum(x * c), c)":                   {3},
		"grad(sum(x + c), c)":                   {4},
		"grad(sum(gather(t, i) * y), t)":        {-1, 5, 0},
		"grad(sum(select(x > y, x, y) * y), x)": {0, 0, 0, 0},
		"s := sum(x) where y > 0; grad(s, x)":   {0, 1, 1, 0},
		"s := mean(x) where y > 0; grad(s, x)":  {0, 0.5, 0.5, 0},
	} {
		p, err := expr.Parse(text, sources...)
		must(t, err)
		out, err := expr.Interpret(t.Context(), p, in)
		must(t, err)
		if got := device.Of[float32](out["out"].Data); !slices.Equal(got, want) {
			t.Errorf("%s = %v, want %v", text, got, want)
		}
	}
}

// TestGradErrors: what has no derivative is refused with its name.
func TestGradErrors(t *testing.T) {
	for text, want := range map[string]string{
		"grad(sum(filter(v, v > 1)), v)":  "filter has no derivative",
		"grad(sum(cumsum(v)), v)":         "cumsum has no derivative",
		"grad(sum(f32(i32(v * 10))), v)":  "a cast to i32 has no derivative",
		"grad(sum(gather(t, i32(v))), v)": "the index of gather has no derivative",
		"grad(v, v)":                      "the loss is f32 with rows of 1: use one number of f32",
		"grad(count(v > 1), v)":           "the loss is u32",
		"grad(sum(v), i)":                 "use an input of f32",
		"grad(sum(v), v * 2)":             "use an input of f32",
		"grad(sum(v), u)":                 `the loss does not depend on input "u"`,
		"g := grad(sum(square(matmul(x, w))), w); grad(sum(g), w)": "x'g has no derivative",
		"g := grad(sum(square(matmul(x, w))), x); grad(sum(g), w)": "a derivative of a product has no derivative",
		"grad(sum(v))":         "grad has 2 arguments",
		"grad(sum(v), nobody)": "there is no array",
	} {
		_, err := expr.Parse(text, gradSources...)
		var syntax *expr.SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want a SyntaxError with %q", text, err, want)
		}
	}
	p, q := expr.New(), expr.New()
	expr.Grad(expr.Sum(p.In("x", ir.F32)), q.In("x", ir.F32))
	if err := p.Err(); !errors.Is(err, expr.ErrType) {
		t.Errorf("an input of another program: %v", err)
	}
}
