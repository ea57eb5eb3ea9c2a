// Package swarm is the spec of a swarm: what a user writes in YAML and an agent process reads as
// JSON.
package swarm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/dialect"
	"github.com/exoswarm/exoswarm/internal/strictyaml"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Spec describes a swarm. The zero value of a field means its default, which Parse fills in.
type Spec struct {
	// Name of the swarm, 1 to 64 letters, digits, '-' or '_'.
	Name string `yaml:"name" json:"name"`
	// Addressed says whom an observation is for: ByGroup, the default, or ByAgent.
	Addressed string `yaml:"addressed" json:"addressed,omitempty"`
	// Cell is the neural update of every agent. By group it is of any kind, also custom; by agent
	// it is gru (the default) or leaky, with the parameters of cells.Address.
	Cell Cell `yaml:"cell" json:"cell"`
	// Agents is how many there are by agent, a multiple of AgentsPerGroup below 2^32. By group it
	// is 0.
	Agents int64 `yaml:"agents" json:"agents,omitempty"`
	// GroupCount is how many groups a swarm has that is made to last and addresses groups, 1 to
	// swarms.MaxGroups. Of a run the input says, and of a swarm by agent Agents.
	GroupCount int `yaml:"groups" json:"groups,omitempty"`
	// Shards is how many logs the agents are split over, each with groups that follow one another,
	// 1 to swarms.MaxShards and no more than groups, by agent only; default 1. Each is served by
	// one agent process at a time, on one device. See swarms.Swarm.ShardGroups.
	Shards int `yaml:"shards" json:"shards,omitempty"`
	// AgentsPerGroup is how many agents watch one series, or vote together, 1 to 4096; default 256.
	AgentsPerGroup int `yaml:"agents_per_group" json:"agents_per_group"`
	// Timestamp is the column that says when a row was observed; default "timestamp". By agent
	// there is none.
	Timestamp string `yaml:"timestamp" json:"timestamp"`
	// Features are the columns that the agents see, 1 to 64; default one, "value". By agent the
	// cell takes fewer.
	Features []string `yaml:"features" json:"features"`
	// Key names the columns whose values together name the entity of a row, up to 8; empty: a file
	// is an entity. Each entity has a group, from its first row on. By group only. Agents never
	// read it.
	Key dialect.Forms `yaml:"key" json:"key,omitempty"`
	// MaxEntities is the most entities of a run with a key, and so the number of its groups, 1 to
	// swarms.MaxGroups; default 10,000. Rows of further entities are rejected.
	MaxEntities int `yaml:"max_entities" json:"max_entities,omitempty"`
	// EvictAfter lets entities of a detector lose their groups to others, and return with their
	// states: after this time without a row, by the times of rows, or when another entity needs a
	// group and none is free. 1 s to 100 years; 0: entities keep their groups.
	EvictAfter strictyaml.Duration `yaml:"evict_after" json:"evict_after,omitempty"`
	// Observations says what becomes of those that come late or twice. By agent there is none: they
	// have no time.
	Observations Observations `yaml:"observations" json:"observations,omitzero"`
	// CSV is how the CSV files of its observations are written. Agents never read it.
	CSV dialect.CSV `yaml:"csv" json:"csv,omitzero"`
	// Vote is what the agents decide and how.
	Vote Vote `yaml:"vote" json:"vote"`
	// Seed chooses the agents' fixed random weights.
	Seed uint64 `yaml:"seed" json:"seed"`
	// PageSize is the size of a page of state in bytes, a multiple of 4 KiB from 64 KiB to 1 GiB;
	// default 2 MiB. A page holds at least one group.
	PageSize strictyaml.Size `yaml:"page_size" json:"page_size"`
	// Residency says where the pages of state are: ResidencyGPU keeps all of them in the memory of
	// the device, and an agent process without room for all refuses the swarm. Empty, the default:
	// pages that are not needed leave the device for others.
	Residency string `yaml:"residency" json:"residency,omitempty"`
	// Checkpoint is how often the agents' state is stored. It changes no output.
	Checkpoint Checkpoint `yaml:"checkpoint" json:"checkpoint"`
	// Replicas is on how many servers each log is kept, 1, 3 or 5; 0, the default, is as many as
	// the process that makes the logs is told for all.
	Replicas int `yaml:"replicas" json:"replicas,omitempty"`
	// Durability is swarms.Synced, swarms.Fast or, by default, empty: see swarms.Consistency. Fast
	// is for one replica.
	Durability string `yaml:"durability" json:"durability,omitempty"`
}

// Consistency is what the spec says of the swarm's logs.
func (s *Spec) Consistency() swarms.Consistency {
	return swarms.Consistency{Replicas: s.Replicas, Durability: s.Durability}
}

// Checkpoint says when an agent process stores the state of a shard: at the interval, and after so
// many entries of the log since the last time, whichever comes first. Checkpoints take a twentieth
// of the process's time at most, so those of a large swarm come less often.
type Checkpoint struct {
	// Interval is 100ms to 1h; default 5s. In JSON it is a number of nanoseconds.
	Interval strictyaml.Duration `yaml:"interval" json:"interval"`
	// Entries is 1 to 1000000; default 1024. An entry is a batch of up to 4,096 observations.
	Entries int `yaml:"entries" json:"entries"`
}

// Observations says what a group does with one whose time is not after the latest that it has
// applied. What is dropped changes nothing, and is answered with the reason. By default agents
// apply whatever they are given.
type Observations struct {
	// Late is of one before the latest: Apply, Drop or, by default, Reject.
	Late string `yaml:"late" json:"late,omitempty"`
	// Duplicate is of one at the same time as the latest, whatever its features: Apply, the
	// default, or Drop.
	Duplicate string `yaml:"duplicate" json:"duplicate,omitempty"`
}

// Whose weights are.
const (
	WeightsShared = "shared"
	WeightsGroup  = "group"
)

// What may become of an observation.
const (
	Apply = "apply"
	Drop  = "drop"
	// Reject has the reader of a source reject a row that goes back behind the one before it, so
	// that agents are given none; those that they are given all the same, as by whoever writes the
	// log, are applied.
	Reject = "reject"
)

// Cell chooses a cell and its parameters.
type Cell struct {
	Kind string `yaml:"kind" json:"kind"` // default "predictor"
	// Params by name; those left out have the cell's default. Those of the kind custom that the
	// frame has not are its step's own.
	Params map[string]float64 `yaml:"params" json:"params,omitempty"`
	// Weights says whose the recurrent weights of a gru by group are: WeightsShared, the default,
	// of all groups, or WeightsGroup, each its own.
	Weights string `yaml:"weights" json:"weights,omitempty"`
	// State is that of an agent of the kind custom, and of no other: the type of each variable by
	// its name, see cells.Custom.
	State map[string]string `yaml:"state" json:"state,omitempty"`
	// Embedding are the variables of State that are an agent's knowledge, in their order, of the
	// kind custom and of no other; all that are f32 or bf16 when there are none. Embeddings are
	// answers to questions: no state depends on them.
	Embedding []string `yaml:"embedding" json:"embedding,omitempty"`
	// Step is the CUDA C++ text of the step of the kind custom, and of no other.
	Step string `yaml:"step" json:"step,omitempty"`
	// StepFile names a file below the spec's folder that Step is read from. What is parsed has its
	// text, and no name.
	StepFile string `yaml:"step_file" json:"-"`
}

// Vote says between what the agents choose, and what makes a decision.
type Vote struct {
	// Candidates in order. They name what the cell votes for, so their number is the cell's;
	// default the cell's names. By agent gru votes for any 2 to 16, and leaky is quiet or spikes.
	Candidates []string `yaml:"candidates" json:"candidates"`
	// Rule is plurality, majority, quorum, weighted or unanimous; default weighted. By agent all
	// votes weigh the same, and the default is plurality.
	Rule string `yaml:"rule" json:"rule"`
	// Quorum is the share of all weight that the winner needs under the rule quorum, above 0 and at
	// most 1.
	Quorum float64 `yaml:"quorum" json:"quorum,omitempty"`
}

// ResidencyGPU is the residency of pages that stay on the device.
const ResidencyGPU = "gpu"

// Whom the observations of a swarm are for.
const (
	// ByGroup: all agents of a group step by an observation of the series that they watch.
	ByGroup = "group"
	// ByAgent: an agent has inputs of its own, which it holds, and ticks step all of them: a
	// simulation.
	ByAgent = "agent"
)

// Limits of a spec.
const (
	MaxAgentsPerGroup = 4096
	MaxFeatures       = 64
	minPage           = 64 << 10
	maxPage           = 1 << 30
	pageAlign         = 4 << 10

	minInterval = 100 * time.Millisecond
	maxInterval = time.Hour
	maxEntries  = 1_000_000
)

// Parse reads a spec from YAML, fills in the defaults and validates it. file is the name that
// errors begin with; every error says the line, what is wrong and what is valid. A spec that names
// other files is refused: ParseIn reads them.
func Parse(file string, data []byte) (*Spec, error) { return ParseIn(nil, file, data) }

// ParseIn is Parse for a spec that may name files of its folder.
func ParseIn(folder fs.FS, file string, data []byte) (*Spec, error) {
	s := &Spec{}
	if err := strictyaml.Decode(file, data, s); err != nil {
		return nil, jobs.Errorf(jobs.CodeInput, "%v", err)
	}
	path, err := s.readStep(folder)
	if err == nil {
		s.ensureDefaults()
		path, err = s.validate()
	}
	if err != nil {
		if line := strictyaml.Line(data, path...); line > 0 {
			return nil, jobs.Errorf(jobs.CodeInput, "%s:%d: %v", file, line, err)
		}
		return nil, jobs.Errorf(jobs.CodeInput, "%s: %v", file, err)
	}
	return s, nil
}

// FromJSON reads the spec of a swarm's record.
func FromJSON(data json.RawMessage) (*Spec, error) {
	s := &Spec{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "swarm spec: %v", err)
	}
	s.ensureDefaults()
	if _, err := s.validate(); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "swarm spec: %v", err)
	}
	return s, nil
}

func (s *Spec) ensureDefaults() {
	kind, rule := "predictor", "weighted"
	if s.Addressed == "" {
		s.Addressed = ByGroup
	}
	if s.ByAgent() {
		kind, rule = "gru", "plurality"
		if s.Shards == 0 {
			s.Shards = 1
		}
	}
	if s.Cell.Kind == "" {
		s.Cell.Kind = kind
	}
	if s.AgentsPerGroup == 0 {
		s.AgentsPerGroup = 256
	}
	if s.Timestamp == "" && !s.ByAgent() {
		s.Timestamp = "timestamp"
	}
	if s.Observations.Late == "" && !s.ByAgent() {
		s.Observations.Late = Reject
	}
	if s.Observations.Duplicate == "" && !s.ByAgent() {
		s.Observations.Duplicate = Apply
	}
	if len(s.Features) == 0 {
		s.Features = []string{"value"}
	}
	if len(s.Key) > 0 && s.MaxEntities == 0 {
		s.MaxEntities = defaultMaxEntities
	}
	if s.Vote.Rule == "" {
		s.Vote.Rule = rule
	}
	if len(s.Vote.Candidates) == 0 {
		s.Vote.Candidates = s.candidates()
	}
	if s.PageSize == 0 {
		s.PageSize = 2 << 20
	}
	if s.Checkpoint.Interval == 0 {
		s.Checkpoint.Interval = strictyaml.Duration(5 * time.Second)
	}
	if s.Checkpoint.Entries == 0 {
		s.Checkpoint.Entries = 1024
	}
}

// ByAgent says that observations are for agents.
func (s *Spec) ByAgent() bool { return s.Addressed == ByAgent }

// Groups is how many groups a swarm has; 0: the input of a run says.
func (s *Spec) Groups() int {
	if !s.ByAgent() {
		return s.GroupCount
	}
	return int(s.Agents / int64(s.AgentsPerGroup))
}

// OfRun says that the swarm is that of a run: its input says how many groups it has, and its job is
// who writes its log.
func (s *Spec) OfRun() bool { return s.Groups() == 0 }

// candidates are the names that the cell gives what it votes for; nil: it has none.
func (s *Spec) candidates() []string {
	if s.ByAgent() {
		if s.Cell.Kind == "leaky" {
			return []string{"quiet", "spike"}
		}
		return nil
	}
	if c, ok := cells.Lookup(s.Cell.Kind); ok {
		return c.Candidates
	}
	return nil
}

// addressable are the cells whose agents can be addressed.
var addressable = []string{"gru", "leaky"}

// validate returns the first thing wrong and the key where it stands.
func (s *Spec) validate() (path []string, err error) {
	if err := jobs.CheckID("name", s.Name); err != nil {
		return []string{"name"}, err
	}
	if s.Addressed != ByGroup && s.Addressed != ByAgent {
		return []string{"addressed"}, fmt.Errorf("addressed %q: use group or agent", s.Addressed)
	}
	known := append(cells.Names(), cells.CustomName)
	slices.Sort(known)
	if s.ByAgent() {
		known = addressable
	}
	if !slices.Contains(known, s.Cell.Kind) {
		return []string{"cell", "kind"}, fmt.Errorf("cell kind %q: did you mean %q? There are %v", s.Cell.Kind,
			strictyaml.Nearest(s.Cell.Kind, known), known)
	}
	switch w := s.Cell.Weights; {
	case w != "" && w != WeightsShared && w != WeightsGroup:
		return []string{"cell", "weights"}, fmt.Errorf("weights %q: use shared or group", w)
	case w == WeightsGroup && (s.Cell.Kind != "gru" || s.ByAgent()):
		return []string{"cell", "weights"}, errors.New("weights group: only a gru whose groups are addressed has " +
			"some for each group: write shared, or leave it out")
	}
	if path, err := s.validateStep(); err != nil {
		return path, err
	}
	if err := s.Consistency().Validate(); err != nil {
		return []string{"replicas"}, err
	}
	if s.AgentsPerGroup < 1 || s.AgentsPerGroup > MaxAgentsPerGroup {
		return []string{"agents_per_group"}, fmt.Errorf("agents_per_group %d: use 1 to %d", s.AgentsPerGroup,
			MaxAgentsPerGroup)
	}
	if path, err := s.validateAgents(); err != nil {
		return path, err
	}
	if path, err := s.validateObservations(); err != nil {
		return path, err
	}
	if key, err := s.CSV.Validate(); err != nil {
		return []string{"csv", key}, err
	}
	if len(s.Features) > MaxFeatures {
		return []string{"features"}, fmt.Errorf("%d features: use at most %d", len(s.Features), MaxFeatures)
	}
	seen := map[string]bool{s.Timestamp: true}
	if s.ByAgent() {
		seen[AgentColumn] = true
	} else if s.GroupCount > 0 {
		seen[GroupColumn] = true
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
	switch own := s.candidates(); {
	case own == nil && (len(s.Vote.Candidates) < 2 || len(s.Vote.Candidates) > kernels.AgentMostCandidates):
		return []string{"vote", "candidates"}, fmt.Errorf("%d candidates: name 2 to %d", len(s.Vote.Candidates),
			kernels.AgentMostCandidates)
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
	var b interface {
		Layout(pageBytes int) (kernels.Layout, error)
	}
	if s.ByAgent() {
		b, err = s.Address()
	} else {
		b, err = s.Bind()
	}
	switch {
	case errors.Is(err, kernels.ErrStep):
		return []string{"cell", "step"}, err
	case errors.Is(err, cells.ErrState):
		return []string{"cell", "state"}, err
	case errors.Is(err, cells.ErrEmbedding):
		return []string{"cell", "embedding"}, err
	case err != nil:
		return []string{"cell", "params"}, err
	}
	if _, err := b.Layout(int(s.PageSize)); err != nil {
		return []string{"page_size"}, err
	}
	return nil, nil
}

// Limits of a key, which are those of rows.ColumnSpec.
const (
	maxKeyColumns      = 8
	maxEvictAfter      = 100 * 365 * 24 * time.Hour
	defaultMaxEntities = 10_000
)

// validateKey is the part of validate about the key. seen has the other columns.
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
	case s.ByAgent():
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

// validateAgents is the part of validate about agents that are addressed, or not.
func (s *Spec) validateAgents() (path []string, err error) {
	if !s.ByAgent() {
		if s.Agents != 0 {
			return []string{"agents"}, fmt.Errorf("agents %d: the input says how many there are unless the swarm is "+
				"addressed by agent: write addressed: agent, or leave it out", s.Agents)
		}
		if s.GroupCount < 0 || s.GroupCount > swarms.MaxGroups {
			return []string{"groups"}, fmt.Errorf("groups %d: use 1 to %d, or leave it out for a run", s.GroupCount,
				swarms.MaxGroups)
		}
		if s.Shards != 0 {
			return []string{"shards"}, fmt.Errorf("shards %d: a swarm whose groups are addressed has one: write "+
				"addressed: agent, or leave it out", s.Shards)
		}
		return nil, nil
	}
	per := int64(s.AgentsPerGroup)
	switch {
	case s.Agents < 1 || s.Agents > math.MaxUint32 || s.Agents%per != 0:
		return []string{"agents"}, fmt.Errorf("agents %d: use a multiple of agents_per_group, %d, below 2^32", s.Agents,
			per)
	case s.Agents/per > swarms.MaxGroups:
		return []string{"agents"}, fmt.Errorf("agents %d: they are %d groups of %d, at most %d: use larger groups",
			s.Agents, s.Agents/per, per, swarms.MaxGroups)
	case s.GroupCount != 0:
		return []string{"groups"}, fmt.Errorf("groups %d: agents over agents_per_group says how many there are: "+
			"leave it out", s.GroupCount)
	case s.Shards < 1 || s.Shards > swarms.MaxShards || s.Shards > s.Groups():
		return []string{"shards"}, fmt.Errorf("shards %d: use 1 to %d, and no more than groups, of which there are "+
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

// validateObservations is the part of validate about those that come late or twice.
func (s *Spec) validateObservations() (path []string, err error) {
	o := s.Observations
	switch {
	case s.ByAgent() && o != Observations{}:
		return []string{"observations"}, errors.New("observations: those of agents have no time, none is late: " +
			"leave it out")
	case s.ByAgent():
	case o.Late != Reject && o.Late != Apply && o.Late != Drop:
		return []string{"observations", "late"}, fmt.Errorf("late %q: use reject, apply or drop", o.Late)
	case o.Duplicate != Apply && o.Duplicate != Drop:
		return []string{"observations", "duplicate"}, fmt.Errorf("duplicate %q: use apply or drop", o.Duplicate)
	}
	return nil, nil
}

// drop is the policy as kernels read it.
func (o Observations) drop() (d kernels.Drop) {
	if o.Late == Drop {
		d |= kernels.DropLate
	}
	if o.Duplicate == Drop {
		d |= kernels.DropDuplicate
	}
	return d
}

// Drops says whether some may be dropped.
func (o Observations) Drops() bool { return o.drop() != 0 }

// rules by the names of the spec.
var rules = map[string]kernels.Rule{
	"plurality": kernels.RulePlurality, "majority": kernels.RuleMajority, "quorum": kernels.RuleQuorum,
	"weighted": kernels.RuleWeighted, "unanimous": kernels.RuleUnanimous,
}

func (s *Spec) voting() (cells.Voting, error) {
	rule, ok := rules[s.Vote.Rule]
	if !ok {
		names := slices.Sorted(maps.Keys(rules))
		return cells.Voting{}, fmt.Errorf("rule %q: did you mean %q? There are %v", s.Vote.Rule,
			strictyaml.Nearest(s.Vote.Rule, names), names)
	}
	switch {
	case s.Vote.Rule == "quorum" && !(s.Vote.Quorum > 0 && s.Vote.Quorum <= 1):
		return cells.Voting{}, fmt.Errorf("quorum %v: the rule quorum needs a share above 0 and at most 1",
			s.Vote.Quorum)
	case s.Vote.Rule != "quorum" && s.Vote.Quorum != 0:
		return cells.Voting{}, fmt.Errorf("quorum %v: only the rule quorum takes one, the rule is %s", s.Vote.Quorum,
			s.Vote.Rule)
	}
	return cells.Voting{Rule: rule, Quorum: s.Vote.Quorum}, nil
}

// Address fits the cell to a swarm whose agents are addressed.
func (s *Spec) Address() (*cells.Addressed, error) {
	voting, err := s.voting()
	if err != nil {
		return nil, err
	}
	return cells.Address(s.Cell.Kind, s.Cell.Params, s.AgentsPerGroup, len(s.Features), len(s.Vote.Candidates), voting)
}

// Bind fits the cell to a swarm whose groups are addressed.
func (s *Spec) Bind() (*cells.Bound, error) {
	voting, err := s.voting()
	if err != nil {
		return nil, err
	}
	cell, ok := cells.Lookup(s.Cell.Kind)
	switch {
	case s.Custom():
		if cell, err = cells.Custom(s.Cell.State, s.Cell.Params, s.Cell.Step, s.Vote.Candidates,
			s.Cell.Embedding...); err != nil {
			return nil, err
		}
	case !ok:
		return nil, fmt.Errorf("cell kind %q is unknown", s.Cell.Kind)
	}
	b, err := cell.Bind(s.Cell.Params, s.AgentsPerGroup, len(s.Features), voting)
	if err != nil {
		return nil, err
	}
	b.Drop, b.Own = s.Observations.drop(), s.Cell.Weights == WeightsGroup
	if _, own := s.Cell.State[kernels.VarLatest.Name]; own && b.Drop != 0 {
		return nil, fmt.Errorf("%w: %s: the time of a group's latest observation is called so, where observations "+
			"are dropped: choose another name", cells.ErrState, kernels.VarLatest.Name)
	}
	return b, nil
}
