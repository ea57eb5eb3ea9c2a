package cells

import (
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

// Remembering returns the cell of neurons whose spikes take several ticks to others: lif or
// izhikevich, with a variable more, history. Bit k of it says that the neuron has spiked k ticks
// before the last one. The spikes that are on their way follow from it. Other cells stay as they
// are.
func (a *Addressed) Remembering() *Addressed {
	if !a.Spikes() {
		return a
	}
	with := *a
	with.remembers = true
	return &with
}

// Remembers reports whether neurons have the bits of their last spikes.
func (a *Addressed) Remembers() bool { return a.remembers }

// withHistory returns the variables with history before the last one.
func (a *Addressed) withHistory(vars []kernels.Var) []kernels.Var {
	if !a.remembers {
		return vars
	}
	return slices.Insert(vars, len(vars)-1, kernels.Var{Name: "history", Elem: kernels.U32, Width: 1})
}

// sending returns the kernel of a tick, and the one that carries spikes, as they take one tick or
// more.
func (a *Addressed) sending(tick, push string) (string, string) {
	if a.remembers {
		return tick, graphset.Send
	}
	return tick, push
}
