package twins

import (
	"math/bits"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func init() { Register("fuse_fold", fuseFold) }

// fuseFold is the twin of fuse_fold.cu: it adds the nodes of several ranks, in float64 and in the
// order of the ranks. Sums that are not finite and tallies that overflow are reported in faults.
func fuseFold(b *Block, a *kernels.FuseFoldBound) {
	vectors, ranks, dim, nodes := uint64(a.Vectors), uint64(a.Ranks), uint64(a.Dim), uint64(a.Nodes)
	values, words := device.Of[float32](a.Parts), device.Of[uint64](a.Parts)
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
		a.Sums[d] = float32(sum)
		if !WholeRow(a.Sums[d : d+1]) {
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
		a.Tallies[i] = sum
	}
	if found != 0 {
		atomic.OrUint32(&a.Faults[0], found)
	}
}
