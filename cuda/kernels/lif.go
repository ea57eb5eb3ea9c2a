package kernels

// Words of the lif cell's parameter block: the words of leaky, by the same numbers, and then these.
// F is a float32 by its bits.
const (
	LifAdapt      = LeakyWords + iota // F: what a spike adds to the threshold, whose rest is 1
	LifAdaptDecay                     // F: rate at which that fades
	LifWords
)

// LifBurst is the maximum of spikes of an agent in one observation.
const LifBurst = 16

// Components of the lif cell's weights table, component-major [LifWeights(I)][A].
const (
	LifGain    = iota // current for a feature one spread away, in thresholds
	LifLeak           // rate of the membrane's potential
	LifTrace          // rate of the spike rate
	LifProject        // [I]
)

// LifWeights is the number of components of the weights table.
func LifWeights(features int) int { return LifProject + features }

// Variables of the lif cell's state, as indices of LifVars. The first four are variables of every
// cell that votes by a ratio.
const (
	LifVarRound      = iota // group u64: observations seen
	LifVarLevel             // group [I]: running level of each feature above its offset
	LifVarSpread            // group [I]: running mean distance from it, scaled to a normal's deviation
	LifVarOffset            // group [I]: what is subtracted from each feature before it is a float32
	LifVarPotential         // agent: potential of the membrane
	LifVarAdaptation        // agent: what its spikes have added to the threshold
	LifVarTrace             // agent: its spike rate now, spikes an observation
	LifVarUsual             // agent: its usual spike rate
	LifVarLatest            // VarLatest, where it is
)

// LifVars lists the state of the lif cell for observations of I features.
func LifVars(features int) []Var {
	return append(ratioVars(features),
		Var{Name: "potential", Elem: F32, Width: 1},
		Var{Name: "adaptation", Elem: F32, Width: 1},
		Var{Name: "trace", Elem: F32, Width: 1},
		Var{Name: "usual", Elem: F32, Width: 1})
}
