package host

import "github.com/exoswarm/exoswarm/cuda/host/twin"

// The kernel reciprocal_f32 tests 1/x on a device to the bit.
func init() {
	twin.Raw("reciprocal_f32", func(b *twin.Block) {
		x, out := twin.Mem[float32](b, 0), twin.Mem[float32](b, 1)
		first, end := b.Part(b.Uint64(2))
		for i := first; i < end; i++ {
			out[i] = 1 / x[i]
		}
	})
}
