package swarm

import (
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// Neighbours is a grid of agents: agent y*Width+x is in column x of row y, and its neighbours are the
// eight agents around it. The zero value is no grid.
type Neighbours struct {
	// Width and Height are the columns and rows, 1 or more, with fewer than 2^32 agents in all.
	Width  int64 `yaml:"width" json:"width"`
	Height int64 `yaml:"height" json:"height"`
	// Periodic makes the first and the last row neighbours, and likewise the columns. Else what is
	// outside of the grid is dead.
	Periodic bool `yaml:"periodic" json:"periodic,omitempty"`
}

// String implements fmt.Stringer.
func (n Neighbours) String() string {
	text := fmt.Sprintf("%d x %d", n.Width, n.Height)
	if n.Periodic {
		text += ", periodic"
	}
	return text
}

// OnGrid says that the agents have neighbours.
func (s *Spec) OnGrid() bool { return s.Neighbours != Neighbours{} }

// cells returns the number of cells of the grid; 0: it has none, or too many.
func (n Neighbours) cells() int64 {
	if n.Width < 1 || n.Height < 1 || n.Width > math.MaxUint32/n.Height {
		return 0
	}
	return n.Width * n.Height
}

// placeAgents is the part of ensureDefaults about agents on a grid: how many there are, groups that
// are rows or parts of them, and pages that stay on the device.
func (s *Spec) placeAgents() {
	all := s.Neighbours.cells()
	if all == 0 || !s.ByAgent() {
		return
	}
	if s.Agents == 0 {
		s.Agents = all
	}
	if s.AgentsPerGroup == 0 {
		s.AgentsPerGroup = 1
		for per := min(s.Neighbours.Width, MaxAgentsPerGroup); per > 1; per-- {
			if s.Neighbours.Width%per == 0 {
				s.AgentsPerGroup = int(per)
				break
			}
		}
	}
	if s.Residency == "" {
		s.Residency = ResidencyGPU
	}
}

// validateNeighbours is the part of validate about the grid.
func (s *Spec) validateNeighbours() (path []string, err error) {
	n, at := s.Neighbours, func(key string) []string { return []string{"neighbours", key} }
	life := s.ByAgent() && s.Cell.Kind == cells.LifeName
	switch {
	case !s.OnGrid() && life:
		return []string{"cell", "kind"}, errors.New("neighbours: agents of the cell life are on a grid: write " +
			"neighbours: {width: 512, height: 512, periodic: true}, or the size that you want")
	case !s.OnGrid():
		return nil, nil
	case !life:
		return []string{"neighbours"}, fmt.Errorf("neighbours: agents of the cell %s have none: write addressed: "+
			"agent and cell: {kind: life}, or leave it out", s.Cell.Kind)
	case n.Width < 1 || n.Width > math.MaxUint32:
		return at("width"), fmt.Errorf("neighbours: width %d: use 1 or more, with fewer than 2^32 agents in all",
			n.Width)
	case n.Height < 1 || n.cells() == 0:
		return at("height"), fmt.Errorf("neighbours: height %d: use 1 to %d, so that there are fewer than 2^32 agents "+
			"in all", n.Height, math.MaxUint32/n.Width)
	case s.Agents != n.cells():
		return []string{"agents"}, fmt.Errorf("agents %d: the grid of %d x %d has %d: write that, or leave it out",
			s.Agents, n.Width, n.Height, n.cells())
	case n.Width%int64(s.AgentsPerGroup) != 0:
		return []string{"agents_per_group"}, fmt.Errorf("agents_per_group %d: on a grid it divides the width, %d: use "+
			"such a number, or leave it out", s.AgentsPerGroup, n.Width)
	case s.Shards > 1:
		return []string{"shards"}, fmt.Errorf("shards %d: a grid is on one device: leave it out", s.Shards)
	}
	return nil, nil
}
