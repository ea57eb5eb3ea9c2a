package swarm

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/graph"
	"github.com/exoswarm/exoswarm/gpuagents/grid"
	"github.com/exoswarm/exoswarm/gpuagents/space"
)

// PageBytes returns how many bytes the pages of so many groups take; 0 for a specification that
// cannot be laid out in pages.
func (s *Spec) PageBytes(groups int) int64 {
	var layout kernels.Layout
	if s.ByAgent() {
		cell, err := s.Address()
		if err != nil {
			return 0
		}
		if layout, err = cell.Layout(int(s.PageSize)); err == nil && s.OnLattice() {
			layout, err = s.latticeLayout(cell)
		}
		if err != nil {
			return 0
		}
	} else {
		bound, err := s.Bind()
		if err != nil {
			return 0
		}
		if layout, err = bound.Layout(int(s.PageSize)); err != nil {
			return 0
		}
	}
	return int64((groups+layout.Slots-1)/layout.Slots) * int64(layout.PageBytes)
}

// BesideBytes returns what the device has beside the pages of agents that have neighbours, in bytes: 0
// for others. Of a graph whose edges are not in the specification, it does not count these.
func (s *Spec) BesideBytes() int64 {
	if !s.HasNeighbours() {
		return 0
	}
	cell, err := s.Address()
	if err != nil {
		return 0
	}
	switch {
	case s.OnLattice():
		return s.latticeBeside(cell)
	case s.OnGrid():
		return grid.Beside(cell, s.Grid())
	case s.InBox():
		return space.Beside(cell, s.Box())
	}
	rows, err := s.Rows()
	if err != nil {
		return graph.Beside(cell, s.Network(s.least()))
	}
	return graph.Beside(cell, s.Network(s.Links(rows)))
}

// MemberBytes returns a function of what each further device has if so many devices make the ticks, in
// bytes; 0: they do not. Of a graph whose edges are not in the specification, it does not count these.
func (s *Spec) MemberBytes() func(devices int) int64 {
	none := func(int) int64 { return 0 }
	if s.Devices < 2 {
		return none
	}
	if s.OnGrid() && !s.Custom() {
		return func(n int) int64 { return grid.MemberBytes(s.Grid(), n) }
	}
	cell, err := s.Address()
	if err != nil || !s.OnGraph() {
		return none
	}
	rows, err := s.Rows()
	links := s.Links(rows)
	if err != nil {
		links = s.least()
	}
	return func(n int) int64 { return graph.MemberBytes(cell, s.Network(links), n) }
}

// least returns the fewest links that agents can have, with the delays of their own.
func (s *Spec) least() graph.Links {
	return graph.Links{Degree: 1, Rewire: 1, Delays: graph.Delays{Least: 1, Most: s.Neighbours.longest()}}
}

// Grid returns the options of the grid on which the agents are.
func (s *Spec) Grid() grid.Options {
	n := s.Neighbours
	return grid.Options{
		Width: n.Width, Height: n.Height, Periodic: n.Periodic, PageBytes: int(s.PageSize), Devices: s.Devices,
	}
}

// Box returns the options of the box in which the agents are.
func (s *Spec) Box() space.Options {
	n := s.Neighbours.Space
	return space.Options{
		Agents: s.Agents, Sides: n.Sides(), Radius: n.Radius, Nearest: int(n.Nearest), Periodic: n.Periodic,
		Seed: s.Seed, PageBytes: int(s.PageSize),
	}
}

// Network returns the options of the graph on which the agents are, with its links.
func (s *Spec) Network(links graph.Links) graph.Options {
	return graph.Options{
		Agents: s.Agents, Links: links, Seed: s.Seed, PageBytes: int(s.PageSize), Devices: s.Devices,
	}
}
