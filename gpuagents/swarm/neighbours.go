package swarm

import (
	"cmp"
	"fmt"
	"math"
)

// Neighbours says whom agents hear in ticks: the agents around them on a grid, the agents near them
// in a box (Space), or linked agents of a graph (one of Random, Ring and Graph). The zero value
// means no neighbours.
type Neighbours struct {
	// Width and Height are the columns and rows of a grid, 1 or more, with fewer than 2^32 agents in
	// all: agent y*Width+x is in column x of row y, and its neighbours are the eight agents around it.
	Width  int64 `yaml:"width" json:"width,omitempty"`
	Height int64 `yaml:"height" json:"height,omitempty"`
	// Depth is the layers of a grid of three dimensions, of the cell custom: agent (z*Height +
	// y)*Width + x is in layer z, and its neighbours are the 26 around it. 0 is 1: a grid of two
	// dimensions.
	Depth int64 `yaml:"depth" json:"depth,omitempty"`
	// Faces makes neighbours of the cell custom the agents that share a face: 4 agents, or 6 with
	// Depth.
	Faces bool `yaml:"faces" json:"faces,omitempty"`
	// Periodic makes the first and the last row neighbours, and likewise the columns and the layers.
	// Else what is outside of the grid is dead, and agents of the cell custom at its edges have fewer
	// neighbours.
	Periodic bool `yaml:"periodic" json:"periodic,omitempty"`

	// Space is a box in which the agents are.
	Space Space `yaml:"space" json:"space,omitzero"`

	// Random gives each agent links to random other agents.
	Random Random `yaml:"random" json:"random,omitzero"`
	// Ring gives each agent links to those beside it.
	Ring Ring `yaml:"ring" json:"ring,omitzero"`
	// Graph names a file of edges in the folder of the spec or below; see edges.Read.
	Graph string `yaml:"graph" json:"graph,omitempty"`
	// Directed makes only the second agent of each edge of Graph hear the first. Otherwise both
	// hear each other.
	Directed bool `yaml:"directed" json:"directed,omitempty"`
	// Edges is the content of Graph, packed; see edges.List.Pack. Parse fills it in.
	Edges string `yaml:"-" json:"edges,omitempty"`
	// Longest is the longest delay of the edges of Graph, in ticks; 0: all have the delay 1. Parse
	// fills it in.
	Longest int `yaml:"-" json:"longest,omitempty"`
	// Digest is the digest of Edges that are an object in the store of snapshots; see Spec.Detach.
	Digest string `yaml:"-" json:"digest,omitempty"`
}

// Random is a random graph. Links are drawn one by one, so an agent may have several links to the
// same agent.
type Random struct {
	// Degree is the links of an agent, 1 or more, and fewer than there are agents.
	Degree int    `yaml:"degree" json:"degree"`
	Seed   uint64 `yaml:"seed" json:"seed,omitempty"`
	// Delay is the delay of links of neurons, drawn by Seed.
	Delay Delay `yaml:"delay" json:"delay,omitzero"`
}

// Ring is a ring of all agents in the order of their numbers.
type Ring struct {
	// Reach is how many agents on each side an agent has links to, 1 or more.
	Reach int `yaml:"reach" json:"reach"`
	// Rewire is the chance, 0 to 1, that a link goes to a random other agent instead, as in a small
	// world of Watts and Strogatz. Seed chooses the agents.
	Rewire float64 `yaml:"rewire" json:"rewire,omitempty"`
	Seed   uint64  `yaml:"seed" json:"seed,omitempty"`
	// Delay is the delay of links of neurons, drawn by Seed.
	Delay Delay `yaml:"delay" json:"delay,omitzero"`
}

// String implements fmt.Stringer. Different neighbours have different texts.
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

func (n Neighbours) graph() bool {
	return n.Random != Random{} || n.Ring != Ring{} || n.Graph != "" || n.Edges != "" || n.Digest != ""
}

// cells returns the number of cells of the grid; 0: the sides are missing, or give too many cells.
func (n Neighbours) cells() int64 {
	depth := n.layers()
	if n.Width < 1 || n.Height < 1 || depth < 1 || n.Width > math.MaxUint32/n.Height ||
		n.Width*n.Height > math.MaxUint32/depth {
		return 0
	}
	return n.Width * n.Height * depth
}

func (n Neighbours) layers() int64 { return cmp.Or(n.Depth, 1) }

// Rows returns the rows of all layers of the grid.
func (n Neighbours) Rows() int64 { return n.Height * n.layers() }
