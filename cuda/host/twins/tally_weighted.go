package twins

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// A twin serves the kernel of every number of candidates, as those without weights do.
func init() {
	for name, kind := range kernels.WeightedKernels() {
		packed := strings.HasPrefix(name, "tally_weighted_u4")
		Register(name, func(b *Block, a *kernels.TallyWeightedBound) { tallyWeighted(b, a, packed, kind) })
	}
}

// tallyWeighted is the twin of tally_weighted.cu and tally_weighted_rows.cu: each block adds the
// weights of its share of the ballots, and the last one decides.
func tallyWeighted(b *Block, a *kernels.TallyWeightedBound, packed bool, kind int) {
	ballots, n, flags, scratch := a.Ballots[a.First:], a.N, a.Flags, a.Scratch
	part, err := consensus.NewTally(int(a.Candidates))
	if err != nil {
		panic(err)
	}
	lo, hi := b.Part((n + 1) / 2) // pairs, so that packed ballots begin with a byte
	lo, hi = min(2*lo, n), min(2*hi, n)
	if packed { // unpacked in chunks, since weights are cast with one ballot a byte
		var chunk [4096]byte
		for at := lo; at < hi; at += uint64(len(chunk)) {
			end := min(at+uint64(len(chunk)), hi)
			if err := consensus.Unpack(chunk[:end-at], ballots[at/2:(end+1)/2], len(part.Counts)); err != nil {
				panic(err)
			}
			weigh(a.Weights, &part, chunk[:end-at], at, kind)
		}
	} else {
		weigh(a.Weights, &part, ballots[lo:hi], lo, kind)
	}
	for c, votes := range part.Counts {
		if votes > 0 {
			atomic.AddUint64(&scratch[kernels.TallySlots+c], votes)
		}
	}
	atomic.AddUint64(&scratch[kernels.TallyAbstain], part.Abstentions)
	atomic.AddUint64(&scratch[kernels.TallyWeight], part.Total)
	atomic.AddUint64(&scratch[kernels.TallyBad], part.BadWeights)
	if flags&kernels.TallyPriorities != 0 {
		part.Nominate(lo, a.Priorities[lo:hi])
		raise(&scratch[kernels.TallyLeader], leaderKey(part.Leader))
	}
	if !LastBlock(b, scratch) {
		return
	}
	t := consensus.Tally{
		Counts: part.Counts, Abstentions: scratch[kernels.TallyAbstain], Total: scratch[kernels.TallyWeight],
		BadWeights: scratch[kernels.TallyBad], Leader: leaderOf(scratch[kernels.TallyLeader]),
	}
	copy(t.Counts, scratch[kernels.TallySlots:])
	clear(scratch)
	askOf(&a.RuleBound, &a.ClosedBound).finish(t, n, flags, true, a.Word, a.Result)
}

// weigh casts ballots with their weights of a kind. at is the number of the first ballot.
func weigh(weights []byte, t *consensus.Tally, ballots []byte, at uint64, kind int) {
	var err error
	end := at + uint64(len(ballots))
	switch kind {
	case kernels.WeightU8:
		err = t.CastWeighted8(ballots, weights[at:end])
	case kernels.WeightU32:
		err = t.CastWeighted(ballots, device.Of[uint32](weights)[at:end])
	case kernels.WeightF32:
		err = t.CastFractions(ballots, device.Of[float32](weights)[at:end])
	default:
		err = fmt.Errorf("weights of kind %d: %w", kind, consensus.ErrWeight)
	}
	if err != nil {
		panic(err)
	}
}
