package host

import "github.com/exoswarm/exoswarm/cuda/host/twin"

func init() { twin.Raw("vector_add_f32", vectorAddF32) }

// vectorAddF32 is the twin of vector_add_f32.cu.
func vectorAddF32(b *twin.Block) {
	lo, hi := b.Part(b.Uint64(3))
	x, y, z := twin.Mem[float32](b, 0)[lo:hi], twin.Mem[float32](b, 1)[lo:hi], twin.Mem[float32](b, 2)[lo:hi]
	for i := range z {
		z[i] = x[i] + y[i]
	}
}
