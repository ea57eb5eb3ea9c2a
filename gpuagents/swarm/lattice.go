package swarm

import (
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	text "github.com/exoswarm/exoswarm/cuda/kernels/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/gpuagents/graph"
	"github.com/exoswarm/exoswarm/gpuagents/lattice"
)

// Around are the variables of the neighbours that the step of a custom cell on a grid or a graph hears, by the
// reduction over them. See lattice.Op.
type Around struct {
	Sum   []string `yaml:"sum" json:"sum,omitempty"`
	Mean  []string `yaml:"mean" json:"mean,omitempty"`
	Max   []string `yaml:"max" json:"max,omitempty"`
	Min   []string `yaml:"min" json:"min,omitempty"`
	Count []string `yaml:"count" json:"count,omitempty"`
	// Weighted are for graphs.
	Weighted []string `yaml:"weighted" json:"weighted,omitempty"`
}

// terms returns the reductions.
func (a Around) terms() (all []text.Term) {
	for _, of := range []struct {
		op    text.Op
		names []string
	}{
		{text.Sum, a.Sum},
		{text.Mean, a.Mean},
		{text.Max, a.Max},
		{text.Min, a.Min},
		{text.Count, a.Count},
		{text.Weighted, a.Weighted},
	} {
		for _, name := range of.names {
			all = append(all, text.Term{Op: of.op, Var: name})
		}
	}
	return all
}

// OnLattice says that the agents are on a grid or a graph, and that a user has written their step.
func (s *Spec) OnLattice() bool { return s.ByAgent() && s.Custom() }

// lattice fits a custom cell to a grid or a graph.
func (s *Spec) lattice() (*cells.Addressed, error) {
	dimensions := 2
	switch {
	case s.OnGraph():
		dimensions = 0
	case s.Neighbours.layers() > 1:
		dimensions = 3
	}
	return cells.AddressLattice(cells.Lattice{
		State: s.Cell.State, Params: s.Cell.Params, Hear: s.Cell.Hear.terms(), Step: s.Cell.Step, Vote: s.Vote.By,
		Candidates: len(s.Vote.Candidates), Dimensions: dimensions, Faces: s.Neighbours.Faces,
		Periodic: s.Neighbours.Periodic, Features: s.Features, Agents: s.AgentsPerGroup,
	})
}

// Lattice returns the options of the grid on which the agents of a custom cell are, or of the graph, of which
// rows are those of a file, or nil.
func (s *Spec) Lattice(rows *edges.Rows) lattice.Options {
	n := s.Neighbours
	o := lattice.Options{
		Width: n.Width, Height: n.Height, Depth: n.layers(), Seed: s.Seed, PageBytes: int(s.PageSize),
	}
	if s.OnGraph() {
		links := s.Links(rows)
		o.Agents, o.Links = s.Agents, &links
	}
	return o
}

// latticeLayout returns the layout of a custom cell. Pages of a grid have whole rows.
func (s *Spec) latticeLayout(cell *cells.Addressed) (kernels.Layout, error) {
	if s.OnGraph() {
		return cell.Layout(int(s.PageSize))
	}
	return lattice.Layout(cell, s.Lattice(nil))
}

// latticeBeside is BesideBytes for a custom cell.
func (s *Spec) latticeBeside(cell *cells.Addressed) int64 {
	rows, err := s.Rows()
	o := s.Lattice(rows)
	if err != nil {
		o.Links = &graph.Links{Degree: 1, Rewire: 1} // the least
	}
	return lattice.Beside(cell, o)
}

// validateLattice is the part of validateNeighbours for custom cells.
func (s *Spec) validateLattice() (path []string, err error) {
	n := s.Neighbours
	if s.OnGraph() {
		if s.Agents > lattice.MostAgents {
			return []string{"agents"}, fmt.Errorf("agents %d: a custom cell has fewer than 2^31", s.Agents)
		}
		return s.validateGraph()
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
