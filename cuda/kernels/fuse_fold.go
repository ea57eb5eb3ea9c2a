package kernels

import "github.com/exoswarm/exoswarm/cuda/device"

// What fuse_fold finds, as bits.
const (
	FoldValue    = 1 << iota // a sum of a rank, or of all, is not finite
	FoldOverflow             // agents or weights of a node do not fit 64 bits
)

// FuseFoldParams is the signature of fuse_fold: the nodes of all ranks are added up in float64, in
// the order of the ranks, and rounded once. A part is float[nodes][dim] and, behind it,
// uint64[nodes][FuseTallyPair]. Any launch shape gives the same bits.
var FuseFoldParams = []device.Param{
	{Name: "parts", Kind: device.KindBuffer},   // [ranks], each of so many vectors of 16 bytes
	{Name: "vectors", Kind: device.KindUint32}, // of a part: nodes * (dim/4 + 1)
	{Name: "ranks", Kind: device.KindUint32},
	{Name: "nodes", Kind: device.KindUint32},
	{Name: "dim", Kind: device.KindUint32},     // a multiple of 8 up to 512
	{Name: "sums", Kind: device.KindBuffer},    // out float[nodes][dim]
	{Name: "tallies", Kind: device.KindBuffer}, // out uint64[nodes][FuseTallyPair]
	{Name: "faults", Kind: device.KindBuffer},  // in and out uint32: bits are added
}

func init() {
	register(Source{
		Name: "fuse_fold", File: "fuse_fold.cu", Text: func() string { return code("fuse_fold.cu") },
		Params: FuseFoldParams,
	})
}
