package celltwin

import (
	"sync"

	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

func init() { twins.Register("predictor_observe", predictorObserve) }

const (
	hidden  = kernels.PredictorHidden
	readout = kernels.PredictorReadout
	kinds   = kernels.PredictorKinds

	// reach3 bounds what a readout takes in, in spreads: outliers are for the error, not for the
	// prediction.
	reach3 = 3
	// errorFloor and driftFloor are the least usual error and drift, in spreads of the group: a
	// stream that is predicted to the last digit must not call rounding a surprise.
	errorFloor = 0.01
	driftFloor = 0.005
	// A gradient and a lasting error take in at most this many usual errors of one observation, and
	// a usual size takes in at most usualClip usual sizes. So a lone spike is over when it is over.
	gradientClip = 4
	usualClip    = 8
	// roughReach bounds what one step from row to row adds to the roughness, in octaves from the
	// usual one.
	roughReach = 4
	// ridge keeps the normalised step finite when all inputs of a readout are near zero.
	ridge = 0.1
	// largestReadout bounds the squared norm of a readout; one that left it would start again from
	// nothing.
	largestReadout = 1e4
	// An agent's weight is weightBase for one that predicts no better than its own level, and grows
	// by weightGain for one that predicts perfectly: eight times as much.
	weightBase = kernels.MaxVoteWeight / 8
	weightGain = kernels.MaxVoteWeight - weightBase
	// A score reaches the alarm's only where an incident opens. The score of a surprise from
	// nearPart of the alarm on comes close to it, so that a lower threshold can be set on scores.
	// All others are in the order of their surprise below quietPart of the alarm's score.
	nearPart  = 0.85
	quietPart = 0.83
)

// predictorAgent is the state of one agent while its group's run is stepped.
type predictorAgent struct {
	h    [hidden]float32  // the recurrent units
	w    [readout]float32 // the weights of the prediction, from the mean on
	mean float32          // the running level of the agent's view
	err  float32          // the usual size of the error of the prediction
	// drift is the mean error of late, with its sign, and driftUsual its usual size.
	drift      float32
	driftUsual float32
	naive      float32 // the usual size of the error of the mean alone
	unrest     float32 // the mean size of the error of late
	// rough is the mean log2 of the step from row to row of late, and roughUsual the mean of all
	// time.
	rough, roughUsual float32
	// away is the mean value of late, with its sign, and awayUsual its usual size.
	away, awayUsual float32
}

// predictorGroup is the state of one group while its run is stepped. Instances are pooled: a step
// allocates nothing.
type predictorGroup struct {
	front   front // of all views: features, and residuals behind them
	plain   front // of the features
	rest    front // of the residuals
	related relation
	habits  habits
	pace    pace
	peaks   peaks
	history [kinds]history
	hold    float32 // negative while an incident lasts
	block   [kinds]uint32
	fitted  bool // the tails belong to the histories
	learnt  bool // the histories differ from the page
	// Of the agents, the first ones are stepped where they are in the page, several at a time. The
	// others are in agents.
	lanes   *lanes.Group
	agents  []predictorAgent
	bins    [kinds][]uint32  // [A]: surprise of each agent this round
	weights []uint32         // [A]: and its weight
	sums    []float32        // [A]: and the evidence of its surprises
	views   [views][]float32 // [A], or one for all agents
	byBin   [kinds][kernels.SurpriseBins]uint32
	floats  []float32
	words   []uint32
	// since is the time of the first observation, in the page; nil: alarm and suspect are fixed.
	since          *uint64
	alarm, suspect float32 // nats
}

var predictorPool = sync.Pool{New: func() any { return &predictorGroup{lanes: lanes.NewPredictor()} }}

// views is the number of what an agent sees of an observation; see lanes.ViewValue.
const views = lanes.ViewWeek + 1

// size makes the slices long enough for a number of features, related of them with a residual, and
// agents. It keeps their memory.
func (g *predictorGroup) size(features, related, agents int) {
	if len(g.weights) == agents && len(g.agents) == agents-manyOf(agents) && len(g.plain.now) == features &&
		len(g.rest.now) == related {
		return
	}
	own := features
	features += related
	g.agents = make([]predictorAgent, agents-manyOf(agents))
	g.weights, g.sums = make([]uint32, agents), make([]float32, agents)
	for k := range g.bins {
		g.bins[k] = make([]uint32, agents)
	}
	for i := range g.views {
		g.views[i] = make([]float32, 1)
		if features > 1 {
			g.views[i] = make([]float32, agents)
		}
	}
	g.floats = make([]float32, features*(10+kernels.DaySlots+kernels.WeekSlots))
	rest := g.floats
	take := func(n int) []float32 {
		s := rest[:n:n]
		rest = rest[n:]
		return s
	}
	g.front = front{level: take(features), spread: take(features), last: take(features), now: take(features)}
	g.plain, g.rest = g.front.part(0, own), g.front.part(own, features)
	g.plain.offset, g.plain.above = make([]int64, own), make([]float32, own)
	g.related = relation{
		weights: make([]float32, related*2*own), miss: make([]float32, related), now: make([]float32, related),
		in: make([]float32, 2*own),
	}
	g.words = make([]uint32, kernels.DaySlots+kernels.WeekSlots+kinds*kernels.HistoryBins)
	g.habits = habits{
		dayNow: take(features), weekNow: take(features),
		dayVisit: take(features), weekVisit: take(features),
		dayWorth: take(features), weekWorth: take(features),
		day: take(features * kernels.DaySlots), week: take(features * kernels.WeekSlots),
		daySeen: g.words[:kernels.DaySlots], weekSeen: g.words[kernels.DaySlots:][:kernels.WeekSlots],
	}
	for k := range g.history {
		g.history[k].atLeast = g.histories()[k*kernels.HistoryBins:][:kernels.HistoryBins]
	}
}

// manyOf returns how many of n agents are stepped several at a time.
func manyOf(agents int) int {
	if !several {
		return 0
	}
	return agents &^ 7
}

// several is changed by tests only.
var several = lanes.Available()

// histories returns the bins of all kinds of surprise, one kind after the other, as in the page.
func (g *predictorGroup) histories() []uint32 { return g.words[kernels.DaySlots+kernels.WeekSlots:] }

// predictorObserve is the Go twin of predictor_observe: it steps one group through its run.
func predictorObserve(b *twins.Block, a *kernels.ObserveBound) {
	o := openObservation(b, a)
	if o.run.Count == 0 {
		return
	}
	features := int(o.words[kernels.PredictorFeatures])
	g := predictorPool.Get().(*predictorGroup)
	defer predictorPool.Put(g)
	related := int(o.words[kernels.PredictorRelations])
	g.size(features, related, o.agents)
	g.load(&o)
	round := &o.u64[o.group64(kernels.PredictorVarRound)]
	latestVar := kernels.PredictorVarRelation
	if related > 0 {
		latestVar = kernels.PredictorVarSince
	}
	g.since, g.alarm, g.suspect = nil, o.float(kernels.PredictorAlarm), o.float(kernels.PredictorSuspect)
	if o.float(kernels.PredictorPerSecond) > 0 {
		g.since = &o.u64[o.group64(latestVar)]
		latestVar++
	}
	latest := o.latest(latestVar, kernels.PredictorDrop)
	for n := o.run.First; n < o.run.First+o.run.Count; n++ {
		if latest.take(&o, n, *round) {
			continue
		}
		g.observe(&o, int(n), round, o.features[int(n)*features:][:features])
	}
	g.store(&o)
}

// observe steps the group by observation n of the batch. An incident opens when the group is as
// surprised as the alarm and more than the level held from before, and the vote is anomalous. It
// lasts until the vote is normal. Where no incident may open, ballots for anomalous count as
// suspicious.
func (g *predictorGroup) observe(o *observation, n int, round *uint64, x []float64) {
	seen := *round
	inverse := 1 / float32(seen+1)
	rate, clip := fmath.Max(inverse, o.float(kernels.PredictorFrontRate)), o.float(kernels.PredictorClip)
	g.plain.raise(x, seen)
	g.plain.see(g.plain.above, seen, rate, clip)
	if len(g.rest.now) > 0 {
		g.related.see(g.plain.now, g.plain.last, inverse, fmath.Max(inverse, o.float(kernels.PredictorHistoryRate)))
		g.rest.see(g.related.now, seen, rate, clip)
	}
	if slot, over := g.habits.over(o.times[n]); over {
		g.peaks.end(o, slot)
	}
	g.habits.recall(o, o.times[n], seen == 0, o.float(kernels.PredictorHabitRate))
	g.peaks.recall(o, g.habits.daySlot)
	prior := priorOf(seen, o.words[kernels.PredictorBlock], g.steps(o))
	g.step(o, seen, inverse)
	g.peaks.lower(&g.bins)
	g.pace.see(o.times[n], inverse, o.words[kernels.PredictorBlock], float32(g.history[0].atLeast[0]))

	// The scores come from the history before this observation.
	warm := seen >= uint64(o.words[kernels.PredictorWarmup])
	if warm && !g.fitted {
		g.fitted = true
		shape := tailShape{
			o.float(kernels.PredictorTailShare), o.float(kernels.PredictorTailShape),
			o.float(kernels.PredictorTailTrust), o.float(kernels.PredictorRankMix),
		}
		for k := range g.history {
			g.history[k].shape = shape
			g.history[k].fit()
		}
	}

	// The ballots: every agent compares its own surprise with the thresholds.
	rule := kernels.Rule(o.words[kernels.PredictorRule])
	g.levels(o.float(kernels.PredictorPerSecond), seen, o.times[n])
	alarm, suspect := g.alarm, g.suspect
	level, inside := fmath.Abs(g.hold), g.hold < 0
	// Agents compare sums of evidence: the logarithm of a mean is taken for the group alone.
	most := mostEvidence(g.pace.known)
	loudest, oddest := evidenceOf(fmath.Max(alarm, level)), evidenceOf(suspect)
	loud, odd := float32(kinds*grown(loudest, most)), float32(kinds*grown(oddest, most))
	var bins [kinds]uint32
	for k := range bins {
		bins[k] = g.collect(k)
	}
	clear(g.sums)
	if warm {
		for k := range bins {
			g.history[k].againstAll(g.bins[k], g.sums)
		}
	}
	var t tally
	total := uint32(0)
	for a, weight := range g.weights {
		total += weight
		candidate, count := uint32(kernels.VoteNormal), uint32(1)
		if warm {
			if prior.weight > 0 {
				most := most + prior.evidence(g.bins[kernels.PredictorInstant][a])
				loud, odd = float32(kinds*grown(loudest, most)), float32(kinds*grown(oddest, most))
			}
			switch evidence := g.sums[a]; {
			case evidence >= loud:
				candidate = kernels.VoteAnomalous
			case evidence >= odd:
				candidate = kernels.VoteSuspicious
			}
		}
		if rule == kernels.RuleWeighted {
			count = weight
		}
		t.vote(uint32(a), candidate, count, weight)
	}
	// The surprise of the group: of each kind the one that a share of the weight reaches.
	for k, top := range bins {
		bins[k] = groupSurprise(&g.byBin[k], top, total, o.words[kernels.PredictorShare])
	}

	score, opens := float32(0), false
	if warm {
		if prior.weight > 0 {
			most += prior.evidence(bins[kernels.PredictorInstant])
		}
		surprisal := fmath.Max(0, fmath.Log(young(g.evidence(bins)/kinds, most)))
		score = surprisal / (surprisal + kernels.ScoreHalf)
		if inside || surprisal <= level || surprisal < float32(nearPart*alarm) {
			score = float32(float32(quietPart*(alarm/(alarm+kernels.ScoreHalf))) * score)
		}
		opens = !inside && surprisal >= alarm && surprisal > level
		level = fmath.Max(float32(level*o.float(kernels.PredictorHold)),
			float32(surprisal*o.float(kernels.PredictorMargin)))
	}
	// The decision: an observation that opens no incident is suspicious at most.
	if !opens {
		t.lower()
	}
	decision := t.decide(rule, o.words[kernels.PredictorQuorum])
	inside = decision == kernels.VoteAnomalous || inside && decision != kernels.VoteNormal
	g.hold = level
	if inside {
		g.hold = -level
	}
	if seen >= eager {
		g.peaks.learn(o, bins)
	}
	if seen == eager {
		g.block = [kinds]uint32{} // of inflated ratios
	}
	if seen >= early {
		for k, bin := range bins {
			g.block[k] = max(g.block[k], bin)
		}
	}
	if (seen+1)%uint64(o.words[kernels.PredictorBlock]) == 0 && seen >= eager {
		for k := range g.history {
			g.history[k].add(g.block[k], o.words[kernels.PredictorMemory])
		}
		g.block, g.fitted, g.learnt = [kinds]uint32{}, false, true
	}
	g.habits.learn(g.front.now)
	copy(g.front.last, g.front.now)

	o.out.scores[n] = score
	o.out.decisions[n] = decision
	copy(o.out.counts[n*kernels.VoteCandidates:], t.counts[:])
	o.out.leaders[n] = t.leader
	o.out.rounds[n] = electRound(round, seen)
}

// collect sets byBin to the weights of the agents by the bin of their surprise of kind k, and
// returns the highest bin.
func (g *predictorGroup) collect(k int) uint32 {
	by, top := &g.byBin[k], uint32(0)
	clear(by[:])
	bins := g.bins[k][:len(g.weights)]
	for a, weight := range g.weights {
		bin := bins[a]
		by[bin%kernels.SurpriseBins] += weight
		top = max(top, bin)
	}
	return top
}

// levels sets the alarm from the false alarms of a second, if they are limited. The observations of
// a second are those since the first one: seen of them lie between since and t.
func (g *predictorGroup) levels(perSecond float32, seen uint64, t int64) {
	if g.since == nil {
		return
	}
	if seen == 0 {
		*g.since = uint64(t)
	}
	step := float32(float32(t-int64(*g.since))*1e-9) / float32(max(seen, 1))
	rate := fmath.Max(1e-30, fmath.Min(kernels.MostRate, float32(perSecond*step)))
	l := fmath.Log(rate)
	rare := fmath.Max(0, kernels.RateBend-l)
	g.alarm = kernels.RateNats - float32(kernels.RateSlope*l) + float32(kernels.RateRare*float32(rare*rare))
	g.suspect = float32(kernels.SuspectPart * g.alarm)
}

// evidence returns the sum of the evidence of a surprise of every kind. The harmonic mean of the
// probabilities is the number of kinds over it (Wilson, PNAS 2019): one clear kind is enough, and
// kinds that depend on each other do no harm.
func (g *predictorGroup) evidence(bins [kinds]uint32) float32 {
	sum := float32(0)
	for k, bin := range bins {
		sum += g.history[k].against(bin)
	}
	return sum
}

// step moves every agent of the group by one observation: recurrent units, prediction, error,
// surprise, learning.
func (g *predictorGroup) step(o *observation, seen uint64, inverse float32) {
	var (
		learn  = o.float(kernels.PredictorLearn)
		rate   = fmath.Max(inverse, o.float(kernels.PredictorHistoryRate))
		slow   = fmath.Max(inverse, o.float(kernels.PredictorFrontRate))
		A      = len(g.weights)
		single = len(g.front.now) == 1
		first  = seen == 0
		known  float32 // 1 if the time of day has a habit, else 0
		all    = [views][]float32{g.front.now, g.front.last, g.habits.dayNow, g.habits.weekNow}
	)
	if g.habits.dayKnown {
		known = 1
	}
	if single {
		for i, v := range all {
			g.views[i][0] = v[0]
		}
	} else {
		projectViews(&g.views, o.weights[kernels.PredictorProject*A:], &all)
	}
	many := manyOf(A)
	if many > 0 {
		if first {
			means := o.f32[o.agent(kernels.PredictorVarMean, 0):][:many]
			for i := range means {
				means[i] = g.views[lanes.ViewValue][i%len(g.views[0])]
			}
		}
		arguments := [...]float32{
			lanes.ArgInverse: inverse, lanes.ArgUsual: rate, lanes.ArgSlow: slow, lanes.ArgLearn: learn,
			lanes.ArgKnown: known,
		}
		g.lanes.Step(A, arguments[:], g.views[:])
	}
	for i := many; i < A; i++ {
		a, c, view := &g.agents[i-many], o.weights[i:], i%len(g.views[0])
		value, last := g.views[lanes.ViewValue][view], g.views[lanes.ViewLast][view]
		day, week := g.views[lanes.ViewDay][view], g.views[lanes.ViewWeek][view]

		// The units: leaky integrators with a random net, driven by the observation before.
		h := a.h
		for j := range hidden {
			in := c[(kernels.PredictorIn+j*kernels.PredictorInputs)*A:]
			v := in[0] + float32(in[A]*last)
			rec := c[(kernels.PredictorRecurrent+j*hidden)*A:]
			v += float32(rec[0] * h[0])
			v += float32(rec[A] * h[1])
			v += float32(rec[2*A] * h[2])
			v += float32(rec[3*A] * h[3])
			a.h[j] = h[j] + float32(c[(kernels.PredictorLeak+j)*A]*(fmath.Tanh(v)-h[j]))
		}

		if first {
			a.mean = value
		}
		// The prediction, from the units and from what is usual at this time.
		in := [readout]float32{
			a.h[0], a.h[1], a.h[2], a.h[3],
			fmath.Clamp(last-a.mean, reach3), float32(known * fmath.Clamp(day-a.mean, reach3)),
			fmath.Clamp(week, reach3),
		}
		predicted, norm, square := float32(0), float32(ridge), float32(0)
		for j, x := range in {
			predicted += float32(a.w[j] * x)
			norm += float32(x * x)
			square += float32(a.w[j] * a.w[j])
		}
		off := value - a.mean
		e := off - predicted
		size := fmath.Abs(e)
		usual := a.err + errorFloor

		// The surprises: the error, its drift and its unrest, each relative to its usual size.
		fast, held := fmath.Max(inverse, c[kernels.PredictorFast*A]), fmath.Clamp(e, float32(gradientClip*usual))
		a.drift += float32(fast * (held - a.drift))
		drift := fmath.Abs(a.drift)
		limit := float32(usualClip * usual)
		a.unrest += float32(fmath.Max(inverse, c[kernels.PredictorUnrest*A]) * (fmath.Min(size, limit) - a.unrest))

		// The step from row to row, and the distance from the group's level, relative to their
		// usual sizes.
		step := fmath.Log2Rough(fmath.Abs(value-last) + errorFloor)
		near := a.roughUsual + fmath.Clamp(step-a.roughUsual, roughReach)
		a.rough += float32(fmath.Max(inverse, c[kernels.PredictorRoughRate*A]) * (near - a.rough))
		a.roughUsual += float32(slow * (step - a.roughUsual))
		a.away += float32(fmath.Max(inverse, c[kernels.PredictorAwayRate*A]) * (value - a.away))
		away, awayUsual := fmath.Abs(a.away), a.awayUsual+2*errorFloor
		for k, bin := range [kinds]uint32{
			kernels.PredictorInstant:  surpriseBin(size / usual),
			kernels.PredictorLasting:  surpriseBin(drift / (a.driftUsual + driftFloor)),
			kernels.PredictorRestless: surpriseBin((a.unrest + errorFloor) / usual),
			kernels.PredictorRough:    octaveBin(a.rough - a.roughUsual),
			kernels.PredictorCalm:     octaveBin(a.roughUsual - a.rough),
			kernels.PredictorAway:     surpriseBin((away + 2*errorFloor) / awayUsual),
		} {
			g.bins[k][i] = bin
		}
		g.weights[i] = voteWeight(usual, a.naive)

		// Learning: a normalised gradient step of the readout, and the usual sizes.
		gain := float32(learn*held) / norm
		for j, x := range in {
			a.w[j] += float32(gain * x)
		}
		if square > largestReadout {
			a.w = [readout]float32{}
		}
		a.driftUsual += float32(rate * (fmath.Min(drift, float32(usualClip*(a.driftUsual+driftFloor))) - a.driftUsual))
		a.awayUsual += float32(slow * (fmath.Min(away, float32(usualClip*awayUsual)) - a.awayUsual))
		a.err += float32(rate * (fmath.Min(size, limit) - a.err))
		a.naive += float32(rate * (fmath.Min(fmath.Abs(off), limit) - a.naive))
		a.mean += float32(fmath.Max(inverse, c[kernels.PredictorSlow*A]) * fmath.Clamp(off, limit))
	}
}

// voteWeight is what an agent's vote counts: the more, the smaller its usual error is compared with
// what it would err without a readout. It is in [weightBase, MaxVoteWeight].
func voteWeight(usual, naive float32) uint32 {
	skill := 1 - usual/(naive+2*errorFloor)
	skill = fmath.Max(0, fmath.Min(1, skill))
	return weightBase + uint32(float32(weightGain*skill))
}

func (g *predictorGroup) load(o *observation) {
	o.loadGroup(kernels.PredictorVarLevel, g.front.level)
	o.loadGroup(kernels.PredictorVarSpread, g.front.spread)
	o.loadOffsets(kernels.PredictorVarOffset, g.plain.offset)
	o.loadGroup(kernels.PredictorVarLast, g.front.last)
	g.related.load(o)
	g.habits.load(o)
	g.pace.load(o)
	g.peaks.fresh = false
	for k := range g.history {
		g.history[k].load(o, k)
	}
	g.learnt = false
	o.loadGroup32(kernels.PredictorVarBlock, g.block[:])
	g.hold, g.fitted = o.f32[o.group(kernels.PredictorVarHold, 0)], false
	g.each(o, func(state []float32, at func(*predictorAgent) *float32) {
		for i := range g.agents {
			*at(&g.agents[i]) = state[i]
		}
	})
	if several {
		g.open(o)
	}
}

// open passes the state of the group and its table to the lanes.
func (g *predictorGroup) open(o *observation) {
	row := 0
	for _, v := range predictorRows {
		for c := range v.components {
			g.lanes.Float(row, o.each(v.name, c))
			row++
		}
	}
	for c := range kernels.PredictorProject {
		g.lanes.Float(lanes.RowTable+c, o.weights[c*o.agents:][:o.agents])
	}
	for k, bins := range g.bins {
		g.lanes.Word(lanes.RowBins+k, bins)
	}
	g.lanes.Word(lanes.RowWeight, g.weights)
}

// predictorRows are the variables of an agent in the order of the rows of lanes.Predictor.
var predictorRows = []struct{ name, components int }{
	{kernels.PredictorVarHidden, hidden},
	{kernels.PredictorVarReadout, readout},
	{kernels.PredictorVarMean, 1},
	{kernels.PredictorVarError, 1},
	{kernels.PredictorVarDrift, 1},
	{kernels.PredictorVarDriftUsual, 1},
	{kernels.PredictorVarNaive, 1},
	{kernels.PredictorVarUnrest, 1},
	{kernels.PredictorVarRough, 1},
	{kernels.PredictorVarRoughUsual, 1},
	{kernels.PredictorVarAway, 1},
	{kernels.PredictorVarAwayUsual, 1},
}

func (g *predictorGroup) store(o *observation) {
	o.storeGroup(kernels.PredictorVarLevel, g.front.level)
	o.storeGroup(kernels.PredictorVarSpread, g.front.spread)
	o.storeOffsets(kernels.PredictorVarOffset, g.plain.offset)
	o.storeGroup(kernels.PredictorVarLast, g.front.last)
	g.related.store(o)
	g.habits.store(o)
	g.pace.store(o)
	if g.learnt {
		o.storeGroup32(kernels.PredictorVarHistory, g.histories())
	}
	o.storeGroup32(kernels.PredictorVarBlock, g.block[:])
	o.f32[o.group(kernels.PredictorVarHold, 0)] = g.hold
	g.each(o, func(state []float32, at func(*predictorAgent) *float32) {
		for i := range g.agents {
			state[i] = *at(&g.agents[i])
		}
	})
}

// each visits every component of the agents' state: the page's elements, one an agent, and where
// they live in the scratch.
func (g *predictorGroup) each(o *observation, visit func(state []float32, at func(*predictorAgent) *float32)) {
	component := func(v, c int, at func(*predictorAgent) *float32) {
		visit(o.each(v, c)[len(g.weights)-len(g.agents):], at)
	}
	for j := range hidden {
		component(kernels.PredictorVarHidden, j, func(a *predictorAgent) *float32 { return &a.h[j] })
	}
	for j := range readout {
		component(kernels.PredictorVarReadout, j, func(a *predictorAgent) *float32 { return &a.w[j] })
	}
	component(kernels.PredictorVarMean, 0, func(a *predictorAgent) *float32 { return &a.mean })
	component(kernels.PredictorVarError, 0, func(a *predictorAgent) *float32 { return &a.err })
	component(kernels.PredictorVarDrift, 0, func(a *predictorAgent) *float32 { return &a.drift })
	component(kernels.PredictorVarDriftUsual, 0, func(a *predictorAgent) *float32 { return &a.driftUsual })
	component(kernels.PredictorVarNaive, 0, func(a *predictorAgent) *float32 { return &a.naive })
	component(kernels.PredictorVarUnrest, 0, func(a *predictorAgent) *float32 { return &a.unrest })
	component(kernels.PredictorVarRough, 0, func(a *predictorAgent) *float32 { return &a.rough })
	component(kernels.PredictorVarRoughUsual, 0, func(a *predictorAgent) *float32 { return &a.roughUsual })
	component(kernels.PredictorVarAway, 0, func(a *predictorAgent) *float32 { return &a.away })
	component(kernels.PredictorVarAwayUsual, 0, func(a *predictorAgent) *float32 { return &a.awayUsual })
}
