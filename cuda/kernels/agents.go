package kernels

import (
	"fmt"
	"strings"
)

// Agent-addressed swarms: an observation is for one agent, which has inputs of its own, holds the
// last of them, and votes for one of AgentCandidates at most; all agents share the cell's weights.
// Results are the same bits on every device, for every launch shape: sums are of integers, and what
// is float32 is fused multiply-adds in a fixed order.

// Words of the parameter block of agent-addressed cells. F is a float32 by its bits, the others are
// uint32.
const (
	AgentCandidates = iota // C, 2..AgentMostCandidates
	AgentRule              // Rule of a group
	AgentQuorum            // fraction in 16.16 fixed point, for RuleQuorum
	AgentFeatures          // I: features an observation
	AgentDecay             // F, leaky: what is left of a potential after a step
	AgentThreshold         // F, leaky: the potential above which an agent spikes
	AgentTraceRate         // F, leaky: rate of the running mean of spikes
	AgentWords
)

// Variables of the state of agent-addressed cells, as indices of AgentGRUVars and AgentLeakyVars.
const (
	AgentVarRound     = iota        // group u64: ticks, and sparse launches in which one of its agents stepped
	AgentVarCounts                  // group [C]: the votes of its agents now
	AgentVarVote                    // agent: candidate + 1, or 0 before its first step
	AgentVarRow                     // agent [2][H], gru: its units, and behind them the input that it holds
	AgentVarPotential               // agent, leaky
	AgentVarTrace                   // agent, leaky: running mean of its spikes
	AgentVarInput     = AgentVarRow // agent [2], leaky: the input that it holds
	// Of a gru whose agents hear the node of their group.
	AgentVarKnowledge = AgentVarRow + 1 // group [width]: its knowledge node
	AgentVarUpdates   = AgentVarRow + 2 // group u64: updates of the node
	AgentVarUpdated   = AgentVarRow + 3 // group u64: the round of the group behind the last update
	AgentVarLearned   = AgentVarRow + 4 // group u8: 1: the next tick hears the node as it is
)

// AgentMostNode is the maximum of units of a knowledge node.
const AgentMostNode = 8

// How an update of a knowledge node merges the units of the agents of its group.
const (
	AgentMergeMean = iota // their mean
	AgentMergeMax         // the largest of each
	AgentMergeEMA         // the node moves to their mean by a rate
	// their mean, where the weight of each falls with its distance to the node; see ToldArgs
	AgentMergeAttention
)

// Which node an agent adds its units to, and hears.
const (
	AgentByGroup = iota // the node of its group
	AgentByVote         // the node of the candidate that it votes for, as many nodes as candidates
	AgentByKey          // the node with its id modulo the number of nodes
)

// Numbers of AgentMergeAttention: the largest weight is 2^AgentWeightBits, a unit of a node counts
// as an integer of 2^-AgentNodeBits, and a larger exponent of a weight counts as AgentFarthest,
// where the weight is 1.
const (
	AgentWeightBits         = 16
	AgentNodeBits           = 12
	AgentFarthest   float32 = 16
)

// Flags of AgentNodesArgs.
const (
	AgentNodeMerged  = 1 << iota // the node was updated
	AgentNodeLearned             // it has learned since the last tick, which keeps it
)

// Numbers of the agent-addressed kernels.
const (
	AgentMostCandidates = 16
	AgentMostHidden     = 32
	AgentNoVote         = 255   // in place of a candidate: refused, or a rule that was not met
	AgentInput          = 65536 // inputs of leaky beyond it, of either sign, count as it
	// maximum of features of leaky: the current, and the gain above one that multiplies it
	AgentLeakyFeatures = 2
	// agents of a gru that a block steps between two decisions of groups, if groups are small
	AgentSpan       = 1024
	AgentSpanLeaky  = 4096 // the same of leaky, where a step is short and blocks have AgentLeakyBlock threads
	AgentSpanGroups = 128  // and the maximum of groups
	AgentLeakyBlock = 256
	// blocks of 128 threads of the gru kernels that a multiprocessor has room for, with 128
	// registers a thread
	AgentGRUBlocks = 4
)

// AgentHostBit is the bit of an entry of frames that says of a launch of StepArgs and
// StepDecideArgs that the frame is one in host memory. Ticks know frames on the device only, and so
// do launches of AgentSumsArgs, to which it says that the page is nowhere.
const AgentHostBit = 31

// AgentHeaded in place of a number of observations means that the number is in the head of StepArgs
// and StepDecideArgs, and the sequence number behind it: a launch that is recorded and replayed has
// the same arguments each time.
const AgentHeaded = 1<<32 - 1

// What a tick does with the votes that it counts, when a swarm is stepped in several launches.
const (
	AgentTickSilent  = iota // nothing: another tick of these pages follows
	AgentTickCount          // adds them to the votes of earlier launches
	AgentTickPublish        // and makes the sum the tally of the swarm: the last launch of a tick
)

// Words of 64 bits of the scratch memory of a swarm, zeros at first. It is not written by the host
// after that, but for AgentTally where pages are.
const (
	AgentTicket  = iota // blocks that are done
	AgentStepped        // observations that stepped their agents
	AgentOutside        // refused: no such agent
	AgentRefused        // refused: a feature is NaN or infinite
	// [AgentMostCandidates] votes in a tick under way, over its launches
	AgentSum
	AgentTally   = AgentSum + AgentMostCandidates   // [AgentMostCandidates] the votes of all agents now
	AgentScratch = AgentTally + AgentMostCandidates // how many there are
)

// Words of 64 bits of a result, by AgentStepped, AgentOutside and AgentRefused too.
const (
	AgentDone        = 0 // the launch's sequence number, stored last
	AgentResultTally = 4 // [C] the votes of all agents
	AgentResultWords = AgentResultTally + AgentMostCandidates
)

// AgentHidden is the class of a gru by its units, 1..AgentMostHidden: its units and inputs are
// padded to it with zeros, which change no bit of the others.
func AgentHidden(hidden int) int {
	for class := 8; class < AgentMostHidden; class *= 2 {
		if hidden <= class {
			return class
		}
	}
	return AgentMostHidden
}

// AgentGRUVars lists the state of the agent-addressed gru of class H with state of elem, F32 or
// BF16.
func AgentGRUVars(class, candidates int, elem Elem) []Var {
	return []Var{
		AgentVarRound:  {Name: "round", Elem: U64, Width: 1, Group: true},
		AgentVarCounts: {Name: "counts", Elem: U32, Width: candidates, Group: true, Together: true},
		AgentVarVote:   {Name: "vote", Elem: U8, Width: 1},
		AgentVarRow:    {Name: "row", Elem: elem, Width: 2 * class, Together: true},
	}
}

// AgentLeakyVars lists the state of the agent-addressed leaky cell.
func AgentLeakyVars() []Var {
	return []Var{
		AgentVarRound:     {Name: "round", Elem: U64, Width: 1, Group: true},
		AgentVarCounts:    {Name: "counts", Elem: U32, Width: 2, Group: true, Together: true},
		AgentVarVote:      {Name: "vote", Elem: U8, Width: 1},
		AgentVarInput:     {Name: "input", Elem: F32, Width: AgentLeakyFeatures, Together: true},
		AgentVarPotential: {Name: "potential", Elem: F32, Width: 1},
		AgentVarTrace:     {Name: "trace", Elem: F32, Width: 1},
	}
}

// AgentNodeVars lists the state of a gru that AgentGRUVars leaves out: the knowledge nodes of
// groups.
func AgentNodeVars(width int) []Var {
	return []Var{
		{Name: "knowledge", Elem: F32, Width: width, Group: true, Together: true},
		{Name: "updates", Elem: U64, Width: 1, Group: true},
		{Name: "updated", Elem: U64, Width: 1, Group: true},
		{Name: "learned", Elem: U8, Width: 1, Group: true},
	}
}

// AgentGRUName is the kernel tick, told or step of the gru of a class with state of elem, as in
// gru_tick_h8_f32.
func AgentGRUName(what string, class int, elem Elem) string {
	of := "f32"
	if elem == BF16 {
		of = "bf16"
	}
	return fmt.Sprintf("gru_%s_h%d_%s", what, class, of)
}

// TickArgs are the arguments of the kernels that step all agents of some pages of a swarm a number
// of times, driven by the inputs that they hold, and count the last votes of their groups and of
// the swarm. State is read and written once, whatever the number. The result equals as many
// launches of one step. The result has the tally only of a launch that publishes it. One launch at
// a time works on a swarm.
//
//   - first: of the pages
//   - count: of the pages; the swarm has all of them
//   - steps: 1 or more
//   - tally: AgentTickSilent and so on
//   - decisions: out uint8[groups]: the winner of each, or AgentNoVote
//   - scratch: in and out uint64[AgentScratch]
//   - sequence: not 0: what the result begins with when it is whole
//   - result: out uint64[AgentResultWords]

// StepArgs are the arguments of the kernels that step the agents addressed, no agent more than
// once in a launch. Groups have their decisions by step_decide, which is put into the stream behind
// it.
//
//   - agents: uint32[count]
//   - inputs: float32[count][I]
//   - votes: out uint8[count]: a candidate, or AgentNoVote of what is refused
//   - host: frames in host memory, of page_bytes each; any memory if no entry says
//     AgentHostBit
//   - head: uint32[2]: count and sequence where count is AgentHeaded; else any memory

// StepDecideArgs are the arguments of step_decide.
//
//   - agents: of the step
//   - votes: which it has stored
//   - stamps: in and out uint32[groups]: the last sequence number that touched each
//   - decisions: out uint8[count]: what the group of the agent decides now, or AgentNoVote
//   - number: the sequence number, not 0, and in no stamp
//   - host: as of the step, and head

// AgentSumsArgs are the arguments of agent_sums: to each of n sums it adds the embeddings of a run
// of agents, in the order of the run, one by one in float32. An embedding is the first width
// elements that a variable has of an agent, all of a leaky's potential and the first half of a
// gru's row. Left out are agents of a page whose entry has AgentHostBit, agents that have never
// stepped, and embeddings with a NaN or an infinity.
//
//   - variable: of the layout
//   - width: 1 of leaky, 8, 16 or 32 of gru
//   - bf16: 1: elements are bf16; 0: float32
//   - order: uint32: agents, where ordered
//   - ordered: 1: the agents of a run stand in order; 0: they have consecutive ids
//   - runs: uint32[n][2]: first place in order, or first agent, and how many; there are all
//     of these
//   - sums: in and out float32[n][width]
//   - counts: out uint32[n]: agents that were added

// ToldArgs are the arguments of the kernels that step all agents of some pages of a gru that hear
// their group, once. Before the step, a kernel updates the node of each group by the units of its
// agents that have stepped and are finite, as integers of 2^-14. The agents then hear, in place of
// some of the inputs that they hold, (c+1)/C for a decision of their group for candidate c, 0 for
// none, and the node. A group whose agents have never stepped keeps its node, and so does one that
// has learned since the last tick.
//
// A node may also belong to a run of groups, which have a copy of it each. The sums of all groups
// of a node are in totals before the step, and the step makes the sums for the next step. A launch
// of no steps adds up the units of its pages, and changes no other memory.
//
// By vote and by key, each agent chooses a node. Groups have copies of nodes as above, and values
// has what agents hear in this step, which AgentNodesArgs has made of the same sums. An agent
// without a vote hears 0 by vote.
//
// AgentMergeAttention is a mean with weights, of nodes that have totals. With the units u of an
// agent and n of its node as integers, the weight is exp(-d rate), for d the sum of |n| 2^14 - n u
// over the units, which is the distance of the dot product from the largest that there may be. n is
// what the agent has heard in the step, so totals have weights of the node that the last step has
// heard. The exponential is the function of fmath.cuh, rounded to an integer of 2^-16, at least 1.
//
// Nothing overflows: of 8 units, d is at most 8 * 2^12 * 2^15 = 2^30. A product of weight and unit
// is at most 2^30, and the sum of 2^32 agents 2^62. A block adds the low 16 bits of products and
// the rest apart, for less than 2^15 agents before it adds both to totals: each fits 31 bits, and
// so does the sum of weights.
//
//   - decision: its input, from 1 on; 0: it is not heard
//   - node: its first input, from 1 on; 0: there are no nodes
//   - width: units of a node, 1 to AgentMostNode
//   - merge: AgentMergeMean and so on
//   - rate: the bits of a float32: of AgentMergeEMA and AgentMergeAttention
//   - sums: in and out int32[groups][AgentMostNode+1], if AgentKeeps: the sums of units, or
//     the largest of each, for the next tick, and behind them the number of agents, -1
//     where a unit is not finite; else any memory
//   - fresh: 1: sums is of the present state of the pages
//   - nodes: of several groups each; 0: each group has one
//   - totals: in and out uint64[3][nodes][width+1]: in entry turn the sums of units, or the largest
//     of each plus 2^14, and behind them the number of agents or the sum of their weights; a step
//     adds the sums after it to the next entry, and clears the third; if nodes is 0, any memory
//   - node_of: uint32[groups]: the node that each group has a copy of, in order
//   - by: AgentByGroup and so on; by others there are nodes
//   - values: float32[nodes][width], by vote and key; else any memory

// AgentNodesArgs are the arguments of agent_nodes, which updates the values of nodes by vote and by
// key before a step, as ToldArgs updates their copies.
//
//   - totals: as of ToldArgs
//   - values: in and out float32[nodes][width]
//   - flags: in and out uint32[nodes]: AgentNodeMerged and so on

// AgentLearnArgs are the arguments of agent_learn, which merges values into the copies of nodes
// that groups have. A node that was never updated, or that is replaced, takes the values; a mean
// becomes the mean of node and values.
//
//   - runs: uint32[n][4]: page, first slot, slots, number of the row of values
//   - values: float32[][width]
//   - rate: the bits of a float32, for AgentMergeEMA
//   - replace: 1: values replace nodes
//   - host: as of StepArgs

// AgentLines is the maximum of nodes by key that a block of a tick adds up in the memory of the
// block. For more it takes AgentPool bytes of a launch; without those its agents add themselves to
// totals one by one.
const AgentLines = 128

// AgentPool returns the bytes of shared memory that a tick takes for nodes by key.
func AgentPool(nodes, width, merge int) int {
	rows := width + 1
	if merge == AgentMergeAttention {
		rows += width
	}
	if nodes <= AgentLines {
		return 0
	}
	return 4 * rows * ((nodes+27)/32*32 + 4)
}

// AgentToldBlocks returns how many blocks of a told kernel of a class a multiprocessor of a chip
// has shared memory for, each with an AgentPool of a size in bytes; 0 for chips before compute
// capability 8.
func AgentToldBlocks(class, pool, major, minor int) int {
	has := 228 << 10
	switch {
	case major < 8:
		return 0
	case major == 8 && (minor == 0 || minor == 7):
		has = 164 << 10
	case major == 8 || major == 12:
		has = 100 << 10
	}
	// What the kernels declare. The driver takes 1 KiB more for each block.
	own := map[int]int{8: 24 << 10, 16: 31 << 10, AgentMostHidden: 48 << 10}[class]
	return has / (own + pool + 1<<10)
}

// AgentKeeps reports whether ticks of agents that hear a node of groups of a size keep its sums. A
// block steps such a group alone.
func AgentKeeps(agents int) bool { return agents >= AgentSpan && agents%4 == 0 }

// PagedArgs are the arguments of kernels about the pages of a swarm. Behind them, ticks and steps
// have a table, uint32[AgentGRUTable], which leaky does not read, and all have the groups of the
// swarm, which are in ceil(groups/slots) pages.
//
//   - pages: frames of page_bytes each
//   - frames: uint32 by page of the swarm: its frame, of pages that the launch has to do
//     with
//   - layout: uint32: Layout.Table
//   - params: uint32[AgentWords]

func init() {
	for _, class := range []int{8, 16, AgentMostHidden} {
		for _, elem := range []Elem{F32, BF16} {
			for _, of := range []struct {
				what, file, define, more string // more are the parameters in place of TOLD_PARAMS
			}{
				{"tick", "gru_tick.cu", "", ""},
				{"told", "gru_tick.cu", "#define TOLD 1\n", toldParams},
				{"step", "gru_step.cu", "", ""},
			} {
				name, state := AgentGRUName(of.what, class, elem), "F32"
				if elem == BF16 {
					state = "BF16"
				}
				s := Source{Name: name, File: of.file, MaxBlock: 128, WholeWarps: true}
				s.Text = func() string {
					code := strings.Replace(code(of.file), "\nKERNEL_NAME(", "\n"+name+"(", 1)
					code = strings.Replace(code, " TOLD_PARAMS)", of.more+")", 1)
					return fmt.Sprintf("#define HIDDEN %d\n#define ELEM %s\n#define GRU_BLOCKS %d\n%s%s", class, state,
						AgentGRUBlocks, of.define, code)
				}
				register(s)
			}
		}
	}
	register(Source{Name: "reciprocal_f32", File: "reciprocal_f32.cu"})
	for _, name := range []string{
		"leaky_tick", "leaky_step", "step_decide", "agent_sums", "agent_learn", "agent_nodes",
	} {
		register(Source{Name: name, File: name + ".cu", MaxBlock: 256, WholeWarps: true})
	}
}

// ReciprocalF32Args are the arguments of reciprocal_f32.
//
//   - x: float32[n] from 2^-100 to 2^125
//   - out: out float32[n]

// toldParams are the parameters that ToldArgs adds to TickArgs, as in TOLD_PARAMS of gru_tick.cu.
const toldParams = ",\n            unsigned decision, unsigned node, unsigned width, unsigned merge, unsigned rate, " +
	"int *sums,\n            unsigned fresh, unsigned nodes, unsigned long long *totals, unsigned turn, " +
	"const unsigned *node_of, unsigned by, const float *values"

// AgentSpans is the number of spans of agents in a tick of some pages, which is the maximum of
// blocks with work.
func AgentSpans(l Layout, pages, span int) int {
	grain := 1
	if l.Agents%4 != 0 {
		grain = 4
	}
	size := min(((span-1)/l.Agents+grain)&^(grain-1), AgentSpanGroups)
	return pages * ((l.Slots + size - 1) / size)
}
