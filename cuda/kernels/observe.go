package kernels

// ObserveArgs are the arguments of the observe kernels of all built-in cells. One block
// steps one run: the observations of one group in one batch, in order; for each it steps all agents
// of the group, takes their votes, and writes the group's decision. Index n counts the observations
// of the batch, grouped by run.
//
// The result of an observation depends only on the group's state and the observation, never on how
// the observations were cut into batches, and is bit-identical on every device: float32 with no
// fused multiply-add, only + - * /, sqrt and the functions written out in both languages, and
// reductions over agents in integers.
//
//   - pages: frames of page_bytes each
//   - layout: uint32: Layout.Table
//   - params: 4-byte words: the cell's parameter block
//   - weights: float32: the cell's fixed random weights that all groups share
//   - runs: Run, one a block
//   - times: int64[n]: unix nanoseconds
//   - features: float64[n][I]
//   - scores: out float32[n] in [0,1]
//   - decisions: out uint32[n]: winning candidate, or NoDecision
//   - counts: out uint32[n][candidates]: weighted votes
//   - leaders: out uint32[n]: index of the leader inside its group
//   - rounds: out uint64[n]: the group's round, 1 for its first observation
//   - host: frames in host memory, of page_bytes each; any memory if no run says RunHostBit

// Run addresses the consecutive observations First..First+Count-1 of a batch, all of the group in
// slot Slot of the page in frame Frame, which is number Group of the swarm. A group has at most one
// run in a launch. In memory: five uint32 in this order.
type Run struct {
	Frame, Slot, First, Count, Group uint32
}

// RunHostBit is the bit of a run's frame that marks it as in host memory, as AgentHostBit does of
// agents that are addressed.
const RunHostBit = AgentHostBit

// RunWords is the length of a Run in memory.
const RunWords = 5

// Words appends the run as it is in memory.
func (r Run) Words(to []uint32) []uint32 {
	return append(to, r.Frame, r.Slot, r.First, r.Count, r.Group)
}

// NoDecision is the value of a decision whose rule was not met.
const NoDecision = ^uint32(0)

// Drop is which observations change nothing but their own answer, a word of every parameter block:
// bits of DropLate and DropDuplicate. Where it is not 0, the state has VarLatest behind all other
// variables.
type Drop uint32

// What may be dropped of the observations of a group, in relation to the latest applied one.
const (
	DropLate      Drop = 1 << iota // its time is before
	DropDuplicate                  // it has the same time
)

// Values of decisions of observations that were dropped. Their score, counts and leader are 0, and
// their round is the round of the observation applied last.
const (
	DroppedLate      = NoDecision - 1
	DroppedDuplicate = NoDecision - 2
)

// VarLatest is the latest time of the observations that a group has applied, where it has applied
// any.
var VarLatest = Var{Name: "latest", Elem: I64, Width: 1, Group: true}

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
