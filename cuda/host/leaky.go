package host

import (
	"sync"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func init() { register("leaky_observe", leakyObserve) }

// leakyGroup is the state of one group while its run is stepped, pooled like predictorGroup.
type leakyGroup struct {
	front     front
	byBin     [kernels.SurpriseBins]uint32
	potential []float32 // [A], in the page
	usual     []float32 // [A], in the page
}

var leakyPool = sync.Pool{New: func() any { return new(leakyGroup) }}

// leakyObserve is the Go twin of leaky_observe: every agent integrates its view of the features with a leak of its own, and
// votes by how far, in its usual distances, the present view lies from the integral.
func leakyObserve(b *Block) {
	o := openObservation(b)
	if o.run.Count == 0 {
		return
	}
	features := int(o.words[kernels.LeakyFeatures])
	g := leakyPool.Get().(*leakyGroup)
	defer leakyPool.Put(g)
	if len(g.front.now) != features {
		g.front = front{level: make([]float32, features), spread: make([]float32, features), now: make([]float32, features)}
	}
	o.loadGroup(kernels.LeakyVarLevel, g.front.level)
	o.loadGroup(kernels.LeakyVarSpread, g.front.spread)
	g.potential = o.f32[o.agent(kernels.LeakyVarPotential, 0):][:o.agents]
	g.usual = o.f32[o.agent(kernels.LeakyVarUsual, 0):][:o.agents]
	round := &o.u64[o.group64(kernels.LeakyVarRound)]
	for n := o.run.First; n < o.run.First+o.run.Count; n++ {
		g.observe(&o, int(n), round, o.features[int(n)*features:][:features])
	}
	o.storeGroup(kernels.LeakyVarLevel, g.front.level)
	o.storeGroup(kernels.LeakyVarSpread, g.front.spread)
}

func (g *leakyGroup) observe(o *observation, n int, round *uint64, x []float32) {
	seen := *round
	inverse := 1 / float32(seen+1)
	g.front.see(x, seen, max32(inverse, o.float(kernels.LeakyFrontRate)), o.float(kernels.LeakyClip))
	suspicious, anomalous := uint32(kernels.SurpriseBins), uint32(kernels.SurpriseBins)
	warm := seen >= uint64(o.words[kernels.LeakyWarmup])
	if warm {
		suspicious = surpriseBin(o.float(kernels.LeakySuspicious))
		anomalous = surpriseBin(o.float(kernels.LeakyAnomalous))
	}
	var (
		t    tally
		rate = max32(inverse, o.float(kernels.LeakyHistoryRate))
		A    = o.agents
	)
	clear(g.byBin[:])
	for i := range g.potential {
		c := o.weights[i:]
		view := project(c[kernels.LeakyProject*A:], A, g.front.now)
		distance := view - g.potential[i]
		usual := g.usual[i] + errorFloor
		bin := surpriseBin(abs32(distance) / usual)
		g.potential[i] += float32(max32(inverse, c[kernels.LeakyRate*A]) * distance)
		g.usual[i] += float32(rate * (min32(abs32(distance), float32(usualClip*usual)) - g.usual[i]))

		g.byBin[bin]++
		candidate := uint32(kernels.VoteNormal)
		switch {
		case bin >= anomalous:
			candidate = kernels.VoteAnomalous
		case bin >= suspicious:
			candidate = kernels.VoteSuspicious
		}
		t.vote(uint32(i), candidate, 1, bin)
	}
	score := float32(0)
	if warm {
		ratio := surpriseRatio(groupSurprise(&g.byBin, uint32(A), o.words[kernels.LeakyShare]))
		score = ratio / (ratio + o.float(kernels.LeakyAnomalous))
	}
	o.out.scores[n] = score
	o.out.decisions[n] = t.decide(kernels.Rule(o.words[kernels.LeakyRule]), o.words[kernels.LeakyQuorum])
	copy(o.out.counts[n*kernels.VoteCandidates:], t.counts[:])
	o.out.leaders[n] = t.leader
	o.out.rounds[n] = electRound(round, seen)
}
