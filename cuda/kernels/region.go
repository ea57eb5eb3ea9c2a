package kernels

// Words of the region cell's parameter block: the words of leaky, by the same numbers, and then
// these. F is a float32 by its bits.
const (
	RegionFrom   = LeakyWords + iota // F: observations after which distances count for an agent's usual one
	RegionLearn                      // F: observations that agents learn whatever they are
	RegionSmooth                     // F: rate of an agent's distance
	RegionMemory                     // F: rate of learning afterwards
	RegionWords
)

const (
	// RegionPicks is the maximum of inputs of an agent.
	RegionPicks = 8
	// RegionPairs is the number of pairs of inputs, and of each input with itself.
	RegionPairs = RegionPicks * (RegionPicks + 1) / 2
	// RegionSettling is the number of observations that an agent learns before it has distances.
	RegionSettling = 20
)

// Components of the region cell's weights table, component-major [RegionWeights][A].
const (
	RegionSize    = iota                        // inputs of the agent, 1 to RegionPicks
	RegionRough                                 // 1: its inputs are the sizes of steps, 0: the values
	RegionFeature                               // [RegionPicks]: the feature of each input
	RegionRate    = RegionFeature + RegionPicks // [RegionPicks]: rate of the mean that each input is
	// RegionWeights is the number of components.
	RegionWeights = RegionRate + RegionPicks
)

// Variables of the region cell's state, as indices of RegionVars. The first four are variables of
// every cell that votes by a ratio.
const (
	RegionVarRound      = iota // group u64: observations seen
	RegionVarLevel             // group [I]: level of each feature above its offset, in the first observations
	RegionVarSpread            // group [I]: mean distance from it, scaled to a normal's deviation
	RegionVarOffset            // group [I]: what is subtracted from each feature before it is a float32
	RegionVarFilter            // agent [RegionPicks]: running mean of each input
	RegionVarLast              // agent [RegionPicks]: value of its feature in the observation before
	RegionVarMean              // agent [RegionPicks]: what is normal of each input
	RegionVarCovariance        // agent [RegionPairs]: of inputs i and j <= i, at i(i+1)/2 + j
	RegionVarUsual             // agent: usual distance from normal
	RegionVarTrace             // agent: its distance now, smoothed
	RegionVarLatest            // VarLatest, where it is
)

// RegionVars lists the state of the region cell for observations of I features.
func RegionVars(features int) []Var {
	return append(ratioVars(features),
		Var{Name: "filter", Elem: F32, Width: RegionPicks},
		Var{Name: "last", Elem: F32, Width: RegionPicks},
		Var{Name: "mean", Elem: F32, Width: RegionPicks},
		Var{Name: "covariance", Elem: F32, Width: RegionPairs},
		Var{Name: "usual", Elem: F32, Width: 1},
		Var{Name: "trace", Elem: F32, Width: 1})
}
