package host

func init() { register("fill_u32", fillU32) }

// fillU32 is the twin of fill_u32.cu.
func fillU32(b *Block) {
	out, value := Mem[uint32](b, 0), b.Uint32(2)
	lo, hi := b.Part(b.Uint64(1))
	part := out[lo:hi]
	for i := range part {
		part[i] = value
	}
}
