package devicetest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// gemmSizes are m, n and k of products: around a tile of 128 and its slices of 8, thin matrices,
// and empty ones.
var gemmSizes = [][3]int{
	{1, 1, 1},
	{2, 3, 0},
	{0, 4, 5},
	{7, 129, 5},
	{128, 128, 64},
	{130, 257, 17},
	{300, 5, 70},
	{64, 64, 513},
}

// testGemm multiplies matrices of all forms and compares with a product in float64. A form is a
// combination of element types, transpositions and strides. Each product runs twice, the second
// time with its own result as the third operand. A captured product must give the same result in a
// graph, on another stream, and if C has NaN that beta 0 must not read.
func testGemm(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	r := rand.New(rand.NewPCG(12, 13))
	for i, size := range gemmSizes {
		for form := range 24 {
			if !testkit.Long() && (form+i)%3 > 0 || slow(d) && (form+i)%9 > 0 {
				continue
			}
			factors, result := device.F32, device.F32
			if form >= 8 {
				factors = device.BF16
			}
			if form >= 8 && form < 16 {
				result = device.BF16
			}
			p := newProduct(t, d, r, size, factors, result, form&1 != 0, form&2 != 0, form&4 != 0)
			for i, scale := range [][2]float32{{1, 0}, {-0.5, 2}} {
				if err := s.Gemm(scale[0], p.a.m, p.b.m, scale[1], p.c.m); err != nil {
					t.Fatalf("%v, form %d: %v", size, form, err)
				}
				launches.Wait(t, s)
				if err := p.compare(t, scale[0], scale[1]); err != nil {
					t.Fatalf("%v, form %d, scale %d: %v", size, form, i, err)
				}
			}
			for _, x := range []operand{p.a, p.b, p.c} {
				if err := x.m.Buffer.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// In a graph, on the stream of the capture and on another, at once with other products.
	p := newProduct(t, d, r, [3]int{200, 130, 64}, device.F32, device.F32, false, false, false)
	g, err := s.Capture(func() error { return s.Gemm(1, p.a.m, p.b.m, 0, p.c.m) })
	if err != nil {
		t.Fatal(err)
	}
	other := launches.NewStream(t, d)
	if g.Len() != 1 {
		t.Errorf("%d operations", g.Len())
	}
	if err := errors.Join(s.Replay(g), s.Gemm(1, p.a.m, p.b.m, 0, p.c.m)); err != nil {
		t.Fatal(err)
	}
	launches.Wait(t, s)
	if err := p.c.m.Buffer.Fill(0, p.c.m.Bytes(), 0x7F); err != nil { // NaN, which beta = 0 does not read
		t.Fatal(err)
	}
	if err := other.Replay(g); err != nil {
		t.Fatal(err)
	}
	launches.Wait(t, other)
	if err := p.compare(t, 1, 0); err != nil {
		t.Error(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	for _, x := range []operand{p.a, p.b, p.c} {
		if err := x.m.Buffer.Close(); err != nil {
			t.Error(err)
		}
	}
}

// operand is a matrix on the device, and its elements in the host's memory in the same order.
type operand struct {
	m      device.Matrix
	values []float64
}

// product is C = alpha * A * B + beta * C with size m, n, k.
type product struct {
	a, b, c operand
	size    [3]int
}

// newProduct makes random operands on the device. ta and tb store A and B transposed. With wide the
// rows are further apart than their length and begin at an offset; the gaps are poison.
func newProduct(t *testing.T, d device.Device, r *rand.Rand, size [3]int, factors, result device.Elem, ta, tb,
	wide bool,
) *product {
	t.Helper()
	make2 := func(rows, cols int, e device.Elem, transposed bool) operand {
		if transposed {
			rows, cols = cols, rows
		}
		m := device.Matrix{Rows: rows, Cols: cols, Elem: e, Transposed: transposed}
		if wide {
			m.Stride, m.Off = cols+8, 48
		}
		x := operand{m: m, values: make([]float64, rows*cols)}
		mem := bytes.Repeat([]byte{launches.Poison}, int(m.Off+m.Bytes()+64))
		for i := range x.values {
			v := float32(r.NormFloat64())
			if e == device.BF16 {
				v = device.FromBF16(device.ToBF16(v))
			}
			x.values[i] = float64(v)
			x.put(mem, i, v)
		}
		b, err := d.Alloc(int64(len(mem)), "matrix")
		if err != nil {
			t.Fatal(err)
		}
		launches.Write(t, b, 0, mem)
		x.m.Buffer = b
		return x
	}
	return &product{
		a: make2(size[0], size[2], factors, ta), b: make2(size[2], size[1], factors, tb),
		c: make2(size[0], size[1], result, false), size: size,
	}
}

func (x operand) at(i int) int {
	return int(x.m.Off) + (i/x.m.Cols*x.m.Step()+i%x.m.Cols)*int(x.m.Elem.Bytes())
}

func (x operand) put(mem []byte, i int, v float32) {
	if x.m.Elem == device.BF16 {
		device.Of[uint16](mem[x.at(i):])[0] = device.ToBF16(v)
	} else {
		device.Of[float32](mem[x.at(i):])[0] = v
	}
}

func (x operand) get(mem []byte, i int) float64 {
	if x.m.Elem == device.BF16 {
		return float64(device.FromBF16(device.Of[uint16](mem[x.at(i):])[0]))
	}
	return float64(device.Of[float32](mem[x.at(i):])[0])
}

// value returns an element of the matrix as the product sees it, after the transposition.
func (x operand) value(i, j int) float64 {
	if x.m.Transposed {
		i, j = j, i
	}
	return x.values[i*x.m.Cols+j]
}

// compare computes the product in float64 and compares the result of the device, element by
// element. It keeps that result as the next content of C. The bound follows from k roundings of
// fp32 and one of the type of the result. Bytes between and around the elements must be unchanged.
func (p *product) compare(t *testing.T, alpha, beta float32) error {
	t.Helper()
	mem := launches.Download(t, p.c.m.Buffer)
	for i := range p.size[0] {
		for j := range p.size[1] {
			var sum, size float64
			for l := range p.size[2] {
				v := p.a.value(i, l) * p.b.value(l, j)
				sum, size = sum+v, size+math.Abs(v)
			}
			at := i*p.c.m.Cols + j
			old := float64(beta) * p.c.values[at]
			want := float64(alpha)*sum + old
			eps := 0x1p-24
			if p.a.m.Elem == device.BF16 { // tensor cores cut off where others round
				eps = 0x1p-22
			}
			bound := (float64(p.size[2]) + 4) * eps * (math.Abs(float64(alpha))*size + math.Abs(old))
			if p.c.m.Elem == device.BF16 {
				bound += math.Abs(want) * 0x1p-8
			}
			got := p.c.get(mem, at)
			if !(math.Abs(got-want) <= bound) {
				return fmt.Errorf("element %d, %d is %v, want %v within %g", i, j, got, want, bound)
			}
			p.c.values[at] = got
			for b := range int(p.c.m.Elem.Bytes()) { // what is left in the end stands around the elements
				mem[p.c.at(at)+b] = launches.Poison
			}
		}
	}
	if n := launches.CountOther(mem); n != 0 {
		return fmt.Errorf("%d bytes around the result were overwritten", n)
	}
	return nil
}

// testGemmArguments: a product whose shapes, types, strides or memory do not fit is
// device.ErrInvalidArgument and writes nothing. The result and a factor may share a buffer, but not
// overlap it.
func testGemmArguments(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	buffers := []device.Buffer{launches.Alloc(t, d, 4096), launches.Alloc(t, d, 4096), launches.Alloc(t, d, 4096)}
	matrix := func(i int) device.Matrix {
		return device.Matrix{Buffer: buffers[i], Rows: 8, Cols: 8, Elem: device.F32}
	}
	closed, err := d.Alloc(4096, "devicetest")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	foreign := launches.Alloc(t, launches.Open(t, open), 4096)
	for what, change := range map[string]func(a, b, c *device.Matrix){
		"no memory":           func(a, _, _ *device.Matrix) { a.Buffer = nil },
		"no type":             func(a, _, _ *device.Matrix) { a.Elem = 0 },
		"mixed factors":       func(_, b, _ *device.Matrix) { b.Elem = device.BF16 },
		"a narrower result":   func(_, _, c *device.Matrix) { c.Elem = device.BF16 },
		"sizes":               func(a, _, _ *device.Matrix) { a.Cols = 7 },
		"negative":            func(_, b, _ *device.Matrix) { b.Rows = -1 },
		"a short stride":      func(_, b, _ *device.Matrix) { b.Stride = 7 },
		"outside":             func(_, _, c *device.Matrix) { c.Off = 4096 - 16 },
		"a stride outside":    func(_, _, c *device.Matrix) { c.Stride = 1 << 20 },
		"before":              func(_, _, c *device.Matrix) { c.Off = -16 },
		"unaligned":           func(a, _, _ *device.Matrix) { a.Off = 4 },
		"a huge matrix":       func(a, _, _ *device.Matrix) { a.Rows, a.Stride = math.MaxInt32, math.MaxInt32 },
		"a transposed result": func(_, _, c *device.Matrix) { c.Transposed = true },
		"an overlap":          func(a, _, c *device.Matrix) { c.Buffer, c.Off = a.Buffer, 240 },
		"another device":      func(a, _, _ *device.Matrix) { a.Buffer = foreign },
	} {
		a, b, c := matrix(0), matrix(1), matrix(2)
		change(&a, &b, &c)
		launches.Want(t, what, s.Gemm(1, a, b, 0, c), device.ErrInvalidArgument)
	}
	a, b, c := matrix(0), matrix(1), matrix(2)
	b.Buffer = closed
	launches.Want(t, "closed memory", s.Gemm(1, a, b, 0, c), device.ErrClosed)
	c.Buffer, c.Off = a.Buffer, 1024 // next to it, in one buffer
	if err := s.Gemm(1, a, matrix(1), 0, c); err != nil {
		t.Error(err)
	}
	launches.Wait(t, s)
	if n := launches.CountOther(launches.Download(t, buffers[2])); n != 0 {
		t.Errorf("refused calls changed %d bytes", n)
	}
}
