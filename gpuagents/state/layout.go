package state

import "github.com/exoswarm/exoswarm/cuda/kernels"

// layoutOf is how the state of a population stands in its pages.
func layoutOf(p State) kernels.Layout {
	if s, ok := p.(*agentState); ok {
		return s.agents.Layout()
	}
	return p.(*groupState).layout
}
