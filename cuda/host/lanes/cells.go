package lanes

// Arguments of Group.Step: one over the number of observations, the rate of usual sizes, and the
// arguments of the cell.
const (
	ArgInverse = iota
	ArgUsual
	ArgSlow  // predictor: the rate of level and spread
	ArgLearn // predictor: the step of the readout
	ArgKnown // predictor: 1 if the time of day has a habit, else 0
)

// Arguments of lif.
const (
	ArgAdapt = ArgUsual + 1 + iota
	ArgAdaptDecay
)

// Views of an observation by an agent: the value, and for the predictor the one before and the
// habits of the time of day and of the hour of the week.
const (
	ViewValue = iota
	ViewLast
	ViewDay
	ViewWeek
)

// Rows of a predictor.
const (
	RowHidden     = 0             // [4]
	RowReadout    = RowHidden + 4 // [7]
	RowMean       = RowReadout + 7
	RowError      = RowMean + 1
	RowDrift      = RowMean + 2
	RowDriftUsual = RowMean + 3
	RowNaive      = RowMean + 4
	RowUnrest     = RowMean + 5
	RowRough      = RowMean + 6
	RowRoughUsual = RowMean + 7
	RowAway       = RowMean + 8
	RowAwayUsual  = RowMean + 9
	// RowTable is the first of the weights table, in the order of its components.
	RowTable = RowMean + 10 // [33]
	// RowBins are the surprises of each kind, uint32, and RowWeight what a vote counts.
	RowBins       = RowTable + 33 // [6]
	RowWeight     = RowBins + 6
	predictorRows = RowWeight + 1
)

// Rows of leaky.
const (
	LeakyPotential = iota
	LeakyUsual
	LeakyProject // of the weights table, as the next one: a factor of the view
	LeakyRate
	LeakyBins // uint32
	leakyRows
)

// Rows of lif.
const (
	LifPotential = iota
	LifAdaptation
	LifTrace
	LifUsual
	LifProject // of the weights table, as the next three: a factor of the view
	LifGain
	LifLeak
	LifTraceRate
	LifBins // uint32
	lifRows
)

// NewPredictor returns a group of the cell predictor, with no row set.
func NewPredictor() *Group {
	return newGroup(&steps{predictorRows, 4, 5, predictorConstants, stepPredictor, stepPredictor512})
}

// NewLeakyGroup returns a group of the cell leaky, with no row set.
func NewLeakyGroup() *Group {
	return newGroup(&steps{leakyRows, 1, 2, leakyConstants, stepLeakyGroup, stepLeakyGroup512})
}

// NewLif returns a group of the cell lif, with no row set.
func NewLif() *Group {
	return newGroup(&steps{lifRows, 1, 4, lifConstants, stepLif, stepLif512})
}
