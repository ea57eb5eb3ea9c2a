package cells

import "github.com/exoswarm/exoswarm/cuda/kernels"

// leaky is the smallest cell: a leaky integrator an agent. It learns nothing, has no history of its
// group and no hold-off.
var leaky = &Cell{
	Name: "leaky",
	Doc: "leaky integrators: votes by how far the input is from each agent's running mean, in its usual " +
		"distances",
	Candidates: []string{"normal", "suspicious", "anomalous"},
	Agents:     64,
	Kernel:     "leaky_observe",
	embedding:  []string{"potential", "usual"},
	Params: ratioParams([]Param{
		{Name: "tau_min", Default: 2, Min: 1, Max: 1e6, Doc: "shortest time constant of a potential, in observations"},
		{Name: "tau_max", Default: 200, Min: 1, Max: 1e6, Doc: "longest"},
	}, "usual distance", 4, 8, 1000),
	vars:    func(b *Bound) []kernels.Var { return kernels.LeakyVars(b.Features) },
	block:   leakyBlock,
	weights: leakyTable,
}

func leakyBlock(b *Bound) []uint32 { return ratioBlock(b, kernels.LeakyWords) }

// ratioParams returns the parameters of a cell whose agents vote by how many times what is usual
// they are off: its own parameters, and then the parameters of all such cells.
func ratioParams(own []Param, usual string, suspicious, anomalous, history float64) []Param {
	return append(own, []Param{
		{Name: "suspicious", Default: suspicious, Min: 0.1, Max: 500, Doc: usual + "s from which an agent votes " +
			"suspicious"},
		{Name: "anomalous", Default: anomalous, Min: 0.1, Max: 500, Doc: usual + "s from which it votes anomalous; " +
			"the score is 1/2 there"},
		{Name: "history", Default: history, Min: 20, Max: 1e6, Doc: "observations over which an agent averages its " +
			usual},
		{Name: "front", Default: 2000, Min: 20, Max: 1e6, Doc: "observations over which level and spread of the " +
			"input are averaged"},
		{Name: "clip", Default: 30, Min: 1, Max: 1000, Doc: "spreads at which an input is cut off"},
		{Name: "share", Default: 0.5, Min: 0.01, Max: 1, Doc: "part of the agents that must be as surprised as the " +
			"group"},
		{Name: "warmup", Default: 100, Min: 20, Max: 1e6, Integer: true, Doc: "observations of a series before its " +
			"first score"},
	}...)
}

// ratioBlock is a parameter block that starts with the words of leaky. Every cell whose agents vote
// by a ratio has such a block.
func ratioBlock(b *Bound, words int) []uint32 {
	w := make([]uint32, words)
	w[kernels.LeakyFeatures] = uint32(b.Features)
	w[kernels.LeakyRule] = uint32(b.Voting.Rule)
	w[kernels.LeakyQuorum] = fixed(b.Voting.Quorum)
	w[kernels.LeakyFrontRate] = b.rate("front")
	w[kernels.LeakyClip] = b.word("clip")
	w[kernels.LeakyHistoryRate] = b.rate("history")
	w[kernels.LeakyShare] = fixed(b.values["share"])
	w[kernels.LeakyAnomalous] = b.word("anomalous")
	w[kernels.LeakySuspicious] = b.word("suspicious")
	w[kernels.LeakyWarmup] = uint32(b.values["warmup"])
	w[kernels.LeakyDrop] = uint32(b.Drop)
	w[kernels.LeakyLoud] = 1
	return w
}

// leakyTable returns the rate and the input direction of each agent, component-major. The order of
// the draws fixes the numbers: a change of it changes every swarm.
func leakyTable(b *Bound, seed uint64) []float32 {
	A, table := b.Agents, make([]float32, kernels.LeakyWeights(b.Features)*b.Agents)
	for a := range A {
		r := newSource(seed, a)
		table[kernels.LeakyRate*A+a] = r.rate(b.values["tau_min"], max(b.values["tau_min"], b.values["tau_max"]))
		projection(r, b.Features, func(f int, v float32) { table[(kernels.LeakyProject+f)*A+a] = v })
	}
	return table
}
