package host

import (
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func init() {
	twins.Register("gemm_f32", gemm(loadF32, storeF32, loadF32))
	twins.Register("gemm_bf16", gemm(loadBF16, storeBF16, loadBF16))
	twins.Register("gemm_bf16_f32", gemm(loadBF16, storeF32, loadF32))
}

// Conversions of elements to float32 and back, for gemm.
func loadF32(v float32) float32  { return v }
func storeF32(v float32) float32 { return v }
func loadBF16(v uint16) float32  { return device.FromBF16(v) }
func storeBF16(v float32) uint16 { return device.ToBF16(v) }

// gemm returns the twin of the kernels of gemm.cuh for element types: each block computes its share
// of the elements, in the plainest way. Stream.Gemm uses gonum instead.
func gemm[E, O uint16 | float32](get func(E) float32, put func(float32) O,
	old func(O) float32,
) func(*twins.Block, *kernels.ProductBound) {
	return func(blk *twins.Block, p *kernels.ProductBound) {
		a, b, c, n := device.Of[E](p.A), device.Of[E](p.B), device.Of[O](p.C), uint64(p.N)
		// Element e of the result is in row e/n and column e%n, whatever the strides are.
		lo, hi := blk.Part(uint64(p.M) * n)
		for e := lo; e < hi; e++ {
			i, j := e/n, e%n
			var sum float32
			for l := range uint64(p.K) {
				sum += get(a[i*p.ARow+l*p.ACol]) * get(b[l*p.BRow+j*p.BCol])
			}
			sum *= p.Alpha
			at := i*p.CRow + j
			if p.Beta != 0 { // with 0, what c has is not read: it may be anything
				sum += p.Beta * old(c[at])
			}
			c[at] = put(sum)
		}
	}
}

// Gemm queues a product, which gonum computes on all cores. Matrices of bf16 are widened to float32
// for it, in memory of the process that does not count against the limit, and the result is rounded
// once. A GPU adds in another order, so results are equal only within rounding.
func (s *stream) Gemm(alpha float32, a, b device.Matrix, beta float32, c device.Matrix) error {
	m, n, k, err := device.CheckGemm(a, b, c)
	if err != nil {
		return s.note(err)
	}
	var mem [3][]byte
	for i, x := range []device.Matrix{a, b, c} {
		if mem[i], err = s.dev.span(x.Buffer, x.Off, x.Bytes(), false); err != nil {
			return s.note(fmt.Errorf("gemm: %w", err))
		}
	}
	if m == 0 || n == 0 { // no element
		return nil
	}
	return s.note(s.put("gemm", func() *failure {
		out := wide(c, mem[2], beta != 0)
		if k == 0 || alpha == 0 { // gonum refuses empty factors
			scale(out, beta)
		} else {
			blas32.Gemm(transpose(a), transpose(b), alpha, wide(a, mem[0], true), wide(b, mem[1], true), beta, out)
		}
		if c.Elem == device.BF16 {
			narrow(c, mem[2], out)
		}
		return nil
	}, a.Buffer, b.Buffer, c.Buffer))
}

// transpose returns how gonum has to read a matrix.
func transpose(m device.Matrix) blas.Transpose {
	if m.Transposed {
		return blas.Trans
	}
	return blas.NoTrans
}

// wide returns a matrix in float32: the memory itself, or for bf16 a copy. The copy has the content
// of the matrix only if content is set.
func wide(m device.Matrix, mem []byte, content bool) blas32.General {
	g := blas32.General{Rows: m.Rows, Cols: m.Cols, Stride: max(m.Step(), 1)}
	if m.Elem == device.F32 {
		g.Data = device.Of[float32](mem)
		return g
	}
	from := device.Of[uint16](mem)
	g.Data = make([]float32, len(from))
	if content {
		for i, v := range from {
			g.Data[i] = device.FromBF16(v)
		}
	}
	return g
}

// narrow rounds the elements of from into a matrix of bf16. It leaves memory between the rows as it
// is.
func narrow(m device.Matrix, mem []byte, from blas32.General) {
	to := device.Of[uint16](mem)
	for i := range m.Rows {
		for j := range m.Cols {
			to[i*from.Stride+j] = device.ToBF16(from.Data[i*from.Stride+j])
		}
	}
}

// scale multiplies the elements by beta; a beta of 0 also replaces NaN and infinities.
func scale(g blas32.General, beta float32) {
	for i := range g.Rows {
		row := g.Data[i*g.Stride : i*g.Stride+g.Cols]
		for j := range row {
			if beta == 0 {
				row[j] = 0
			} else {
				row[j] *= beta
			}
		}
	}
}
