package swarm

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	text "github.com/exoswarm/exoswarm/cuda/kernels/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// Around are the variables of the neighbours that the step of a custom cell on a grid or a graph
// hears, by the reduction over them. See lattice.Op.
type Around struct {
	Sum   []string `yaml:"sum" json:"sum,omitempty"`
	Mean  []string `yaml:"mean" json:"mean,omitempty"`
	Max   []string `yaml:"max" json:"max,omitempty"`
	Min   []string `yaml:"min" json:"min,omitempty"`
	Count []string `yaml:"count" json:"count,omitempty"`
	// Weighted are for graphs.
	Weighted []string `yaml:"weighted" json:"weighted,omitempty"`
}

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

type customRules struct{ agentRules }

// fill is defaults for all agents. The default group divides row.
func (r customRules) fill(s *Spec, all, row int64) {
	r.defaults(s)
	if all > 0 {
		if len(s.Features) == 0 {
			s.Features = slices.Sorted(maps.Keys(s.Cell.State))
		}
		s.defaultAgents(all, row)
	}
	if len(s.Vote.Candidates) == 0 {
		s.Vote.Candidates = slices.Clone(cells.LatticeCandidates)
	}
}

func (customRules) missing(string) error {
	return errors.New("neighbours: agents of a custom cell that are addressed are on a " +
		"grid or a graph: write neighbours: {width: 512, height: 512, periodic: true}, or {random: {degree: " +
		"10}}. Without hear in cell, agents hear nobody")
}

// fitted fits the cell to a grid of 2 or 3 dimensions, or to a graph, which has 0.
func (customRules) fitted(s *Spec, dimensions int) (*cells.Addressed, error) {
	return cells.AddressLattice(cells.Lattice{
		State: s.Cell.State, Params: s.Cell.Params, Hear: s.Cell.Hear.terms(), Step: s.Cell.Step, Vote: s.Vote.By,
		Candidates: len(s.Vote.Candidates), Dimensions: dimensions, Faces: s.Neighbours.Faces,
		Periodic: s.Neighbours.Periodic, Features: s.Features, Agents: s.AgentsPerGroup,
	})
}

// customGridRules are the rules of agents of a custom cell on a grid. Its pages have whole rows.
type customGridRules struct{ customRules }

func (r customGridRules) defaults(s *Spec) { r.fill(s, s.Neighbours.cells(), s.Neighbours.Width) }

func (r customGridRules) cell(s *Spec) (*cells.Addressed, error) {
	if s.Neighbours.layers() > 1 {
		return r.fitted(s, 3)
	}
	return r.fitted(s, 2)
}

func (customGridRules) layout(s *Spec, cell Fitted) (kernels.Layout, error) {
	return cell.(*cells.Addressed).RowLayout(int(s.PageSize), s.Neighbours.Width)
}

func (customGridRules) validate(s *Spec) (path []string, err error) {
	if path, err := s.validateSides(); err != nil {
		return path, err
	}
	if n := s.Neighbours; n.cells() > text.MostAgents {
		return []string{"neighbours"}, fmt.Errorf("neighbours: the grid of %v has %d agents: a custom cell has fewer "+
			"than 2^31", n, n.cells())
	}
	return nil, nil
}

// customGraphRules are the rules of agents of a custom cell on a graph.
type customGraphRules struct{ customRules }

func (r customGraphRules) defaults(s *Spec) {
	all := s.graphAgents()
	r.fill(s, all, all)
}

func (r customGraphRules) cell(s *Spec) (*cells.Addressed, error) { return r.fitted(s, 0) }

func (customGraphRules) validate(s *Spec) (path []string, err error) {
	if s.Agents > text.MostAgents {
		return []string{"agents"}, fmt.Errorf("agents %d: a custom cell has fewer than 2^31", s.Agents)
	}
	return s.validateGraph()
}
