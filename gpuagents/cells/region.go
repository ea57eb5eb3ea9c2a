package cells

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// region is the cell for several features of one process: an agent learns which combinations of
// some inputs are normal, while the group is new, and votes by the distance from them.
var region = &Cell{
	Name: "region",
	Doc: "the normal region of several features: agents learn how some of them go together in the first " +
		"observations, and vote by the distance from that",
	Candidates: []string{"normal", "suspicious", "anomalous"},
	Agents:     32,
	Kernel:     "region_observe",
	embedding:  []string{"mean"},
	Params: []Param{
		{Name: "learn_for", Default: 400, Min: 40, Max: 1e6, Integer: true, Doc: "observations at the begin of a " +
			"series that are normal; all of them are learned, and all decisions are normal"},
		{Name: "memory", Default: 3000, Min: 100, Max: 1e9, Doc: "observations over which an agent forgets " +
			"afterwards; it learns from rows that it does not find suspicious"},
		{Name: "suspicious", Default: 2, Min: 0.1, Max: 500, Doc: "usual distances from which an agent votes " +
			"suspicious"},
		{Name: "anomalous", Default: 3, Min: 0.1, Max: 500, Doc: "usual distances from which it votes anomalous; the " +
			"score is 1/2 there"},
		{Name: "share", Default: 0.15, Min: 0.01, Max: 1, Doc: "part of the agents that must be as far away as the " +
			"group"},
		{Name: "smooth", Default: 10, Min: 1, Max: 1e6, Doc: "observations over which an agent averages its distance"},
		{Name: "fast", Default: 3, Min: 1, Max: 1e6, Doc: "observations of the short means that agents see, beside " +
			"values"},
		{Name: "slow", Default: 15, Min: 1, Max: 1e6, Doc: "observations of the long means"},
		{Name: "rough", Default: 20, Min: 1, Max: 1e6, Doc: "observations over which the sizes of steps are averaged"},
	},
	vars:    func(b *Bound) []kernels.Var { return kernels.RegionVars(b.Features) },
	block:   regionBlock,
	weights: regionTable,
}

const (
	// regionFrontPart is the part of learn_for in which the group takes the units of its features.
	regionFrontPart = 8
	// regionClip is the number of spreads at which a feature is cut off. A feature that is constant at
	// first has none.
	regionClip = 1000
)

// regionBlock returns the parameter block. Distances count for the usual one from a third of the
// learning on, when an agent has learned something.
func regionBlock(b *Bound) []uint32 {
	w := make([]uint32, kernels.RegionWords)
	learn, share := b.values["learn_for"], b.values["share"]
	w[kernels.LeakyFeatures] = uint32(b.Features)
	w[kernels.LeakyRule] = uint32(b.Voting.Rule)
	w[kernels.LeakyQuorum] = fixed(b.Voting.Quorum)
	w[kernels.LeakyClip] = math.Float32bits(regionClip)
	w[kernels.LeakyShare] = fixed(share)
	w[kernels.LeakyAnomalous] = b.word("anomalous")
	w[kernels.LeakySuspicious] = b.word("suspicious")
	w[kernels.LeakyWarmup] = uint32(learn)
	w[kernels.LeakyDrop] = uint32(b.Drop)
	w[kernels.LeakyFrontRows] = uint32(learn / regionFrontPart)
	w[kernels.LeakyLoud] = 1
	if b.Voting.Rule == kernels.RuleWeighted { // the share outvotes the other agents
		w[kernels.LeakyLoud] = uint32(max(1, math.Round(1/share-1)))
	}
	w[kernels.RegionFrom] = math.Float32bits(float32(math.Floor(learn / 3)))
	w[kernels.RegionLearn] = math.Float32bits(float32(learn))
	w[kernels.RegionSmooth] = b.rate("smooth")
	w[kernels.RegionMemory] = b.rate("memory")
	return w
}

// regionTable returns the inputs of each agent, component-major. Of three agents one sees values and
// short means, one long means and one steps. Its inputs are as many of these as it can take, at
// random, each once.
func regionTable(b *Bound, seed uint64) []float32 {
	A, table := b.Agents, make([]float32, kernels.RegionWeights*b.Agents)
	rate := func(name string) float32 { return float32(1 / b.values[name]) }
	for a := range A {
		r := newSource(seed, a)
		rates := [][]float32{{1, rate("fast")}, {rate("slow")}, {rate("rough")}}[a%3]
		inputs := make([]int, len(rates)*b.Features)
		for i := range inputs {
			inputs[i] = i
		}
		size := min(len(inputs), kernels.RegionPicks)
		table[kernels.RegionSize*A+a] = float32(size)
		if a%3 == 2 {
			table[kernels.RegionRough*A+a] = 1
		}
		for k := range size {
			other := k + int(r.uniform()*float64(len(inputs)-k))
			inputs[k], inputs[other] = inputs[other], inputs[k]
			table[(kernels.RegionFeature+k)*A+a] = float32(inputs[k] % b.Features)
			table[(kernels.RegionRate+k)*A+a] = rates[inputs[k]/b.Features]
		}
	}
	return table
}
