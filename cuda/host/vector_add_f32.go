package host

func init() { register("vector_add_f32", vectorAddF32) }

// vectorAddF32 is the twin of vector_add_f32.cu.
func vectorAddF32(b *Block) {
	lo, hi := b.Part(b.Uint64(3))
	x, y, z := Mem[float32](b, 0)[lo:hi], Mem[float32](b, 1)[lo:hi], Mem[float32](b, 2)[lo:hi]
	for i := range z {
		z[i] = x[i] + y[i]
	}
}
