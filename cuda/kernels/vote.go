package kernels

// Rule is how a group turns its tally into a decision; it is a word of every cell's parameter
// block.
type Rule uint32

// The rules. A tie is won by the smallest candidate index. Under RuleWeighted an agent's vote
// counts its weight, under the others 1.
const (
	RulePlurality Rule = iota // the most votes
	RuleMajority              // more than half of all votes
	RuleQuorum                // at least the fraction PredictorQuorum of all votes
	RuleWeighted              // the most weight
	RuleUnanimous             // all votes
)

// The candidates of the cells that watch for anomalies.
const (
	VoteNormal = iota
	VoteSuspicious
	VoteAnomalous
	VoteCandidates
)

// MaxVoteWeight bounds the weight of one vote: the sum over a group of 2^19 agents still fits the
// uint32 of a count.
const MaxVoteWeight = 1 << 13
