// Package swarm is the spec of a swarm: what a user writes in YAML and an agent process reads as
// JSON.
package swarm

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Spec describes a swarm. The zero value of a field means its default, which Parse fills in.
type Spec struct {
	// Name of the swarm, 1 to 64 letters, digits, '-' or '_'.
	Name string `yaml:"name" json:"name"`
	// Addressed says whom an observation is for: ByGroup, the default, or ByAgent.
	Addressed string `yaml:"addressed" json:"addressed,omitempty"`
	// Cell is the neural update of every agent. By group it is of any kind, also custom; by agent it
	// is gru (the default), leaky, life, sir, lif or izhikevich, with the parameters of cells.Address,
	// quantum with a circuit, custom on a grid, or transformer with a language model.
	Cell Cell `yaml:"cell" json:"cell"`
	// Agents is how many there are by agent, a multiple of AgentsPerGroup below 2^32. The default
	// is the cells of a grid, or one more than the largest number in a file of edges. By group it
	// is 0.
	Agents int64 `yaml:"agents" json:"agents,omitempty" zero:"default"`
	// GroupCount is how many groups a swarm has that is made to last and addresses groups, 1 to
	// swarms.MaxGroups. Of a run the input says, and of a swarm by agent Agents.
	GroupCount int `yaml:"groups" json:"groups,omitempty" zero:"default"`
	// Shards is how many logs the agents are split over, each with groups that follow one another,
	// 1 to swarms.MaxShards and no more than groups; default 1, which is 0 by group. Each is served
	// by one agent process at a time, on one device. See swarms.Swarm.ShardGroups.
	Shards int `yaml:"shards" json:"shards,omitempty" zero:"default"`
	// Devices is the most devices of its agent process that make the ticks of agents on a grid or a
	// graph together, 1 to field.MaxDevices; 0 is 1. With fewer there, and in short ticks, fewer do.
	// It changes no state.
	Devices int `yaml:"devices" json:"devices,omitempty" zero:"default"`
	// AgentsPerGroup is how many agents watch one series, or vote together, 1 to 4096; default 256,
	// and of the cell quantum the largest number up to it that divides the agents, and of transformer
	// 1. On a grid it divides the width, and on a graph the agents, and the default is the largest that
	// does.
	AgentsPerGroup int `yaml:"agents_per_group" json:"agents_per_group" zero:"default"`
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
	MaxEntities int `yaml:"max_entities" json:"max_entities,omitempty" zero:"default"`
	// EvictAfter lets entities of a detector lose their groups to others, and return with their
	// states: after this time without a row, by the times of rows, or when another entity needs a
	// group and none is free. 1 s to 100 years; 0: entities keep their groups.
	EvictAfter strictyaml.Duration `yaml:"evict_after" json:"evict_after,omitempty"`
	// Observations is the policy for late and duplicate observations. It applies to swarms
	// addressed by group only: observations of agents have no time.
	Observations Observations `yaml:"observations" json:"observations,omitzero"`
	// Explain adds an explanation to each decision in outputs. Agents never read it.
	Explain bool `yaml:"explain" json:"explain,omitempty"`
	// Fleet limits the incidents of all entities that are shown. Agents never read it.
	Fleet Fleet `yaml:"fleet" json:"fleet,omitzero"`
	// CSV is how the CSV files of its observations are written. Agents never read it.
	CSV dialect.CSV `yaml:"csv" json:"csv,omitzero"`
	// Hear names values that all agents take as inputs of each step, behind the features, in this
	// order: HearDecision, HearLeader, HearGroup and HearKnowledge. By agent and of the cell gru only.
	// The random weights depend on how many there are.
	Hear []string `yaml:"hear" json:"hear,omitempty"`
	// Knowledge is what HearKnowledge hears. The zero value where it is not in Hear.
	Knowledge Knowledge `yaml:"knowledge" json:"knowledge,omitzero"`
	// OnDecision are rules about what follows when a round is decided, WHEN -> ACTION, ACTION: see
	// Rule. By agent and with one shard only. They change nothing before the first vote.
	OnDecision []string `yaml:"on_decision" json:"on_decision,omitempty"`
	// Jobs are the jobs that rules of OnDecision submit, by their names. Each is in a rule.
	Jobs map[string]Job `yaml:"jobs" json:"jobs,omitempty"`
	// Neighbours is the grid of agents of the cells life and custom, the graph of agents of sir,
	// lif, izhikevich and custom, or the box of agents of boids, circles and colony. These cells
	// need neighbours. Their pages are all on the device.
	Neighbours Neighbours `yaml:"neighbours" json:"neighbours,omitzero"`
	// Train is how a model for the cell is trained. By agent and of the cell gru only.
	Train Train `yaml:"train" json:"train,omitzero"`
	// Vote is what the agents decide and how.
	Vote Vote `yaml:"vote" json:"vote"`
	// Seed chooses the agents' fixed random weights.
	Seed uint64 `yaml:"seed" json:"seed"`
	// PageSize is the size of a page of state in bytes, a multiple of 4 KiB from 64 KiB to 1 GiB;
	// default 2 MiB. A page holds at least one group.
	PageSize strictyaml.Size `yaml:"page_size" json:"page_size" zero:"default"`
	// Residency says where the pages of state are: ResidencyGPU keeps all of them in the memory of
	// the device, and an agent process without room for all refuses the swarm. Empty, the default:
	// pages that are not needed leave the device for others.
	Residency string `yaml:"residency" json:"residency,omitempty"`
	// Checkpoint is how often the agents' state is stored. It changes no output.
	Checkpoint Checkpoint `yaml:"checkpoint" json:"checkpoint"`
	// Replicas is on how many servers each log is kept, 1, 3 or 5; 0, the default, is as many as
	// the process that makes the logs is told for all.
	Replicas int `yaml:"replicas" json:"replicas,omitempty" zero:"default"`
	// Durability is swarms.Synced, swarms.Fast or, by default, empty: see swarms.Consistency. Fast
	// is for one replica.
	Durability string `yaml:"durability" json:"durability,omitempty"`
}

// Consistency is what the spec says of the swarm's logs.
func (s *Spec) Consistency() swarms.Consistency {
	return swarms.Consistency{Replicas: s.Replicas, Durability: s.Durability}
}

// Checkpoint says when an agent process stores the state of a shard: after the interval, or after a
// number of entries of the log, whichever comes first. Checkpoints take at most a twentieth of the
// process's time, so a large swarm has fewer.
type Checkpoint struct {
	// Interval is 100ms to 1h; default 5s. In JSON it is a number of nanoseconds.
	Interval strictyaml.Duration `yaml:"interval" json:"interval" zero:"default"`
	// Entries is 1 to 1000000; default 1024. An entry is a batch of up to 4,096 observations.
	Entries int `yaml:"entries" json:"entries" zero:"default"`
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
	// that agents get none. Late observations from another writer of the log are applied.
	Reject = "reject"
)

// Cell chooses a cell and its parameters.
type Cell struct {
	Kind string `yaml:"kind" json:"kind"` // default "predictor"
	// Params by name; those left out have the cell's default. Those of the kind custom that the
	// frame has not are its step's own.
	Params map[string]float64 `yaml:"params" json:"params,omitempty"`
	// Neurons and InhibitoryNeurons name the types of the excitatory and the inhibitory agents of the
	// kind izhikevich, and of no other: see cells.NeuronTypes. The parameters of a type that Params
	// has not are put there.
	Neurons           string `yaml:"neurons" json:"neurons,omitempty"`
	InhibitoryNeurons string `yaml:"inhibitory_neurons" json:"inhibitory_neurons,omitempty"`
	// Weights says whose the recurrent weights of a gru by group are: WeightsShared, the default,
	// of all groups, or WeightsGroup, each its own.
	Weights string `yaml:"weights" json:"weights,omitempty"`
	// Model names a model whose weights the agents of a gru by agent have, in place of random ones, or
	// whose angles the circuit of the kind quantum has, in place of Params, or the language model of
	// the kind transformer. ModelSHA256 is its digest, 64 hexadecimal digits: the record of a swarm has
	// it, and the commands that create a swarm fill it in.
	Model       string `yaml:"model" json:"model,omitempty"`
	ModelSHA256 string `yaml:"model_sha256" json:"model_sha256,omitempty"`
	// Exact has the kind transformer compute in float32 with sums in a fixed order, so that tokens and
	// caches have the same bits on each device.
	Exact bool `yaml:"exact" json:"exact,omitempty"`
	// CacheBytes is how many bytes the keys and values of a position of a conversation take, of the
	// kind transformer. It follows from the model: the commands that create a swarm fill it in.
	CacheBytes int64 `yaml:"cache_bytes" json:"cache_bytes,omitempty" zero:"default"`
	// Circuit is the OpenQASM text of the circuit of the kind quantum, and of no other. In a spec that
	// is read from a folder it may be the name of a file below it; what is parsed has the text. A text
	// has a ';', and a name has none.
	Circuit string `yaml:"circuit" json:"circuit,omitempty"`
	// Embed has observations of a gru by agent name a row of numbers, which are the agent's inputs.
	Embed Embed `yaml:"embed" json:"embed,omitzero"`
	// Items is the number of items of a gru by agent, 1 to kernels.AgentMostItems: an observation may
	// name one, and the answer has the score of its agent for it. 0: there are none.
	Items int `yaml:"items" json:"items,omitempty" zero:"default"`
	// State is the state of an agent of the kind custom: the type of each variable by name. See
	// cells.Custom. Other kinds have none.
	State map[string]string `yaml:"state" json:"state,omitempty"`
	// Embedding are the variables of State that are an agent's knowledge, in their order, of the
	// kind custom and of no other; all that are f32 or bf16 when there are none. Embeddings are
	// answers to questions: no state depends on them.
	Embedding []string `yaml:"embedding" json:"embedding,omitempty"`
	// Hear are the variables of neighbours that the step of the kind custom by agent hears.
	Hear Around `yaml:"hear" json:"hear,omitzero"`
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
	// Tokens are the first tokens of the candidates, in their order, of the kind transformer: the
	// ballot of an agent is the candidate whose token is the likeliest. The commands that create a
	// swarm fill them in; without them its agents do not vote.
	Tokens []int32 `yaml:"tokens" json:"tokens,omitempty"`
	// By is the variable of State by which agents of the kind custom vote that are addressed: see
	// cells.Lattice. Default: the first one in alphabetical order.
	By string `yaml:"by" json:"by,omitempty"`
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
		path, err = s.readCircuit(folder)
	}
	if err == nil {
		path, err = s.readGraph(folder)
	}
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
	setDefault(&s.Addressed, ByGroup)
	kind := "predictor"
	if s.Addressed == ByAgent {
		kind = "gru"
	}
	setDefault(&s.Cell.Kind, kind)
	s.Cell.fillNeurons()
	s.Cell.fillEmbed()
	t := s.Topology()
	t.defaults(s)
	s.Knowledge.ensureDefaults(s.Hear)
	s.Fleet.ensureDefaults()
	s.Train.ensureDefaults()
	setDefault(&s.AgentsPerGroup, 256)
	if len(s.Features) == 0 {
		s.Features = []string{"value"}
	}
	if len(s.Key) > 0 && s.MaxEntities == 0 {
		s.MaxEntities = defaultMaxEntities
	}
	if len(s.Vote.Candidates) == 0 {
		s.Vote.Candidates = slices.Clone(t.candidates(s))
	}
	setDefault(&s.PageSize, 2<<20)
	setDefault(&s.Checkpoint.Interval, strictyaml.Duration(5*time.Second))
	setDefault(&s.Checkpoint.Entries, 1024)
}

// Groups is how many groups a swarm has; 0: the input of a run says.
func (s *Spec) Groups() int { return s.Topology().groups(s) }

// OfRun reports whether the swarm belongs to a run. The input of the run decides the number of
// groups, and its job writes the log.
func (s *Spec) OfRun() bool { return s.Groups() == 0 }

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

// Learning returns the last round in which an entity is learning; see cells.Cell.
func (s *Spec) Learning() uint64 {
	if cell, ok := cells.Lookup(s.Cell.Kind); ok {
		return cell.Learning
	}
	return 0
}

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
