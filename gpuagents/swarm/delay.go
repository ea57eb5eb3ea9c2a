package swarm

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

// Delay is the least and the most ticks that a spike takes over a generated link, 1 to
// edges.MaxDelay. YAML has a list of both, or a number for the same delay of all links. The zero
// value means no delays: spikes arrive in the next tick.
type Delay [2]int

// UnmarshalYAML reads the form that Delay documents.
func (d *Delay) UnmarshalYAML(n *yaml.Node) error {
	all := []*yaml.Node{n, n}
	if n.Kind == yaml.SequenceNode {
		all = n.Content
	}
	read := Delay{}
	wrong := len(all) != len(read)
	for i := 0; i < len(all) && !wrong; i++ {
		// A number with a fraction would be cut off.
		wrong = all[i].Decode(&read[i]) != nil || all[i].ShortTag() != "!!int"
	}
	if wrong || !read.valid() {
		return fmt.Errorf("line %d: neighbours: delay: write whole numbers of ticks from 1 to %d, as in [1, 8], the "+
			"smaller one first, or one number for all links", n.Line, edges.MaxDelay)
	}
	*d = read
	return nil
}

func (d Delay) valid() bool { return d[0] >= 1 && d[0] <= d[1] && d[1] <= edges.MaxDelay }

// String returns the delays as YAML has them.
func (d Delay) String() string { return fmt.Sprintf("[%d, %d]", d[0], d[1]) }

// text distinguishes generated links with different delays.
func (d Delay) text() string {
	if d[1] <= 1 {
		return ""
	}
	return fmt.Sprintf(", delays from %d to %d", d[0], d[1])
}

func (d Delay) links() edges.Delays { return edges.Delays{Least: d[0], Most: d[1]} }

// longest returns the longest delay of a link of the graph in ticks, 1 or more.
func (n Neighbours) longest() int { return max(1, n.Random.Delay[1], n.Ring.Delay[1], n.Longest) }

func (s *Spec) validateDelays() (path []string, err error) {
	n := s.Neighbours
	for kind, d := range map[string]Delay{"random": n.Random.Delay, "ring": n.Ring.Delay} {
		path = []string{"neighbours", kind, "delay"}
		switch {
		case d == Delay{}:
		case !d.valid():
			return path, fmt.Errorf("neighbours: delay %v: use whole numbers of ticks from 1 to %d, the smaller one "+
				"first", d, edges.MaxDelay)
		case !spikes(s):
			return path, fmt.Errorf("neighbours: delay: it is for spikes, of the cells lif and izhikevich: leave it "+
				"out, or use one of these instead of %s", s.Cell.Kind)
		}
	}
	if n.Longest != 0 && (n.Longest < 2 || n.Longest > edges.MaxDelay || n.Edges == "" && n.Digest == "") {
		return []string{"neighbours", "graph"}, fmt.Errorf("neighbours: graph %s: a longest delay of %d ticks: make "+
			"the swarm from its file", n.Graph, n.Longest)
	}
	if n.Longest > 1 && !spikes(s) {
		return []string{"neighbours", "graph"}, fmt.Errorf("neighbours: graph %s: its edges have delays, which are "+
			"for spikes, of the cells lif and izhikevich: leave the fourth column out, or use one of these", n.Graph)
	}
	return nil, nil
}
