package state

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/graph"
	"github.com/exoswarm/exoswarm/gpuagents/grid"
	"github.com/exoswarm/exoswarm/gpuagents/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/space"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

type opening struct {
	device device.Device
	budget *pages.Budget
	spec   *swarm.Spec
	groups GroupRange
	peers  []field.Peer // further devices that can share ticks
}

// library is what a library of agents does for a topology.
type library struct {
	open func(opening) (State, error)
	// beside returns the bytes that ticks need beside the pages; nil: none.
	beside func(s *swarm.Spec, cell *cells.Addressed) int64
	// peers returns the bytes of each further device by the number of devices; nil: one device makes
	// all ticks.
	peers func(s *swarm.Spec, cell *cells.Addressed) func(devices int) int64
}

// libraries are by the name of the topology.
var libraries = map[string]library{
	swarm.TopologyGroups: {open: func(o opening) (State, error) {
		return newGroupState(o.device, o.budget, o.spec, o.groups)
	}},
	swarm.TopologyAgents: {open: func(o opening) (State, error) {
		return newAgentState(o.device, o.budget, o.spec, o.groups)
	}},
	swarm.TopologyConversations: {open: func(o opening) (State, error) {
		return newConversationState(o.device, o.budget, o.spec, o.groups)
	}},
	swarm.TopologyGrid: {
		open:   withNeighbours(openGrid),
		beside: func(s *swarm.Spec, cell *cells.Addressed) int64 { return grid.Beside(cell, gridOptions(s)) },
		peers: func(s *swarm.Spec, _ *cells.Addressed) func(devices int) int64 {
			o := gridOptions(s)
			return func(devices int) int64 { return grid.PeerBytes(o, devices) }
		},
	},
	swarm.TopologyCustomGrid: {
		open: withNeighbours(openCustomGrid),
		beside: func(s *swarm.Spec, cell *cells.Addressed) int64 {
			return lattice.Beside(cell, latticeOptions(s, nil))
		},
	},
	swarm.TopologyCustomGraph: {
		open: withNeighbours(openCustomGraph),
		beside: func(s *swarm.Spec, cell *cells.Addressed) int64 {
			links := s.CountedLinks()
			return lattice.Beside(cell, latticeOptions(s, &links))
		},
	},
	swarm.TopologyGraph: {
		open: withNeighbours(openGraph),
		beside: func(s *swarm.Spec, cell *cells.Addressed) int64 {
			return graph.Beside(cell, graphOptions(s, s.CountedLinks()))
		},
		peers: func(s *swarm.Spec, cell *cells.Addressed) func(devices int) int64 {
			o := graphOptions(s, s.CountedLinks())
			return func(devices int) int64 { return graph.PeerBytes(cell, o, devices) }
		},
	},
	swarm.TopologyBox: {
		open:   withNeighbours(openBox),
		beside: func(s *swarm.Spec, cell *cells.Addressed) int64 { return space.Beside(cell, boxOptions(s)) },
	},
}

// BesideBytes returns the device memory of agents with neighbours in addition to their pages, in
// bytes; 0 for other agents. It does not count edges that are not in the specification.
func BesideBytes(s *swarm.Spec) int64 {
	of := libraries[s.Topology().Name]
	if of.beside == nil {
		return 0
	}
	cell, err := s.Address()
	if err != nil {
		return 0
	}
	return of.beside(s, cell)
}

// PeerBytes returns the memory of each further device of a shard by the number of devices, in
// bytes; 0: they are too many. It does not count edges that are not in the specification.
func PeerBytes(s *swarm.Spec) func(devices int) int64 {
	of := libraries[s.Topology().Name]
	if s.Devices > 1 && of.peers != nil {
		if cell, err := s.Address(); err == nil {
			return of.peers(s, cell)
		}
	}
	return func(int) int64 { return 0 }
}

// withNeighbours returns an opener of states whose topology open allocates. open also says what the
// state takes and answers, and returns its digest.
func withNeighbours(open func(s *neighbourState, o opening, cell *cells.Addressed) error) func(opening) (State, error) {
	return func(o opening) (State, error) {
		cell, err := o.spec.Address()
		if err != nil {
			return nil, err
		}
		s := &neighbourState{groups: o.groups, every: o.spec.Checkpoint}
		if err := open(s, o, cell); err != nil {
			return nil, err
		}
		return s, nil
	}
}

// gridAgents are the agents of a grid as a topology: values are states.
type gridAgents struct{ *grid.Plane }

func (g gridAgents) Set(ctx context.Context, ids []uint32, values []float32) error {
	states := make([]byte, len(values))
	for i, v := range values {
		states[i] = byte(v)
	}
	return g.Plane.Set(ctx, ids, states)
}

func (g gridAgents) Get(ctx context.Context, ids []uint32) (states []byte, values []float32, err error) {
	states, err = g.Plane.Get(ctx, ids)
	for _, s := range states {
		values = append(values, float32(s))
	}
	return states, values, err
}

func openGrid(s *neighbourState, o opening, cell *cells.Addressed) error {
	options := gridOptions(o.spec)
	options.Peers = o.peers
	plane, err := grid.New(o.device, o.budget, cell, options)
	if err != nil {
		return err
	}
	s.topology = gridAgents{plane}
	s.texts = texts{
		cell: cells.LifeName, on: "on a grid", expr: "(alive)", votes: true,
		columns: []input{{"state", "0 for dead or 1 for alive", stateUpTo(1)}},
	}
	s.digest = digestOf(fmt.Sprintf("life on a grid, %v\n%+v", o.spec.Neighbours, plane.Layout()), plane.Kernel())
	return nil
}

func gridOptions(s *swarm.Spec) grid.Options {
	n := s.Neighbours
	return grid.Options{
		Width: n.Width, Height: n.Height, Periodic: n.Periodic, PageBytes: int(s.PageSize), Devices: s.Devices,
	}
}

func openCustomGrid(s *neighbourState, o opening, cell *cells.Addressed) error {
	return openUserStep(s, o, cell, "on a grid", nil)
}

func openCustomGraph(s *neighbourState, o opening, cell *cells.Addressed) error {
	links, err := o.spec.Links()
	if err != nil {
		return err
	}
	return openUserStep(s, o, cell, "on a graph", &links)
}

// openUserStep opens agents with a step that a user has written, with the links of a graph, or
// without them on a grid.
func openUserStep(s *neighbourState, o opening, cell *cells.Addressed, on string, links *edges.Links) error {
	step, err := lattice.Compile(o.device, cell)
	if err := refusedStep(o.device, err, o.spec.Cell.Step); err != nil {
		return err
	}
	agents, err := lattice.New(o.device, o.budget, cell, step, latticeOptions(o.spec, links))
	if err != nil {
		return err
	}
	s.topology = agents
	by := cell.Vars()[cell.Voted()].Name
	s.texts = texts{cell: cells.CustomName, on: on, expr: "(" + by + ")"}
	for _, at := range cell.Settable() {
		v := cell.Vars()[at]
		s.texts.columns = append(s.texts.columns, input{
			v.Name, lattice.Use(v), func(value float32) bool { return lattice.Valid(v, value) },
		})
	}
	s.digest = agentsDigest(fmt.Sprintf("custom %s, %v, voting by %s\n%s", on, o.spec.Neighbours, by,
		cell.Cell.Source), o.spec, cell, agents.Layout(), nil)
	return nil
}

// latticeOptions returns the options of agents with a step that a user has written. links are nil
// on a grid.
func latticeOptions(s *swarm.Spec, links *edges.Links) lattice.Options {
	n := s.Neighbours
	return lattice.Options{
		Width: n.Width, Height: n.Height, Depth: n.Depth, Agents: s.Agents, Links: links, Seed: s.Seed,
		PageBytes: int(s.PageSize),
	}
}

func openGraph(s *neighbourState, o opening, cell *cells.Addressed) error {
	links, err := o.spec.Links()
	if err != nil {
		return err
	}
	options := graphOptions(o.spec, links)
	options.Peers = o.peers
	network, err := graph.New(o.device, o.budget, cell, options)
	if err != nil {
		return refusedRoom(err)
	}
	s.topology = network
	s.texts = texts{
		cell: cells.SIRName, on: "on a graph", expr: "(state == 1)", votes: true,
		columns: []input{
			{"state", "0 for susceptible, 1 for infected or 2 for recovered", stateUpTo(graphset.States - 1)},
		},
	}
	s.pictures = []raster.Var{{Name: "infected", Draw: network.Picture}}
	if cell.Spikes() {
		s.pictures[0].Name = "spikes"
		s.texts = texts{
			cell: cell.Cell.Name, on: "on a graph", expr: "(spike)",
			columns: []input{{
				"current", "a number from -1e6 to 1e6",
				func(v float32) bool { return v >= -graph.MaxCurrent && v <= graph.MaxCurrent }, // no NaN is
			}},
		}
	}
	s.digest = agentsDigest(fmt.Sprintf("%s on a graph, %v", s.texts.cell, o.spec.Neighbours), o.spec, cell,
		network.Layout(), network.Kernels())
	return nil
}

func graphOptions(s *swarm.Spec, links edges.Links) graph.Options {
	return graph.Options{
		Agents: s.Agents, Links: links, Seed: s.Seed, PageBytes: int(s.PageSize), Devices: s.Devices,
	}
}

func openBox(s *neighbourState, o opening, cell *cells.Addressed) error {
	n := o.spec.Neighbours.Space
	box, err := space.New(o.device, o.budget, cell, boxOptions(o.spec))
	if err != nil {
		return refusedRoom(err)
	}
	s.topology = box
	s.pictures = []raster.Var{{Name: "places", Draw: box.Picture}}
	s.texts = texts{cell: cell.Cell.Name, on: "in a box", expr: "(state)"}
	for k, name := range cells.BoxFeatures(cell.Cell.Name, len(n.Sides())) {
		use := fmt.Sprintf("a speed from %v to %v, the radius", -n.Radius, n.Radius)
		if k < len(n.Sides()) {
			use = fmt.Sprintf("0 or more, below the side, %v", n.Sides()[k])
		}
		s.texts.columns = append(s.texts.columns, input{name, use, func(v float32) bool { return box.Valid(k, v) }})
	}
	s.digest = agentsDigest(fmt.Sprintf("%s in a %v", s.texts.cell, n), o.spec, cell, box.Layout(), box.Kernels())
	return nil
}

func boxOptions(s *swarm.Spec) space.Options {
	n := s.Neighbours.Space
	return space.Options{
		Agents: s.Agents, Sides: n.Sides(), Radius: n.Radius, Nearest: int(n.Nearest), Periodic: n.Periodic,
		Seed: s.Seed, PageBytes: int(s.PageSize),
	}
}

// refusedRoom makes a *jobs.Error of a lack of room for what ticks need. It returns other errors as
// they are.
func refusedRoom(err error) error {
	if room := (*field.RoomError)(nil); errors.As(err, &room) {
		return jobs.Errorf(jobs.CodeDevice, "%v", room)
	}
	return err
}

func agentsDigest(what string, spec *swarm.Spec, cell *cells.Addressed, l kernels.Layout, names []string) string {
	what += fmt.Sprintf(", %d agents, seed %d", spec.Agents, spec.Seed)
	for _, p := range cell.Cell.Params {
		what += fmt.Sprintf(", %s %v", p.Name, cell.Value(p.Name))
	}
	return digestOf(fmt.Sprintf("%s\n%+v", what, l), names...)
}

func digestOf(what string, names ...string) string {
	h := sha256.New()
	fmt.Fprintln(h, what)
	for _, name := range names {
		src, _ := kernels.Lookup(name)
		fmt.Fprintln(h, src.Code)
	}
	return hex.EncodeToString(h.Sum(nil))
}
