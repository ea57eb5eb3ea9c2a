package expr

import (
	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
)

// MaxChain is the maximum of factors of a chain.
const MaxChain = 64

// Expect sets the expected number of rows of the free length, for choices that depend on it. Any
// length can be run.
func (p *Program) Expect(rows int64) { p.expected = rows }

// Chain returns the product of matrices in the order of the least predicted time, for the rows that
// Expect says. The order of the factors stays; which neighbours are multiplied first is free, and
// changes the last bits. The rates are plan.Default on every device, so that a program does not
// depend on the device.
func Chain(values ...Value) Value {
	if len(values) == 0 {
		return Value{}
	}
	p, fits := ok(values...)
	if !fits {
		return Value{p: p}
	}
	if len(values) > MaxChain {
		return p.fail(ErrLimit, "a chain of %d matrices, at most %d", len(values), MaxChain)
	}
	dims := []int64{p.expected}
	if dims[0] <= 0 {
		dims[0] = plan.Guess
	}
	if fixed := p.g.Symbols[values[0].n.Lead].Fixed; fixed >= 0 {
		dims[0] = fixed
	}
	for _, v := range values {
		dims = append(dims, v.n.Width)
	}
	split := plan.Order(plan.Default, dims)
	var product func(from, to int) Value
	product = func(from, to int) Value {
		if from == to {
			return values[from]
		}
		k := split[from][to]
		return MatMul(product(from, k), product(k+1, to))
	}
	return product(0, len(values)-1)
}
