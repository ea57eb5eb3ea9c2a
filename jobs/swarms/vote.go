package swarms

import (
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// Vote asks how all agents of a swarm vote as they are now, each by its last step, and what they
// decide together. It changes nothing of the agents; the swarm goes on to the round of the vote.
type Vote struct {
	Version int `json:"v"`
	// Round is the number of the round, more than that of all votes before in the swarm; 0: the
	// next one. It is in the answer, and chooses the leader where priorities are seeded. A round
	// that is over is refused with jobs.CodeRound.
	Round uint64 `json:"round,omitempty"`
	// Rule is what the strongest candidate needs to win: plurality, which an empty one stands for,
	// majority, quorum or unanimous.
	Rule string `json:"rule,omitempty"`
	// Quorum is the share of the rule quorum, above 0 and at most 1, as a fraction or a decimal:
	// 2/3, 0.6. Its parts are below 2^32.
	Quorum string `json:"quorum,omitempty"`
	// Of is what majority, quorum and unanimous are of: the votes cast, which an empty one stands
	// for, or all agents.
	Of string `json:"of,omitempty"`
	// Priority is that of agents which stand for leader: uniform, which an empty one stands for,
	// where the smallest id leads, or seeded.
	Priority string `json:"priority,omitempty"`
}

// Values of fields of a Vote.
const (
	RulePlurality = "plurality"
	RuleMajority  = "majority"
	RuleQuorum    = "quorum"
	RuleUnanimous = "unanimous"

	OfCast = "cast"
	OfAll  = "all"

	PriorityUniform = "uniform" // all agents have priority 0
	PrioritySeeded  = "seeded"  // by the swarm's seed, the round and the agent: see docs/protocol.md
)

// Voted is a decision of all agents of a swarm. Candidates are by their index in the spec.
type Voted struct {
	Version int    `json:"v"`
	Round   uint64 `json:"round"`
	// Winner is the candidate that has won; nil: nobody has.
	Winner *int `json:"winner,omitempty"`
	// Counts are the agents that vote for each candidate.
	Counts []uint64 `json:"counts"`
	// Abstentions are the agents that have never stepped.
	Abstentions uint64 `json:"abstentions"`
	// QuorumMet says whether the strongest candidate has what the rule asks for.
	QuorumMet bool   `json:"quorum_met"`
	Leader    Leader `json:"leader"`
}

// Leader is the agent with the highest priority in a round, the smallest id of several.
type Leader struct {
	Agent    uint32 `json:"agent"`
	Priority uint32 `json:"priority"`
}

// Fuse asks what agents know together: the mean of their embeddings, by node. It changes nothing.
type Fuse struct {
	Version int `json:"v"`
	// By says which node an agent belongs to: by group, by vote, or one node for all.
	By string `json:"by"`
	// Nodes is how many there are by group, 1 to MaxAddressed and no more than groups; 0: one a
	// group. By vote and for all it is 0.
	Nodes int `json:"nodes,omitempty"`
	// Sums asks for sums in place of means, which merge: those of a shard with those of the others.
	Sums bool `json:"sums,omitempty"`
}

// How a Fuse chooses members.
const (
	ByGroup = "group" // group g of G is in node g*nodes/G, without its fraction
	ByVote  = "vote"  // a node a candidate; agents that have never stepped belong to nobody
	ByAll   = "all"
)

// DecodeVote reads the data of an EntryVote, as DecodeTick does.
func DecodeVote(data []byte) (v Vote, err error) {
	if err := decodeEntry("vote", data, &v, &v.Version); err != nil {
		return v, err
	}
	return v, v.Validate()
}

// Validate checks the fields of a vote, whatever swarm it is for. The error names the field, its
// value and the cure.
func (v Vote) Validate() error {
	oneOf := func(field, value string, values ...string) error {
		if value == "" || slices.Contains(values, value) {
			return nil
		}
		return invalid("vote: %s %.100q: use %s or %s", field, value,
			strings.Join(values[:len(values)-1], ", "), values[len(values)-1])
	}
	if v.Rule == "weighted" {
		return invalid("vote: rule %q: votes of agents that are addressed weigh the same: use %s", v.Rule,
			RulePlurality)
	}
	if err := oneOf("rule", v.Rule, RulePlurality, RuleMajority, RuleQuorum, RuleUnanimous); err != nil {
		return err
	}
	if err := oneOf("of", v.Of, OfCast, OfAll); err != nil {
		return err
	}
	if v.Of == OfAll && (v.Rule == "" || v.Rule == RulePlurality) {
		return invalid("vote: of %q: plurality asks for no share: leave it out, or use another rule", v.Of)
	}
	if err := oneOf("priority", v.Priority, PriorityUniform, PrioritySeeded); err != nil {
		return err
	}
	_, _, err := v.Share()
	return err
}

// sharePattern bounds what a quorum may be before it becomes a number.
var sharePattern = regexp.MustCompile(`^[0-9]{1,10}([/.][0-9]{1,10})?$`)

// Share is the quorum as a fraction, 0/1 of other rules than quorum.
func (v Vote) Share() (num, den uint32, err error) {
	if v.Rule != RuleQuorum {
		if v.Quorum != "" {
			return 0, 0, invalid("vote: quorum %.100q: only the rule quorum takes one: leave it out, or "+
				"write \"rule\":\"quorum\"", v.Quorum)
		}
		return 0, 1, nil
	}
	bad := invalid("vote: quorum %.100q: use a share above 0 and at most 1, such as 2/3 or 0.6", v.Quorum)
	if !sharePattern.MatchString(v.Quorum) {
		return 0, 0, bad
	}
	share, ok := new(big.Rat).SetString(v.Quorum)
	if !ok || share.Sign() <= 0 || share.Cmp(big.NewRat(1, 1)) > 0 {
		return 0, 0, bad
	}
	if share.Denom().Cmp(big.NewInt(math.MaxUint32)) > 0 {
		return 0, 0, invalid("vote: quorum %.100q: it is %v, whose parts must be below 2^32: use fewer "+
			"digits", v.Quorum, share)
	}
	return uint32(share.Num().Uint64()), uint32(share.Denom().Uint64()), nil
}

// DecodeVoted reads the data of an EntryVoted.
func DecodeVoted(data []byte) (v Voted, err error) {
	return v, decodeEntry("voted", data, &v, &v.Version)
}

// DecodeFuse reads the data of an EntryFuse, as DecodeTick does.
func DecodeFuse(data []byte) (f Fuse, err error) {
	if err := decodeEntry("fuse", data, &f, &f.Version); err != nil {
		return f, err
	}
	return f, f.Validate()
}

// Validate checks the fields of a fuse, whatever swarm it is for. The error names the field, its
// value and the cure.
func (f Fuse) Validate() error {
	switch f.By {
	case ByVote, ByAll:
		if f.Nodes != 0 {
			return invalid("fuse: nodes %d: by %s there are as many as there are: leave it out, or fuse "+
				"by group", f.Nodes, f.By)
		}
	case ByGroup:
		if f.Nodes < 0 || f.Nodes > MaxAddressed {
			return invalid("fuse: nodes %d: use 1 to %d, or leave it out for one a group", f.Nodes,
				MaxAddressed)
		}
	default:
		return invalid("fuse: by %.100q: use %s, %s or %s", f.By, ByGroup, ByVote, ByAll)
	}
	return nil
}
