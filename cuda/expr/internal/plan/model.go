package plan

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
	// Library is the time of a product of the library without its arithmetic, on host and device.
	Library float64
}

// Default has the rates of one H200, fitted to 361 kernels of 200 random programs and 648 products
// of the library (TestModel, TestProductTimes). Arrays in the cache are not read faster: such
// launches are too short to have enough loads in flight.
var Default = Model{
	Launch: 5e-6, Read: 4.2e12, Copy: 4.0e12, Cache: 3.8e12, L2: 50e6, Ops: 18e12, Gemm: 48e12, Library: 8e-6,
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

// What the library does with the inner size: a block has at least innerPart of it, and the sums of
// blocks cost innerTime for each element up to innerMost.
const (
	innerPart = 128
	innerMost = 512
	innerTime = 12e-9
)

// smallSide is the maximum of inner elements and columns of a product that is a kernel of package
// codegen.
const smallSide = 64

// Product predicts the time of the product of a matrix of rows x inner and one of inner x columns.
// Small ones are kernels in which a thread has a row. The library computes tiles of 64 x 64, and
// shares the inner size of few tiles between blocks. A product with a vector is bound by memory.
func (m *Model) Product(rows, inner, columns int64) float64 {
	tile := func(v int64) float64 { return math.Ceil(float64(v) / 64) }
	bytes := 4 * (float64(rows)*float64(inner) + float64(inner)*float64(columns) + float64(rows)*float64(columns))
	memory := bytes / (0.75 * m.Read)
	if inner <= smallSide && columns <= smallSide {
		return m.Launch + 2e-9*float64(inner*columns) + memory
	}
	if rows == 1 || columns == 1 {
		return m.Library + memory
	}
	tiles := tile(rows) * tile(columns)
	ops := 2 * tiles * 64 * 64 * float64(inner)
	busy := math.Min(1, tiles*math.Max(1, float64(inner/innerPart))/132) // of 132 multiprocessors
	// Of products that take the same time by themselves, the one of fewer operations leaves more of
	// the device to others.
	return m.Library + math.Max(ops/(m.Gemm*busy), memory) + innerTime*float64(min(inner, innerMost)) + ops/(10*m.Gemm)
}
