package state

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
)

// layoutOf returns the places of the variables of a State in its pages.
func layoutOf(p State) kernels.Layout {
	switch s := p.(type) {
	case *agentState:
		return s.agents.Layout()
	case *placedState:
		return s.place.Layout()
	}
	return p.(*groupState).layout
}

// Variables returns the places of the variables of a State in its pages, and those of them that can
// be drawn. The row of an addressed gru is two of these: its units, hidden, and its input.
func Variables(p State) (kernels.Layout, []raster.Var) {
	if k, ok := p.(*Snapshotter); ok {
		p = k.State
	}
	if s, ok := p.(*agentState); ok {
		return s.variables()
	}
	l := layoutOf(p)
	if s, ok := p.(*placedState); ok {
		return l, append(raster.Vars(l), s.pictures...)
	}
	return l, raster.Vars(l)
}
