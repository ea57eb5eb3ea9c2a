package swarm

import (
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

type groupRules struct{}

func (groupRules) defaults(s *Spec) {
	setDefault(&s.Timestamp, "timestamp")
	setDefault(&s.Observations.Late, Reject)
	setDefault(&s.Observations.Duplicate, Apply)
	setDefault(&s.Vote.Rule, "weighted")
}

func (groupRules) groups(s *Spec) int { return s.GroupCount }

func (groupRules) candidates(s *Spec) []string {
	c, ok := cells.Lookup(s.Cell.Kind)
	if !ok {
		return nil
	}
	return c.Candidates
}

func (groupRules) agents(s *Spec) (path []string, err error) {
	if s.Agents != 0 {
		return []string{"agents"}, fmt.Errorf("agents %d: the input says how many there are unless the swarm is "+
			"addressed by agent: write addressed: agent, or leave it out", s.Agents)
	}
	if s.GroupCount < 0 || s.GroupCount > swarms.MaxGroups {
		return []string{"groups"}, fmt.Errorf("groups %d: use 1 to %d, or leave it out for a run", s.GroupCount,
			swarms.MaxGroups)
	}
	most := swarms.MaxShards // of a run without a key, the input says how many groups there are
	if n := max(s.GroupCount, s.MaxEntities); n > 0 {
		most = min(most, n)
	}
	if s.Shards < 0 || s.Shards > most {
		return []string{"shards"}, fmt.Errorf("shards %d: use 1 to %d, and no more than groups or max_entities",
			s.Shards, most)
	}
	return nil, nil
}

func (groupRules) missing(string) error { return nil }

func (groupRules) validate(*Spec) (path []string, err error) { return nil, nil }

func (groupRules) cell(*Spec) (*cells.Addressed, error) {
	return nil, errors.New("the groups of the swarm are addressed, and not its agents")
}

func (groupRules) fit(s *Spec) (Fitted, error) { return s.Bind() }

func (groupRules) layout(s *Spec, cell Fitted) (kernels.Layout, error) {
	return cell.Layout(int(s.PageSize))
}

// agentRules are the rules of swarms whose agents are addressed and have no neighbours. Other
// topologies by agent embed them.
type agentRules struct{ groupRules }

func (agentRules) defaults(s *Spec) {
	if s.quantum() && s.AgentsPerGroup == 0 && s.Agents > 0 { // the largest group up to 256 that divides them
		for s.AgentsPerGroup = 256; s.Agents%int64(s.AgentsPerGroup) != 0; {
			s.AgentsPerGroup--
		}
	}
	setDefault(&s.Shards, 1)
	setDefault(&s.Vote.Rule, "plurality")
}

func (agentRules) groups(s *Spec) int { return int(s.Agents / int64(s.AgentsPerGroup)) }

func (agentRules) candidates(s *Spec) []string {
	if s.quantum() {
		return cells.QuantumCandidates(s.Cell.Circuit)
	}
	c, ok := cells.LookupAddressed(s.Cell.Kind)
	if !ok {
		return nil
	}
	return c.Candidates
}

func (agentRules) agents(s *Spec) (path []string, err error) {
	per := int64(s.AgentsPerGroup)
	switch {
	case s.Agents < 1 || s.Agents > math.MaxUint32 || s.Agents%per != 0:
		return []string{"agents"}, fmt.Errorf("agents %d: use a multiple of agents_per_group, %d, below 2^32, such as "+
			"%d", s.Agents, per, nearestMultiple(s.Agents, per))
	case s.Agents/per > swarms.MaxGroups:
		return []string{"agents"}, fmt.Errorf("agents %d: they are %d groups of %d, at most %d: use larger groups",
			s.Agents, s.Agents/per, per, swarms.MaxGroups)
	case s.GroupCount != 0:
		return []string{"groups"}, fmt.Errorf("groups %d: agents over agents_per_group says how many there are: "+
			"leave it out", s.GroupCount)
	case s.Shards < 1 || s.Shards > swarms.MaxShards || s.Shards > s.Groups():
		return []string{"shards"}, fmt.Errorf("shards %d: use 1 to %d, and no more than the number of groups, "+
			"%d", s.Shards, swarms.MaxShards, s.Groups())
	case s.Timestamp != "":
		return []string{"timestamp"}, fmt.Errorf("timestamp %q: observations of agents have none: leave it out",
			s.Timestamp)
	case s.Vote.Rule == "weighted":
		return []string{"vote", "rule"}, fmt.Errorf("rule weighted: votes of agents that are addressed weigh the " +
			"same: use plurality")
	}
	return nil, nil
}

func (agentRules) cell(s *Spec) (*cells.Addressed, error) {
	voting, err := s.voting()
	if err != nil {
		return nil, err
	}
	if s.quantum() {
		return cells.AddressQuantum(s.Cell.Circuit, s.Cell.Params, s.AgentsPerGroup, len(s.Features), voting)
	}
	features := len(s.Features)
	if s.Cell.Embed.Rows > 0 {
		features = s.Cell.Embed.Width
	}
	a, err := cells.Address(s.Cell.Kind, s.Cell.Params, s.AgentsPerGroup, features, len(s.Vote.Candidates), voting)
	if err == nil {
		a, err = s.asking(a)
	}
	if err == nil && s.Neighbours.longest() > 1 {
		a = a.Remembering()
	}
	return a, err
}

func (agentRules) fit(s *Spec) (Fitted, error) { return s.Address() }

// nearestMultiple returns the least multiple of per that is positive and not below n, or the
// greatest one below 2^32.
func nearestMultiple(n, per int64) int64 {
	most := math.MaxUint32 / per * per
	if n >= most {
		return most
	}
	return (max(n, 1) + per - 1) / per * per
}

func setDefault[T comparable](field *T, value T) {
	if zero := *new(T); *field == zero {
		*field = value
	}
}

// defaultAgents fills in what agents with neighbours leave out: how many there are, the largest
// groups that divide row, and pages that stay on the device.
func (s *Spec) defaultAgents(all, row int64) {
	setDefault(&s.Agents, all)
	if s.AgentsPerGroup == 0 {
		s.AgentsPerGroup = 1
		for per := min(row, MaxAgentsPerGroup); per > 1; per-- {
			if row%per == 0 {
				s.AgentsPerGroup = int(per)
				break
			}
		}
	}
	setDefault(&s.Residency, ResidencyGPU)
}
