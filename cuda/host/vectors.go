package host

import (
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// The twins of the kernels of a first example, and of reciprocal_f32, which tests 1/x on a device
// to the bit.
func init() {
	twins.Register("fill_u32", func(b *twins.Block, a *kernels.FillU32Bound) {
		lo, hi := b.Part(a.N)
		part := a.Out[lo:hi]
		for i := range part {
			part[i] = a.Value
		}
	})
	twins.Register("vector_add_f32", func(b *twins.Block, a *kernels.VectorAddF32Bound) {
		lo, hi := b.Part(a.N)
		x, y, z := a.A[lo:hi], a.B[lo:hi], a.C[lo:hi]
		for i := range z {
			z[i] = x[i] + y[i]
		}
	})
	twins.Register("reciprocal_f32", func(b *twins.Block, a *kernels.ReciprocalF32Bound) {
		first, end := b.Part(a.N)
		for i := first; i < end; i++ {
			a.Out[i] = 1 / a.X[i]
		}
	})
}
