package expr

import "math"

// MaxChain is the most factors of a chain.
const MaxChain = 64

// Expect says how many rows the free length will have, for choices that depend on it. Any length can
// be run.
func (p *Program) Expect(rows int64) { p.expected = rows }

// Chain returns the product of matrices in the order of the least predicted time. The order of the
// factors stays; which neighbours are multiplied first is free, and changes the last bits.
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
		dims[0] = guess
	}
	if fixed := p.symbols[values[0].n.lead].fixed; fixed >= 0 {
		dims[0] = fixed
	}
	for _, v := range values {
		dims = append(dims, v.n.width)
	}
	split := chainOrder(defaultModel, dims)
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

// chainOrder returns for each first and last factor of a chain after which factor it is split for the
// least predicted time. Factor i has dims[i] rows and dims[i+1] columns.
func chainOrder(m Model, dims []int64) [][]int {
	n := len(dims) - 1
	times, split := make([][]float64, n), make([][]int, n)
	for i := range n {
		times[i], split[i] = make([]float64, n), make([]int, n)
	}
	for size := 1; size < n; size++ {
		for i := 0; i+size < n; i++ {
			j := i + size
			times[i][j] = math.Inf(1)
			for k := i; k < j; k++ {
				t := times[i][k] + times[k+1][j] + m.product(dims[i], dims[k+1], dims[j+1])
				if t < times[i][j] {
					times[i][j], split[i][j] = t, k
				}
			}
		}
	}
	return split
}

// product predicts the time of a product of m x k and k x n. The library computes tiles of 64 x 64
// or more, by few blocks if the result is small, which then share the inner size.
func (m *Model) product(rows, inner, columns int64) float64 {
	tile := func(v int64) float64 { return math.Ceil(float64(v)/64) * 64 }
	ops := 2 * tile(rows) * float64(inner) * tile(columns)
	bytes := 4 * (float64(rows)*float64(inner) + float64(inner)*float64(columns) + float64(rows)*float64(columns))
	rate := m.Read
	if bytes < m.L2 {
		rate = m.Cache
	}
	// A product of few tiles does not use the whole device: a block has about 1/132 of it.
	busy := math.Min(1, tile(rows)/64*tile(columns)/64*math.Ceil(float64(inner)/1024)/132)
	return 2*m.Launch + math.Max(ops/(m.Gemm*busy), bytes/rate)
}
