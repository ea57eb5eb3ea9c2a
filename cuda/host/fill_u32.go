package host

import "github.com/exoswarm/exoswarm/cuda/host/twin"

func init() { twin.Raw("fill_u32", fillU32) }

// fillU32 is the twin of fill_u32.cu.
func fillU32(b *twin.Block) {
	out, value := twin.Mem[uint32](b, 0), b.Uint32(2)
	lo, hi := b.Part(b.Uint64(1))
	part := out[lo:hi]
	for i := range part {
		part[i] = value
	}
}
