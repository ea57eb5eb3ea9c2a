package kernels

import "github.com/exoswarm/exoswarm/cuda/device"

// ObserveParams is the signature shared by the observe kernels of all built-in cells. One block
// steps one run: the observations of one group in one batch, in order; for each it steps all agents
// of the group, takes their votes, and writes the group's decision. Index n counts the observations
// of the batch, grouped by run.
//
// The result of an observation depends only on the group's state and the observation, never on how
// the observations were cut into batches, and is bit-identical on every device: float32 with no
// fused multiply-add, only + - * /, sqrt and the functions written out in both languages, and
// reductions over agents in integers.
var ObserveParams = []device.Param{
	{Name: "pages", Kind: device.KindBuffer}, // frames of page_bytes each
	{Name: "page_bytes", Kind: device.KindUint64},
	{Name: "layout", Kind: device.KindBuffer},    // uint32: Layout.Table
	{Name: "params", Kind: device.KindBuffer},    // 4-byte words: the cell's parameter block
	{Name: "weights", Kind: device.KindBuffer},   // float32: the cell's fixed random weights that all groups share
	{Name: "runs", Kind: device.KindBuffer},      // Run, one a block
	{Name: "times", Kind: device.KindBuffer},     // int64[n]: unix nanoseconds
	{Name: "features", Kind: device.KindBuffer},  // float64[n][I]
	{Name: "scores", Kind: device.KindBuffer},    // out float32[n] in [0,1]
	{Name: "decisions", Kind: device.KindBuffer}, // out uint32[n]: winning candidate, or NoDecision
	{Name: "counts", Kind: device.KindBuffer},    // out uint32[n][candidates]: weighted votes
	{Name: "leaders", Kind: device.KindBuffer},   // out uint32[n]: index of the leader inside its group
	{Name: "rounds", Kind: device.KindBuffer},    // out uint64[n]: the group's round, 1 for its first observation
	// frames in host memory, of page_bytes each; any memory if no run says RunHostBit
	{Name: "host", Kind: device.KindBuffer},
}

// Run addresses the consecutive observations First..First+Count-1 of a batch, all of the group in
// slot Slot of the page in frame Frame, which is number Group of the swarm. A group has at most one
// run in a launch. In memory: five uint32 in this order.
type Run struct {
	Frame, Slot, First, Count, Group uint32
}

// RunHostBit is the bit of a run's frame that says that it is one in host memory, as AgentHostBit
// does of agents that are addressed.
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

// What may be dropped of the observations of a group, beside the latest of those that it has
// applied before.
const (
	DropLate      Drop = 1 << iota // its time is before
	DropDuplicate                  // it has the same time
)

// Values of decisions of observations that were dropped. Their score, counts and leader are 0, and
// their round is that of the observation applied last.
const (
	DroppedLate      = NoDecision - 1
	DroppedDuplicate = NoDecision - 2
)

// VarLatest is the latest time of the observations that a group has applied, where it has applied
// any.
var VarLatest = Var{Name: "latest", Elem: I64, Width: 1, Group: true}
