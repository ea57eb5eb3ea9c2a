package twins

import (
	"errors"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func init() { Register("tally_merge", tallyMerge) }

// tallyMerge is the twin of tally_merge.cu. Block 0 merges all records of the round. A record whose
// sums do not add up, or a sum that overflows, makes the result refuse the round.
func tallyMerge(b *Block, of *kernels.TallyMergeBound) {
	if b.Index != 0 {
		return
	}
	stride, candidates := int(of.Stride), int(of.Candidates)
	a, word, result := askOf(&of.RuleBound, &of.ClosedBound), of.Word, of.Result
	merged, err := consensus.NewTally(candidates)
	heard, refused := uint64(0), uint64(0)
	for s := range int(of.Shards) {
		part, ok := readRecord(of.Records[s*stride:][:kernels.RecordFirst(candidates)+1], a.round)
		if !ok {
			continue
		}
		heard++
		switch e := merged.Merge(part); {
		case errors.Is(e, consensus.ErrOverflow):
			refused = kernels.ResultOverflow
		case errors.Is(e, consensus.ErrSum):
			refused = kernels.ResultTorn
		default:
			err = errors.Join(err, e)
		}
	}
	if refused != 0 { // the sums are worth nothing
		merged = consensus.Tally{Counts: make([]uint64, candidates)}
	}
	d, e := consensus.Decide(a.rule, merged)
	if err = errors.Join(err, e); err != nil {
		panic(err)
	}
	// The round closes only if enough shards were heard and nothing was refused.
	flags, winner, now := refused, kernels.NoDecision, word[0]
	if refused == 0 && heard >= uint64(of.Need) {
		var won bool
		if won, now = a.elect(&word[0]); won {
			flags |= kernels.ResultElected
		}
	}
	if d.QuorumMet {
		flags |= kernels.ResultMet
		winner = uint32(d.Winner)
	}
	if d.Leader.Elected {
		flags |= kernels.ResultHasLeader
	}
	copy(result[kernels.ResultCounts:], d.Counts)
	result[kernels.ResultWinner] = uint64(winner)
	result[kernels.ResultPriority] = heard<<32 | uint64(d.Leader.Priority)
	result[kernels.ResultRound] = now
	result[kernels.ResultTotal] = d.Total
	result[kernels.ResultAbstain] = d.Abstentions
	result[kernels.ResultInvalid] = d.Invalid
	result[kernels.ResultBad] = d.BadWeights
	result[kernels.RecordFirst(candidates)] = d.Leader.Agent
	result[kernels.ResultDone] = flags<<32 | uint64(a.sequence)
}

// readRecord returns the tally in a record. ok is false if the record is of another round or its
// round was not closed. The leader is an agent of the whole swarm: the record has the first agent
// of its shard.
func readRecord(r []uint64, round uint64) (t consensus.Tally, ok bool) {
	flags := r[kernels.ResultDone] >> 32
	if r[kernels.ResultRound] != round || flags&kernels.ResultElected == 0 {
		return consensus.Tally{}, false
	}
	last := len(r) - 1
	t = consensus.Tally{
		Counts: r[kernels.ResultCounts:last], Total: r[kernels.ResultTotal], Abstentions: r[kernels.ResultAbstain],
		Invalid: r[kernels.ResultInvalid], BadWeights: r[kernels.ResultBad],
	}
	if flags&kernels.ResultHasLeader != 0 {
		t.Leader = consensus.Leader{
			Agent:    r[last] + r[kernels.ResultWinner]>>32,
			Priority: uint32(r[kernels.ResultPriority]), Elected: true,
		}
	}
	return t, true
}
