package launches

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// WeightedTally is one launch of a weighted tally kernel. The weights are in the slice of their
// kind.
type WeightedTally struct {
	Tally           // of the kernel that counts such ballots without weights
	Weighted string // the kernel of the launch
	Kind     int    // of the weights: kernels.WeightU8 and so on
	Bytes    []uint8
	Words    []uint32
	Floats   []float32
	// weight returns the weight of ballot i in fixed point, or that it is a bad one.
	weight  func(i int) (w uint64, bad bool)
	weights []byte // as the kernel gets them
}

// unweighted returns the kernel that counts the same ballots for as many candidates without
// weights.
func unweighted(kernel string) string {
	width, most := kernel[len("tally_weighted_"):len("tally_weighted_u8")], kernel[strings.LastIndex(kernel, "_"):]
	return "tally_" + width + most
}

// hostileFloats are weights whose conversion to fixed point is easily wrong.
var hostileFloats = []float32{
	0, float32(math.Copysign(0, -1)), 1, 0.5 / consensus.One, 1.5 / consensus.One, 2.5 / consensus.One,
	math.SmallestNonzeroFloat32,
	-math.SmallestNonzeroFloat32, -1, -1e-9, 65535, math.Nextafter32(65536, 0), 65536, math.Nextafter32(65536, 1e9),
	math.MaxFloat32,
	-math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	math.Float32frombits(0xFFC00001), 255, 256, 0.1,
	math.Nextafter32(128, 0), 128, math.Nextafter32(128, 256),
}

// smallFloat returns a random weight below 128: any, one between two numbers of fixed point, or the
// greatest.
func smallFloat(r *rand.Rand) float32 {
	switch r.IntN(4) {
	case 0:
		return math.Nextafter32(128, 0)
	case 1:
		return (float32(r.IntN(1<<22)) + 0.5) / consensus.One
	}
	return math.Float32frombits(r.Uint32N(math.Float32bits(128)))
}

// RandomWeighted returns a launch over n ballots with weights that are small, large, all equal or
// zero. Weights of floats have any bits, or any value below 128.
func RandomWeighted(r *rand.Rand, kernel string, n int) WeightedTally {
	t := WeightedTally{
		Tally: RandomTally(r, unweighted(kernel), n), Weighted: kernel,
		Kind: kernels.WeightedKernels()[kernel],
	}
	character := r.IntN(5)
	switch t.Kind {
	case kernels.WeightU8:
		t.Bytes = make([]uint8, n)
		for i := range t.Bytes {
			t.Bytes[i] = []uint8{uint8(r.Uint32()), 255, 1, uint8(r.IntN(3))}[character%4]
		}
		t.weights = device.Bytes(t.Bytes)
		t.weight = func(i int) (uint64, bool) { return uint64(t.Bytes[i]), false }
	case kernels.WeightU32:
		t.Words = make([]uint32, n)
		for i := range t.Words {
			t.Words[i] = []uint32{r.Uint32(), math.MaxUint32, 1, r.Uint32() >> r.IntN(32)}[character%4]
		}
		t.weights = device.Bytes(t.Words)
		t.weight = func(i int) (uint64, bool) { return uint64(t.Words[i]), false }
	default:
		t.Floats = make([]float32, n)
		for i := range t.Floats {
			t.Floats[i] = []float32{
				r.Float32(), r.Float32() * 65536, 1, math.Float32frombits(r.Uint32()),
				smallFloat(r),
			}[character]
			if character == 1 && r.IntN(10) == 0 {
				t.Floats[i] = hostileFloats[r.IntN(len(hostileFloats))]
			}
		}
		t.weights = device.Bytes(t.Floats)
		t.weight = func(i int) (uint64, bool) {
			w, err := consensus.Fixed(float64(t.Floats[i]))
			return uint64(w), err != nil
		}
	}
	return t
}

// weigh returns the weighted tally, counted in the plainest way. A bad weight counts as such, and
// its ballot does not count.
func (t *WeightedTally) weigh() consensus.Tally {
	sum := consensus.Tally{Counts: make([]uint64, t.Candidates)}
	all := byte(consensus.Abstain)
	if t.packed() {
		all = consensus.AbstainPacked
	}
	for i, b := range t.Ballots {
		w, bad := t.weight(i)
		if bad {
			sum.BadWeights++
			continue
		}
		sum.Total += w
		switch {
		case int(b) < t.Candidates:
			sum.Counts[b] += w
		case b == all:
			sum.Abstentions += w
		default:
			sum.Invalid += w
		}
	}
	sum.Leader = t.count(0, len(t.Ballots)).Leader
	return sum
}

// Params returns the parameters of the launch: the parameters of the tally without weights, and the
// weights.
func (t *WeightedTally) Params() []Param {
	params := t.Tally.Params()
	const scratch, result = 13, 15 // numbers of parameters that differ from those without weights
	zero := make([]byte, 8*kernels.WeightedScratch)
	params[scratch] = Param{Mem: zero, Want: zero}
	d, err := consensus.Decide(t.Rule, t.weigh())
	if err != nil {
		panic(err)
	}
	won := t.Round > t.Seen && t.Seen == t.Word
	word, winner := t.Word, kernels.NoDecision
	if won {
		word = t.Round
	}
	if d.Winner != consensus.None {
		winner = uint32(d.Winner)
	}
	flags := uint64(0)
	for flag, set := range map[uint64]bool{
		kernels.ResultMet: d.QuorumMet, kernels.ResultElected: won, kernels.ResultHasLeader: d.Leader.Elected,
	} {
		if set {
			flags |= flag
		}
	}
	params[result] = fresh(device.Bytes(append([]uint64{
		flags<<32 | uint64(t.Sequence), d.Leader.Agent<<32 | uint64(winner), uint64(d.Leader.Priority), word, d.Total,
		d.Abstentions,
		d.Invalid, d.BadWeights,
	}, d.Counts...)))
	weights := t.weights
	if weights == nil {
		weights = []byte{}
	}
	return append(params, Param{Mem: weights, Want: weights})
}

// Name returns the kernel of the launch.
func (t WeightedTally) Name() string { return t.Weighted }

// String names the launch in a failure.
func (t WeightedTally) String() string {
	return fmt.Sprintf("%s, weights of kind %d, %v", t.Weighted, t.Kind, t.Tally)
}
