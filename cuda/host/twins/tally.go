package twins

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// One twin serves the kernels for all numbers of candidates: a kernel for fewer is only faster.
func init() {
	for _, candidates := range []int{5, 8, kernels.PlaneCandidates, kernels.MaxCandidates} {
		Register(kernels.TallyName(candidates, false), func(b *Block, a *kernels.TallyBound) {
			tallyBallots(b, a, false)
		})
		Register(kernels.TallyGroupsName(candidates, false), func(b *Block, a *kernels.TallyGroupsBound) {
			tallyGroups(b, a, false)
		})
	}
	for _, candidates := range []int{5, 8, kernels.PlaneCandidates} {
		Register(kernels.TallyName(candidates, true), func(b *Block, a *kernels.TallyBound) {
			tallyBallots(b, a, true)
		})
		Register(kernels.TallyGroupsName(candidates, true), func(b *Block, a *kernels.TallyGroupsBound) {
			tallyGroups(b, a, true)
		})
		Register(kernels.TallyResidentName(candidates), tallyResident)
	}
}

// ask is the question of a launch: how to decide, and which round to close.
type ask struct {
	rule consensus.Rule
	// seen is the round word that the caller has seen, round its new value if it is unchanged.
	seen, round uint64
	sequence    uint32 // of the launch, in every word of its reply
}

func ruleOf(a *kernels.RuleBound) consensus.Rule {
	return consensus.Rule{
		Kind: consensus.Kind(a.Rule), Of: consensus.Base(a.OfAll),
		Quorum: consensus.Fraction{Num: a.Num, Den: a.Den},
	}
}

func askOf(rule *kernels.RuleBound, a *kernels.ClosedBound) ask {
	return ask{ruleOf(rule), a.Seen, a.Round, a.Sequence}
}

// tallyBallots is the twin of tally_planes.cu: each block counts its share of the
// ballots, and the last one decides.
func tallyBallots(b *Block, a *kernels.TallyBound, packed bool) {
	ballots, first, n, flags, scratch := a.Ballots, a.First, a.N, a.Flags, a.Scratch
	part, err := consensus.NewTally(int(a.Candidates))
	if err != nil {
		panic(err)
	}
	lo, hi := b.Part(n) // the ballots of this block
	if packed {         // whole bytes of two ballots each
		lo, hi = b.Part((n + 1) / 2)
		data := ballots[first+lo : first+hi]
		lo, hi = min(2*lo, n), min(2*hi, n)
		err = part.CastPacked(data, int(hi-lo))
	} else {
		err = part.Cast(ballots[first+lo : first+hi])
	}
	if err != nil {
		panic(err)
	}
	// The scratch memory has the sums of all blocks, and the leader as a key.
	for c, votes := range part.Counts {
		if votes > 0 {
			atomic.AddUint64(&scratch[kernels.TallySlots+c], votes)
		}
	}
	atomic.AddUint64(&scratch[kernels.TallyAbstain], part.Abstentions)
	if flags&kernels.TallyPriorities != 0 {
		part.Nominate(lo, a.Priorities[lo:hi])
		raise(&scratch[kernels.TallyLeader], leaderKey(part.Leader))
	}
	if LastBlock(b, scratch) {
		sum := consensus.Tally{
			Counts: part.Counts, Total: n, Abstentions: scratch[kernels.TallyAbstain],
			Leader: leaderOf(scratch[kernels.TallyLeader]),
		}
		copy(sum.Counts, scratch[kernels.TallySlots:])
		clear(scratch) // for the next launch
		askOf(&a.RuleBound, &a.ClosedBound).finish(sum, n, flags, false, a.Word, a.Result)
	}
}

// tallyResident is the twin of tally_resident_u8.cu. It serves requests until it finds no next one,
// and does not wait for any: launches on the host are cheap, so staying saves nothing. Block 0 does
// all the work.
func tallyResident(b *Block, of *kernels.TallyResidentBound) {
	if b.Index > 0 {
		return
	}
	a := ask{rule: ruleOf(&of.RuleBound), sequence: of.Sequence}
	// A request is complete when all of its words have the next sequence number in their low half.
	for {
		a.sequence++
		var request [kernels.DoorbellWords]uint32
		for i := range request {
			w := atomic.LoadUint64(&of.Doorbell[i])
			if uint32(w) != a.sequence {
				return
			}
			request[i] = uint32(w >> 32)
		}
		if request[kernels.DoorbellSteps] == 0 { // the request to end
			return
		}
		a.seen = uint64(request[kernels.DoorbellSeenHigh])<<32 | uint64(request[kernels.DoorbellSeen])
		a.round = a.seen + uint64(request[kernels.DoorbellSteps])
		sum, err := consensus.NewTally(int(of.Candidates))
		if err == nil {
			err = sum.Cast(of.Ballots[of.First:][:of.N])
		}
		if err != nil {
			panic(err)
		}
		if of.Flags&kernels.TallyPriorities != 0 {
			sum.Nominate(0, of.Priorities[:of.N])
		}
		a.finish(sum, of.N, of.Flags, false, of.Word, of.Result)
	}
}

// leaderKey returns a word. The agent with the greatest word leads: the higher priority, then the
// smaller agent. 0 means no leader.
func leaderKey(l consensus.Leader) uint64 {
	if !l.Elected {
		return 0
	}
	return uint64(l.Priority)<<32 | uint64(^uint32(l.Agent))
}

// leaderOf is the inverse of leaderKey.
func leaderOf(key uint64) consensus.Leader {
	if key == 0 {
		return consensus.Leader{}
	}
	return consensus.Leader{Agent: uint64(^uint32(key)), Priority: uint32(key >> 32), Elected: true}
}

// raise sets a word to the larger of it and v.
func raise(word *uint64, v uint64) {
	for {
		old := atomic.LoadUint64(word)
		if v <= old || atomic.CompareAndSwapUint64(word, old, v) {
			return
		}
	}
}

// elect closes the round if the round word is still the one that the caller has seen. It returns
// the round word afterwards.
func (a ask) elect(word *uint64) (won bool, now uint64) {
	won = a.round > a.seen && atomic.CompareAndSwapUint64(word, a.seen, a.round)
	return won, atomic.LoadUint64(word)
}

// finish decides a tally, closes the round, and stores a reply, or a result of 64 bits a value
// where wide is set. The number of invalid ballots is the rest of the total. Without priorities all
// agents are equal, and the first one leads.
func (a ask) finish(t consensus.Tally, agents uint64, flags uint32, wide bool, word, result []uint64) {
	t.Invalid = t.Total - t.Abstentions
	for _, votes := range t.Counts {
		t.Invalid -= votes
	}
	if flags&kernels.TallyPriorities == 0 { // the blocks have nominated none
		t.Leader = consensus.Leader{Elected: agents > 0}
	}
	d, err := consensus.Decide(a.rule, t)
	if err != nil {
		panic(err)
	}
	won, now := a.elect(&word[0])
	winner, said := kernels.NoDecision, uint32(0)
	if d.Winner != consensus.None {
		winner = uint32(d.Winner)
	}
	if d.QuorumMet {
		said |= kernels.ResultMet
	}
	if won {
		said |= kernels.ResultElected
	}
	if d.Leader.Elected {
		said |= kernels.ResultHasLeader
	}
	if wide { // the word with the sequence number last, since a reader polls it
		copy(result[kernels.ResultCounts:], d.Counts)
		result[kernels.ResultWinner] = d.Leader.Agent<<32 | uint64(winner)
		result[kernels.ResultPriority] = uint64(d.Leader.Priority)
		result[kernels.ResultRound] = now
		result[kernels.ResultTotal] = d.Total
		result[kernels.ResultAbstain] = d.Abstentions
		result[kernels.ResultInvalid] = d.Invalid
		result[kernels.ResultBad] = d.BadWeights
		result[kernels.ResultDone] = uint64(said)<<32 | uint64(a.sequence)
		return
	}
	// A reply has 32 bits of each value, and the counts after its head.
	values := []uint32{
		kernels.ReplyFlags: said, kernels.ReplyWinner: winner, kernels.ReplyLeader: uint32(d.Leader.Agent),
		kernels.ReplyPriority: d.Leader.Priority,
		kernels.ReplyRound:    uint32(now), kernels.ReplyRoundHigh: uint32(now >> 32),
		kernels.ReplyAbstain: uint32(d.Abstentions),
		kernels.ReplyInvalid: uint32(d.Invalid),
	}
	a.reply(result, values)
	for c, votes := range d.Counts {
		a.reply(result[kernels.ReplyCounts+c:], []uint32{uint32(votes)})
	}
}

// reply stores values, each with the sequence number of the launch, so that a reader can tell them
// from values of an earlier launch.
func (a ask) reply(result []uint64, values []uint32) {
	for i, v := range values {
		result[i] = uint64(v)<<32 | uint64(a.sequence)
	}
}
