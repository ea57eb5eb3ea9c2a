package kernels

import "math"

// Words of the gru cell's parameter block: the words of leaky, by the same numbers, and then these.
// F is a float32 by its bits.
const (
	GruHidden = LeakyWords + iota // H: units of an agent, at most GruMostHidden
	GruLearn                      // F: step of the readout, 0 = off
	// 1: the recurrent weights are the group's own, GruVarWeights; 0: they stand in the table
	GruOwn
	// F: weights that are the group's own are drawn evenly between this and its negative: weights
	// of the units,
	GruUnitsReach
	GruInputReach  // F: of the input,
	GruUpdateReach // F: biases of the update gate,
	GruBiasReach   // F: and of the others
	GruWords
)

// GruMostHidden is the maximum of units of an agent, which a thread keeps.
const GruMostHidden = 64

// The gates of a unit, in the order of their rows in the weights table.
const (
	GruUpdate = iota
	GruReset
	GruNew
	GruGates
)

// The weights table of the gru cell begins with the recurrent weights, which all agents of a group
// share, and of all groups unless each has its own: a row for each gate and unit,
// [GruGates][H][H+2], of the weights of the H units, of the input, and the bias. Behind them stand
// the components of the agents, component-major [GruProject+I][A].
const (
	GruGain    = iota // what the agent multiplies its view with
	GruOffset         // and what it adds
	GruProject        // [I]
)

// Where groups have their own weights, the seed replaces them, in SeedWords parts.

// GruShared is the number of recurrent weights.
func GruShared(hidden int) int { return GruGates * hidden * (hidden + 2) }

// GruWeights is the length of the weights table, behind what stands at its beginning.
func GruWeights(features, agents int) int { return (GruProject + features) * agents }

// GruOwnWeight is the counter that numbers i of the weights of a group are drawn under, as Philox's
// words i%4: no agent has its second word, and no other cell the fourth.
func GruOwnWeight(i, group uint32) [4]uint32 { return [4]uint32{i / 4, math.MaxUint32, group, 1} }

// Variables of the gru cell's state, as indices of GruVars. The first four are variables of every
// cell that votes by a ratio.
const (
	GruVarRound   = iota // group u64: observations seen
	GruVarLevel          // group [I]: running level of each feature above its offset
	GruVarSpread         // group [I]: running mean distance from it, scaled to a normal's deviation
	GruVarOffset         // group [I]: what is subtracted from each feature before it is a float32
	GruVarHidden         // agent [H]
	GruVarReadout        // agent [H+1]: of the units and of the last view
	GruVarLast           // agent: its last view of the features, in spreads
	GruVarUsual          // agent: mean |error|
	// group [GruShared(H)]: the weights of a group that has its own, since its first observation;
	// else VarLatest, where it is
	GruVarWeights
)

// GruVars lists the state of the gru cell of H units for observations of I features, whose groups
// have their own weights or not.
func GruVars(hidden, features int, own bool) []Var {
	vars := []Var{
		GruVarRound:   {Name: "round", Elem: U64, Width: 1, Group: true},
		GruVarLevel:   {Name: "level", Elem: F32, Width: features, Group: true},
		GruVarSpread:  {Name: "spread", Elem: F32, Width: features, Group: true},
		GruVarOffset:  {Name: "offset", Elem: I64, Width: features, Group: true},
		GruVarHidden:  {Name: "hidden", Elem: F32, Width: hidden},
		GruVarReadout: {Name: "readout", Elem: F32, Width: hidden + 1},
		GruVarLast:    {Name: "last", Elem: F32, Width: 1},
		GruVarUsual:   {Name: "usual", Elem: F32, Width: 1},
	}
	if own {
		vars = append(vars, Var{Name: "weights", Elem: F32, Width: GruShared(hidden), Group: true, Together: true})
	}
	return vars
}
