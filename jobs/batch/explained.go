package batch

// Surprise is the kind of a surprise: in which way a feature differs from its past.
type Surprise uint8

// The kinds of surprises.
const (
	NoSurprise       Surprise = iota
	PointSurprise             // one or a few values far from the expected ones
	LevelSurprise             // the values lie higher or lower than usual, row after row
	SpreadSurprise            // the values scatter more or less than usual
	MissingSurprise           // a rise or an event that was due did not come
	FrozenSurprise            // one value is repeated for longer than ever
	RelationSurprise          // the feature no longer follows the other features
	TogetherSurprise          // several entities surprise at the same time
	Surprises                 // their number
)

// FeatureSurprises is the number of kinds that concern one feature. They come first.
const FeatureSurprises = TogetherSurprise

var surpriseNames = [Surprises]string{"", "point", "level", "spread", "missing", "frozen", "relation", "together"}

// String returns the name of a kind in outputs; empty for NoSurprise.
func (s Surprise) String() string { return surpriseNames[s] }

// Explained says of each row of a batch of decisions why it was decided so. It is made by the CPU
// agent that collects the decisions, and is no part of an encoded batch. Expected, Low and High
// have Features values a row, row by row; NaN where too few rows came before.
type Explained struct {
	Features            int
	Expected, Low, High []float64
	// Fault is the feature that surprises most, and Side is 1 if it is above the expected value, and
	// -1 if it is below. Fault is -1 for a row that is as usual.
	Fault []int8
	Side  []int8
	Kind  []Surprise
	// Before counts the earlier incidents of the entity with the same feature at fault and the same
	// kind.
	Before []uint32
}

// Sides are the texts of Explained.Side in outputs.
var Sides = map[int8]string{-1: "below", 0: "", 1: "above"}
