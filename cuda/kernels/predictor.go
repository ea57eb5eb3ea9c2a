package kernels

// Words of the predictor's parameter block. F is a float32 by its bits, the others are uint32.
const (
	PredictorFeatures    = iota // I: features an observation
	PredictorRule               // Rule
	PredictorQuorum             // fraction in 16.16 fixed point, for RuleQuorum
	PredictorLearn              // F: step of the readout, 0 = off
	PredictorFrontRate          // F: slowest rate of the group's level and spread
	PredictorClip               // F: a feature beyond this many spreads counts as this many
	PredictorHistoryRate        // F: slowest rate of an agent's usual error
	PredictorHabitRate          // F: slowest rate of the habits (time of day, hour of week), a visit
	PredictorShare              // fraction of weight in 16.16: the group is as surprised as this share of it at least
	PredictorMemory             // blocks after which half of the history is forgotten
	PredictorTailShare          // F: share of the history that counts as its tail
	PredictorTailShape          // F: expected mean log excess over the tail's edge
	PredictorTailTrust          // F: observations that the expectation is worth
	PredictorRankMix            // F: part of the score that comes from the rank, the rest from the tail's shape
	PredictorHold               // F: what an alarm's level keeps from one observation to the next
	PredictorMargin             // F: an alarm's level over its nats, 1 or more
	PredictorAlarm              // F: nats from which the group's surprise is an anomaly
	PredictorSuspect            // F: nats from which it is suspicious
	PredictorWarmup             // observations before the first vote other than normal
	PredictorDrop               // Drop
	PredictorBlock              // observations of a block, whose largest surprise enters the history
	// F: false alarms a second that are accepted, times the observations of a block; 0 = alarm and
	// suspect count
	PredictorPerSecond
	PredictorRelations // R: features whose residual the agents see: all I of them, or none
	PredictorWords
)

// PredictorHidden is the number of recurrent units of an agent; PredictorReadout the inputs of its
// readout: the units, the last value, and the habits of the time of day and of the hour of the
// week.
const (
	PredictorHidden  = 4
	PredictorReadout = PredictorHidden + 3
	PredictorInputs  = 2 // of a recurrent unit: one, the last value
)

// MostRelated is the largest number of features whose relations are watched. Features and residuals
// together are at most MaxFeatures views.
const MostRelated = MaxFeatures / 2

// Components of the predictor's weights table, component-major [PredictorWeights(V)][A]. The
// projection of the views follows as the last V components: the I features, and the R residuals.
const (
	PredictorIn        = 0                                                    // [hidden][inputs]
	PredictorRecurrent = PredictorIn + PredictorHidden*PredictorInputs        // [hidden][hidden]
	PredictorLeak      = PredictorRecurrent + PredictorHidden*PredictorHidden // [hidden]: rate of each unit
	PredictorSlow      = PredictorLeak + PredictorHidden                      // rate of the agent's level
	PredictorFast      = PredictorSlow + 1                                    // rate of the agent's lasting error
	PredictorUnrest    = PredictorFast + 1                                    // rate of the agent's unrest
	PredictorRoughRate = PredictorUnrest + 1                                  // rate of the agent's roughness
	PredictorAwayRate  = PredictorRoughRate + 1                               // rate of the agent's distance
	PredictorProject   = PredictorAwayRate + 1                                // [V]
)

// PredictorWeights is the number of components of the weights table.
func PredictorWeights(views int) int { return PredictorProject + views }

// Kinds of surprise. Every agent watches for all of them; each kind has its own history. The
// probabilities of the kinds are combined by their harmonic mean, which holds for dependent ones.
const (
	PredictorInstant  = iota // the error, over the usual error
	PredictorLasting         // the short mean of the error, over the usual one
	PredictorRestless        // the short mean of the error's size, over the usual error
	PredictorRough           // the short geometric mean of the step from row to row, over the usual one
	PredictorCalm            // the inverse of that: what stops, freezes or becomes quiet
	PredictorAway            // the distance of the short mean from the group's level, over the usual one
	PredictorKinds
)

// Slots of the habits: half hours of a day and hours of a week.
const (
	DaySlots  = 48
	WeekSlots = 168
	// HabitWeeks is the number of weeks before 1970 from which half hours are counted: before the
	// first time that an int64 of nanoseconds has.
	HabitWeeks = 15251
)

// Variables of the predictor's state, as indices of PredictorVars.
const (
	PredictorVarRound     = iota // group u64: observations seen
	PredictorVarLevel            // group [V]: running level of each view
	PredictorVarSpread           // group [V]: running mean distance from it, scaled to a normal's deviation
	PredictorVarOffset           // group [I]: what is subtracted from each feature before it is a float32
	PredictorVarLast             // group [V]: last observation in spreads
	PredictorVarDay              // group [V*DaySlots]: habit of the time of day
	PredictorVarWeek             // group [V*WeekSlots]: what the hour of the week adds to it
	PredictorVarDaySeen          // group [DaySlots]: finished visits of a slot
	PredictorVarWeekSeen         // group [WeekSlots]
	PredictorVarVisit            // group: the half hour of the present visits, from HabitWeeks weeks before 1970
	PredictorVarVisited          // group [2]: observations of the present half hour, and of the hour
	PredictorVarDayVisit         // group [V]: mean of the present half hour
	PredictorVarWeekVisit        // group [V]: mean of what the present hour adds to the habit of the day
	PredictorVarDayWorth         // group [V]: by how much the habit of the day is nearer than the level, in spreads
	PredictorVarWeekWorth        // group [V]: by how much the week is nearer than the day alone
	PredictorVarHistory          // group [kinds*HistoryBins]: how many past surprises of a kind reached a bin
	// group: level in nats that the next alarm must exceed, negative while an incident lasts
	PredictorVarHold
	PredictorVarBlock      // group [kinds]: the largest bin of the present block
	PredictorVarTime       // group i64: the time of the last observation
	PredictorVarInterval   // group: usual log of the nanoseconds between two times
	PredictorVarWidest     // group [2]: how much longer and shorter intervals usually are at most
	PredictorVarKnown      // group: blocks that count as evidence: fewer after an unusual interval
	PredictorVarPeaks      // group [DaySlots*kinds]: the largest bins of the last two visits, 16 bits each
	PredictorVarPeak       // group [kinds]: the largest bin of the present half hour
	PredictorVarPeakUsual  // group [kinds]: its mean over visits
	PredictorVarHidden     // agent [hidden]
	PredictorVarReadout    // agent [readout]
	PredictorVarMean       // agent: its level of the value, at its own rate
	PredictorVarError      // agent: mean |error|
	PredictorVarDrift      // agent: short mean of the error
	PredictorVarDriftUsual // agent: mean |short mean|
	PredictorVarNaive      // agent: mean |value - level|, what it would err without a readout
	PredictorVarUnrest     // agent: short mean of |error|
	PredictorVarRough      // agent: short mean of log2 |value - last value|
	PredictorVarRoughUsual // agent: its long mean
	PredictorVarAway       // agent: short mean of the value
	PredictorVarAwayUsual  // agent: mean |short mean|
	// The others are there where they are needed: a variable that is not there has no number. The
	// first two need PredictorRelations, and PredictorVarSince needs PredictorPerSecond. VarLatest
	// is the last.
	PredictorVarRelation // group [R*2*I]: weights of the features now, and of those before
	PredictorVarMiss     // group [R]: mean |residual|
	PredictorVarSince
)

// PredictorSince is the time of the first observation of a group. It is part of the state where the
// alarm follows from the observations of a second.
var PredictorSince = Var{Name: "since", Elem: I64, Width: 1, Group: true}

// Where the alarm follows from a rate, its nats are RateNats - RateSlope l, for l = ln(false alarms
// a block), and RateRare (RateBend - l)^2 more below RateBend. The curve was fitted to alarms in
// quiet generated series of a month: incidents, margin and short histories make frequent alarms
// rarer than exp(-nats), and heavy tails make rare alarms more frequent. Agents are suspicious from
// SuspectPart of the alarm on. The rate of a block counts as at most MostRate.
const (
	RateNats    = 0.77
	RateSlope   = 0.52
	RateBend    = -3.5
	RateRare    = 0.04
	SuspectPart = 0.75
	MostRate    = 0.32
)

// PredictorVars lists the state of the predictor cell for observations of I features, related of
// them with a residual, without PredictorSince and VarLatest.
func PredictorVars(features, related int) []Var {
	views := features + related
	vars := []Var{
		PredictorVarRound:      {Name: "round", Elem: U64, Width: 1, Group: true},
		PredictorVarLevel:      {Name: "level", Elem: F32, Width: views, Group: true},
		PredictorVarSpread:     {Name: "spread", Elem: F32, Width: views, Group: true},
		PredictorVarOffset:     {Name: "offset", Elem: I64, Width: features, Group: true},
		PredictorVarLast:       {Name: "last", Elem: F32, Width: views, Group: true},
		PredictorVarDay:        {Name: "day", Elem: F32, Width: views * DaySlots, Group: true},
		PredictorVarWeek:       {Name: "week", Elem: F32, Width: views * WeekSlots, Group: true},
		PredictorVarDaySeen:    {Name: "day_seen", Elem: U32, Width: DaySlots, Group: true},
		PredictorVarWeekSeen:   {Name: "week_seen", Elem: U32, Width: WeekSlots, Group: true},
		PredictorVarVisit:      {Name: "visit", Elem: U32, Width: 1, Group: true},
		PredictorVarVisited:    {Name: "visited", Elem: U32, Width: 2, Group: true},
		PredictorVarDayVisit:   {Name: "day_visit", Elem: F32, Width: views, Group: true},
		PredictorVarWeekVisit:  {Name: "week_visit", Elem: F32, Width: views, Group: true},
		PredictorVarDayWorth:   {Name: "day_worth", Elem: F32, Width: views, Group: true},
		PredictorVarWeekWorth:  {Name: "week_worth", Elem: F32, Width: views, Group: true},
		PredictorVarHistory:    {Name: "history", Elem: U32, Width: PredictorKinds * HistoryBins, Group: true},
		PredictorVarHold:       {Name: "hold", Elem: F32, Width: 1, Group: true},
		PredictorVarBlock:      {Name: "block", Elem: U32, Width: PredictorKinds, Group: true},
		PredictorVarTime:       {Name: "time", Elem: I64, Width: 1, Group: true},
		PredictorVarInterval:   {Name: "interval", Elem: F32, Width: 1, Group: true},
		PredictorVarWidest:     {Name: "widest", Elem: F32, Width: 2, Group: true},
		PredictorVarKnown:      {Name: "known", Elem: F32, Width: 1, Group: true},
		PredictorVarPeaks:      {Name: "peaks", Elem: U32, Width: DaySlots * PredictorKinds, Group: true},
		PredictorVarPeak:       {Name: "peak", Elem: U32, Width: PredictorKinds, Group: true},
		PredictorVarPeakUsual:  {Name: "peak_usual", Elem: F32, Width: PredictorKinds, Group: true},
		PredictorVarHidden:     {Name: "hidden", Elem: F32, Width: PredictorHidden},
		PredictorVarReadout:    {Name: "readout", Elem: F32, Width: PredictorReadout},
		PredictorVarMean:       {Name: "mean", Elem: F32, Width: 1},
		PredictorVarError:      {Name: "error", Elem: F32, Width: 1},
		PredictorVarDrift:      {Name: "drift", Elem: F32, Width: 1},
		PredictorVarDriftUsual: {Name: "drift_usual", Elem: F32, Width: 1},
		PredictorVarNaive:      {Name: "naive", Elem: F32, Width: 1},
		PredictorVarUnrest:     {Name: "unrest", Elem: F32, Width: 1},
		PredictorVarRough:      {Name: "rough", Elem: F32, Width: 1},
		PredictorVarRoughUsual: {Name: "rough_usual", Elem: F32, Width: 1},
		PredictorVarAway:       {Name: "away", Elem: F32, Width: 1},
		PredictorVarAwayUsual:  {Name: "away_usual", Elem: F32, Width: 1},
	}
	if related > 0 {
		vars = append(vars, Var{Name: "relation", Elem: F32, Width: 2 * features * related, Group: true},
			Var{Name: "miss", Elem: F32, Width: related, Group: true})
	}
	return vars
}
