package twins

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// tallyGroups is the twin of tally_groups_u8.cu and tally_groups_u4.cu: each block decides its
// share of the groups, and the last one closes the round and replies with the number of decided
// groups.
func tallyGroups(b *Block, of *kernels.TallyGroupsBound, packed bool) {
	candidates, size, flags, a := of.Candidates, of.Size, of.Flags, askOf(&of.RuleBound, &of.ClosedBound)
	ballots, scratch, winners, leaders := of.Ballots[of.First:], of.Scratch, of.Winners, of.Leaders
	t, err := consensus.NewTally(int(candidates))
	if err != nil {
		panic(err)
	}
	decided := uint64(0)
	first, end := b.Part(uint64(of.Groups))
	for g := first; g < end; g++ {
		lo, hi := g*uint64(size), (g+1)*uint64(size)
		if size == 0 { // groups of different sizes
			lo, hi = uint64(of.Starts[g]), uint64(of.Starts[g+1])
		}
		// A last group may be smaller.
		hi = min(hi, of.N)
		lo = min(lo, hi)
		clear(t.Counts)
		t = consensus.Tally{Counts: t.Counts}
		if packed {
			err = t.CastPackedFrom(ballots, int(lo), int(hi-lo))
		} else {
			err = t.Cast(ballots[lo:hi])
		}
		if err != nil {
			panic(err)
		}
		// Without priorities the first agent leads, and leaders are not stored.
		t.Leader.Elected = hi > lo
		if flags&kernels.TallyPriorities != 0 {
			t.Leader.Elected = false
			t.Nominate(0, of.Priorities[lo:hi])
		}
		winner, err := a.rule.Winner(&t)
		if err != nil {
			panic(err)
		}
		winners[g] = kernels.NoDecision
		if winner != consensus.None {
			winners[g] = uint32(winner)
			decided++
		}
		if flags&kernels.TallyPriorities != 0 {
			leaders[g] = ^uint32(0)
			if t.Leader.Elected {
				leaders[g] = uint32(t.Leader.Agent)
			}
		}
		if flags&kernels.TallyRows != 0 {
			row := of.Rows[g*uint64(candidates+2):][:candidates+2]
			for c, votes := range t.Counts {
				row[c] = uint32(votes)
			}
			row[candidates], row[candidates+1] = uint32(t.Abstentions), uint32(t.Invalid)
		}
	}
	// The slot of abstentions is free here: rows have the abstentions of each group.
	atomic.AddUint64(&scratch[kernels.TallyAbstain], decided)
	if !LastBlock(b, scratch) {
		return
	}
	won, now := a.elect(&of.Word[0])
	elected := uint32(0)
	if won {
		elected = kernels.ResultElected
	}
	a.reply(of.Result, []uint32{
		kernels.ReplyFlags: elected, kernels.ReplyWinner: kernels.NoDecision, kernels.ReplyRound: uint32(now),
		kernels.ReplyRoundHigh: uint32(now >> 32),
		kernels.ReplyAbstain:   uint32(scratch[kernels.TallyAbstain]), kernels.ReplyInvalid: 0,
	})
	scratch[kernels.TallyAbstain] = 0
}
