package cells

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

// SIRName is the cell whose agents are the people of an epidemic on a graph; see SIRCandidates.
const SIRName = "sir"

// SIRCandidates are the states of an agent of sir, in their order.
var SIRCandidates = []string{"susceptible", "infected", "recovered"}

// sirAddressed has no weights and no inputs: an observation is the state of an agent, and a tick
// depends on the states of its neighbours. Package gpuagents/graph steps it.
var sirAddressed = &Cell{
	Name: SIRName, Candidates: SIRCandidates,
	Doc: "an epidemic on the graph of `neighbours`: in a tick each infected neighbour infects a susceptible agent " +
		"with the chance `infection`, and an infected agent recovers with the chance `recovery`. The feature of an " +
		"agent is its state: 0 susceptible, 1 infected, 2 recovered",
	Params: []Param{
		{Name: "infection", Default: 0.05, Min: 0, Max: 1, Doc: "chance in a tick that an infected neighbour infects " +
			"an agent, times the weight of the link"},
		{Name: "recovery", Default: 0.1, Min: 0, Max: 1, Doc: "chance in a tick that an infected agent recovers"},
	},
	weights: func(*Bound, uint64) []float32 { return nil },
}

// IsSIR reports whether the cell is sir.
func (a *Addressed) IsSIR() bool { return a.Cell == sirAddressed }

// sirVars lists the state of sir: kernels find the states at the start of a page, and the ticks
// behind them.
func sirVars() []kernels.Var {
	return []kernels.Var{
		{Name: "state", Elem: kernels.U8, Width: 1},
		{Name: "ticks", Elem: kernels.U32, Width: 1, Group: true},
	}
}

// sirKernels returns the kernel of a tick, and the one that makes links.
func sirKernels() (tick, links string) { return graphset.SIR, graphset.Links }
