package expr_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// autoencoder is a training step of rows of 32 through 8, without the change of the weights.
const autoencoder = `
h := tanh(matmul(x, w1) + b1); y := matmul(h, w2) + b2; e := y - x;
loss := sum(col_mean(e * e)) / 32;
l = loss; g1 = grad(loss, w1); g2 = grad(loss, w2); c1 = grad(loss, b1); c2 = grad(loss, b2)`

// sumSources are the arrays of texts with sums of rows.
func sumSources(n int64) []expr.Source {
	return []expr.Source{
		{Name: "x", Type: ir.F32, Rows: n, Width: 32},
		{Name: "w1", Type: ir.F32, Rows: 32, Width: 8},
		{Name: "b1", Type: ir.F32, Rows: 1, Width: 8},
		{Name: "w2", Type: ir.F32, Rows: 8, Width: 32},
		{Name: "b2", Type: ir.F32, Rows: 1, Width: 32},
		{Name: "v", Type: ir.F32, Rows: n},
		{Name: "u", Type: ir.F32, Rows: n},
		{Name: "i", Type: ir.I32, Rows: n},
		{Name: "k", Type: ir.U32, Rows: n},
		{Name: "table", Type: ir.F32, Rows: 300},
		{Name: "p", Type: ir.F32, Rows: n, Width: 5},
		{Name: "q5", Type: ir.F32, Rows: 5, Width: 3},
		{Name: "o", Type: ir.F32, Rows: n, Width: 70},
		{Name: "r", Type: ir.F32, Rows: n, Width: 64},
		{Name: "w64", Type: ir.F32, Rows: 64, Width: 64},
		{Name: "one", Type: ir.F32, Rows: 1, Width: 1},
	}
}

// TestSums: sums of rows give the bits of the interpreter, at lengths around their runs.
func TestSums(t *testing.T) {
	d, s := open(t)
	c := &checker{d: d, s: s}
	r := rand.New(rand.NewPCG(5, 6))
	for i, text := range []string{
		autoencoder,
		"col_sum(x); s = col_sum(x * x + b2)",
		"col_sum(o); m = col_mean(exp(o) * v)",
		"l := sum(matmul(p, q5) * v); g = grad(l, q5)",
		"l := mean(square(matmul(r, w64))); g = grad(l, w64)",
		"l := sum(gather(table, i) * v); g = grad(l, table)",
		"l := sum(square(gather(table, k % 7)) * v); g = grad(l, table)",
		"l := mean(square(v * one + one - u)); g = grad(l, one)",
		"l := sum(relu(matmul(x, w1)) * v) + sum(o); g = grad(l, w1); h = grad(l, v); a = grad(l, o)",
		"l := mean(square(matmul(softmax(matmul(x, w1) + b1), w2) - x)); g = grad(l, w1); h = grad(l, b1)",
	} {
		for j, n := range []int64{0, 1, 3, 127, 128, 129, 1000, 16384, 16385, 20000} {
			if *deviceName == "emulated" && (i+j)%testkit.Of(3, 12) != 0 || n > 5000 && i == 4 {
				continue // each launch is a process
			}
			p, err := expr.Parse(text, sumSources(n)...)
			must(t, err)
			in := map[string]expr.Array{"": {Rows: n}}
			for _, src := range sumSources(n) {
				if strings.Contains(text, src.Name) {
					in[src.Name] = expr.Array{Data: fill(r, src.Type, src.Rows*max(src.Width, 1)), Rows: src.Rows}
				}
			}
			c.add(t, fmt.Sprintf("%s of %d", text, n), p, in, nil, n%2*4)
		}
	}
	c.run()
}

// TestFusedStep: forward pass, backward pass and loss of an autoencoder are one kernel, and the
// scalars behind it another.
func TestFusedStep(t *testing.T) {
	d, _ := open(t)
	p, err := expr.Parse(autoencoder, sumSources(1<<24)...)
	must(t, err)
	k, err := expr.Compile(d, p, expr.Options{})
	must(t, err)
	if got := k.Kernels(); got != 2 && !k.Interpreted() {
		t.Errorf("%d kernels, want 2:\n%s\n%s", got, k.Explain(), expr.Text(p))
	}
}
