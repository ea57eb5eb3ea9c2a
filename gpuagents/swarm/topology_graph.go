package swarm

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/jobs"
)

type graphRules struct{ agentRules }

func (r graphRules) defaults(s *Spec) {
	r.agentRules.defaults(s)
	if all := s.graphAgents(); all > 0 {
		s.defaultAgents(all, all)
	}
}

func (graphRules) missing(kind string) error {
	return fmt.Errorf("neighbours: agents of the cell %s are on a graph: write "+
		"neighbours: {random: {degree: 10}}, or ring: {reach: 4}, or graph: and a file of edges", kind)
}

func (graphRules) validate(s *Spec) (path []string, err error) { return s.validateGraph() }

// graphAgents returns the number of agents of a graph; 0: the specification does not say.
func (s *Spec) graphAgents() int64 { return cmp.Or(s.Agents, s.Neighbours.fileAgents()) }

// GraphFolder is the folder of edges in the store of snapshots; see Neighbours.Object.
const GraphFolder = "graphs"

// Limits of a file of edges.
const (
	maxEdges = 32 << 20
	// MaxPacked is the most bytes of packed edges. More than maxInRecord are not a part of the record
	// of the swarm, which is one message: see Detach.
	MaxPacked   = 256 << 20
	maxInRecord = 512 << 10
)

// readGraph puts the edges of the file that the spec names into it.
func (s *Spec) readGraph(folder fs.FS) (path []string, err error) {
	name, path := s.Neighbours.Graph, []string{"neighbours", "graph"}
	if name == "" {
		return nil, nil
	}
	if folder == nil {
		return path, fmt.Errorf("neighbours: graph %q: only a spec that is read from a folder can name files of it: "+
			"use random or ring, or the command exoswarm swarm create", name)
	}
	f, err := folder.Open(name)
	if err != nil {
		return path, fmt.Errorf("neighbours: graph: %w: name a file below the spec's own folder", err)
	}
	defer f.Close()
	list, err := edges.Read(f, maxEdges)
	if err != nil {
		return path, fmt.Errorf("neighbours: graph %s: %w", name, err)
	}
	text := list.Pack()
	if len(text) > MaxPacked {
		return path, fmt.Errorf("neighbours: graph %s: its %d edges take %d bytes, packed, of at most %d: use fewer "+
			"edges, or random or ring, which take none", name, len(list.Edges), len(text), MaxPacked)
	}
	s.Neighbours.Edges, s.Neighbours.Longest = text, 0
	if list.Longest > 1 {
		s.Neighbours.Longest = list.Longest
	}
	return nil, nil
}

// Large reports whether the edges are too many for the record of a swarm.
func (n Neighbours) Large() bool { return len(n.Edges) > maxInRecord }

// Detach takes the edges out of the spec, which keeps their digest. It returns the edges, and the
// name of their object in the store of snapshots.
func (s *Spec) Detach() (object, text string) {
	n := &s.Neighbours
	n.Digest, text, n.Edges = n.digest(), n.Edges, ""
	return n.Object(), text
}

// Object returns the name of the object with the edges of a detached spec; empty: the spec has its
// edges, or needs none.
func (n Neighbours) Object() string {
	if n.Digest == "" || n.Edges != "" {
		return ""
	}
	return GraphFolder + "/" + n.Digest
}

// Attach puts edges that Detach has taken out back into the spec. The error is a *jobs.Error.
func (s *Spec) Attach(text string) error {
	n := s.Neighbours
	if n.Edges = text; n.digest() != n.Digest {
		return jobs.Errorf(jobs.CodeInvalid, "neighbours: graph %s: its object %s has other edges: create the swarm "+
			"anew from its file", n.Graph, s.Neighbours.Object())
	}
	s.Neighbours = n
	if _, err := s.validateEdges(); err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "%v", err)
	}
	return nil
}

func (n Neighbours) digest() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(n.Edges))) }

func (n Neighbours) list() (*edges.List, error) {
	if len(n.Edges) > MaxPacked {
		return nil, fmt.Errorf("%w: packed edges of %d bytes: use at most "+
			"%d", edges.ErrInvalid, len(n.Edges), MaxPacked)
	}
	return edges.Unpack(n.Edges, maxEdges)
}

// fileAgents returns how many agents the file of a graph needs; 0: there is none, or it is not
// valid.
func (n Neighbours) fileAgents() int64 {
	if n.Edges == "" {
		return 0
	}
	list, err := n.list()
	if err != nil {
		return 0
	}
	return list.Agents()
}

// fileText describes a file of edges, with a digest of them.
func (n Neighbours) fileText() string {
	digest := n.Digest
	if digest == "" {
		digest = n.digest()
	}
	text := fmt.Sprintf("graph %s of %s", n.Graph, digest)
	if n.Directed {
		text += ", directed"
	}
	return text
}

// Links returns the links of a graph. Links from a file are the agents that each agent of sir
// hears, and the agents that hear each agent of lif and izhikevich. It fails if the edges of the
// file are not in the specification, with a *jobs.Error.
func (s *Spec) Links() (edges.Links, error) {
	n := s.Neighbours
	if n.Ring != (Ring{}) {
		return edges.Links{
			Degree: 2 * n.Ring.Reach, Rewire: n.Ring.Rewire, Seed: n.Ring.Seed, Delays: n.Ring.Delay.links(),
		}, nil
	}
	rows, err := s.rows()
	if err != nil {
		return edges.Links{}, jobs.Errorf(jobs.CodeInvalid, "swarm spec: %v", err)
	}
	return edges.Links{
		Rows: rows, Degree: n.Random.Degree, Rewire: 1, Seed: n.Random.Seed, Delays: n.Random.Delay.links(),
	}, nil
}

// CountedLinks returns the links of a graph, or the fewest that it can have if its edges are not in
// the specification.
func (s *Spec) CountedLinks() edges.Links {
	l, err := s.Links()
	if err != nil {
		return edges.Links{Degree: 1, Rewire: 1, Delays: edges.Delays{Least: 1, Most: s.Neighbours.longest()}}
	}
	return l
}

// rows returns the links of a file; nil for a generated graph.
func (s *Spec) rows() (*edges.Rows, error) {
	if object := s.Neighbours.Object(); object != "" {
		return nil, fmt.Errorf("neighbours: graph %s: its edges are in the object %s of the place of snapshots: name "+
			"it with --snapshots", s.Neighbours.Graph, object)
	}
	if s.Neighbours.Edges == "" {
		return nil, nil
	}
	list, err := s.Neighbours.list()
	if err != nil {
		return nil, err
	}
	if spikes(s) {
		return list.Out(s.Agents, s.Neighbours.Directed)
	}
	return list.In(s.Agents, s.Neighbours.Directed)
}

func (s *Spec) validateGraph() (path []string, err error) {
	n, at := s.Neighbours, func(keys ...string) []string { return append([]string{"neighbours"}, keys...) }
	kinds := 0
	file := n.Graph != "" || n.Edges != "" || n.Digest != ""
	for _, is := range []bool{n.Random != Random{}, n.Ring != Ring{}, file} {
		if is {
			kinds++
		}
	}
	switch {
	case n.Width != 0 || n.Height != 0 || n.Depth != 0 || n.Faces || n.Periodic || kinds == 0:
		return at(), fmt.Errorf("neighbours: agents of the cell %s are on a graph: write random, ring or graph, and "+
			"no width and height", s.Cell.Kind)
	case kinds > 1:
		return at(), errors.New("neighbours: write one of random, ring and graph")
	case n.Directed && n.Edges == "" && n.Digest == "":
		return at("directed"), errors.New("neighbours: directed: it is for graph: leave it out")
	case n.Graph != "" && n.Edges == "" && n.Digest == "":
		return at("graph"), fmt.Errorf("neighbours: graph %s: its edges are missing: make the swarm from its "+
			"file", n.Graph)
	}
	if path, err := s.validateDelays(); err != nil {
		return path, err
	}
	if n.Edges != "" {
		return s.validateEdges()
	}
	if s.Agents < 2 && n.Digest == "" {
		return []string{"agents"}, fmt.Errorf("agents %d: a graph has 2 or more, below 2^32", s.Agents)
	}
	if n.Digest != "" {
		return nil, nil
	}
	most := min(s.Agents-1, 1<<20)
	if n.Ring != (Ring{}) {
		switch {
		case n.Ring.Reach < 1 || 2*int64(n.Ring.Reach) > most:
			return at("ring", "reach"), fmt.Errorf("neighbours: reach %d: use 1 to %d, so that an agent has no link "+
				"to itself", n.Ring.Reach, most/2)
		case !(n.Ring.Rewire >= 0 && n.Ring.Rewire <= 1): // a NaN is neither
			return at("ring", "rewire"), fmt.Errorf("neighbours: rewire %v: use a chance from 0 to 1", n.Ring.Rewire)
		}
		return nil, nil
	}
	if n.Random.Degree < 1 || int64(n.Random.Degree) > most {
		return at("random", "degree"), fmt.Errorf("neighbours: degree %d: use 1 to %d, fewer than there are agents",
			n.Random.Degree, most)
	}
	return nil, nil
}

func (s *Spec) validateEdges() (path []string, err error) {
	path = []string{"neighbours", "graph"}
	list, err := s.Neighbours.list()
	if err != nil {
		return path, fmt.Errorf("neighbours: graph %s: %w", s.Neighbours.Graph, err)
	}
	if list.Longest != s.Neighbours.longest() {
		return path, fmt.Errorf("neighbours: graph %s: its longest delay is %d, in the specification %d: make the "+
			"swarm anew from its file", s.Neighbours.Graph, list.Longest, s.Neighbours.longest())
	}
	if most := list.Agents(); most > s.Agents {
		return []string{"agents"}, fmt.Errorf("agents %d: the graph %s has agent %d, and the first is 0: use %d or "+
			"more, or leave it out", s.Agents, s.Neighbours.Graph, most-1, most)
	}
	if least, most := list.Weights(); s.Cell.Kind == cells.SIRName && (least < 0 || most > edges.WeightOne) {
		return path, fmt.Errorf("neighbours: graph %s: weights from %v to %v: weights of the cell sir are chances, "+
			"from 0 to 1", s.Neighbours.Graph, float64(least)/edges.WeightOne, float64(most)/edges.WeightOne)
	}
	return nil, nil
}
