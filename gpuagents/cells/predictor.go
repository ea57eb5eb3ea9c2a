package cells

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// predictor is the cell that finds anomalies in series: every agent predicts the next value from
// what it remembers, and votes by how unlike its usual error the present one is.
var predictor = &Cell{
	Name: "predictor",
	Doc: "finds anomalies in series: agents learn to predict the next value and vote by how unlikely their " +
		"error is",
	Candidates: []string{"normal", "suspicious", "anomalous"},
	Agents:     256,
	Kernel:     "predictor_observe",
	Learning:   kernels.PriorRows,
	embedding:  []string{"hidden"},
	Params: []Param{
		{Name: "learn", Default: 0.02, Min: 0, Max: 1, Doc: "step of the readout's learning, a part of the error; 0 " +
			"switches learning off"},
		{Name: "alarm", Default: 0.39, Min: 0.01, Max: 0.99, Doc: "score from which agents vote anomalous"},
		{Name: "false_alarm_rate", Default: 0, Min: 0, Max: 0.005, Doc: "accepted false alarms an " +
			"observation, which set alarm and suspect; 0: alarm and suspect count"},
		{Name: "alarms_per_day", Default: 0, Min: 0, Max: 1e6, Doc: "false alarms a day that are accepted of a " +
			"series, or of all entities; the timestamps tell how many observations a day has; 0: false_alarm_rate, " +
			"or alarm and suspect count"},
		{Name: "entities", Default: 1, Min: 1, Max: 1 << 40, Doc: "number of series that share alarms_per_day"},
		{Name: "suspect", Default: 0.31, Min: 0.01, Max: 0.99, Doc: "score from which agents vote suspicious"},
		{Name: "hold_off", Default: 300, Min: 1, Max: 1e6, Doc: "observations in which the level that a further " +
			"alarm must exceed falls to 1/e"},
		{Name: "margin", Default: 0.05, Min: 0, Max: 1, Doc: "part by which that level starts above the alarm"},
		{Name: "warmup", Default: 10, Min: 10, Max: 1e6, Integer: true, Doc: "observations of a series before its " +
			"first score"},
		{Name: "history", Default: 350, Min: 20, Max: 1e6, Doc: "observations over which an agent averages its " +
			"usual error"},
		{Name: "block", Default: 64, Min: 1, Max: 65536, Integer: true, Doc: "observations of a block: a surprise " +
			"is compared with the largest of each past block"},
		{Name: "memory", Default: 14000, Min: 100, Max: 1 << 22, Integer: true, Doc: "observations after which half " +
			"of the history of surprise is forgotten"},
		{Name: "front", Default: 2000, Min: 20, Max: 1e6, Doc: "observations over which level and spread of the " +
			"input are averaged"},
		{Name: "habit", Default: 35, Min: 2, Max: 1e6, Doc: "visits over which the habit of a time of the day is " +
			"averaged; half as many for an hour of the week"},
		{Name: "clip", Default: 30, Min: 1, Max: 1000, Doc: "spreads at which an input is cut off"},
		{Name: "share", Default: 0.5, Min: 0.01, Max: 1, Doc: "part of the agents' weight that must be as surprised " +
			"as the group"},
		{Name: "fast_min", Default: 4, Min: 1, Max: 1e4, Doc: "shortest time constant of a lasting error, in " +
			"observations"},
		{Name: "fast_max", Default: 12, Min: 1, Max: 1e4, Doc: "longest"},
		{Name: "unrest_min", Default: 6, Min: 1, Max: 1e4, Doc: "shortest time constant of unrest, the mean size " +
			"of the errors, in observations"},
		{Name: "unrest_max", Default: 30, Min: 1, Max: 1e4, Doc: "longest"},
		{Name: "rough_min", Default: 8, Min: 1, Max: 1e4, Doc: "shortest time constant of roughness, the mean step " +
			"from row to row, in observations"},
		{Name: "rough_max", Default: 32, Min: 1, Max: 1e4, Doc: "longest"},
		{Name: "away_min", Default: 8, Min: 1, Max: 1e4, Doc: "shortest time constant of the distance from the " +
			"level, in observations"},
		{Name: "away_max", Default: 64, Min: 1, Max: 1e4, Doc: "longest"},
		{Name: "slow_min", Default: 20, Min: 1, Max: 1e6, Doc: "shortest time constant of an agent's level, in " +
			"observations"},
		{Name: "slow_max", Default: 500, Min: 1, Max: 1e6, Doc: "longest"},
		{Name: "tail", Default: 0.5, Min: 0.001, Max: 0.5, Doc: "part of the history that is its tail"},
		{Name: "tail_shape", Default: 0.15, Min: 0.01, Max: 10, Doc: "expected mean log excess in the tail"},
		{Name: "tail_trust", Default: 20, Min: 0, Max: 1e6, Doc: "blocks in the tail that weigh as much as " +
			"the expectation"},
		{Name: "rank", Default: 0.4, Min: 0, Max: 1, Doc: "part of the score in the tail that comes from the rank, " +
			"not from the size"},
		{Name: "relations", Default: 1, Min: 0, Max: 1, Integer: true, Doc: "1: with 2 to 32 features, agents also " +
			"see how far each feature is from what the others tell of it; 0: features alone"},
	},
	vars:    predictorVars,
	block:   predictorBlock,
	weights: predictorTable,
}

// predictorVars returns the state: with the time of the first observation where a day counts.
func predictorVars(b *Bound) []kernels.Var {
	vars := kernels.PredictorVars(b.Features, predictorRelated(b))
	if b.values["alarms_per_day"] > 0 {
		vars = append(vars, kernels.PredictorSince)
	}
	return vars
}

// predictorRelated returns the number of features whose residual the agents see: all or none.
func predictorRelated(b *Bound) int {
	if b.values["relations"] == 0 || b.Features < 2 || b.Features > kernels.MostRelated {
		return 0
	}
	return b.Features
}

// predictorBlock returns the parameter block. Rates are per observation, shares of agents and
// quorum are 16.16 fixed point, and levels of the score are surprises in nats.
func predictorBlock(b *Bound) []uint32 {
	w := make([]uint32, kernels.PredictorWords)
	w[kernels.PredictorFeatures] = uint32(b.Features)
	w[kernels.PredictorRule] = uint32(b.Voting.Rule)
	w[kernels.PredictorQuorum] = fixed(b.Voting.Quorum)
	w[kernels.PredictorLearn] = b.word("learn")
	w[kernels.PredictorFrontRate] = b.rate("front")
	w[kernels.PredictorClip] = b.word("clip")
	w[kernels.PredictorHistoryRate] = b.rate("history")
	w[kernels.PredictorHabitRate] = b.rate("habit")
	w[kernels.PredictorShare] = fixed(b.values["share"])
	block := max(1, b.values["block"])
	w[kernels.PredictorBlock] = uint32(block)
	w[kernels.PredictorMemory] = uint32(max(2, b.values["memory"]/block))
	w[kernels.PredictorTailShare] = b.word("tail")
	w[kernels.PredictorTailShape] = b.word("tail_shape")
	w[kernels.PredictorTailTrust] = b.word("tail_trust")
	w[kernels.PredictorRankMix] = b.word("rank")
	w[kernels.PredictorHold] = math.Float32bits(float32(math.Exp(-1 / b.values["hold_off"])))
	w[kernels.PredictorMargin] = math.Float32bits(float32(1 + b.values["margin"]))
	w[kernels.PredictorAlarm] = nats(b.values["alarm"])
	w[kernels.PredictorSuspect] = nats(b.values["suspect"])
	if rate := b.values["false_alarm_rate"]; rate > 0 {
		l := math.Log(rate * block)
		rare := max(0, kernels.RateBend-l)
		alarm := kernels.RateNats - kernels.RateSlope*l + kernels.RateRare*rare*rare
		w[kernels.PredictorAlarm] = math.Float32bits(float32(alarm))
		w[kernels.PredictorSuspect] = math.Float32bits(float32(alarm * kernels.SuspectPart))
	}
	const day = 24 * 60 * 60
	perSecond := b.values["alarms_per_day"] / max(1, b.values["entities"]) / day
	w[kernels.PredictorPerSecond] = math.Float32bits(float32(perSecond * block))
	w[kernels.PredictorWarmup] = uint32(b.values["warmup"])
	w[kernels.PredictorDrop] = uint32(b.Drop)
	w[kernels.PredictorRelations] = uint32(predictorRelated(b))
	return w
}

// Deviations of the random weights: recurrence is kept well below the edge of chaos, so that a unit
// forgets.
const (
	inputDeviation     = 0.5
	recurrentDeviation = 0.3
	slowestUnit        = 20 // observations
	driftSpan          = 4  // an agent's level is at least this much slower than its drift
)

// predictorTable returns the weights of each agent, component-major. The order of the draws fixes
// the numbers: a change of it changes every swarm.
func predictorTable(b *Bound, seed uint64) []float32 {
	A, views := b.Agents, b.Features+predictorRelated(b)
	table := make([]float32, kernels.PredictorWeights(views)*A)
	for a := range A {
		r := newSource(seed, a)
		set := func(component int, v float32) { table[component*A+a] = v }
		// A unit has four draws; the last two once were the weights of the habits.
		for j := range kernels.PredictorHidden {
			for k := range 4 {
				if w := r.spread(inputDeviation); k < kernels.PredictorInputs {
					set(kernels.PredictorIn+j*kernels.PredictorInputs+k, w)
				}
			}
		}
		for c := kernels.PredictorRecurrent; c < kernels.PredictorLeak; c++ {
			set(c, r.spread(recurrentDeviation))
		}
		for c := kernels.PredictorLeak; c < kernels.PredictorSlow; c++ {
			set(c, r.rate(1, slowestUnit))
		}
		fast := r.rate(b.values["fast_min"], max(b.values["fast_min"], b.values["fast_max"]))
		slow := r.rate(b.values["slow_min"], max(b.values["slow_min"], b.values["slow_max"]))
		set(kernels.PredictorSlow, min(slow, fast/driftSpan))
		set(kernels.PredictorFast, fast)
		set(kernels.PredictorUnrest, r.rate(b.values["unrest_min"],
			max(b.values["unrest_min"], b.values["unrest_max"])))
		set(kernels.PredictorRoughRate, r.rate(b.values["rough_min"],
			max(b.values["rough_min"], b.values["rough_max"])))
		set(kernels.PredictorAwayRate, r.rate(b.values["away_min"], max(b.values["away_min"], b.values["away_max"])))
		projection(r, views, func(f int, v float32) { set(kernels.PredictorProject+f, v) })
	}
	return table
}

// projection draws a random direction of unit length and calls set once for each feature, in order.
// With one feature the direction is 1 and nothing is drawn.
func projection(r *source, features int, set func(f int, v float32)) {
	if features == 1 {
		set(0, 1)
		return
	}
	direction, square := make([]float64, features), 0.0
	for f := range direction {
		direction[f] = float64(r.spread(1))
		square += float64(direction[f] * direction[f])
	}
	norm := math.Sqrt(square)
	for f, v := range direction {
		set(f, float32(v/norm))
	}
}
