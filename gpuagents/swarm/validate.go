package swarm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// validate returns the first thing wrong and the key where it stands.
func (s *Spec) validate() (path []string, err error) {
	if err := jobs.CheckID("name", s.Name); err != nil {
		return []string{"name"}, err
	}
	if s.Addressed != ByGroup && s.Addressed != ByAgent {
		return []string{"addressed"}, fmt.Errorf("addressed %q: use group or agent", s.Addressed)
	}
	t := s.Topology()
	known := append(cells.Names(), cells.CustomName)
	slices.Sort(known)
	if t.ByAgent {
		known = addressable()
	}
	if !slices.Contains(known, s.Cell.Kind) {
		return []string{"cell", "kind"}, fmt.Errorf("cell kind %q: did you mean %q? There are %v", s.Cell.Kind,
			strictyaml.Nearest(s.Cell.Kind, known), known)
	}
	switch w := s.Cell.Weights; {
	case w != "" && w != WeightsShared && w != WeightsGroup:
		return []string{"cell", "weights"}, fmt.Errorf("weights %q: use shared or group", w)
	case w == WeightsGroup && (s.Cell.Kind != "gru" || t.ByAgent):
		return []string{"cell", "weights"}, errors.New("weights group: only a gru whose groups are addressed has " +
			"some for each group: write shared, or leave it out")
	}
	if path, err := s.validateModel(); err != nil {
		return path, err
	}
	if path, err := s.validateNeurons(); err != nil {
		return path, err
	}
	if path, err := s.validateItems(); err != nil {
		return path, err
	}
	if path, err := s.validateStep(); err != nil {
		return path, err
	}
	if path, err := s.validateCircuit(); err != nil {
		return path, err
	}
	if path, err := s.validateConversations(); err != nil {
		return path, err
	}
	if err := s.Consistency().Validate(); err != nil {
		return []string{"replicas"}, err
	}
	if s.AgentsPerGroup < 1 || s.AgentsPerGroup > MaxAgentsPerGroup {
		return []string{"agents_per_group"}, fmt.Errorf("agents_per_group %d: use 1 to %d", s.AgentsPerGroup,
			MaxAgentsPerGroup)
	}
	if path, err := s.validateNeighbours(); err != nil {
		return path, err
	}
	if path, err := t.agents(s); err != nil {
		return path, err
	}
	if path, err := s.validateObservations(); err != nil {
		return path, err
	}
	if path, err := s.validateFleet(); err != nil {
		return path, err
	}
	if key, err := s.CSV.Validate(); err != nil {
		return []string{"csv", key}, err
	}
	if len(s.Features) > MaxFeatures {
		return []string{"features"}, fmt.Errorf("%d features: use at most %d", len(s.Features), MaxFeatures)
	}
	seen := map[string]bool{s.Timestamp: true}
	if t.ByAgent {
		seen[AgentColumn] = true
	} else if s.GroupCount > 0 {
		seen[GroupColumn] = true
	}
	if s.Cell.Items > 0 {
		seen[ItemColumn] = true
	}
	for _, f := range s.Features {
		if f == "" || seen[f] {
			return []string{"features"}, fmt.Errorf("feature column %q is empty or named twice", f)
		}
		seen[f] = true
	}
	if path, err := s.validateKey(seen); err != nil {
		return path, err
	}
	switch own := t.candidates(s); {
	case own == nil && (len(s.Vote.Candidates) < 2 || len(s.Vote.Candidates) > kernels.AgentMostCandidates):
		return []string{"vote", "candidates"}, fmt.Errorf("%d candidates: name 2 to %d", len(s.Vote.Candidates),
			kernels.AgentMostCandidates)
	case s.quantum() && len(own) == len(s.Vote.Candidates) && !slices.Equal(own, s.Vote.Candidates) &&
		slices.Contains(own, s.Vote.Candidates[0]):
		return []string{"vote", "candidates"}, fmt.Errorf("candidates %q: bit strings stand in the order of their "+
			"numbers: write %q, or leave them out", s.Vote.Candidates, own)
	case own != nil && len(s.Vote.Candidates) != len(own):
		return []string{"vote", "candidates"}, fmt.Errorf("%d candidates: the cell %s votes between %d: %v",
			len(s.Vote.Candidates), s.Cell.Kind, len(own), own)
	}
	names := map[string]bool{"none": true} // what an undecided round is called
	for _, c := range s.Vote.Candidates {
		if c == "" || names[c] {
			return []string{"vote", "candidates"}, fmt.Errorf("candidate %q is empty, named twice, or the reserved "+
				"name none", c)
		}
		names[c] = true
	}
	if _, err := s.voting(); err != nil {
		return []string{"vote", "rule"}, err
	}
	if path, err := s.validateHear(); err != nil {
		return path, err
	}
	if path, err := s.validateRules(); err != nil {
		return path, err
	}
	if p := int64(s.PageSize); p < minPage || p > maxPage || p%pageAlign != 0 {
		return []string{"page_size"}, fmt.Errorf("page_size %d: use a multiple of 4 KiB from 64KiB to 1GiB", p)
	}
	if s.Residency != "" && s.Residency != ResidencyGPU {
		return []string{"residency"}, fmt.Errorf("residency %q: use gpu, or leave it out", s.Residency)
	}
	if d := time.Duration(s.Checkpoint.Interval); d < minInterval || d > maxInterval {
		return []string{"checkpoint", "interval"}, fmt.Errorf("checkpoint interval %v: use a duration from 100ms to "+
			"1h, such as 5s", d)
	}
	if n := s.Checkpoint.Entries; n < 1 || n > maxEntries {
		return []string{"checkpoint", "entries"}, fmt.Errorf("checkpoint entries %d: use 1 to %d", n, maxEntries)
	}
	cell, err := s.Fit()
	switch {
	case errors.Is(err, kernels.ErrStep):
		return []string{"cell", "step"}, err
	case errors.Is(err, cells.ErrCircuit):
		return []string{"cell", "circuit"}, err
	case errors.Is(err, cells.ErrState):
		return []string{"cell", "state"}, err
	case errors.Is(err, cells.ErrEmbedding):
		return []string{"cell", "embedding"}, err
	case errors.Is(err, lattice.ErrHear):
		return []string{"cell", "hear"}, err
	case errors.Is(err, cells.ErrVote):
		return []string{"vote", "by"}, err
	case errors.Is(err, cells.ErrFeature):
		return []string{"features"}, err
	case err != nil:
		return []string{"cell", "params"}, err
	}
	if _, err := t.layout(s, cell); err != nil {
		return []string{"page_size"}, err
	}
	return s.validateTrain()
}

// Limits of a key, as in rows.ColumnSpec.
const (
	maxKeyColumns      = 8
	maxEvictAfter      = 100 * 365 * 24 * time.Hour
	defaultMaxEntities = 10_000
)

// validateKey adds the columns of the key to seen, which has the other columns.
func (s *Spec) validateKey(seen map[string]bool) (path []string, err error) {
	after := time.Duration(s.EvictAfter)
	switch {
	case len(s.Key) == 0 && s.MaxEntities != 0:
		return []string{"max_entities"}, fmt.Errorf("max_entities %d: it is for a key: name its columns, as in key: "+
			"device_id, or leave it out", s.MaxEntities)
	case len(s.Key) == 0 && s.EvictAfter != 0:
		return []string{"evict_after"}, fmt.Errorf("evict_after %v: it is for a key: name its columns, as in key: "+
			"device_id, or leave it out", after)
	case len(s.Key) == 0:
		return nil, nil
	case s.EvictAfter != 0 && (after < time.Second || after > maxEvictAfter):
		return []string{"evict_after"}, fmt.Errorf("evict_after %v: use 1s to %v", after, maxEvictAfter)
	case s.EvictAfter != 0 && s.Cell.Weights == WeightsGroup:
		return []string{"evict_after"}, errors.New("evict_after: the weights of a group depend on its number, which " +
			"changes with evictions: leave weights: group out")
	case s.Shards > 1 && s.Cell.Weights == WeightsGroup:
		return []string{"shards"}, errors.New("shards: the weights of a group depend on its number, which depends on " +
			"the shards in a swarm with a key: leave weights: group out, or shards")
	case s.Topology().ByAgent:
		return []string{"key"}, errors.New("key: observations of agents have none: leave it out")
	case len(s.Key) > maxKeyColumns:
		return []string{"key"}, fmt.Errorf("a key of %d columns: use at most %d", len(s.Key), maxKeyColumns)
	case s.MaxEntities < 1 || s.MaxEntities > swarms.MaxGroups:
		return []string{"max_entities"}, fmt.Errorf("max_entities %d: use 1 to %d, or leave it out for %d",
			s.MaxEntities, swarms.MaxGroups, defaultMaxEntities)
	}
	for _, k := range s.Key {
		if k == "" || seen[k] {
			return []string{"key"}, fmt.Errorf("key column %q is empty or named twice, as a key, a feature or the "+
				"timestamp", k)
		}
		seen[k] = true
	}
	return nil, nil
}

// AgentColumn and GroupColumn are the columns of an observation's agent, or group, which no feature
// of a swarm that is made to last may be called by.
const (
	AgentColumn = "agent"
	GroupColumn = "group"
)

func (s *Spec) validateObservations() (path []string, err error) {
	o, byAgent := s.Observations, s.Topology().ByAgent
	switch {
	case byAgent && o != Observations{}:
		return []string{"observations"}, errors.New("observations: agents have observations without a time, " +
			"none is late: leave it out")
	case byAgent:
	case o.Late != Reject && o.Late != Apply && o.Late != Drop:
		return []string{"observations", "late"}, fmt.Errorf("late %q: use reject, apply or drop", o.Late)
	case o.Duplicate != Apply && o.Duplicate != Drop:
		return []string{"observations", "duplicate"}, fmt.Errorf("duplicate %q: use apply or drop", o.Duplicate)
	}
	return nil, nil
}
