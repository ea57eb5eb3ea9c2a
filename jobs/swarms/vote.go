package swarms

import (
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// Vote asks for the ballots of all agents of a swarm, each after its last step, and for their
// decision. It changes no agent. The swarm advances to the round of the vote. The decision of a
// swarm with one shard is its outcome from then on; the decision of several shards becomes the
// outcome by an EntryConclude.
type Vote struct {
	Version int `json:"v"`
	// Round is the number of the round; 0 means the next one. It must be larger than the rounds of
	// all earlier votes, otherwise the vote is refused with jobs.CodeRound. It is in the answer,
	// and seeds the priorities if Priority is seeded.
	Round uint64 `json:"round,omitempty"`
	// Rule is the rule by which the strongest candidate wins: plurality, majority, quorum or
	// unanimous. Empty means plurality.
	Rule string `json:"rule,omitempty"`
	// Quorum is the share of the rule quorum, above 0 and at most 1, as a fraction or a decimal,
	// such as 2/3 or 0.6. Numerator and denominator are below 2^32.
	Quorum string `json:"quorum,omitempty"`
	// Of is the whole for majority, quorum and unanimous: the ballots that were cast, or all
	// agents. Empty means the ballots that were cast.
	Of string `json:"of,omitempty"`
	// Priority is how the leader is chosen: elected, uniform or seeded. Empty means uniform, as in
	// the logs of earlier versions; package swarmclient writes elected in its place.
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

	// PriorityElected has the voters for the winner elect one of them: the leader of the last
	// outcome if it is among them, else the voter with the highest priority by the swarm's seed,
	// the round and the agent.
	PriorityElected = "elected"
	PriorityUniform = "uniform" // any agent leads; all have priority 0, so it is agent 0
	PrioritySeeded  = "seeded"  // any agent leads, by the swarm's seed and the round: see docs/protocol.md
)

// Voted is the decision of all agents of a swarm. A candidate is its index in the specification.
type Voted struct {
	Version int    `json:"v"`
	Round   uint64 `json:"round"`
	// Winner is the candidate that has won; nil if none has.
	Winner *int `json:"winner,omitempty"`
	// Counts are the ballots for each candidate.
	Counts []uint64 `json:"counts"`
	// Abstentions are the agents that have never stepped.
	Abstentions uint64 `json:"abstentions"`
	// QuorumMet reports whether the strongest candidate satisfies the rule.
	QuorumMet bool `json:"quorum_met"`
	// Leader is nil in an elected round without a winner, and in the answer of one of several
	// shards.
	Leader *Leader `json:"leader,omitempty"`
	// Term is the round in which the present leader was elected. It grows with each change of the
	// leader, so a term has one leader. It is 0 if there is no leader, if the decision is of a part
	// of the swarm, or if it is not concluded yet.
	Term uint64 `json:"term,omitempty"`
	// Bids are the best bids of the agents of one of several shards for each candidate, of an elected
	// round; nil where no agent votes for it.
	Bids []*Bid `json:"bids,omitempty"`
	// Reactions are what the rules of the swarm have done when the round was decided, in order.
	Reactions []Reaction `json:"reactions,omitempty"`
}

// Leader is the agent that leads a round; see Vote.Priority. Of several agents with the highest
// priority it is the agent with the smallest id.
type Leader struct {
	Agent    uint32 `json:"agent"`
	Priority uint32 `json:"priority"`
	// Vote is the candidate that the leader votes for. An elected leader votes for the winner. Of
	// another one it is nil if the leader abstains, or if the agents of the swarm do not hear their
	// leader.
	Vote *int `json:"vote,omitempty"`
}

// Bid is what an agent that votes for a candidate has in an elected round.
type Bid struct {
	Agent    uint32 `json:"agent"`
	Priority uint32 `json:"priority"`
	// Term is the term in which the agent leads already; 0: it does not.
	Term uint64 `json:"term,omitempty"`
}

// Fuse asks for knowledge nodes: the mean of the embeddings of the agents of each node. It is
// read-only.
type Fuse struct {
	Version int `json:"v"`
	// By chooses the node of an agent: ByGroup, ByVote or ByAll.
	By string `json:"by"`
	// Nodes is the number of nodes for ByGroup, from 1 to MaxAddressed and at most the number of
	// groups; 0 means one per group. For ByVote and ByAll it must be 0.
	Nodes int `json:"nodes,omitempty"`
	// Sums asks for sums instead of means, because the sums of several shards can be added.
	Sums bool `json:"sums,omitempty"`
}

// How a Fuse chooses the members of a node.
const (
	ByGroup = "group" // group g of G is in node floor(g*nodes/G)
	ByVote  = "vote"  // one node per candidate; agents that have never stepped are in none
	ByAll   = "all"   // one node for all agents
)

// DecodeVote reads the data of an EntryVote, as DecodeTick does.
func DecodeVote(data []byte) (v Vote, err error) {
	if err := decodeEntry("vote", data, &v, &v.Version); err != nil {
		return v, err
	}
	return v, v.Validate()
}

// Validate checks the fields of a vote without regard to its swarm. The error names the field, its
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
	if err := oneOf("priority", v.Priority, PriorityElected, PriorityUniform, PrioritySeeded); err != nil {
		return err
	}
	_, _, err := v.Share()
	return err
}

// sharePattern bounds the length of a quorum before it is parsed.
var sharePattern = regexp.MustCompile(`^[0-9]{1,10}([/.][0-9]{1,10})?$`)

// Share returns the quorum as a fraction, or 0/1 for other rules than quorum.
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

// Validate checks the fields of a fuse without regard to its swarm. The error names the field, its
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
