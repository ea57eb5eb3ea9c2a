package host

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func init() {
	for _, candidates := range []int{5, 8, kernels.PlaneCandidates, kernels.MaxCandidates} {
		register(kernels.TallyName(candidates, false), func(b *Block) { tallyBallots(b, false, askOf(b, 6)) })
		register(kernels.TallyGroupsName(candidates, false), func(b *Block) { tallyGroups(b, false) })
	}
	for _, candidates := range []int{5, 8, kernels.PlaneCandidates} {
		register(kernels.TallyName(candidates, true), func(b *Block) { tallyBallots(b, true, askOf(b, 6)) })
		register(kernels.TallyGroupsName(candidates, true), func(b *Block) { tallyGroups(b, true) })
		register(kernels.TallyResidentName(candidates), tallyResident)
	}
}

// ask is what the arguments of a tally kernel ask for.
type ask struct {
	rule        consensus.Rule
	seen, round uint64
	sequence    uint32
}

// askOf reads the arguments from rule to sequence.
func askOf(b *Block, rule int) ask {
	return ask{
		rule: consensus.Rule{
			Kind:   consensus.Kind(b.Uint32(rule)),
			Of:     consensus.Base(b.Uint32(rule + 1)),
			Quorum: consensus.Fraction{Num: b.Uint32(rule + 2), Den: b.Uint32(rule + 3)},
		},
		seen:     b.Uint64(rule + 4),
		round:    b.Uint64(rule + 5),
		sequence: b.Uint32(rule + 6),
	}
}

// tallyBallots is the twin of tally_u8.cu and tally_u4.cu: each block counts its share as consensus
// does, and the last one decides.
func tallyBallots(b *Block, packed bool, a ask) {
	ballots, first, n, flags := Mem[uint8](b, 0), b.Uint64(1), b.Uint64(2), b.Uint32(5)
	scratch := Mem[uint64](b, 13)
	part, err := consensus.NewTally(int(b.Uint32(3)))
	if err != nil {
		panic(err)
	}
	lo, hi := b.Part(n) // the ballots of this block
	if packed {
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
	for c, votes := range part.Counts {
		if votes > 0 {
			atomic.AddUint64(&scratch[kernels.TallySlots+c], votes)
		}
	}
	atomic.AddUint64(&scratch[kernels.TallyAbstain], part.Abstentions)
	if flags&kernels.TallyPriorities != 0 {
		part.Nominate(lo, Mem[uint32](b, 4)[lo:hi])
		raise(&scratch[kernels.TallyLeader], leaderKey(part.Leader))
	}
	if lastBlock(b, scratch) {
		sum := consensus.Tally{
			Counts: part.Counts, Total: n, Abstentions: scratch[kernels.TallyAbstain],
			Leader: leaderOf(scratch[kernels.TallyLeader]),
		}
		copy(sum.Counts, scratch[kernels.TallySlots:])
		clear(scratch)
		a.finish(sum, n, flags, flags&kernels.TallyRecord != 0, Mem[uint64](b, 14), Mem[uint64](b, 15))
	}
}

// tallyResident is the twin of tally_resident_u8.cu. Its life is over at the first look at a
// doorbell that has not rung: the host's launches cost nothing that staying would save. One block
// works.
func tallyResident(b *Block) {
	if b.Index > 0 {
		return
	}
	ballots, n, flags, bell := Mem[uint8](b, 0)[b.Uint64(1):], b.Uint64(2), b.Uint32(5), Mem[uint64](b, 10)
	a := ask{
		rule: consensus.Rule{
			Kind: consensus.Kind(b.Uint32(6)), Of: consensus.Base(b.Uint32(7)),
			Quorum: consensus.Fraction{Num: b.Uint32(8), Den: b.Uint32(9)},
		},
		sequence: b.Uint32(12),
	}
	for {
		a.sequence++
		var request [kernels.DoorbellWords]uint32
		for i := range request {
			w := atomic.LoadUint64(&bell[i])
			if uint32(w) != a.sequence {
				return
			}
			request[i] = uint32(w >> 32)
		}
		if request[kernels.DoorbellSteps] == 0 {
			return
		}
		a.seen = uint64(request[kernels.DoorbellSeenHigh])<<32 | uint64(request[kernels.DoorbellSeen])
		a.round = a.seen + uint64(request[kernels.DoorbellSteps])
		sum, err := consensus.NewTally(int(b.Uint32(3)))
		if err == nil {
			err = sum.Cast(ballots[:n])
		}
		if err != nil {
			panic(err)
		}
		if flags&kernels.TallyPriorities != 0 {
			sum.Nominate(0, Mem[uint32](b, 4)[:n])
		}
		a.finish(sum, n, flags, false, Mem[uint64](b, 13), Mem[uint64](b, 14))
	}
}

// leaderKey is the word whose maximum leads; 0 is nobody.
func leaderKey(l consensus.Leader) uint64 {
	if !l.Elected {
		return 0
	}
	return uint64(l.Priority)<<32 | uint64(^uint32(l.Agent))
}

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

// lastBlock is true for the block that ends last, and makes the ticket ready for the next launch.
func lastBlock(b *Block, scratch []uint64) bool {
	if atomic.AddUint64(&scratch[kernels.TallyTicket], 1) != uint64(b.Grid) {
		return false
	}
	scratch[kernels.TallyTicket] = 0
	return true
}

// elect closes the round and returns the round word afterwards.
func (a ask) elect(word *uint64) (won bool, now uint64) {
	won = a.round > a.seen && atomic.CompareAndSwapUint64(word, a.seen, a.round)
	return won, atomic.LoadUint64(word)
}

// finish decides a tally whose invalid ballots are what its other sums leave, closes the round, and
// stores a record or replies. Without priorities all agents are equal, and the first leads.
func (a ask) finish(t consensus.Tally, agents uint64, flags uint32, record bool, word, result []uint64) {
	t.Invalid = t.Total - t.Abstentions
	for _, votes := range t.Counts {
		t.Invalid -= votes
	}
	if flags&kernels.TallyPriorities == 0 {
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
	if record {
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

// reply stores values with the launch's sequence number.
func (a ask) reply(result []uint64, values []uint32) {
	for i, v := range values {
		result[i] = uint64(v)<<32 | uint64(a.sequence)
	}
}
