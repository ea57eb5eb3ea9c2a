package cells

import (
	"fmt"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Told is what the agents of a gru hear of their group, as some of the inputs that Hearing has
// added. The zero value is nothing. Agents hear it in the steps of ticks.
type Told struct {
	// Decision is the number of the input, behind the features, that is the decision of the group; -1:
	// none is.
	Decision int
	// Node is the number of the first input that is the knowledge node of the group, of Width units;
	// -1: agents have no nodes.
	Node, Width int
	// Nodes is the number of knowledge nodes of the swarm. Each belongs to a run of groups; 0: each
	// group has a node. By vote it is 0, and by key above it.
	Nodes int
	// By says which node an agent has: kernels.AgentByGroup and so on.
	By int
	// Merge is kernels.AgentMergeMean and so on, and Rate the rate of AgentMergeEMA, above 0 and at
	// most 1.
	Merge int
	Rate  float64
	// Focus is the focus of AgentMergeAttention, above 0 and at most MostFocus: how much the weight
	// of an agent falls with its distance to the node.
	Focus float64
}

// MostFocus is the largest Told.Focus.
const MostFocus = 16

// Telling returns the cell with agents that hear something of their group. The inputs are inputs of
// Hearing, which Agents.Hear sets to 0. The error is an ErrParameter.
func (a *Addressed) Telling(t Told) (*Addressed, error) {
	of := func(first, n int) bool { return first < 0 || first+n <= a.Hears && n > 0 }
	switch {
	case !a.isGRU():
		return nil, fmt.Errorf("%w: %s: it hears nothing of its group: use gru", ErrParameter, a.Cell.Name)
	case !of(t.Decision, 1) || !of(t.Node, t.Width) || t.Decision < 0 && t.Node < 0 ||
		t.Node >= 0 && t.Decision >= t.Node && t.Decision < t.Node+t.Width:
		return nil, fmt.Errorf("%w: %s: inputs %d and %d to %d of %d that are heard", ErrParameter, a.Cell.Name,
			t.Decision, t.Node, t.Node+t.Width-1, a.Hears)
	case t.Node >= 0 && t.Width > min(a.hidden(), kernels.AgentMostNode):
		return nil, fmt.Errorf("%w: %s: a node of %d units: use 1 to %d", ErrParameter, a.Cell.Name, t.Width,
			min(a.hidden(), kernels.AgentMostNode))
	case t.Nodes < 0 || t.Nodes > 0 && t.Node < 0:
		return nil, fmt.Errorf("%w: %s: %d nodes that nobody hears", ErrParameter, a.Cell.Name, t.Nodes)
	case t.By < kernels.AgentByGroup || t.By > kernels.AgentByKey || t.By != kernels.AgentByGroup && t.Node < 0 ||
		(t.By == kernels.AgentByVote && t.Nodes > 0) || (t.By == kernels.AgentByKey && t.Nodes == 0):
		return nil, fmt.Errorf("%w: %s: %d nodes by %d: use 0 by vote, and more by key", ErrParameter, a.Cell.Name,
			t.Nodes, t.By)
	case t.Merge < kernels.AgentMergeMean || t.Merge > kernels.AgentMergeAttention:
		return nil, fmt.Errorf("%w: %s: merge %d: use 0 to %d", ErrParameter, a.Cell.Name, t.Merge,
			kernels.AgentMergeAttention)
	case t.Merge == kernels.AgentMergeAttention && !(t.Focus > 0 && t.Focus <= MostFocus):
		return nil, fmt.Errorf("%w: %s: focus %v: use one above 0 and at most %d", ErrParameter, a.Cell.Name, t.Focus,
			MostFocus)
	case t.Merge == kernels.AgentMergeEMA && !(t.Rate > 0 && t.Rate <= 1):
		return nil, fmt.Errorf("%w: %s: rate %v: use one above 0 and at most 1", ErrParameter, a.Cell.Name, t.Rate)
	}
	with := *a
	with.told = &t
	return &with, nil
}

// Tells reports whether agents hear something of their group.
func (a *Addressed) Tells() bool { return a.told != nil }

// Nodes returns the number of units of the knowledge nodes; 0: there are none.
func (a *Addressed) Nodes() int {
	if a.told == nil || a.told.Node < 0 {
		return 0
	}
	return a.told.Width
}

// SharedNodes returns the number of nodes of the swarm, if it does not follow from the number of
// groups; 0: each group has a node, or there are no nodes.
func (a *Addressed) SharedNodes() int {
	switch {
	case a.told == nil:
		return 0
	case a.told.By == kernels.AgentByVote:
		return a.Candidates
	}
	return a.told.Nodes
}

// NodesBy says which node an agent has: kernels.AgentByGroup and so on.
func (a *Addressed) NodesBy() int {
	if a.told == nil {
		return kernels.AgentByGroup
	}
	return a.told.By
}

// Merges returns how nodes merge: kernels.AgentMergeMean and so on, and the rate of AgentMergeEMA.
// The rate of AgentMergeAttention is described at kernels.ToldArgs: the focus over the root of the
// units, as in scaled dot-product attention. There are nodes.
func (a *Addressed) Merges() (merge int, rate float32) {
	if a.told.Merge != kernels.AgentMergeAttention {
		return a.told.Merge, float32(a.told.Rate)
	}
	const one = 1 << (kernels.AgentUnitBits + kernels.AgentNodeBits) // a product of 1 as an integer
	return a.told.Merge, float32(a.told.Focus / math.Sqrt(float64(a.told.Width)) / one)
}

// Heard returns the arguments of a tick of agents that hear their group about what they hear.
func (a *Addressed) Heard() kernels.HeardArgs {
	t, input := *a.told, func(n int) uint32 {
		if n < 0 {
			return 0
		}
		return uint32(a.Features + n + 1)
	}
	merge, rate := a.Merges()
	return kernels.HeardArgs{
		Decision: input(t.Decision), Node: input(t.Node), Width: uint32(a.Nodes()), Merge: uint32(merge),
		Rate: math.Float32bits(rate),
	}
}

func (a *Addressed) withNodes(all []kernels.Var) []kernels.Var {
	if a.Nodes() == 0 {
		return all
	}
	return slices.Concat(all, kernels.AgentNodeVars(a.Nodes()))
}
