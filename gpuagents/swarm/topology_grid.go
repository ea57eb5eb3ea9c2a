package swarm

import (
	"errors"
	"fmt"
	"math"
)

type gridRules struct{ agentRules }

func (r gridRules) defaults(s *Spec) {
	r.agentRules.defaults(s)
	if all := s.Neighbours.cells(); all > 0 {
		s.defaultAgents(all, s.Neighbours.Width)
	}
}

func (gridRules) missing(string) error {
	return errors.New("neighbours: agents of the cell life are on a grid: write " +
		"neighbours: {width: 512, height: 512, periodic: true}, or the size that you want")
}

func (gridRules) validate(s *Spec) (path []string, err error) {
	n := s.Neighbours
	switch {
	case n.graph():
		return []string{"neighbours"}, errors.New("neighbours: agents of the cell life are on a grid: write width " +
			"and height, or cell: {kind: sir}, {kind: lif} or {kind: izhikevich} for agents on a graph")
	case n.Depth != 0 || n.Faces:
		return []string{"neighbours"}, errors.New("neighbours: depth and faces: they are for the cell custom: the " +
			"cell life hears the eight agents around, in two dimensions. Life of three is a step of some lines: " +
			"docs/cells.md, Custom cells on a grid")
	}
	return s.validateSides()
}

func (s *Spec) validateSides() (path []string, err error) {
	n, at := s.Neighbours, func(key string) []string { return []string{"neighbours", key} }
	switch {
	case n.Directed:
		return at("directed"), errors.New("neighbours: directed: it is for graph: leave it out")
	case n.Width < 1 || n.Width > math.MaxUint32:
		return at("width"), fmt.Errorf("neighbours: width %d: use 1 or more, with fewer than 2^32 agents in all",
			n.Width)
	case n.Depth < 0:
		return at("depth"), fmt.Errorf("neighbours: depth %d: use 1 or more, or leave it out for two dimensions",
			n.Depth)
	case n.cells() == 0 && n.Height >= 1 && n.Height <= math.MaxUint32/n.Width:
		return at("depth"), fmt.Errorf("neighbours: depth %d: use 1 to %d, so that there are fewer than 2^32 agents "+
			"in all", n.Depth, math.MaxUint32/(n.Width*n.Height))
	case n.Height < 1 || n.cells() == 0:
		return at("height"), fmt.Errorf("neighbours: height %d: use 1 to %d, so that there are fewer than 2^32 agents "+
			"in all", n.Height, math.MaxUint32/n.Width)
	case s.Agents != n.cells():
		return []string{"agents"}, fmt.Errorf("agents %d: the grid of %v has %d: write that, or leave it out", s.Agents,
			n, n.cells())
	case n.Width%int64(s.AgentsPerGroup) != 0:
		return []string{"agents_per_group"}, fmt.Errorf("agents_per_group %d: on a grid it divides the width, %d: use "+
			"such a number, or leave it out", s.AgentsPerGroup, n.Width)
	}
	return nil, nil
}
