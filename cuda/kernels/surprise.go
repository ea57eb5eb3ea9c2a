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
