package kernels

import "fmt"

// Words of 64 bits behind TallyScratch, of a tally whose sums are of weights. They are zero between
// launches too.
const (
	TallyWeight     = TallyScratch + iota // the weight of all ballots
	TallyBad                              // ballots whose weight was none
	WeightedScratch                       // length
)

// ResultBad is the word of a weighted tally's result that other tallies leave 0: ballots whose
// weight was none.
const ResultBad = ResultUnused

// The kinds of weights.
const (
	WeightU8  = 1 + iota // a byte each
	WeightU32            // 32 bits each
	WeightF32            // float32, which count as consensus.Fixed makes them: sums are of 1/65536
)

// TallyWeightedArgs are the arguments of the kernels that WeightedName names: the arguments of
// TallyName's kernels and n weights. Result words from total on are sums of weight, of 64 bits,
// which n < 2^32 weights of 32 bits never overflow.

// weightNames are the kinds in the names of kernels.
var weightNames = map[int]string{WeightU8: "w8", WeightU32: "w32", WeightF32: "f32"}

// WeightedName is the kernel that counts ballots with weights of a kind, one of those above, for
// 1..256 candidates, packed 1..16. Kernels exist for a few numbers of candidates, and the least
// sufficient one is returned.
func WeightedName(kind, candidates int, packed bool) string {
	if packed {
		return weightedName(kind, class(max(candidates, 8)), packed)
	} else if candidates > 8 {
		candidates = MaxCandidates
	}
	return weightedName(kind, class(candidates), packed)
}

func weightedName(kind int, class string, packed bool) string {
	width := "u8_"
	if packed {
		width = "u4_"
	}
	return "tally_weighted_" + width + weightNames[kind] + class
}

// WeightedKernels are the names of all of these kernels, with the kinds of their weights.
func WeightedKernels() map[string]int {
	names := map[string]int{}
	for kind := range weightNames {
		for _, candidates := range []int{5, 8, MaxCandidates} {
			names[WeightedName(kind, candidates, false)] = kind
			names[WeightedName(kind, min(candidates, PlaneCandidates), true)] = kind
		}
	}
	return names
}

func init() {
	for kind := range weightNames {
		for _, packed := range []bool{false, true} {
			defines := fmt.Sprintf("#define WEIGHTS %d\n#define NIBBLES 0\n", kind)
			most := MaxCandidates
			if packed {
				defines, most = fmt.Sprintf("#define WEIGHTS %d\n#define NIBBLES 1\n", kind), PlaneCandidates
			} else {
				register(variant(WeightedName(kind, 5, packed), "tally_weighted.cu",
					defines+"#define PLANES 5\n"))
			}
			register(variant(WeightedName(kind, 8, packed), "tally_weighted.cu",
				defines+"#define PLANES 8\n"))
			register(variant(WeightedName(kind, most, packed), "tally_weighted_rows.cu", defines))
		}
	}
}
