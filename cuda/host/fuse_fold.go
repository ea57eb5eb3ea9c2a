package host

import (
	"math/bits"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func init() { register("fuse_fold", fuseFold) }

// fuseFold is the twin of fuse_fold.cu.
func fuseFold(b *Block) {
	vectors, ranks, dim := uint64(b.Uint32(1)), uint64(b.Uint32(2)), uint64(b.Uint32(4))
	values, words := Mem[float32](b, 0), Mem[uint64](b, 0)
	sums, tallies, faults := Mem[float32](b, 5), Mem[uint64](b, 6), Mem[uint32](b, 7)
	nodes := uint64(b.Uint32(3))
	found := uint32(0)
	lo, hi := b.Part(nodes)
	for d := lo * dim; d < hi*dim; d++ {
		sum := 0.0
		for r := range ranks {
			v := values[r*4*vectors+d]
			if !wholeRow([]float32{v}) {
				found |= kernels.FoldValue
			}
			sum += float64(v)
		}
		sums[d] = float32(sum)
		if !wholeRow(sums[d : d+1]) {
			found |= kernels.FoldValue
		}
	}
	for i := kernels.FuseTallyPair * lo; i < kernels.FuseTallyPair*hi; i++ {
		sum := uint64(0)
		for r := range ranks {
			var carry uint64
			if sum, carry = bits.Add64(sum, words[r*2*vectors+nodes*dim/2+i], 0); carry != 0 {
				found |= kernels.FoldOverflow
			}
		}
		tallies[i] = sum
	}
	if found != 0 {
		atomic.OrUint32(&faults[0], found)
	}
}
