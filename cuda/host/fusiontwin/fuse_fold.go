package fusiontwin

import (
	"math/bits"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func init() { twin.Raw("fuse_fold", fuseFold) }

// fuseFold is the twin of fuse_fold.cu: it adds the nodes of several ranks, in float64 and in the
// order of the ranks. Sums that are not finite and tallies that overflow are reported in faults.
func fuseFold(b *twin.Block) {
	vectors, ranks, dim := uint64(b.Uint32(1)), uint64(b.Uint32(2)), uint64(b.Uint32(4))
	values, words := twin.Mem[float32](b, 0), twin.Mem[uint64](b, 0)
	sums, tallies, faults := twin.Mem[float32](b, 5), twin.Mem[uint64](b, 6), twin.Mem[uint32](b, 7)
	nodes := uint64(b.Uint32(3))
	found := uint32(0)
	lo, hi := b.Part(nodes)
	// The sums of a rank come first in its vectors, then two words of tally for each node.
	for d := lo * dim; d < hi*dim; d++ {
		sum := 0.0
		for r := range ranks {
			v := values[r*4*vectors+d]
			if !WholeRow([]float32{v}) {
				found |= kernels.FoldValue
			}
			sum += float64(v)
		}
		sums[d] = float32(sum)
		if !WholeRow(sums[d : d+1]) {
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
