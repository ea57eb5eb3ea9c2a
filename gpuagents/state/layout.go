package state

import "github.com/exoswarm/exoswarm/cuda/kernels"

// layoutOf returns the places of the variables of a State in its pages.
func layoutOf(p State) kernels.Layout {
	if s, ok := p.(*agentState); ok {
		return s.agents.Layout()
	}
	return p.(*groupState).layout
}
