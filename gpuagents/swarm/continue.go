package swarm

import (
	"fmt"
	"slices"
)

// Continues returns an error that names the first field by which agents of this spec cannot
// continue from the state of agents of another spec. The number of agents and shards, the rule, the
// pages and the checkpoints may differ: no state depends on them. The model may be another one, as
// after an adoption.
func (s *Spec) Continues(from *Spec) error {
	for _, f := range []struct {
		field      string
		this, that any
	}{
		{"addressed", s.Addressed, from.Addressed},
		{"cell kind", s.Cell.Kind, from.Cell.Kind},
		{"agents_per_group", s.AgentsPerGroup, from.AgentsPerGroup},
		{
			"policy of late observations, which has them have a latest time or not,", s.Observations.Drops(),
			from.Observations.Drops(),
		},
		{"weights of groups, of their own or not,", s.Cell.Weights == WeightsGroup, from.Cell.Weights == WeightsGroup},
		{"circuit", s.Cell.Circuit, from.Cell.Circuit},
		{"weights, of a model or not,", s.Cell.Model != "", from.Cell.Model != ""},
		{"model, which has made the text,", s.language(from), from.language(s)},
		{"embedding", s.Cell.Embed, from.Cell.Embed},
		{"number of items", s.Cell.Items, from.Cell.Items},
		{"neighbours", s.Neighbours.String(), from.Neighbours.String()},
		{"number of agents, which the graph has,", s.fixedAgents(s.Agents), s.fixedAgents(from.Agents)},
		{"seed, which chooses the weights,", s.Seed, from.Seed},
	} {
		if f.this != f.that {
			return fmt.Errorf("its %s is %v, and %v in the swarm", f.field, f.that, f.this)
		}
	}
	if !slices.Equal(s.Features, from.Features) {
		return fmt.Errorf("its features are %q, and %q in the swarm", from.Features, s.Features)
	}
	if !slices.Equal(s.Hear, from.Hear) {
		return fmt.Errorf("its agents hear %q, and %q in the swarm", from.Hear, s.Hear)
	}
	if s.Knowledge != from.Knowledge {
		return fmt.Errorf("its knowledge nodes are %v, and %v in the swarm", from.Knowledge, s.Knowledge)
	}
	if s.SharedNodes() > 0 && s.Agents != from.Agents {
		return fmt.Errorf("its number of agents, over which the nodes are spread, is %d, and %d in the swarm",
			from.Agents, s.Agents)
	}
	if s.Knowledge.By != "" && max(1, s.Shards) != max(1, from.Shards) {
		return fmt.Errorf("its number of shards, each with copies of all knowledge nodes, is %d, and %d in the "+
			"swarm", max(1, from.Shards), max(1, s.Shards))
	}
	if !slices.Equal(s.Vote.Candidates, from.Vote.Candidates) {
		return fmt.Errorf("its candidates are %q, and %q in the swarm", from.Vote.Candidates, s.Vote.Candidates)
	}
	if a, b := s.Vote.Tokens, from.Vote.Tokens; len(a) > 0 && len(b) > 0 && !slices.Equal(a, b) {
		return fmt.Errorf("its tokens of candidates are %d, and %d in the swarm", from.Vote.Tokens, s.Vote.Tokens)
	}
	this, err := s.Fit()
	if err != nil {
		return err
	}
	that, err := from.Fit()
	if err != nil {
		return err
	}
	for _, p := range this.Params() {
		if a, b := that.Value(p.Name), this.Value(p.Name); a != b {
			return fmt.Errorf("its parameter %s of the cell is %v, and %v in the swarm", p.Name, a, b)
		}
	}
	return nil
}

func (s *Spec) fixedAgents(agents int64) int64 {
	if s.Topology().FixedAgents {
		return agents
	}
	return 0
}

// language returns the digest of the language model of conversations, if both specifications have
// one: a file that a user writes has none yet.
func (s *Spec) language(other *Spec) string {
	if !s.Conversations() || other.Cell.ModelSHA256 == "" {
		return ""
	}
	return s.Cell.ModelSHA256
}
