package kernels

import (
	"fmt"
	"strings"
)

// Words of 64 bits of a tally's scratch memory. All of it is zero before the first launch and after
// each, so one allocation serves every round of a stream.
const (
	TallyTicket     = iota // how many blocks are done
	TallyLeader            // the largest leader key: priority in the high half, ^agent in the low one
	TallyAbstain           // abstentions; of tally_groups_u8 the groups with a winner
	TallySlots             // [256] votes by candidate
	TallyScratch    = TallySlots + MaxCandidates
	MaxCandidates   = 256 // what a ballot of one byte can name
	PlaneCandidates = 16  // most candidates that bit planes count; more need a histogram
)

// Words of 64 bits of a tally's result. The first is stored last: who sees the launch's sequence
// number there sees the rest too. Its low half is the sequence number, its high half the flags.
const (
	ResultDone       = iota // sequence, and flags << 32
	ResultWinner            // NoDecision or the index, and leader << 32
	ResultPriority          // of the leader
	ResultRound             // the round word after the election
	ResultTotal             // ballots; of tally_groups_u8 groups
	ResultAbstain           // abstentions; of tally_groups_u8 the groups with a winner
	ResultInvalid           // invalid ballots
	ResultUnused            // 0
	ResultCounts            // [candidates]
	ResultMet        = 1    // flag: the strongest candidate got what the rule asks for
	ResultElected    = 2    // flag: this launch closed its round; without it the decision is void
	ResultHasLeader  = 4    // flag: there is a leader
	TallyPriorities  = 1    // flag of a launch: priorities are given; else they are all equal, and unread
	TallyRows        = 2    // flag of a launch over groups: the rows of counts are wanted
	TallyLaneBallots = 256  // largest group that one thread of tally_groups_u8 counts alone
)

// Words of 64 bits of a reply, which is the result of the kernels tally_u8, tally_u4 and
// tally_groups_u8: each has the launch's sequence number in its low half and a value in its high
// one, and they may arrive in any order. The reply is whole when all words have the number.
const (
	ReplyFlags     = iota // ResultMet, ResultElected, ResultHasLeader
	ReplyWinner           // NoDecision or the index
	ReplyLeader           // agent, with ResultHasLeader
	ReplyPriority         // of the leader
	ReplyRound            // the round word after the election, its low half
	ReplyRoundHigh        // and its high one
	ReplyAbstain          // abstentions; of tally_groups_u8 the groups with a winner
	ReplyInvalid          // invalid ballots
	ReplyCounts           // [candidates], not of groups
	TallyThreads   = 512  // the largest block of these kernels: more would have too few registers for 16 candidates
	ResidentBlocks = 16   // the grid of a resident kernel, which is one cluster: the largest that the chips have
)

// Words of 64 bits of a doorbell, in the form of a reply: the number of the ring in the low half, a
// value in the high one. The kernel hears the ring when all words have the number that comes next.
const (
	DoorbellSeen     = iota // the round word as the caller knows it, its low half
	DoorbellSeenHigh        // and its high one
	DoorbellSteps           // the distance to the round to close; 0: the kernel ends
	DoorbellUnused          // 0
	DoorbellWords           // 32 bytes, which the device reads at once
)

// ReplyWords is the length of a reply by the number of candidates.
func ReplyWords(candidates int) int { return ReplyCounts + candidates }

// ResultWords is the length of a result by the number of candidates.
func ResultWords(candidates int) int { return ResultCounts + candidates }

// TallyArgs are the arguments of the kernels that TallyName names. One launch counts the ballots,
// finds the leader, decides, closes the round and stores the reply. Any launch shape of whole warps
// gives the same result.
//
//   - ballots: a byte a ballot, or half of one: the even ballot is the low half
//   - first: the byte that the first ballot is in
//   - n: ballots, < 2^32
//   - candidates: 1..256, packed 1..16
//   - priorities: uint32[n] with TallyPriorities, else not looked at
//   - rule: Rule
//   - of_all: 1: majority, quorum and unanimity are of all ballots, 0: of votes cast
//   - num: the quorum is num/den
//   - seen: the round word as the caller knows it
//   - round: the round to close
//   - sequence: what the result begins with when it is whole
//   - scratch: in and out uint64[TallyScratch], zero
//   - word: in and out uint64[1], the round word
//   - result: out uint64[ReplyWords(candidates)]

// TallyResidentArgs are the arguments of tally_resident_u8_8 and _16, which stay on the device and
// close a round at each ring of the doorbell. Rings have the numbers sequence+1, sequence+2 and so
// on, and so have the replies. A ring after the kernel's life is not heard: the launch then ends,
// and the word of the round is as it was.
//
//   - doorbell: uint64[DoorbellWords] of host memory
//   - life: microseconds, after which the kernel ends by itself
//   - sequence: of the last ring before
//   - result: out uint64[ReplyWords(candidates)] of host memory

// TallyGroupsArgs are the arguments of the kernels that TallyGroupsName names: one decision for
// each of many groups of ballots that stand one behind the other, and one round for all of them.
//
//   - first: the byte of the first ballot
//   - n: ballots, < 2^32
//   - starts: uint32[groups+1], rising: group g has the ballots starts[g]..starts[g+1]-1
//   - size: not 0: every group has this many ballots, and starts is not read
//   - priorities: uint32[n] with TallyPriorities
//   - winners: out uint32[groups]: the index or NoDecision
//   - leaders: out uint32[groups] with TallyPriorities: position in the group, ^0 of an
//     empty one
//   - rows: out uint32[groups][candidates+2] with TallyRows: counts, abstentions, invalid
//   - result: out uint64[ReplyCounts]

// TallyName is the kernel that tallies ballots for a number of candidates. Kernels exist for a few
// numbers of candidates, and the least sufficient one is returned: fewer counters take fewer
// registers and operations.
func TallyName(candidates int, packed bool) string {
	switch {
	case packed && candidates <= 8:
		return "tally_u4" + class(candidates)
	case packed:
		return "tally_u4_16"
	}
	return "tally_u8" + class(candidates)
}

// TallyGroupsName is the kernel for groups.
func TallyGroupsName(candidates int, packed bool) string {
	if packed {
		return "tally_groups_u4" + class(candidates)
	}
	return "tally_groups_u8" + class(candidates)
}

// TallyResidentName is the kernel for 1..PlaneCandidates candidates.
func TallyResidentName(candidates int) string {
	if candidates <= 8 {
		return "tally_resident_u8_8"
	}
	return "tally_resident_u8_16"
}

func class(candidates int) string {
	for _, most := range []int{5, 8, PlaneCandidates} {
		if candidates <= most {
			return fmt.Sprint("_", most)
		}
	}
	return fmt.Sprint("_", MaxCandidates)
}

// variant is a file of the set under another name and with other numbers.
func variant(name, file, defines string) Source {
	return Source{
		Name: name, File: file, MaxBlock: TallyThreads, WholeWarps: true,
		Text: func() string {
			return "#define TALLY " + name + "\n" + defines + strings.Replace(code(file), "\nTALLY(", "\n"+name+"(", 1)
		},
	}
}

func init() {
	for _, most := range []int{5, 8, PlaneCandidates} {
		planes := fmt.Sprintf("#define PLANES %d\n", most)
		register(variant(fmt.Sprint("tally_u8_", most), "tally_planes.cu", planes+"#define NIBBLES 0\n"))
		register(variant(fmt.Sprint("tally_groups_u8_", most), "tally_groups_u8.cu", planes))
		register(variant(fmt.Sprint("tally_groups_u4_", most), "tally_groups_u4.cu", planes))
		if most <= 8 {
			register(variant(fmt.Sprint("tally_u4_", most), "tally_planes.cu", planes+"#define NIBBLES 1\n"))
		}
		if most >= 8 {
			resident := variant(fmt.Sprint("tally_resident_u8_", most), "tally_resident_u8.cu", planes)
			resident.Grid = ResidentBlocks
			register(resident)
		}
	}
	register(variant("tally_u8_256", "tally_rows.cu", "#define NIBBLES 0\n"))
	register(variant("tally_u4_16", "tally_rows.cu", "#define NIBBLES 1\n"))
	register(variant("tally_groups_u8_256", "tally_groups_u8.cu", "#define PLANES 256\n"))
}
