package cells

import "github.com/exoswarm/exoswarm/cuda/kernels"

// lif is the spiking cell: a leaky integrate-and-fire neuron with adaptation an agent. It learns
// nothing; what lasts it gets used to.
var lif = &Cell{
	Name:       "lif",
	Doc:        "spiking neurons with adaptation: votes by how much more an agent spikes than it usually does",
	Candidates: []string{"normal", "suspicious", "anomalous"},
	Agents:     64,
	Kernel:     "lif_observe",
	embedding:  []string{"potential", "adaptation", "trace", "usual"},
	Params: ratioParams([]Param{
		{Name: "reach_min", Default: 2, Min: 0.1, Max: 1000, Doc: "spreads of the input that make the most " +
			"sensitive agents spike, when they last"},
		{Name: "reach_max", Default: 10, Min: 0.1, Max: 1000, Doc: "spreads that make the least sensitive ones spike"},
		{Name: "tau_min", Default: 1, Min: 1, Max: 1e6, Doc: "shortest time constant of a potential, in observations"},
		{Name: "tau_max", Default: 4, Min: 1, Max: 1e6, Doc: "longest"},
		{Name: "trace_min", Default: 1, Min: 1, Max: 1e6, Doc: "shortest time over which an agent's spike rate is " +
			"taken, in observations"},
		{Name: "trace_max", Default: 5, Min: 1, Max: 1e6, Doc: "longest"},
		{Name: "adapt", Default: 0.2, Min: 0, Max: 100, Doc: "part of the threshold at rest by which a spike raises " +
			"it"},
		{Name: "adapt_tau", Default: 50, Min: 1, Max: 1e6, Doc: "observations in which that falls to 1/e"},
	}, "usual spike rate", 2, 4, 1000),
	vars: func(b *Bound) []kernels.Var { return kernels.LifVars(b.Features) },
	block: func(b *Bound) []uint32 {
		w := ratioBlock(b, kernels.LifWords)
		w[kernels.LifAdapt] = b.word("adapt")
		w[kernels.LifAdaptDecay] = b.rate("adapt_tau")
		return w
	},
	weights: lifTable,
}

// lifTable returns gain, leak, trace rate and input direction of each agent, component-major. A
// range whose upper bound is below its lower bound has the lower bound alone.
func lifTable(b *Bound, seed uint64) []float32 {
	A, table := b.Agents, make([]float32, kernels.LifWeights(b.Features)*b.Agents)
	between := func(r *source, low, high string) float32 {
		return r.rate(b.values[low], max(b.values[low], b.values[high]))
	}
	for a := range A {
		r := newSource(seed, a)
		table[kernels.LifGain*A+a] = between(r, "reach_min", "reach_max")
		table[kernels.LifLeak*A+a] = between(r, "tau_min", "tau_max")
		table[kernels.LifTrace*A+a] = between(r, "trace_min", "trace_max")
		projection(r, b.Features, func(f int, v float32) { table[(kernels.LifProject+f)*A+a] = v })
	}
	return table
}
