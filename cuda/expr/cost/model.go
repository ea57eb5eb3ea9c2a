// Package cost predicts the time of kernels from the rates of a device. Predictions decide what is
// fused and in which order matrices are multiplied; no result depends on them but the last bits of
// chains.
package cost

import "math"

// Model has the rates that predictions are made of. Times are in seconds, rates in bytes or
// operations a second. Every rate is positive. A Model is not changed after it is given to Compile.
type Model struct {
	Launch float64 // of one kernel, when others are before it in the stream
	Read   float64 // of memory that is only read
	Copy   float64 // of memory that is read and written
	Cache  float64 // of memory that the last-level cache holds
	L2     float64 // bytes of that cache
	Ops    float64 // float operations
	Gemm   float64 // float operations of a large product of f32
}

// Default has the rates of one H200. A device that is measured has its own.
var Default = Model{
	Launch: 2.5e-6, Read: 4.2e12, Copy: 4.0e12, Cache: 8e12, L2: 50e6, Ops: 18e12, Gemm: 45e12,
}

// Guess is the number of rows that plans are made for when the length of a filter is not known.
const Guess = 1 << 20

// Order returns for each first and last factor of a chain after which factor it is split for the
// least predicted time: split[i][j] is the last factor of the left half of i..j. Factor i has
// dims[i] rows and dims[i+1] columns. It takes the cube of the number of factors.
func Order(m Model, dims []int64) [][]int {
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
				t := times[i][k] + times[k+1][j] + m.Product(dims[i], dims[k+1], dims[j+1])
				if t < times[i][j] {
					times[i][j], split[i][j] = t, k
				}
			}
		}
	}
	return split
}

// Product predicts the time of the product of a matrix of rows x inner and one of inner x columns.
// The library computes tiles of 64 x 64 or more, by few blocks if the result is small, which then
// share the inner size.
func (m *Model) Product(rows, inner, columns int64) float64 {
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
