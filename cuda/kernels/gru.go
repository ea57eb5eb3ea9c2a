package kernels

// Words of the gru cell's parameter block: those of leaky, by the same numbers, and then these. F is a float32 by its bits.
const (
	GruHidden = LeakyWords + iota // H: units of an agent, at most GruMostHidden
	GruLearn                      // F: step of the readout, 0 = off
	GruWords
)

// GruMostHidden is the most units of an agent: what a thread keeps of them.
const GruMostHidden = 64

// The gates of a unit, in the order of their rows in the weights table.
const (
	GruUpdate = iota
	GruReset
	GruNew
	GruGates
)

// The weights table of the gru cell begins with the recurrent weights, which all agents of all groups share: a row for each
// gate and unit, [GruGates][H][H+2], of the weights of the H units, of the input, and the bias. Behind them stand the
// components of the agents, component-major [GruProject+I][A].
const (
	GruGain    = iota // what the agent multiplies its view with
	GruOffset         // and what it adds
	GruProject        // [I]
)

// GruShared is the number of shared weights.
func GruShared(hidden int) int { return GruGates * hidden * (hidden + 2) }

// GruWeights is the length of the weights table.
func GruWeights(hidden, features, agents int) int {
	return GruShared(hidden) + (GruProject+features)*agents
}

// Variables of the gru cell's state, as indices of GruVars. The first three are those of every cell that votes by a ratio.
const (
	GruVarRound   = iota // group u64: observations seen
	GruVarLevel          // group [I]: running level of each feature
	GruVarSpread         // group [I]: running mean distance from it, scaled to a normal's deviation
	GruVarHidden         // agent [H]
	GruVarReadout        // agent [H+1]: of the units and of the last view
	GruVarLast           // agent: its last view of the features, in spreads
	GruVarUsual          // agent: mean |error|
	GruVarLatest         // VarLatest, where it is
)

// GruVars lists the state of the gru cell of H units for observations of I features.
func GruVars(hidden, features int) []Var {
	return []Var{
		GruVarRound:   {Name: "round", Elem: U64, Width: 1, Group: true},
		GruVarLevel:   {Name: "level", Elem: F32, Width: features, Group: true},
		GruVarSpread:  {Name: "spread", Elem: F32, Width: features, Group: true},
		GruVarHidden:  {Name: "hidden", Elem: F32, Width: hidden},
		GruVarReadout: {Name: "readout", Elem: F32, Width: hidden + 1},
		GruVarLast:    {Name: "last", Elem: F32, Width: 1},
		GruVarUsual:   {Name: "usual", Elem: F32, Width: 1},
	}
}
