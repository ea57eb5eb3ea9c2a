package celltwin

import "github.com/exoswarm/exoswarm/cuda/kernels"

// early is how many observations pass before a page has the surprises of a group. Blocks begin at
// eager.
const early = 10

// prior is what a young group takes from other groups; see kernels.PriorKnots.
type prior struct {
	weight float32 // 0: the group is not young, or constant
	age    int
}

// priorEvidence is the evidence of the bins at each age.
var priorEvidence [len(kernels.PriorAges)][kernels.SurpriseBins]float32

func init() {
	for age, knots := range kernels.PriorKnots {
		low, evidence := uint16(0), uint32(1)
		for k, high := range knots {
			for bin := low; bin < high; bin++ {
				part := float32(bin-low) / float32(high-low)
				more := float32(kernels.PriorEvidence[age][k] - evidence)
				priorEvidence[age][bin] = float32(evidence) + float32(part*more)
			}
			low, evidence = high, kernels.PriorEvidence[age][k]
		}
		for bin := low; bin < kernels.SurpriseBins; bin++ {
			priorEvidence[age][bin] = float32(evidence)
		}
	}
}

// priorOf returns the prior of a group that has seen some observations, in blocks of some, whose
// first agent has a usual step, in log2 of spreads.
func priorOf(seen uint64, block uint32, steps float32) prior {
	if seen >= kernels.PriorRows || steps < kernels.PriorSteps {
		return prior{}
	}
	// What is rare in a block of BlockRows is less so in a longer one.
	p := prior{weight: float32(kernels.PriorRows-seen) / float32(kernels.PriorRows/kernels.BlockRows*block)}
	for age, from := range kernels.PriorAges {
		if seen >= uint64(from) {
			p.age = age
		}
	}
	return p
}

// evidence returns what the prior says of an instant surprise.
func (p prior) evidence(bin uint32) float32 {
	return float32(p.weight * priorEvidence[p.age][bin%kernels.SurpriseBins])
}

// steps returns the usual step of the first agent, in log2 of spreads.
func (g *predictorGroup) steps(o *observation) float32 {
	if manyOf(len(g.weights)) > 0 {
		return o.f32[o.agent(kernels.PredictorVarRoughUsual, 0)]
	}
	return g.agents[0].roughUsual
}
