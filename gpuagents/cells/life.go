package cells

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
)

// LifeName is the cell whose agents are the cells of a grid; see LifeCandidates.
const LifeName = "life"

// LifeCandidates are the states of an agent of life, in their order.
var LifeCandidates = []string{"dead", "alive"}

// lifeAddressed has no weights and no inputs: an observation is the state of an agent, and a tick
// depends on the states of its neighbours. Package gpuagents/grid steps it.
var lifeAddressed = &Cell{
	Name: LifeName, Candidates: LifeCandidates,
	Doc: "Conway's Game of Life on the grid of `neighbours`: an agent is alive after a tick if three of its " +
		"eight neighbours were, or two and itself. Its feature is its state, 0 or 1",
	weights: func(*Bound, uint64) []float32 { return nil },
}

// IsLife reports whether the cell is life.
func (a *Addressed) IsLife() bool { return a.Cell == lifeAddressed }

func lifeVars() []kernels.Var { return []kernels.Var{{Name: "alive", Elem: kernels.U8, Width: 1}} }

// lifeKernels returns the kernels of a generation. The grid chooses one.
func lifeKernels() (rows, cells string) { return gridset.LifeRows, gridset.LifeCells }
