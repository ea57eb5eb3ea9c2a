package gpuagents

import "github.com/exoswarm/exoswarm/cuda/kernels"

// layoutOf is how the state of a population stands in its pages.
func layoutOf(p population) kernels.Layout {
	if s, ok := p.(*simulation); ok {
		return s.agents.Layout()
	}
	return p.(*state).layout
}
