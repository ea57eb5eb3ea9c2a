package devicetest

import (
	"math"
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func init() { cases["fuse_fold"] = testCase{compiled: true, make: foldCase} }

// foldCase is the nodes of a few ranks, about size values in all. Sums have every magnitude; some
// are finite in each rank and infinite together. A few launches have an infinite or a denormal sum,
// or a weight whose total does not fit.
func foldCase(r *rand.Rand, size int) []param {
	dim := 8 * (1 + r.IntN(1<<r.IntN(7)))
	ranks, nodes := 1+r.IntN(8), 1+size/(8*dim)
	var parts []byte
	for range ranks {
		sums, tallies := make([]float32, nodes*dim), make([]uint64, kernels.FuseTallyPair*nodes)
		for i := range sums {
			sums[i] = float32(math.Ldexp(r.NormFloat64(), r.IntN(120)-60))
		}
		for i := range tallies {
			tallies[i] = r.Uint64() >> (8 + r.IntN(56))
		}
		switch r.IntN(20) {
		case 0:
			sums[r.IntN(len(sums))] = math.MaxFloat32
		case 1:
			sums[r.IntN(len(sums))] = float32(math.Inf(1)) // of one sign: the bits of a NaN are the device's
		case 2:
			sums[r.IntN(len(sums))] = math.SmallestNonzeroFloat32
		case 3:
			tallies[r.IntN(len(tallies))] = math.MaxUint64
		}
		parts = append(append(parts, device.Bytes(sums)...), device.Bytes(tallies)...)
	}
	count := func(v int) param { return param{arg: device.Uint32(uint32(v))} }
	return []param{
		input(parts), count(nodes * (dim/4 + 1)), count(ranks), count(nodes), count(dim),
		output(4 * nodes * dim), output(8 * kernels.FuseTallyPair * nodes),
		{mem: make([]byte, 4), out: true},
	}
}
