package expr_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// chain returns the product of matrices with dims[i] rows and dims[i+1] columns, and the matrices.
func chain(r *rand.Rand, dims []int64) (*expr.Program, map[string]expr.Array) {
	p, in := expr.New(), map[string]expr.Array{}
	var factors []expr.Value
	for i := range len(dims) - 1 {
		name := fmt.Sprintf("m%d", i)
		factors = append(factors, p.In(name, ir.F32, expr.Shape{Rows: dims[i], Width: dims[i+1]}))
		data := make([]byte, 0, 4*dims[i]*dims[i+1])
		for range dims[i] * dims[i+1] {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(r.Float32()-0.5))
		}
		in[name] = expr.Array{Data: data, Rows: dims[i]}
	}
	p.Out("c", expr.Chain(factors...))
	return p, in
}

// product returns the product of the matrices of a chain from the left, in float64.
func product(dims []int64, in map[string]expr.Array) []float64 {
	element := func(m, i int) float64 {
		bits := binary.LittleEndian.Uint32(in[fmt.Sprintf("m%d", m)].Data[4*i:])
		return float64(math.Float32frombits(bits))
	}
	left := make([]float64, dims[0]*dims[1])
	for i := range left {
		left[i] = element(0, i)
	}
	for m := 1; m < len(dims)-1; m++ {
		inner, columns := int(dims[m]), int(dims[m+1])
		next := make([]float64, int(dims[0])*columns)
		for i := range int(dims[0]) {
			for k := range inner {
				for j := range columns {
					next[i*columns+j] += left[i*inner+k] * element(m, k*columns+j)
				}
			}
		}
		left = next
	}
	return left
}

// TestChains: chains of matrices of all sizes have kernels, and the product of float64. Products of
// at most 64 columns are kernels of this package, larger products are kernels of the device's
// library.
func TestChains(t *testing.T) {
	d, s := open(t)
	for i, dims := range [][]int64{
		{3, 5, 4},
		{64, 64, 64, 64},
		{65, 65, 65},
		{7, 300, 300, 2},
		{200, 70, 64, 130, 1},
		{1, 130, 1, 130, 1},
		{64, 64, 65, 64, 64},
		{30, 63, 2, 200, 2, 63},
		{2, 1, 1, 1, 2},
	} {
		p, in := chain(rand.New(rand.NewPCG(uint64(i), 5)), dims)
		want := product(dims, in)
		for _, unfused := range []bool{false, true} {
			k, err := expr.Compile(d, p, expr.Options{Unfused: unfused})
			must(t, err)
			out, err := k.Run(t.Context(), s, upload(t, d, in, nil, int64(i%2*4)), nil)
			must(t, err)
			data := download(t, p, s, out)["c"]
			if len(data) != 4*len(want) {
				t.Fatalf("%v: %d bytes, want %d elements", dims, len(data), len(want))
			}
			var off, norm float64
			for j, w := range want {
				got := float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*j:])))
				off += (got - w) * (got - w)
				norm += w * w
			}
			if !(math.Sqrt(off/norm) < 1e-5) {
				t.Errorf("%v, unfused %v: %g from the product\n%s", dims, unfused, math.Sqrt(off/norm), k.Explain())
			}
			library := strings.Count(k.Explain(), ". product:")
			if most := largest(dims); (library > 0) != (most > 64) && len(dims) == 3 {
				t.Errorf("%v: %d products of the library\n%s", dims, library, k.Explain())
			}
		}
	}
}

func largest(dims []int64) (most int64) {
	for _, d := range dims[1:] {
		most = max(most, d)
	}
	return most
}

// TestLongestChain: a chain of MaxChain factors has a plan.
func TestLongestChain(t *testing.T) {
	d, _ := open(t)
	r := rand.New(rand.NewPCG(3, 4))
	dims := make([]int64, expr.MaxChain+1)
	for i := range dims {
		dims[i] = 1 + r.Int64N(100)
	}
	p, _ := chain(r, dims)
	if *deviceName != "emulated" {
		t.Skip("other devices compile the kernels")
	}
	_, err := expr.Compile(d, p, expr.Options{})
	must(t, err)
}

// TestRandomChains: random chains have plans, fused and not.
func TestRandomChains(t *testing.T) {
	if *deviceName != "emulated" {
		t.Skip("other devices compile the kernels")
	}
	d, _ := open(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		dims := make([]int64, 3+r.IntN(7))
		for i := range dims {
			dims[i] = []int64{1, 8, 63, 64, 65, 128, 1024}[r.IntN(7)]
		}
		p := expr.New()
		var factors []expr.Value
		for i := range len(dims) - 1 {
			shape := expr.Shape{Rows: dims[i], Width: dims[i+1]}
			factors = append(factors, p.In(fmt.Sprintf("m%d", i), ir.F32, shape))
		}
		p.Out("c", expr.Chain(factors...))
		for _, unfused := range []bool{false, true} {
			if _, err := expr.Compile(d, p, expr.Options{Unfused: unfused}); err != nil {
				t.Fatalf("%v, unfused %v: %v", dims, unfused, err)
			}
		}
	}
}
