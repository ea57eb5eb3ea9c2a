package state

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
)

// layoutOf returns the places of the variables of a State in its pages.
func layoutOf(p State) kernels.Layout {
	if s, ok := p.(*agentState); ok {
		return s.agents.Layout()
	}
	return p.(*groupState).layout
}

// Variables returns the places of the variables of a State in its pages, and those of them that can
// be drawn. The row of an addressed gru is two of these: its units, hidden, and its input.
func Variables(p State) (kernels.Layout, []raster.Var) {
	if k, ok := p.(*Snapshotter); ok {
		p = k.State
	}
	l := layoutOf(p)
	all := raster.Vars(l)
	s, ok := p.(*agentState)
	if !ok || s.agents.Cell().Cell.Name != "gru" {
		return l, all
	}
	cell, row := s.agents.Cell(), all[kernels.AgentVarRow]
	row.Name, row.Count = "hidden", int(cell.Value("hidden"))
	input := row
	input.Name, input.First, input.Count = "input", l.Vars[row.Of].Width/2, cell.Features
	all[kernels.AgentVarRow] = row
	return l, append(all, input)
}
