package swarm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/strictyaml"
)

// What agents may hear: of the last round of their swarm, and in ticks of their group. Candidate c of n
// is (c+1)/n, and 0 is none.
const (
	HearDecision  = "decision"  // the candidate that has won
	HearLeader    = "leader"    // the candidate that the leader votes for
	HearGroup     = "group"     // the candidate that the group has decided for in the step before
	HearKnowledge = "knowledge" // the node of the group, of Knowledge.Units inputs
)

// Knowledge says how the knowledge nodes of a swarm are made. A tick merges the first units of the agents
// of a node into it before each step.
type Knowledge struct {
	// Nodes is the number of nodes, each of a run of groups, at most that of groups and a multiple of that
	// of shards; 0: each group has one. The runs differ by one group at most.
	Nodes int `yaml:"nodes" json:"nodes,omitempty"`
	// Units is how many units of the agents a node has, 1 to kernels.AgentMostNode; default 1.
	Units int `yaml:"units" json:"units,omitempty"`
	// Merge is mean, the default, max or ema.
	Merge string `yaml:"merge" json:"merge,omitempty"`
	// Rate is how far an update moves a node to the mean of the units, for the merge ema alone, above 0
	// and at most 1; default 0.1.
	Rate float64 `yaml:"rate" json:"rate,omitempty"`
}

// KnowledgeNodes returns the number of knowledge nodes; 0: agents hear none.
func (s *Spec) KnowledgeNodes() int {
	if s.Knowledge.Units == 0 {
		return 0
	}
	return cmp.Or(s.Knowledge.Nodes, s.Groups())
}

// merges are the numbers of the ways to merge.
var merges = map[string]int{
	"mean": kernels.AgentMergeMean, "max": kernels.AgentMergeMax, "ema": kernels.AgentMergeEMA,
}

// ensureDefaults fills in what is left out, if agents hear a node.
func (k *Knowledge) ensureDefaults(hear []string) {
	if !slices.Contains(hear, HearKnowledge) {
		return
	}
	k.Units, k.Merge = cmp.Or(k.Units, 1), cmp.Or(k.Merge, "mean")
	if k.Merge == "ema" {
		k.Rate = cmp.Or(k.Rate, 0.1)
	}
}

// String implements fmt.Stringer.
func (k Knowledge) String() string {
	how := k.Merge
	if k.Merge == "ema" {
		how = fmt.Sprintf("ema of rate %v", k.Rate)
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
			told.Nodes = s.Knowledge.Nodes
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

// validateKnowledge is the part of validate about knowledge nodes.
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
	return s.validateNodes()
}

// validateNodes is the part of validate about the number of knowledge nodes. It leaves a wrong number of
// groups or shards to others.
func (s *Spec) validateNodes() (path []string, err error) {
	n, path := s.Knowledge.Nodes, []string{"knowledge", "nodes"}
	if n == 0 || s.AgentsPerGroup < 1 || s.Groups() < 1 {
		return nil, nil
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

// validateHear is the part of validate about what agents hear.
func (s *Spec) validateHear() (path []string, err error) {
	path, known := []string{"hear"}, []string{HearDecision, HearLeader, HearGroup, HearKnowledge}
	if len(s.Hear) > 0 && !s.ByAgent() {
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
	if a, err := s.deaf(); err == nil { // the caller finds what is wrong with the cell
		if _, err := s.hearing(a); err != nil {
			return path, err
		}
	}
	return nil, nil
}
