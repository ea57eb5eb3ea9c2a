package swarm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// What agents may hear: of the last round of their swarm, and in ticks of their group. Candidate c
// of n is (c+1)/n, and 0 is none.
const (
	HearDecision  = "decision"  // the candidate that has won
	HearLeader    = "leader"    // the candidate that the leader votes for
	HearGroup     = "group"     // the candidate that the group has decided for in the step before
	HearKnowledge = "knowledge" // the node of the agent, of Knowledge.Units inputs
)

// Which node an agent hears, and adds its units to.
const (
	NodesByGroup = "group" // the node of its group
	NodesByVote  = "vote"  // the node of the candidate that it votes for
	NodesByKey   = "key"   // the node of its id modulo the number of nodes
)

// nodesBy has the number of each choice in kernels.
var nodesBy = map[string]int{
	NodesByGroup: kernels.AgentByGroup, NodesByVote: kernels.AgentByVote, NodesByKey: kernels.AgentByKey,
}

// Knowledge says how the knowledge nodes of a swarm are made. A tick merges the first units of the
// agents of a node into it before each step.
type Knowledge struct {
	// By is which node an agent has: NodesByVote, NodesByKey, or empty for NodesByGroup. By vote and
	// by key nodes have agents of all shards. Each of several shards has all nodes, and a client that
	// ticks merges their sums.
	By string `yaml:"by" json:"by,omitempty"`
	// Nodes is the number of nodes, at most the number of groups. By group it is a multiple of the
	// number of shards, each node is of a run of groups, and 0 gives each group one; the runs
	// differ by one group at most. By vote it is 0, and each candidate has a node. By key it is 1
	// or more. By vote and by key each shard has as many groups.
	Nodes int `yaml:"nodes" json:"nodes,omitempty"`
	// Units is how many units of the agents a node has, 1 to kernels.AgentMostNode; default 1.
	Units int `yaml:"units" json:"units,omitempty"`
	// Merge is mean, the default, max, ema or attention.
	Merge string `yaml:"merge" json:"merge,omitempty"`
	// Rate is how far an update moves a node to the mean of the units, for the merge ema alone, above
	// 0 and at most 1; default 0.1.
	Rate float64 `yaml:"rate" json:"rate,omitempty"`
	// Focus is how much the weight of an agent falls with its distance to the node, for the merge
	// attention alone, above 0 and at most cells.MostFocus; default 1.
	Focus float64 `yaml:"focus" json:"focus,omitempty"`
}

// KnowledgeNodes returns the number of knowledge nodes; 0: agents hear none.
func (s *Spec) KnowledgeNodes() int {
	if s.Knowledge.Units == 0 {
		return 0
	}
	return cmp.Or(s.SharedNodes(), s.Groups())
}

// SharedNodes returns the number of knowledge nodes, if it is not the number of groups; 0: it is,
// or there are no nodes.
func (s *Spec) SharedNodes() int {
	if s.Knowledge.By == NodesByVote {
		return len(s.Vote.Candidates)
	}
	return s.Knowledge.Nodes
}

// MergesNodes reports whether knowledge nodes have agents of several shards. Each shard has all of
// them then, and a tick takes the sums of all shards.
func (s *Spec) MergesNodes() bool {
	return s.Shards > 1 && s.Knowledge.Units > 0 && s.Knowledge.By != ""
}

var merges = map[string]int{
	"mean": kernels.AgentMergeMean, "max": kernels.AgentMergeMax, "ema": kernels.AgentMergeEMA,
	"attention": kernels.AgentMergeAttention,
}

// ensureDefaults fills in what is left out, if agents hear a node.
func (k *Knowledge) ensureDefaults(hear []string) {
	if !slices.Contains(hear, HearKnowledge) {
		return
	}
	k.Units, k.Merge = cmp.Or(k.Units, 1), cmp.Or(k.Merge, "mean")
	switch k.Merge {
	case "ema":
		k.Rate = cmp.Or(k.Rate, 0.1)
	case "attention":
		k.Focus = cmp.Or(k.Focus, 1)
	}
	if k.By == NodesByGroup { // as records of swarms have it that do not say
		k.By = ""
	}
}

// String implements fmt.Stringer.
func (k Knowledge) String() string {
	how := k.Merge
	switch k.Merge {
	case "ema":
		how = fmt.Sprintf("ema of rate %v", k.Rate)
	case "attention":
		how = fmt.Sprintf("attention of focus %v", k.Focus)
	}
	if k.By != "" {
		how += " by " + k.By
	}
	if k.Nodes == 0 {
		return fmt.Sprintf("%d units, %s", k.Units, how)
	}
	return fmt.Sprintf("%d of %d units, %s", k.Nodes, k.Units, how)
}

// hearing returns the cell with what its agents hear.
func (s *Spec) hearing(a *cells.Addressed) (*cells.Addressed, error) {
	told := cells.Told{Decision: -1, Node: -1}
	inputs := 0
	for _, what := range s.Hear {
		switch what {
		case HearGroup:
			told.Decision = inputs
		case HearKnowledge:
			told.Node, told.Width = inputs, s.Knowledge.Units
			told.Merge, told.Rate = merges[s.Knowledge.Merge], s.Knowledge.Rate
			told.Nodes, told.By, told.Focus = s.Knowledge.Nodes, nodesBy[cmp.Or(s.Knowledge.By, NodesByGroup)],
				s.Knowledge.Focus
			inputs += s.Knowledge.Units - 1
		}
		inputs++
	}
	a, err := a.Hearing(inputs)
	if err != nil || told.Decision < 0 && told.Node < 0 {
		return a, err
	}
	return a.Telling(told)
}

func (s *Spec) validateKnowledge() (path []string, err error) {
	k, at := s.Knowledge, func(key string) []string { return []string{"knowledge", key} }
	switch {
	case !slices.Contains(s.Hear, HearKnowledge):
		if k != (Knowledge{}) {
			return []string{"knowledge"}, errors.New("knowledge: nobody hears it: write hear: [knowledge], or " +
				"leave it out")
		}
		return nil, nil
	case k.Units < 1 || k.Units > kernels.AgentMostNode:
		return at("units"), fmt.Errorf("knowledge: units %d: use 1 to %d, and no more than the agents have", k.Units,
			kernels.AgentMostNode)
	case !(k.Rate >= 0 && k.Rate <= 1) || k.Rate != 0 && k.Merge != "ema":
		return at("rate"), fmt.Errorf("knowledge: rate %v: use one above 0 and at most 1 with merge: ema, or leave it "+
			"out", k.Rate)
	}
	if _, ok := merges[k.Merge]; !ok {
		names := slices.Sorted(maps.Keys(merges))
		return at("merge"), fmt.Errorf("knowledge: merge %q: did you mean %q? There are %v", k.Merge,
			strictyaml.Nearest(k.Merge, names), names)
	}
	if !(k.Focus >= 0 && k.Focus <= cells.MostFocus) || k.Focus != 0 && k.Merge != "attention" {
		return at("focus"), fmt.Errorf("knowledge: focus %v: use one above 0 and at most %d with merge: attention, or "+
			"leave it out", k.Focus, cells.MostFocus)
	}
	if path, err := s.validateNodesBy(); err != nil {
		return path, err
	}
	return s.validateNodes()
}

// validateNodesBy does not report a wrong number of groups or candidates: other checks do.
func (s *Spec) validateNodesBy() (path []string, err error) {
	k, path := s.Knowledge, []string{"knowledge", "by"}
	if _, ok := nodesBy[cmp.Or(k.By, NodesByGroup)]; !ok {
		names := slices.Sorted(maps.Keys(nodesBy))
		return path, fmt.Errorf("knowledge: by %q: did you mean %q? There are %v", k.By,
			strictyaml.Nearest(k.By, names), names)
	}
	switch candidates := len(s.Vote.Candidates); {
	case k.By == "":
		return nil, nil
	case k.By == NodesByKey && k.Nodes == 0:
		return path, errors.New("knowledge: by key: agent i has node i modulo the number of nodes: write nodes, as " +
			"the number of sensors of each entity")
	case k.By == NodesByVote && k.Nodes != 0:
		return []string{"knowledge", "nodes"}, fmt.Errorf("knowledge: nodes %d: by: vote each candidate has a node: "+
			"leave it out", k.Nodes)
	case k.By == NodesByVote && s.AgentsPerGroup > 0 && s.Groups() > 0 && candidates > s.leastGroups():
		return path, fmt.Errorf("knowledge: by vote: the %d candidates have a node each, and the groups of a shard "+
			"keep copies of all nodes, but a shard has %d groups: use at least %d groups: fewer agents_per_group or "+
			"shards", candidates, s.leastGroups(), candidates)
	}
	return nil, nil
}

func (s *Spec) leastGroups() int { return s.Groups() / max(1, s.Shards) }

// validateNodes does not report a wrong number of groups or shards: other checks do.
func (s *Spec) validateNodes() (path []string, err error) {
	n, path := s.Knowledge.Nodes, []string{"knowledge", "nodes"}
	if n == 0 || s.AgentsPerGroup < 1 || s.Groups() < 1 {
		return nil, nil
	}
	if k := s.Knowledge; k.By == NodesByKey && n > 0 && s.leastGroups() > 0 {
		return path, s.validateKeys()
	}
	if n < 0 || n > s.Groups() {
		return path, fmt.Errorf("knowledge: nodes %d: the swarm has %d groups: use 1 to %d, or leave it out: then "+
			"each group has a node", n, s.Groups(), s.Groups())
	}
	if shards := max(1, s.Shards); n%shards != 0 && shards <= s.Groups() {
		return path, fmt.Errorf("knowledge: nodes %d: a node is within a shard, and the swarm has %d: use a multiple "+
			"of %d, as %d, or other shards", n, shards, shards, max(shards, n/shards*shards))
	}
	return nil, nil
}

func (s *Spec) validateKeys() error {
	n, units := s.Knowledge.Nodes, s.Knowledge.Units
	if most := s.leastGroups(); n > most {
		return fmt.Errorf("knowledge: nodes %d: the groups of a shard keep copies of nodes, and a shard has %d "+
			"groups: use 1 to %d, or fewer agents_per_group or shards", n, most, most)
	}
	if most := swarms.MaxNodeSums / 8 / (units + 1); n > most && s.MergesNodes() {
		return fmt.Errorf("knowledge: nodes %d of %d units: a tick of %d shards has the sums of all nodes: use 1 to "+
			"%d, or shards: 1", n, units, s.Shards, most)
	}
	return nil
}

func (s *Spec) validateHear() (path []string, err error) {
	path, known := []string{"hear"}, []string{HearDecision, HearLeader, HearGroup, HearKnowledge}
	t := s.Topology()
	if len(s.Hear) > 0 && !t.ByAgent {
		return path, errors.New("hear: agents of a swarm whose groups are addressed hold no inputs: write addressed: " +
			"agent, or leave it out")
	}
	for i, what := range s.Hear {
		if !slices.Contains(known, what) {
			return path, fmt.Errorf("hear %q: did you mean %q? There are %v", what, strictyaml.Nearest(what, known),
				known)
		}
		if slices.Contains(s.Hear[:i], what) {
			return path, fmt.Errorf("hear %q: it is named twice: leave one out", what)
		}
	}
	if path, err := s.validateKnowledge(); err != nil {
		return path, err
	}
	if a, err := t.cell(s); err == nil { // the caller finds what is wrong with the cell
		if _, err := s.hearing(a); err != nil {
			return path, err
		}
	}
	return nil, nil
}
