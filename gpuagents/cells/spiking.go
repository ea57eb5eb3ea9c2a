package cells

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

// LIFName is the cell whose agents are neurons that spike, on a graph.
const LIFName = "lif"

// LIFCandidates are the states of an agent of lif, in their order.
var LIFCandidates = []string{"quiet", "spike"}

// The variables of an agent of lif, in the order of the layout.
const (
	LIFSpike = iota
	LIFRest
	LIFPotential
	LIFCurrent
	LIFTicks // of a group
)

// lifAddressed has no weights: the weights of links are parameters, or are in the file of the
// graph. Package gpuagents/graph steps it.
var lifAddressed = &Cell{
	Name: LIFName, Candidates: LIFCandidates,
	Doc: "leaky integrate-and-fire neurons on the graph of `neighbours`, whose links go from an agent to the " +
		"agents that hear it: a spike adds `weight` to their potentials in the next tick, or after the delay of the " +
		"link. The feature of an agent is a current, which it holds and adds in each tick",
	Params: []Param{
		{Name: "decay", Default: 0.9, Min: 0, Max: 1, Doc: "part of the potential that remains after a tick"},
		{Name: "threshold", Default: 1, Min: 1e-6, Max: 1e6, Doc: "potential at which an agent spikes, and is 0 again"},
		{Name: "refractory", Default: 2, Min: 0, Max: 255, Integer: true, Doc: "ticks after a spike in which an " +
			"agent takes no input"},
		{Name: "weight", Default: 0.1, Min: -100, Max: 100, Doc: "weight of the links of an excitatory agent, where " +
			"the file of the graph has none"},
		{Name: "inhibitory", Default: 0, Min: 0, Max: 1, Doc: "share of the agents, the last ones, that inhibit " +
			"others"},
		{Name: "inhibition", Default: 4, Min: 0, Max: 100, Doc: "weight of their links, times minus `weight`"},
		{Name: "noise", Default: 0, Min: 0, Max: 1e6, Doc: "largest random current, which is uniform from minus to " +
			"plus this"},
	},
	weights: func(*Bound, uint64) []float32 { return nil },
}

// IsLIF reports whether the cell is lif.
func (a *Addressed) IsLIF() bool { return a.Cell == lifAddressed }

// lifVars lists the state of lif: kernels find the spikes at the start of a page.
func lifVars() []kernels.Var {
	return []kernels.Var{
		LIFSpike:     {Name: "spike", Elem: kernels.U8, Width: 1},
		LIFRest:      {Name: "rest", Elem: kernels.U8, Width: 1},
		LIFPotential: {Name: "potential", Elem: kernels.F32, Width: 1},
		LIFCurrent:   {Name: "current", Elem: kernels.F32, Width: 1},
		LIFTicks:     {Name: "ticks", Elem: kernels.U32, Width: 1, Group: true},
	}
}

// lifKernels returns the kernel of a tick, and the one that carries spikes.
func lifKernels() (tick, push string) { return graphset.LIF, graphset.Push }
