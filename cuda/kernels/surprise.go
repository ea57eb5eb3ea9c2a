package kernels

// A surprise is a ratio: an agent's error over its usual error. Everything that is reduced over
// agents or kept as history is the ratio's bin, an integer, so that the order of a reduction cannot
// matter. Bins are logarithmic: SurpriseFine of them to the octave, from 2^SurpriseMinOctave up.
// Inside an octave they are evenly spaced, so that a bin is just the leading bits of the ratio's
// float32 pattern.
const (
	SurpriseFine      = 32
	SurpriseMinOctave = -6
	SurpriseOctaves   = 16
	SurpriseBins      = SurpriseOctaves * SurpriseFine // bins of one round's agents

	// The history of a group's surprise is coarser: HistoryFine bins to the octave.
	HistoryFine = 8
	HistoryBins = SurpriseOctaves * HistoryFine
)

// ScoreHalf is the surprise in nats at which a score is one half: score = nats/(nats+ScoreHalf).
const ScoreHalf = 4

// MostNats is the largest surprise in nats: a group sees too few blocks to know a smaller
// probability, and its inverse stays far inside float32.
const MostNats = 40

// RankDoubt is how much the blocks of a history count against its tail. The probability of a bin that
// k of n past blocks reached is their share with a weight of k/(k+RankDoubt), and what the tail says
// with the rest. So a surprise that came before is not rare, however far it is from the others. All
// kinds together count as evidence of at most (n+1)^2: what a few blocks did not have may be usual.
// Of n blocks fewer count after an unusual interval; see PredictorVarKnown.
const RankDoubt = 30

// MaxFeatures is the maximum of features of an observation: what a block keeps of them in shared
// memory.
const MaxFeatures = 64

// What a group's own blocks cannot tell yet, it takes from series of other groups: how rare is an
// instant surprise in a block of BlockRows rows at an age. It fades over the first PriorRows rows.
//
// PriorKnots has, for ages from PriorAges on, the bins that one block out of 2, 4, 8, ... reaches,
// and PriorEvidence what they count: at most the inverse of the share. In the first rows, where
// families differ most, a bin counts as no more than the evidence at which a rate that is half of
// the share would alarm (RateNats). TestPrior (tools/quality/celldetector) measures the bins on
// generated series: half of the weight has the families to choose on, half the stationary series.
// Series of constants with rare changes are left out, and have no prior: the mean log2 of the steps
// of their first agent, in spreads, is below PriorSteps.
const (
	PriorRows  = 512
	PriorSteps = -4
	// BlockRows is the default of the observations of a block.
	BlockRows = 64
)

// PriorAges are the rows before the first one of each age.
var PriorAges = [8]uint32{0, 14, 20, 28, 40, 64, 128, 256}

// PriorEvidence is the evidence of the bins of PriorKnots.
var PriorEvidence = [8][7]uint32{
	{2, 4, 8, 13, 19, 29, 46},
	{2, 4, 8, 13, 19, 29, 46},
	{2, 4, 8, 13, 19, 29, 46},
	{2, 4, 8, 13, 19, 29, 46},
	{2, 4, 8, 13, 19, 29, 46},
	{2, 4, 8, 16, 32, 64, 128},
	{2, 4, 8, 16, 32, 64, 128},
	{2, 4, 8, 16, 32, 64, 128},
}

// PriorKnots are the bins of each age. A bin between two of them has evidence in proportion; below
// the first one it rises from 1, and from the last one on it stays.
var PriorKnots = [8][7]uint16{
	{349, 384, 408, 419, 429, 437, 448},
	{303, 329, 372, 388, 396, 405, 412},
	{283, 309, 344, 368, 377, 385, 387},
	{267, 292, 324, 355, 368, 375, 381},
	{256, 270, 301, 332, 358, 366, 371},
	{238, 254, 266, 298, 331, 355, 362},
	{233, 249, 263, 283, 319, 343, 357},
	{233, 249, 265, 289, 313, 336, 353},
}
