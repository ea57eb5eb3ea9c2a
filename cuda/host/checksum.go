package host

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func init() { twins.Register("checksum", checksum) }

// checksum is the twin of checksum.cu: each block adds its share of the words. The sum does not
// depend on the order of blocks and words, but on the place of each word.
func checksum(b *twins.Block, a *kernels.ChecksumBound) {
	data, n, words := a.Data, a.N, device.Of[uint64](a.Data)
	var acc uint64
	lo, hi := b.Part(n / 8)
	for i, w := range words[lo:hi] {
		acc += checksumMix(w, lo+uint64(i))
	}
	if b.Index == 0 { // block 0 adds the last bytes and the length
		var tail uint64
		for i := n / 8 * 8; i < n; i++ {
			tail |= uint64(data[i]) << (8 * (i % 8))
		}
		if n%8 != 0 {
			acc += checksumMix(tail, n/8)
		}
		acc += checksumMix(n, ^uint64(0)-1)
	}
	atomic.AddUint64(&a.Sum[0], acc)
}

// checksumMix is the finalizer of SplitMix64 over a word and its position.
func checksumMix(word, i uint64) uint64 {
	z := word + (i+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
