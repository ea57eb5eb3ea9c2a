package swarm

import (
	"errors"
	"fmt"

	text "github.com/exoswarm/exoswarm/cuda/kernels/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/lattice"
)

// Around are the variables of the neighbours that the step of a custom cell on a grid hears, by the
// reduction over them. See lattice.Op.
type Around struct {
	Sum   []string `yaml:"sum" json:"sum,omitempty"`
	Mean  []string `yaml:"mean" json:"mean,omitempty"`
	Max   []string `yaml:"max" json:"max,omitempty"`
	Min   []string `yaml:"min" json:"min,omitempty"`
	Count []string `yaml:"count" json:"count,omitempty"`
}

// terms returns the reductions.
func (a Around) terms() (all []text.Term) {
	for _, of := range []struct {
		op    text.Op
		names []string
	}{{text.Sum, a.Sum}, {text.Mean, a.Mean}, {text.Max, a.Max}, {text.Min, a.Min}, {text.Count, a.Count}} {
		for _, name := range of.names {
			all = append(all, text.Term{Op: of.op, Var: name})
		}
	}
	return all
}

// OnLattice says that the agents are on a grid, and that a user has written their step.
func (s *Spec) OnLattice() bool { return s.ByAgent() && s.Custom() }

// lattice fits a custom cell to a grid.
func (s *Spec) lattice() (*cells.Addressed, error) {
	dimensions := 2
	if s.Neighbours.layers() > 1 {
		dimensions = 3
	}
	return cells.AddressLattice(cells.Lattice{
		State: s.Cell.State, Params: s.Cell.Params, Hear: s.Cell.Hear.terms(), Step: s.Cell.Step, Vote: s.Vote.By,
		Candidates: len(s.Vote.Candidates), Dimensions: dimensions, Faces: s.Neighbours.Faces,
		Periodic: s.Neighbours.Periodic, Features: s.Features, Agents: s.AgentsPerGroup,
	})
}

// Lattice returns the options of the grid on which the agents of a custom cell are.
func (s *Spec) Lattice() lattice.Options {
	n := s.Neighbours
	return lattice.Options{
		Width: n.Width, Height: n.Height, Depth: n.layers(), Seed: s.Seed, PageBytes: int(s.PageSize),
	}
}

// validateLattice is the part of validateNeighbours for custom cells.
func (s *Spec) validateLattice() (path []string, err error) {
	n := s.Neighbours
	if s.OnGraph() {
		return []string{"neighbours"}, errors.New("neighbours: agents of a custom cell are on a grid: write width " +
			"and height, and depth for three dimensions, and no graph")
	}
	if path, err := s.validateSides(); err != nil {
		return path, err
	}
	if n.cells() > lattice.MostAgents {
		return []string{"neighbours"}, fmt.Errorf("neighbours: the grid of %v has %d agents: a custom cell has fewer "+
			"than 2^31", n, n.cells())
	}
	return nil, nil
}
