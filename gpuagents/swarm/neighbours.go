package swarm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/team"
)

// Neighbours says whom agents hear in ticks: the agents around them on a grid, those near them in a box,
// which is Space, or those to whom they have links on a graph, which is one of Random, Ring and Graph.
// The zero value is none of them.
type Neighbours struct {
	// Width and Height are the columns and rows of a grid, 1 or more, with fewer than 2^32 agents in
	// all: agent y*Width+x is in column x of row y, and its neighbours are the eight agents around it.
	Width  int64 `yaml:"width" json:"width,omitempty"`
	Height int64 `yaml:"height" json:"height,omitempty"`
	// Depth is the layers of a grid of three dimensions, of the cell custom: agent (z*Height + y)*Width + x
	// is in layer z, and its neighbours are the 26 around it. 0 is 1: a grid of two dimensions.
	Depth int64 `yaml:"depth" json:"depth,omitempty"`
	// Faces makes neighbours of the cell custom those that share a face: 4 of them, or 6 with Depth.
	Faces bool `yaml:"faces" json:"faces,omitempty"`
	// Periodic makes the first and the last row neighbours, and likewise the columns and the layers. Else
	// what is outside of the grid is dead, and agents of the cell custom at its edges have fewer neighbours.
	Periodic bool `yaml:"periodic" json:"periodic,omitempty"`

	// Space is a box in which the agents are.
	Space Space `yaml:"space" json:"space,omitzero"`

	// Random gives each agent links to random other agents.
	Random Random `yaml:"random" json:"random,omitzero"`
	// Ring gives each agent links to those beside it.
	Ring Ring `yaml:"ring" json:"ring,omitzero"`
	// Graph names a file of edges in the folder of the spec or below; see edges.Read.
	Graph string `yaml:"graph" json:"graph,omitempty"`
	// Directed says that the second agent of each edge of Graph hears the first, and not the other way
	// round too.
	Directed bool `yaml:"directed" json:"directed,omitempty"`
	// Edges is the content of Graph, packed; see edges.List.Pack. Parse fills it in.
	Edges string `yaml:"-" json:"edges,omitempty"`
	// Longest is the longest delay of the edges of Graph, in ticks; 0: all have the delay 1. Parse
	// fills it in.
	Longest int `yaml:"-" json:"longest,omitempty"`
	// Digest is that of Edges where these are an object in the place of snapshots; see Spec.Detach.
	Digest string `yaml:"-" json:"digest,omitempty"`
}

// Random is a random graph. Links of an agent are drawn one by one, so that it may have several to the
// same other agent.
type Random struct {
	// Degree is the links of an agent, 1 or more, and fewer than there are agents.
	Degree int    `yaml:"degree" json:"degree"`
	Seed   uint64 `yaml:"seed" json:"seed,omitempty"`
	// Delay is that of the links of neurons, drawn by Seed.
	Delay Delay `yaml:"delay" json:"delay,omitzero"`
}

// Ring is a ring of all agents in the order of their numbers.
type Ring struct {
	// Reach is how many agents on each side an agent has links to, 1 or more.
	Reach int `yaml:"reach" json:"reach"`
	// Rewire is the chance, 0 to 1, that a link goes to a random other agent instead, as on a small world
	// of Watts and Strogatz. Seed chooses those.
	Rewire float64 `yaml:"rewire" json:"rewire,omitempty"`
	Seed   uint64  `yaml:"seed" json:"seed,omitempty"`
	// Delay is that of the links of neurons, drawn by Seed.
	Delay Delay `yaml:"delay" json:"delay,omitzero"`
}

// String implements fmt.Stringer. It tells different grids and graphs from each other.
func (n Neighbours) String() string {
	switch {
	case n.Space != Space{}:
		return n.Space.String()
	case n.Random != Random{}:
		return fmt.Sprintf("random graph of degree %d, seed %d", n.Random.Degree, n.Random.Seed) +
			n.Random.Delay.text()
	case n.Ring != Ring{}:
		return fmt.Sprintf("ring of reach %d, rewired %v, seed %d", n.Ring.Reach, n.Ring.Rewire, n.Ring.Seed) +
			n.Ring.Delay.text()
	case n.Edges != "" || n.Digest != "":
		return n.fileText()
	}
	text := fmt.Sprintf("%d x %d", n.Width, n.Height)
	if n.Depth > 1 {
		text += fmt.Sprintf(" x %d", n.Depth)
	}
	if n.Faces {
		text += ", faces"
	}
	if n.Periodic {
		text += ", periodic"
	}
	return text
}

// HasNeighbours says that the agents hear other agents.
func (s *Spec) HasNeighbours() bool { return s.Neighbours != Neighbours{} }

// OnGrid says that the agents are on a grid.
func (s *Spec) OnGrid() bool { return s.HasNeighbours() && !s.OnGraph() && !s.InBox() }

// InBox says that the agents are in a box.
func (s *Spec) InBox() bool { return s.Neighbours.Space != Space{} }

// IsColony says that the agents die and give birth.
func (s *Spec) IsColony() bool { return s.InBox() && s.Cell.Kind == cells.ColonyName }

// OnGraph says that the agents are on a graph.
func (s *Spec) OnGraph() bool {
	n := s.Neighbours
	return n.Random != Random{} || n.Ring != Ring{} || n.Graph != "" || n.Edges != "" || n.Digest != ""
}

// onGraph returns a number of agents if the agents are on a graph, and else 0.
func (s *Spec) onGraph(agents int64) int64 {
	if s.OnGraph() {
		return agents
	}
	return 0
}

// cells returns the number of cells of the grid; 0: it has none, or too many.
func (n Neighbours) cells() int64 {
	depth := n.layers()
	if n.Width < 1 || n.Height < 1 || depth < 1 || n.Width > math.MaxUint32/n.Height ||
		n.Width*n.Height > math.MaxUint32/depth {
		return 0
	}
	return n.Width * n.Height * depth
}

// layers returns Depth, or its default.
func (n Neighbours) layers() int64 { return cmp.Or(n.Depth, 1) }

// Rows returns the rows of all layers of the grid.
func (n Neighbours) Rows() int64 { return n.Height * n.layers() }

// placeAgents is the part of ensureDefaults about agents that have neighbours: how many there are,
// groups that are rows of a grid or parts of them, features of agents in a box, and pages that stay on
// the device.
func (s *Spec) placeAgents() {
	all, of := s.Neighbours.cells(), s.Neighbours.Width
	if s.OnGraph() {
		if all = s.Agents; all == 0 {
			all = s.Neighbours.fileAgents()
		}
		of = all
	}
	if s.InBox() {
		all, of = s.Agents, s.Agents
	}
	if all < 1 || !s.ByAgent() {
		return
	}
	if len(s.Features) == 0 && s.InBox() {
		s.Features = cells.BoxFeatures(s.Cell.Kind, s.Neighbours.Space.Size.dimensions())
	}
	if len(s.Features) == 0 && s.OnLattice() {
		s.Features = slices.Sorted(maps.Keys(s.Cell.State))
	}
	if s.Agents == 0 {
		s.Agents = all
	}
	if s.AgentsPerGroup == 0 {
		s.AgentsPerGroup = 1
		for per := min(of, MaxAgentsPerGroup); per > 1; per-- {
			if of%per == 0 {
				s.AgentsPerGroup = int(per)
				break
			}
		}
	}
	if s.Residency == "" {
		s.Residency = ResidencyGPU
	}
}

// validateNeighbours is the part of validate about the grid, the graph or the box.
func (s *Spec) validateNeighbours() (path []string, err error) {
	kind := s.Cell.Kind
	life, custom := s.ByAgent() && kind == cells.LifeName, s.OnLattice()
	graph := s.ByAgent() && (kind == cells.SIRName || spikes(s))
	box := s.ByAgent() && cells.BoxFeatures(kind, 2) != nil
	if path, err := s.validateDevices(); err != nil {
		return path, err
	}
	switch {
	case !s.HasNeighbours() && box:
		return []string{"cell", "kind"}, fmt.Errorf("neighbours: agents of the cell %s are in a box: write "+
			"neighbours: {space: {size: [100, 100], radius: 2, periodic: true}}, or the size that you want", kind)
	case !s.HasNeighbours() && custom:
		return []string{"cell", "kind"}, errors.New("neighbours: agents of a custom cell that are addressed are on a " +
			"grid or a graph: write neighbours: {width: 512, height: 512, periodic: true}, or {random: {degree: " +
			"10}}. Without hear in cell, agents hear nobody")
	case !s.HasNeighbours() && life:
		return []string{"cell", "kind"}, errors.New("neighbours: agents of the cell life are on a grid: write " +
			"neighbours: {width: 512, height: 512, periodic: true}, or the size that you want")
	case !s.HasNeighbours() && graph:
		return []string{"cell", "kind"}, fmt.Errorf("neighbours: agents of the cell %s are on a graph: write "+
			"neighbours: {random: {degree: 10}}, or ring: {reach: 4}, or graph: and a file of edges", kind)
	case !s.HasNeighbours():
		return nil, nil
	case !life && !custom && !graph && !box:
		return []string{"neighbours"}, fmt.Errorf("neighbours: agents of the cell %s have none: write addressed: "+
			"agent and cell: {kind: life}, or kind custom, sir, lif, izhikevich, boids, circles or colony, or leave "+
			"it out", kind)
	case s.Shards > 1:
		what := "grid"
		if s.OnGraph() {
			what = "graph"
		} else if s.InBox() {
			what = "box"
		}
		return []string{"shards"}, fmt.Errorf("shards %d: a %s has one: leave it out", s.Shards, what)
	case box:
		return s.validateSpace()
	case s.InBox():
		return []string{"neighbours", "space"}, fmt.Errorf("neighbours: space: it is for the cells boids, circles and "+
			"colony: write what the cell %s needs instead, or another cell", kind)
	case custom:
		return s.validateLattice()
	case life:
		return s.validateGrid()
	}
	return s.validateGraph()
}

// validateDevices is the part of validateNeighbours about devices that share ticks.
func (s *Spec) validateDevices() (path []string, err error) {
	switch {
	case s.Devices < 0 || s.Devices > team.MaxDevices:
		return []string{"devices"}, fmt.Errorf("devices %d: use 1 to %d, or leave it out for 1", s.Devices,
			team.MaxDevices)
	case s.Devices > 1 && (s.Custom() || !s.OnGrid() && !s.OnGraph()):
		return []string{"devices"}, fmt.Errorf("devices %d: several make the ticks of agents of the cells life, sir, "+
			"lif and izhikevich with neighbours together, and of no others: leave it out", s.Devices)
	}
	return nil, nil
}

// validateGrid is the part of validateNeighbours for the cell life.
func (s *Spec) validateGrid() (path []string, err error) {
	n := s.Neighbours
	switch {
	case s.OnGraph():
		return []string{"neighbours"}, errors.New("neighbours: agents of the cell life are on a grid: write width " +
			"and " +
			"height, or cell: {kind: sir}, {kind: lif} or {kind: izhikevich} for agents on a graph")
	case n.Depth != 0 || n.Faces:
		return []string{"neighbours"}, errors.New("neighbours: depth and faces: they are for the cell custom: the " +
			"cell life hears the eight agents around, in two dimensions. Life of three is a step of some lines: " +
			"docs/cells.md, Custom cells on a grid")
	}
	return s.validateSides()
}

// validateSides is the part of validateNeighbours about the sizes of a grid.
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
