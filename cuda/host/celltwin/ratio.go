package celltwin

import (
	"sync"

	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// ratioGroup is what leaky, lif, gru and region keep of a group while its run is stepped, pooled
// like predictorGroup. Their agents vote by a ratio, how unusual an observation is to them; all four
// have the words of leaky first in their parameter block, and round, level, spread and offset first
// in their state.
type ratioGroup struct {
	front   front
	byBin   [kernels.SurpriseBins]uint32
	bins    []uint32  // [A]: the bin of each agent's ratio
	scratch []float32 // of the cell
	// Of leaky and lif, the first agents of a group are stepped several at a time.
	leaky, lif *lanes.Group
	seen       []float32 // the feature, or of several an agent's view of them each
	ones       []float32 // [A]
}

// look returns what the agents of a group see, as a factor of each agent that begins at component
// project of the weights table, and a view that is shared or has one element for each agent.
func (g *ratioGroup) look(o *observation, project int) (factor []float32, views [][]float32) {
	directions := o.weights[project*o.agents:]
	if len(g.front.now) == 1 {
		return directions[:o.agents], [][]float32{g.front.now}
	}
	if len(g.seen) != o.agents {
		g.seen, g.ones = make([]float32, o.agents), make([]float32, o.agents)
		for i := range g.ones {
			g.ones[i] = 1
		}
	}
	projectAll(g.seen, directions, g.front.now)
	return g.ones, [][]float32{g.seen}
}

// ratioPool has groups that are not in use, with slices of any length.
var ratioPool = sync.Pool{New: func() any {
	return &ratioGroup{leaky: lanes.NewLeakyGroup(), lif: lanes.NewLif()}
}}

// ratioStep moves every agent of a group by the observation in g.front.now and fills g.bins.
// inverse is one over the number of observations with this one, rate the rate of the usual.
type ratioStep func(o *observation, g *ratioGroup, inverse, rate float32)

// observeByRatio steps one group through its run; it is the twin of observe_by_ratio. latestVar is
// the number of kernels.VarLatest.
func observeByRatio(b *twins.Block, a *kernels.ObserveBound, latestVar int, step ratioStep) {
	o := openObservation(b, a)
	if o.run.Count == 0 {
		return
	}
	features := int(o.words[kernels.LeakyFeatures])
	g := ratioPool.Get().(*ratioGroup)
	defer ratioPool.Put(g)
	if len(g.front.now) != features {
		g.front = front{
			offset: make([]int64, features), above: make([]float32, features),
			level: make([]float32, features), spread: make([]float32, features),
			now: make([]float32, features),
		}
	}
	if len(g.bins) != o.agents {
		g.bins = make([]uint32, o.agents)
	}
	o.loadGroup(kernels.LeakyVarLevel, g.front.level)
	o.loadGroup(kernels.LeakyVarSpread, g.front.spread)
	o.loadOffsets(kernels.LeakyVarOffset, g.front.offset)
	round := &o.u64[o.group64(kernels.LeakyVarRound)]
	latest := o.latest(latestVar, kernels.LeakyDrop)
	for n := o.run.First; n < o.run.First+o.run.Count; n++ {
		seen := *round
		if latest.take(&o, n, seen) {
			continue
		}
		inverse := 1 / float32(seen+1)
		g.front.raise(o.features[int(n)*features:][:features], seen)
		moves := fmath.Max(inverse, o.float(kernels.LeakyFrontRate))
		if rows := o.words[kernels.LeakyFrontRows]; rows > 0 && seen >= uint64(rows) {
			moves = 0
		}
		g.front.see(g.front.above, seen, moves, o.float(kernels.LeakyClip))
		step(&o, g, inverse, fmath.Max(inverse, o.float(kernels.LeakyHistoryRate)))
		g.vote(&o, int(n), round, seen)
	}
	o.storeGroup(kernels.LeakyVarLevel, g.front.level)
	o.storeGroup(kernels.LeakyVarSpread, g.front.spread)
	o.storeOffsets(kernels.LeakyVarOffset, g.front.offset)
}

// vote collects the votes of the agents from g.bins and writes the decision of the group.
func (g *ratioGroup) vote(o *observation, n int, round *uint64, seen uint64) {
	suspicious, anomalous := uint32(kernels.SurpriseBins), uint32(kernels.SurpriseBins)
	warm := seen >= uint64(o.words[kernels.LeakyWarmup])
	if warm {
		suspicious = surpriseBin(o.float(kernels.LeakySuspicious))
		anomalous = surpriseBin(o.float(kernels.LeakyAnomalous))
	}
	// A group that has seen too little to be warm votes normal. The agent with the highest bin leads,
	// of several the first.
	clear(g.byBin[:])
	leader, top := 0, g.bins[0]
	for i, bin := range g.bins {
		g.byBin[bin%kernels.SurpriseBins]++
		if bin > top {
			leader, top = i, bin
		}
	}
	t, loud := tally{leader: uint32(leader), priority: top, cast: true}, o.words[kernels.LeakyLoud]
	for bin, n := range g.byBin[:top+1] {
		switch {
		case uint32(bin) >= anomalous:
			t.counts[kernels.VoteAnomalous] += n * loud
		case uint32(bin) >= suspicious:
			t.counts[kernels.VoteSuspicious] += n * loud
		default:
			t.counts[kernels.VoteNormal] += n
		}
	}
	score := float32(0)
	if warm {
		ratio := surpriseRatio(groupSurprise(&g.byBin, top, uint32(o.agents), o.words[kernels.LeakyShare]))
		score = ratio / (ratio + o.float(kernels.LeakyAnomalous))
	}
	o.out.scores[n] = score
	o.out.decisions[n] = t.decide(kernels.Rule(o.words[kernels.LeakyRule]), o.words[kernels.LeakyQuorum])
	copy(o.out.counts[n*kernels.VoteCandidates:], t.counts[:])
	o.out.leaders[n] = t.leader
	o.out.rounds[n] = electRound(round, seen)
}

// each returns component c of an agent variable in the page, one element for each agent.
func (o *observation) each(v, c int) []float32 { return o.f32[o.agent(v, c):][:o.agents] }
