package celltwin

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// slowGroup is the predictor as its description reads, without pages, bins of weight or pools: what
// the fast twin must equal to the bit. Sums over agents are made by sorting.
type slowGroup struct {
	b       *cells.Bound
	words   []uint32
	table   []float32
	seen    uint64
	offset  []float64
	level   []float32 // of the features above their offsets, and of their residuals
	spread  []float32
	last    []float32
	tells   map[[2]int]float32 // what a feature, now or before, tells of another one
	misses  []float32
	days    *slowHabit
	weeks   *slowHabit
	reached [6][kernels.HistoryBins]uint32 // of every kind of surprise
	block   [6]uint32
	hold    float32
	inside  bool // an incident lasts
	since   int64
	pace    slowPace
	peaks   slowPeaks
	agents  []slowAgent
}

type slowAgent struct {
	h, w                                        []float32
	mean, err, drift, driftUsual, naive, unrest float32
	rough, roughUsual, away, awayUsual          float32
}

func newSlowGroup(b *cells.Bound) *slowGroup {
	views := b.Features
	if views > 1 && b.Value("relations") == 1 {
		views *= 2
	}
	g := &slowGroup{
		b: b, words: b.ParamBlock(), table: b.Weights(testSeed),
		offset: make([]float64, b.Features), level: make([]float32, views), spread: make([]float32, views),
		last:  make([]float32, views),
		tells: map[[2]int]float32{}, misses: make([]float32, b.Features),
		days: newSlowHabit(views), weeks: newSlowHabit(views),
		agents: make([]slowAgent, b.Agents),
	}
	for i := range g.agents {
		g.agents[i] = slowAgent{
			h: make([]float32, kernels.PredictorHidden),
			w: make([]float32, kernels.PredictorReadout),
		}
	}
	return g
}

func (g *slowGroup) p(i int) float32 { return math.Float32frombits(g.words[i]) }

func (g *slowGroup) weight(component, agent int) float32 { return g.table[component*g.b.Agents+agent] }

// view is an agent's projection of a vector of features.
func (g *slowGroup) view(agent int, x []float32) float32 {
	sum := float32(0)
	for f := range x {
		sum += times(g.weight(kernels.PredictorProject+f, agent), x[f])
	}
	return sum
}

// toward is old moved to target by a rate.
func toward(old, target, rate float32) float32 {
	return old + times(rate, target-old)
}

// times is a product that is rounded before it is added, although the processor could fuse the two.
func times(a, b float32) float32 { return float32(a * b) }

func limited(x, limit float32) float32 { return max(-limit, min(limit, x)) }

func (g *slowGroup) observe(t int64, x []float32) (score float32, decision uint32, counts []uint32, leader uint32) {
	n := float32(g.seen + 1)
	inverse := 1 / n

	// The observation in spreads, and what the features do not tell of each other.
	x = g.above(x)
	now := make([]float32, len(g.level))
	for f := range now {
		if f >= len(x) {
			for k := range g.b.Features {
				x = append(x, g.residual(k, now[:g.b.Features], inverse))
			}
		}
		v := limited(x[f], 1e36)
		if g.seen == 0 {
			g.level[f] = v
		}
		unit := g.spread[f] + times(1e-6, fmath.Abs(g.level[f])) + 1e-30
		rate, d := max(inverse, g.p(kernels.PredictorFrontRate)), v-g.level[f]
		limit := times(g.p(kernels.PredictorClip), unit)
		if fmath.Abs(d) < limit {
			now[f] = d / unit
		} else {
			now[f] = float32(math.Copysign(float64(g.p(kernels.PredictorClip)), float64(d)))
			if g.seen >= 20 {
				d, rate = limited(d, limit), max(rate, 1.0/64)
			}
		}
		if g.seen < 5 {
			now[f] = 0
		}
		g.level[f] += times(rate, d)
		g.spread[f] = toward(g.spread[f], times(1.25, fmath.Abs(d)), rate)
	}

	// The habits.
	const nanosecondsDay = 86_400_000_000_000
	mod := func(a, b int64) int64 { return (a%b + b) % b }
	daySlot, weekSlot := int(mod(t, nanosecondsDay)/(nanosecondsDay/48)),
		int(mod(t, 7*nanosecondsDay)/(nanosecondsDay/24))
	dayVisit := slowVisit{(t - mod(t, nanosecondsDay/48)) / (nanosecondsDay / 48), daySlot}
	weekVisit := slowVisit{(t - mod(t, nanosecondsDay/24)) / (nanosecondsDay / 24), weekSlot}
	habit := g.p(kernels.PredictorHabitRate)
	g.days.enter(dayVisit, func(visits int) float32 { return max(1/max(1, float32(visits)), habit) })
	g.weeks.enter(weekVisit, func(visits int) float32 { return max(1/(float32(visits)+1), 2*habit) })
	day, week := g.days.shown(daySlot), g.weeks.shown(weekSlot)

	// What other groups tell a young one.
	prior := func(uint32) float32 { return 0 }
	if g.seen < 512 && g.agents[0].roughUsual >= -4 {
		age, weight := 0, float32(512-g.seen)/float32(8*g.words[kernels.PredictorBlock])
		for age < 7 && g.seen >= uint64(kernels.PriorAges[age+1]) {
			age++
		}
		prior = func(bin uint32) float32 {
			low, told := uint32(0), float32(1)
			for k, knot := range kernels.PriorKnots[age] {
				more := float32(kernels.PriorEvidence[age][k])
				if bin < uint32(knot) {
					told += times(float32(bin-low)/float32(uint32(knot)-low), more-told)
					break
				}
				low, told = uint32(knot), more
			}
			return times(weight, told)
		}
	}

	// The agents.
	type ballot struct {
		bins   [6]uint32
		weight uint32
		agent  int
	}
	ballots := make([]ballot, len(g.agents))
	for i := range g.agents {
		bins, weight := g.step(i, now, day, week, g.days.visits[daySlot] > 0, inverse)
		ballots[i] = ballot{bins, weight, i}
	}

	usual := g.peaks.usual(dayVisit, g.seen)
	for i := range ballots {
		for kind := range usual {
			ballots[i].bins[kind] -= min(ballots[i].bins[kind], usual[kind])
		}
	}

	evidenceOf := func(nats float32) float32 { return fmath.Exp(max(0, min(40, nats))) }
	evidence := func(bins [6]uint32) float32 {
		sum := float32(0)
		for kind, bin := range bins {
			reached := g.reached[kind]
			came := float32(reached[bin/4])
			share := came / (came + 30)
			tail, total := evidenceOf(g.surprisal(reached, bin)), float32(reached[0])
			sum += tail / (1 - share + times(tail, times(share, (came+0.5)/(total+1))))
		}
		return sum
	}

	// The levels: fixed, or by the observations of a second so far.
	alarm, suspect := g.p(kernels.PredictorAlarm), g.p(kernels.PredictorSuspect)
	if perSecond := g.p(kernels.PredictorPerSecond); perSecond > 0 {
		if g.seen == 0 {
			g.since = t
		}
		step := times(float32(t-g.since), 1e-9) / float32(max(g.seen, 1))
		l := fmath.Log(max(1e-30, min(0.32, times(perSecond, step))))
		alarm = 0.77 - times(0.52, l)
		rare := max(0, -3.5-l)
		alarm += times(0.04, times(rare, rare))
		suspect = times(0.75, alarm)
	}

	// The votes. A group of few blocks knows little, and less after an interval that is unusual.
	blocks := g.pace.known(t, n, float32(g.words[kernels.PredictorBlock]), float32(g.reached[0][0])) + 1
	most := times(blocks, blocks)
	known := func(nats, most float32) float32 {
		if e := evidenceOf(nats); e < most {
			return e / (1 - e/most)
		}
		return float32(math.Inf(1))
	}
	warm := g.seen >= uint64(g.words[kernels.PredictorWarmup])
	counts = make([]uint32, 3)
	all := uint64(0)
	best := ballots[0]
	for _, b := range ballots {
		all += uint64(b.weight)
		vote, most := 0, most+prior(b.bins[0])
		if warm && evidence(b.bins) >= 6*known(suspect, most) {
			vote = 1
		}
		if warm && evidence(b.bins) >= 6*known(max(g.hold, alarm), most) {
			vote = 2
		}
		if g.b.Voting.Rule == kernels.RuleWeighted {
			counts[vote] += b.weight
		} else {
			counts[vote]++
		}
		if b.weight > best.weight {
			best = b
		}
	}

	// The group's surprise of each kind: walk down from the most surprised agent until a share of
	// the weight has been passed.
	var bins [6]uint32
	for kind := range bins {
		slices.SortFunc(ballots, func(a, b ballot) int { return int(b.bins[kind]) - int(a.bins[kind]) })
		passed := uint64(0)
		for _, b := range ballots {
			passed += uint64(b.weight)
			if passed<<16 >= uint64(g.words[kernels.PredictorShare])*all {
				bins[kind] = b.bins[kind]
				break
			}
		}
	}
	opens := false
	if warm {
		all := evidence(bins) / 6
		most += prior(bins[0])
		s := max(0, fmath.Log(all/(1+all/most)))
		score = s / (s + 4)
		opens = !g.inside && s >= alarm && s > g.hold
		if s <= g.hold || g.inside || s < times(0.85, alarm) { // quiet rows stay below the alarm
			score = times(times(0.83, alarm/(alarm+4)), score)
		}
		g.hold = max(times(g.hold, g.p(kernels.PredictorHold)), times(g.p(kernels.PredictorMargin), s))
	}

	// The decision. An incident opens once, and lasts until the group is normal again.
	if !opens {
		counts[1], counts[2] = counts[1]+counts[2], 0
	}
	decision = uint32(slices.Index(counts, slices.Max(counts)))
	g.inside = decision == 2 || g.inside && decision != 0
	for kind := range bins {
		if g.seen < 10 {
			break
		}
		if g.seen == 20 {
			g.block[kind] = 0
		}
		g.block[kind] = max(g.block[kind], bins[kind])
		if g.seen < 20 {
			continue
		}
		g.peaks.now[kind] = max(g.peaks.now[kind], min(511, bins[kind]+usual[kind]))
		if reached := &g.reached[kind]; (g.seen+1)%uint64(g.words[kernels.PredictorBlock]) == 0 {
			for b := range reached {
				if b <= int(g.block[kind]/4) {
					reached[b]++
				}
			}
			g.block[kind] = 0
			if reached[0] >= g.words[kernels.PredictorMemory] {
				for b := range reached {
					reached[b] /= 2
				}
			}
		}
	}

	// What stays.
	near := make([]float32, len(now))
	for f := range now {
		near[f] = limited(now[f], 3)
	}
	if beyond := g.days.add(daySlot, near); beyond != nil {
		g.weeks.add(weekSlot, beyond)
	}
	g.last = now
	g.seen++
	return score, decision, counts, uint32(best.agent)
}

// slowPace is the intervals between the times of a group.
type slowPace struct {
	at              int64 // the time before
	usual, blocks   float32
	longer, shorter float32 // than usual, at most
}

// known is how many of its blocks a group knows enough for at its n-th observation, at time t.
func (p *slowPace) known(t int64, n, block, blocks float32) float32 {
	p.blocks = min(p.blocks+2/block, blocks)
	if n > 1 && t != p.at {
		l := fmath.Log(float32(uint64(max(t-p.at, p.at-t))))
		if p.usual == 0 {
			p.usual = l
		}
		d := max(-1, l-p.usual)
		side := &p.longer
		if d < 0 {
			side = &p.shorter
		}
		beyond := fmath.Abs(d) - times(1.2, *side) - 0.1
		if beyond > 0 {
			p.blocks /= fmath.Exp(min(80, times(4, beyond)))
			*side += times(max(0.25, min(1, times(128, 1/n))), min(4, beyond))
		} else {
			*side -= *side / 16384
		}
		p.usual += times(max(1.0/32, 1/n), min(1, d))
	}
	p.at = t
	return p.blocks
}

// slowPeaks is the largest surprises of the visits of each half hour of the day.
type slowPeaks struct {
	visit  slowVisit
	now    [6]uint32
	mean   [6]float32
	visits map[int][][6]uint32 // by slot
}

// usual is what was reached in both of the last two visits beyond the mean of all.
func (p *slowPeaks) usual(v slowVisit, seen uint64) (bins [6]uint32) {
	if seen == 0 {
		p.visits = map[int][][6]uint32{}
	} else if v.at != p.visit.at {
		p.visits[p.visit.slot] = append(p.visits[p.visit.slot], p.now)
		for kind, peak := range p.now {
			if p.mean[kind] == 0 {
				p.mean[kind] = float32(peak)
			}
			p.mean[kind] = toward(p.mean[kind], float32(peak), 1.0/32)
		}
		p.now = [6]uint32{}
	}
	p.visit = v
	if of := p.visits[v.slot]; len(of) > 1 {
		for kind := range bins {
			both := float32(min(of[len(of)-1][kind], of[len(of)-2][kind]))
			bins[kind] = uint32(max(0, both-p.mean[kind]))
		}
	}
	return bins
}

// above returns the features less their offsets.
func (g *slowGroup) above(x []float32) []float32 {
	offset := func(v float64) float64 {
		if math.Abs(v) < 65536 || math.Abs(v) >= 1<<61 {
			return 0
		}
		return math.Trunc(v)
	}
	up := make([]float32, len(x))
	for f, v := range x {
		if g.seen == 0 {
			g.offset[f] = offset(float64(v))
		} else if by := offset(float64(g.level[f])); g.seen >= 20 &&
			fmath.Abs(g.level[f]) > times(1<<10, g.spread[f]) &&
			math.Abs(g.offset[f]+by) < 1<<61 {
			g.offset[f] += by
			g.level[f] -= float32(by)
		}
		up[f] = float32(float64(v) - g.offset[f])
	}
	return up
}

// A slowVisit is a half hour or an hour since 1970, and its slot.
type slowVisit struct {
	at   int64
	slot int
}

// slowHabit is the habits of the slots of one clock.
type slowHabit struct {
	visit       slowVisit
	count       int
	worth, mean []float32
	visits      map[int]int
	habits      map[int][]float32
}

func newSlowHabit(views int) *slowHabit {
	return &slowHabit{
		worth: slices.Repeat([]float32{0.4}, views), mean: make([]float32, views), visits: map[int]int{},
		habits: map[int][]float32{},
	}
}

func (h *slowHabit) of(slot int) []float32 {
	if h.habits[slot] == nil {
		h.habits[slot] = make([]float32, len(h.mean))
	}
	return h.habits[slot]
}

// enter ends the visit before, if it is another one.
func (h *slowHabit) enter(v slowVisit, rate func(visits int) float32) {
	if slot := h.visit.slot; h.count > 0 && v.at != h.visit.at {
		for f, mean := range h.mean {
			h.of(slot)[f] = toward(h.of(slot)[f], mean, rate(h.visits[slot]))
			h.mean[f] = 0
		}
		h.visits[slot]++
		h.count = 0
	}
	h.visit = v
}

// shown is what agents see of the habit of a slot.
func (h *slowHabit) shown(slot int) []float32 {
	see := slices.Clone(h.of(slot))
	for f := range see {
		see[f] = times(max(0, min(1, times(10, h.worth[f]))), see[f])
	}
	return see
}

// add counts an observation of a slot, and returns what is beyond its habit, or nil if it has none.
func (h *slowHabit) add(slot int, now []float32) (beyond []float32) {
	h.count++
	for f, u := range now {
		h.mean[f] += (u - h.mean[f]) / float32(h.count)
		if h.visits[slot] > 0 {
			beyond = append(beyond, u-h.of(slot)[f])
			h.worth[f] = toward(h.worth[f], fmath.Abs(u)-fmath.Abs(beyond[f]), 0.005)
		}
	}
	return beyond
}

// residual is how far a feature is from the sum of what all others tell of it. It learns.
func (g *slowGroup) residual(of int, now []float32, inverse float32) float32 {
	told, norm := float32(0), float32(0.1)
	others := map[int]float32{}
	for k := range 2 * len(now) {
		x := append(slices.Clone(now), g.last[:len(now)]...)[k]
		if k%len(now) == of {
			continue
		}
		others[k] = limited(x, 8)
		told += times(g.tells[[2]int{of, k}], others[k])
		norm += times(others[k], others[k])
	}
	miss, usual := limited(now[of], 8)-told, g.misses[of]+0.01
	step := times(max(0.005, times(0.5, inverse)), limited(miss, times(4, usual))) / norm
	for k, x := range others {
		g.tells[[2]int{of, k}] += times(step, x)
	}
	rate := max(inverse, g.p(kernels.PredictorHistoryRate))
	g.misses[of] = toward(g.misses[of], min(fmath.Abs(miss), times(8, usual)), rate)
	return miss
}

// surprisal is the score of a surprise against the history of its kind.
func (g *slowGroup) surprisal(reached [kernels.HistoryBins]uint32, bin uint32) float32 {
	total := float32(reached[0])
	edge := 0
	for b := range reached {
		if float32(reached[b]) > times(g.p(kernels.PredictorTailShare), total) {
			edge = b
		}
	}
	edge++
	tail, distance := uint32(0), uint32(0)
	for b := edge; b < kernels.HistoryBins; b++ {
		above := uint32(0)
		if b+1 < kernels.HistoryBins {
			above = reached[b+1]
		}
		tail += reached[b] - above
		distance += (reached[b] - above) * uint32(2*(b-edge)+1)
	}
	rank := fmath.Log((total + 1) / (float32(reached[bin/4]) + 0.5))
	if int(bin) < 4*edge {
		return rank
	}
	prior := times(g.p(kernels.PredictorTailShape), g.p(kernels.PredictorTailTrust))
	measured := times(float32(distance), math.Ln2/16)
	excess := (prior + measured) / (g.p(kernels.PredictorTailTrust) + float32(tail))
	over := times(float32(int(bin)-4*edge), math.Ln2/32)
	far := fmath.Log((total+1)/(float32(tail)+1)) + over/excess
	return far + times(g.p(kernels.PredictorRankMix), rank-far)
}

// step moves one agent and returns its surprise of each kind and its weight.
func (g *slowGroup) step(i int, now, day, week []float32, known bool, inverse float32) (bins [6]uint32, weight uint32) {
	a := &g.agents[i]
	value, inputs := g.view(i, now), []float32{1, g.view(i, g.last)}
	h := make([]float32, kernels.PredictorHidden)
	for j := range h {
		v := float32(0)
		for k, x := range inputs {
			v += times(g.weight(kernels.PredictorIn+j*kernels.PredictorInputs+k, i), x)
		}
		for k, x := range a.h {
			v += times(g.weight(kernels.PredictorRecurrent+j*kernels.PredictorHidden+k, i), x)
		}
		h[j] = toward(a.h[j], fmath.Tanh(v), g.weight(kernels.PredictorLeak+j, i))
	}
	a.h = h
	if g.seen == 0 {
		a.mean = value
	}
	in := append(slices.Clone(h), limited(inputs[1]-a.mean, 3), 0, limited(g.view(i, week), 3))
	if known {
		in[len(h)+1] = limited(g.view(i, day)-a.mean, 3)
	}
	predicted, norm := float32(0), float32(0.1)
	for j := range in {
		predicted += times(a.w[j], in[j])
		norm += times(in[j], in[j])
	}
	off := value - a.mean
	e := off - predicted
	usual, driftUsual := a.err+0.01, a.driftUsual+0.005
	a.drift = toward(a.drift, limited(e, times(4, usual)), max(inverse, g.weight(kernels.PredictorFast, i)))
	a.unrest = toward(a.unrest, min(fmath.Abs(e), times(8, usual)), max(inverse, g.weight(kernels.PredictorUnrest, i)))
	long := max(inverse, g.p(kernels.PredictorFrontRate))
	row := fmath.Log2Rough(fmath.Abs(value-inputs[1]) + 0.01)
	near := a.roughUsual + limited(row-a.roughUsual, 4)
	a.rough = toward(a.rough, near, max(inverse, g.weight(kernels.PredictorRoughRate, i)))
	a.roughUsual = toward(a.roughUsual, row, long)
	a.away = toward(a.away, value, max(inverse, g.weight(kernels.PredictorAwayRate, i)))
	ratios := [6]float32{
		fmath.Abs(e) / usual, fmath.Abs(a.drift) / driftUsual, (a.unrest + 0.01) / usual, 0, 0,
		(fmath.Abs(a.away) + 0.02) / (a.awayUsual + 0.02),
	}
	a.awayUsual = toward(a.awayUsual, min(fmath.Abs(a.away), times(8, a.awayUsual+0.02)), long)
	skill := max(0, min(1, 1-usual/(a.naive+0.02)))
	weight = 1024 + uint32(times(7168, skill))

	step := times(g.p(kernels.PredictorLearn), limited(e, times(4, usual))) / norm
	for j := range a.w {
		a.w[j] += times(step, in[j])
	}
	rate := max(inverse, g.p(kernels.PredictorHistoryRate))
	a.driftUsual = toward(a.driftUsual, min(fmath.Abs(a.drift), times(8, driftUsual)), rate)
	a.err = toward(a.err, min(fmath.Abs(e), times(8, usual)), rate)
	a.naive = toward(a.naive, min(fmath.Abs(off), times(8, usual)), rate)
	a.mean += times(max(inverse, g.weight(kernels.PredictorSlow, i)), limited(off, times(8, usual)))

	// The bin of a ratio: 32 to the octave from 2^-6, evenly spaced inside an octave.
	for kind, ratio := range ratios {
		if ratio >= 1.0/64 {
			fraction, exponent := math.Frexp(float64(ratio))
			bins[kind] = min(uint32((exponent-1+6)*32+int(math.Floor((2*fraction-1)*32))), 511)
		}
	}
	// Roughness and calm are logarithms already.
	bins[3] = uint32(max(0, min(511, 192+times(32, a.rough-a.roughUsual))))
	bins[4] = uint32(max(0, min(511, 192+times(32, a.roughUsual-a.rough))))
	return bins, weight
}

// TestPredictorEqualsSlowTwin runs random series through both.
func TestPredictorEqualsSlowTwin(t *testing.T) {
	for trial := range 12 {
		rng := rand.New(rand.NewPCG(uint64(trial), 3))
		features, agents := 1+trial%3*trial%5, 1+rng.IntN(40)
		voting := cells.Weighted
		if trial%4 == 3 {
			voting = cells.Voting{Rule: kernels.RulePlurality}
		}
		perDay := 0.0
		if trial%3 == 1 {
			perDay = math.Exp(8*rng.Float64() - 4)
		}
		b := bind(t, "predictor", map[string]float64{
			"alarms_per_day": perDay,
			"warmup":         25, "block": float64(1 + rng.IntN(20)), "memory": float64(100 + rng.IntN(500)),
			"learn": rng.Float64() * 0.5,
			"share": 0.1 + 0.8*rng.Float64(),
			"clip":  2 + 40*rng.Float64(), "history": 20 + 500*rng.Float64(), "alarm": 0.3,
			"relations": float64(min(1, trial%8)),
		}, agents, features, voting)
		events := randomEvents(rng, testkit.Of(900, 500), 1, features)
		fast, slow := newSwarm(t, b, 1<<18).play(events, nil), newSlowGroup(b)
		equalOneByOne(t, b, events)
		alarms := 0
		for i, e := range events {
			score, decision, counts, leader := slow.observe(e.time, e.features)
			if score != fast.scores[i] || decision != fast.decisions[i] || leader != fast.leaders[i] ||
				!slices.Equal(counts, fast.counts[i*3:][:3]) {
				t.Fatalf("trial %d, observation %d: fast %v %d %d %v, slow %v %d %d %v", trial, i,
					fast.scores[i], fast.decisions[i], fast.leaders[i], fast.counts[i*3:][:3], score, decision, leader,
					counts)
			}
			if decision == kernels.VoteAnomalous {
				alarms++
			}
		}
		if alarms == 0 {
			t.Errorf("trial %d: no anomalous decision among %d: the comparison does not reach the alarm", trial,
				len(events))
		}
	}
}

// equalOneByOne plays events to agents that are stepped several at a time and to others that are
// stepped one after the other, and requires the same outputs and pages.
func equalOneByOne(t *testing.T, b *cells.Bound, events []arrival) {
	t.Helper()
	if !several {
		return
	}
	many, single := newSwarm(t, b, 1<<18), newSwarm(t, b, 1<<18)
	want := many.play(events, nil)
	several = false
	defer func() { several = true }()
	got := single.play(events, nil)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%d agents one by one decide otherwise than several at a time", b.Agents)
	}
	if !bytes.Equal(many.page, single.page) {
		t.Errorf("%d agents one by one have another state than several at a time", b.Agents)
	}
}

// TestSeveralAgents runs random series through agents of the cells with ratios.
func TestSeveralAgents(t *testing.T) {
	for trial := range 24 {
		rng := rand.New(rand.NewPCG(uint64(trial), 5))
		features, agents := 1+trial/2%3, 1+rng.IntN(70)
		b := bind(t, []string{"leaky", "lif"}[trial%2], map[string]float64{"warmup": 25}, agents, features,
			cells.Voting{Rule: kernels.RulePlurality})
		equalOneByOne(t, b, randomEvents(rng, 300, 1, features))
	}
}
