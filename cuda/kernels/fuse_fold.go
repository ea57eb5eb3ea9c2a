package kernels

// What fuse_fold finds, as bits.
const (
	FoldValue    = 1 << iota // a sum of a rank, or of all, is not finite
	FoldOverflow             // agents or weights of a node do not fit 64 bits
)

// FuseFoldArgs are the arguments of fuse_fold: the nodes of all ranks are added up in float64, in
// the order of the ranks, and rounded once. A part is float[nodes][dim] and, behind it,
// uint64[nodes][FuseTallyPair]. Any launch shape gives the same bits.
//
//   - parts: [ranks], each of so many vectors of 16 bytes
//   - vectors: of a part: nodes * (dim/4 + 1)
//   - dim: a multiple of 8 up to 512
//   - sums: out float[nodes][dim]
//   - tallies: out uint64[nodes][FuseTallyPair]
//   - faults: in and out uint32: bits are added

func init() { register(Source{Name: "fuse_fold", File: "fuse_fold.cu"}) }
