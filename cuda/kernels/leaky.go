package kernels

// Words of the leaky cell's parameter block. F is a float32 by its bits, the others are uint32.
const (
	LeakyFeatures    = iota // I: features an observation
	LeakyRule               // Rule
	LeakyQuorum             // fraction in 16.16 fixed point, for RuleQuorum
	LeakyFrontRate          // F: slowest rate of the group's level and spread
	LeakyClip               // F: a feature beyond this many spreads counts as this many
	LeakyHistoryRate        // F: slowest rate of an agent's usual distance
	LeakyShare              // fraction in 16.16: the group is as surprised as this share of its agents at least
	LeakyAnomalous          // F: ratio from which an agent votes anomalous
	LeakySuspicious         // F: ratio from which it votes suspicious
	LeakyWarmup             // observations before the first vote other than normal
	LeakyDrop               // Drop
	LeakyFrontRows          // observations after which the group's level and spread stay; 0: never
	LeakyLoud               // votes of an agent that votes other than normal
	LeakyWords
)

// Components of the leaky cell's weights table, component-major [LeakyWeights(I)][A].
const (
	LeakyRate    = iota // rate of the agent's potential
	LeakyProject        // [I]
)

// LeakyWeights is the number of components of the weights table.
func LeakyWeights(features int) int { return LeakyProject + features }

// Variables of the leaky cell's state, as indices of LeakyVars.
const (
	LeakyVarRound     = iota // group u64: observations seen
	LeakyVarLevel            // group [I]: running level of each feature above its offset
	LeakyVarSpread           // group [I]: running mean distance from it, scaled to a normal's deviation
	LeakyVarOffset           // group [I]: what is subtracted from each feature before it is a float32
	LeakyVarPotential        // agent: leaky integral of its view of the features, in spreads
	LeakyVarUsual            // agent: mean distance of that view from the potential
	LeakyVarLatest           // VarLatest, where it is
)

// LeakyVars lists the state of the leaky cell for observations of I features.
func LeakyVars(features int) []Var {
	return append(ratioVars(features),
		Var{Name: "potential", Elem: F32, Width: 1},
		Var{Name: "usual", Elem: F32, Width: 1})
}

// ratioVars lists the first four variables of a cell that votes by a ratio.
func ratioVars(features int) []Var {
	return []Var{
		LeakyVarRound:  {Name: "round", Elem: U64, Width: 1, Group: true},
		LeakyVarLevel:  {Name: "level", Elem: F32, Width: features, Group: true},
		LeakyVarSpread: {Name: "spread", Elem: F32, Width: features, Group: true},
		LeakyVarOffset: {Name: "offset", Elem: I64, Width: features, Group: true},
	}
}
