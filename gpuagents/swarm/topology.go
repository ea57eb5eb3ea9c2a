package swarm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/field"
)

// Topology is an entry of the table of topologies: whom observations are for, and whom agents hear.
// A topology is the entry and its rules, in a file topology_*.go, and what package state opens by
// its Name. Others ask the entry and not for a certain topology. An entry does not change.
type Topology struct {
	Name string
	// ByAgent reports whether observations are for agents. Otherwise they are for groups.
	ByAgent bool
	// Neighbours reports whether agents have neighbours. The swarm has one shard then, whose pages
	// stay on the device.
	Neighbours bool
	// FixedAgents reports whether states depend on the number of agents.
	FixedAgents bool
	// Shared reports whether several devices can make ticks together.
	Shared bool
	// Picture is what a picture of the swarm shows.
	Picture Picture

	cells  []string // the kinds of cells that choose the topology
	custom bool     // a user has written the step, for neighbours
	shape  string   // of the neighbours, in errors
	topologyRules
}

// Picture is what a picture of a swarm shows.
type Picture int

// The pictures.
const (
	PictureNone  Picture = iota // agents have no positions
	PictureCells                // a pixel for each agent of a grid
	PictureTicks                // agents by row, and ticks by column
	PictureBox                  // agents at their positions
)

// topologyRules is what a topology does with a specification.
type topologyRules interface {
	// defaults fills in what the topology decides. Kind and parameters of the cell are there.
	defaults(s *Spec)
	// groups returns the number of groups; 0: the input of a run decides.
	groups(s *Spec) int
	// candidates returns the names of what agents of the cell vote for; nil: the cell has no names.
	candidates(s *Spec) []string
	// agents validates the numbers of agents, groups and shards.
	agents(s *Spec) (path []string, err error)
	// missing returns the error of a specification without neighbours.
	missing(kind string) error
	// validate validates the neighbours of a specification that has some.
	validate(s *Spec) (path []string, err error)
	// cell fits the cell to agents that are addressed and hear nobody.
	cell(s *Spec) (*cells.Addressed, error)
	// fit fits the cell to the swarm.
	fit(s *Spec) (Fitted, error)
	// layout returns the layout of the pages.
	layout(s *Spec, cell Fitted) (kernels.Layout, error)
}

// Fitted is a cell that is fitted to a swarm: a *cells.Bound, or a *cells.Addressed.
type Fitted interface {
	// Layout returns the layout of a page without regard to neighbours.
	Layout(pageBytes int) (kernels.Layout, error)
	// Value returns a parameter of the cell, and Params returns all of them.
	Value(name string) float64
	Params() []cells.Param
}

// The names of the topologies.
const (
	TopologyGroups      = "groups"
	TopologyAgents      = "agents"
	TopologyGrid        = "grid"
	TopologyCustomGrid  = "custom grid"
	TopologyCustomGraph = "custom graph"
	TopologyGraph       = "graph"
	TopologyBox         = "box"

	TopologyConversations = "conversations"
)

// topologies is the table. Agents without neighbours are the last entry, and so the default by
// agent.
var topologies = []*Topology{
	{Name: TopologyGroups, topologyRules: groupRules{}},
	{
		Name: TopologyGrid, ByAgent: true, Neighbours: true, Picture: PictureCells, cells: []string{cells.LifeName},
		Shared: true, shape: "grid", topologyRules: gridRules{},
	},
	{
		Name: TopologyCustomGrid, ByAgent: true, Neighbours: true, Picture: PictureCells,
		cells: []string{cells.CustomName}, custom: true, shape: "grid", topologyRules: customGridRules{},
	},
	{
		Name: TopologyCustomGraph, ByAgent: true, Neighbours: true, FixedAgents: true, Picture: PictureTicks,
		cells: []string{cells.CustomName}, custom: true, shape: "graph", topologyRules: customGraphRules{},
	},
	{
		Name: TopologyGraph, ByAgent: true, Neighbours: true, FixedAgents: true, Picture: PictureTicks,
		cells: []string{cells.SIRName, cells.LIFName, cells.IzhikevichName}, Shared: true, shape: "graph",
		topologyRules: graphRules{},
	},
	{
		Name: TopologyBox, ByAgent: true, Neighbours: true, Picture: PictureBox,
		cells: []string{cells.BoidsName, cells.CirclesName, cells.ColonyName}, shape: "box", topologyRules: boxRules{},
	},
	{
		Name: TopologyConversations, ByAgent: true, cells: []string{cells.TransformerName},
		topologyRules: conversationRules{},
	},
	{
		Name: TopologyAgents, ByAgent: true, cells: []string{"gru", "leaky", cells.QuantumName},
		topologyRules: agentRules{},
	},
}

// Topologies returns the table, which the caller does not change.
func Topologies() []*Topology { return topologies }

// Topology returns the topology of the swarm. If agents are addressed, the cell chooses it. A
// custom cell has two topologies, and its neighbours choose one.
func (s *Spec) Topology() *Topology {
	if s.Addressed != ByAgent {
		return topologies[0]
	}
	for _, t := range topologies {
		if slices.Contains(t.cells, s.Cell.Kind) && (!t.custom || t.FixedAgents == s.Neighbours.graph()) {
			return t
		}
	}
	return topologies[len(topologies)-1]
}

// addressable returns the cells whose agents can be addressed, in alphabetical order. A name
// follows the longer names that start with it, so that lifx is taken for life.
func addressable() (kinds []string) {
	for _, t := range topologies {
		kinds = append(kinds, t.cells...)
	}
	slices.SortFunc(kinds, func(a, b string) int { return cmp.Compare(a+"\xff", b+"\xff") })
	return slices.Compact(kinds)
}

func (s *Spec) validateNeighbours() (path []string, err error) {
	t, kind, none := s.Topology(), s.Cell.Kind, s.Neighbours == Neighbours{}
	switch {
	case s.Devices < 0 || s.Devices > field.MaxDevices:
		return []string{"devices"}, fmt.Errorf("devices %d: use 1 to %d, or leave it out for 1", s.Devices,
			field.MaxDevices)
	case s.Devices > 1 && (none || !t.Shared):
		return []string{"devices"}, fmt.Errorf("devices %d: several make the ticks of agents of the cells life, sir, "+
			"lif and izhikevich with neighbours together, and of no others: leave it out", s.Devices)
	case none && t.Neighbours:
		return []string{"cell", "kind"}, t.missing(kind)
	case none:
		return nil, nil
	case !t.Neighbours:
		return []string{"neighbours"}, fmt.Errorf("neighbours: agents of the cell %s have none: write addressed: "+
			"agent and cell: {kind: life}, or kind custom, sir, lif, izhikevich, boids, circles or colony, or leave "+
			"it out", kind)
	case s.Shards > 1:
		return []string{"shards"}, fmt.Errorf("shards %d: a %s has one: leave it out", s.Shards, t.shape)
	case s.Neighbours.Space != (Space{}) && t.Picture != PictureBox:
		return []string{"neighbours", "space"}, fmt.Errorf("neighbours: space: it is for the cells boids, circles and "+
			"colony: write what the cell %s needs instead, or another cell", kind)
	}
	return t.validate(s)
}

// PageBytes returns the size of the pages of groups, in bytes; 0 for a specification that cannot be
// laid out in pages.
func (s *Spec) PageBytes(groups int) int64 {
	cell, err := s.Fit()
	if err != nil {
		return 0
	}
	layout, err := s.Topology().layout(s, cell)
	if err != nil {
		return 0
	}
	n := int64((groups + layout.Slots - 1) / layout.Slots)
	if s.Conversations() {
		n += int64(groups) * int64(s.AgentsPerGroup) * s.CachePages()
	}
	return n * int64(layout.PageBytes)
}

// Fit fits the cell to the swarm.
func (s *Spec) Fit() (Fitted, error) { return s.Topology().fit(s) }

// Address fits the cell to a swarm whose agents are addressed.
func (s *Spec) Address() (*cells.Addressed, error) {
	a, err := s.Topology().cell(s)
	if err != nil {
		return nil, err
	}
	return s.hearing(a)
}
