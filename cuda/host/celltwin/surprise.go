package celltwin

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// surpriseBin returns the bin of a ratio >= 0; see kernels.SurpriseBins.
func surpriseBin(ratio float32) uint32 {
	const lowest = (127 + kernels.SurpriseMinOctave) * kernels.SurpriseFine
	bin := int32(math.Float32bits(ratio)>>(23-5)) - lowest
	return uint32(min(max(bin, 0), kernels.SurpriseBins-1))
}

// octaveBin returns the bin of 2^x, for a ratio whose logarithm is known.
func octaveBin(x float32) uint32 {
	const one = -kernels.SurpriseMinOctave * kernels.SurpriseFine
	return uint32(fmath.Max(0, fmath.Min(kernels.SurpriseBins-1, float32(x*kernels.SurpriseFine)+one)))
}

// surpriseRatio returns the least ratio of a bin.
func surpriseRatio(bin uint32) float32 {
	const lowest = (127 + kernels.SurpriseMinOctave) * kernels.SurpriseFine
	return math.Float32frombits((bin + lowest) << (23 - 5))
}

// groupSurprise returns the highest bin that agents of at least a share (16.16) of the total weight
// reach. There are none above bin top.
func groupSurprise(byBin *[kernels.SurpriseBins]uint32, top, total, share uint32) uint32 {
	if share == 0 { // the highest bin of all, reached or not, as on the device
		return kernels.SurpriseBins - 1
	}
	reached := uint32(0)
	for bin := top; bin > 0; bin-- {
		reached += byBin[bin]
		if uint64(reached)<<16 >= uint64(share)*uint64(total) {
			return bin
		}
	}
	return 0
}

// history is the distribution of the largest surprise of each past block of a group, and what a
// surprise means against it: its evidence, the inverse of the probability that a block reaches it;
// see kernels.RankDoubt.
// Blocks make kinds comparable: a slow kind that stays high for long counts once, as a short one.
//
// Inside the bulk the probability is the rank. The tail, which has too few blocks for ranks, is
// taken as exponential in the log of the surprise (a Pareto tail; Hill 1975, and Siffer et al.,
// KDD'17, for its use on streams), with a mean excess shrunk towards an expectation.
type history struct {
	atLeast []uint32 // [HistoryBins]: how many past blocks reached this bin

	shape   tailShape
	total   float32
	edge    uint32 // first fine bin of the tail
	excess  float32
	logTail float32

	// The agents of a round share a few bins: their evidence is worked out once. 0 is not known yet.
	evidence [kernels.SurpriseBins]float32
}

type tailShape struct {
	share, expected, trust, rankMix float32
}

// load copies the counts of kind k from the page. They never grow from a bin to the next one, so
// the first zero is the last count that is read: each of them is a line of the cache.
func (h *history) load(o *observation, k int) {
	for b := range h.atLeast {
		n := o.u32[o.group(kernels.PredictorVarHistory, k*kernels.HistoryBins+b)]
		if h.atLeast[b] = n; n == 0 {
			clear(h.atLeast[b:])
			return
		}
	}
}

// fit computes the tail from the counts and empties the cache of evidence. The history does not
// change between fit and the evidence drawn from it.
func (h *history) fit() {
	clear(h.evidence[:])
	h.total = float32(h.atLeast[0])
	target := float32(h.shape.share * h.total)
	lo, hi := 0, kernels.HistoryBins // the last bin that more than the target reach is in [lo, hi)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; float32(h.atLeast[mid]) > target {
			lo = mid
		} else {
			hi = mid
		}
	}
	tail, sum := uint32(0), uint32(0) // blocks beyond the bin, and their distances in half bins
	if lo+1 < kernels.HistoryBins {
		tail = h.atLeast[lo+1]
		sum = tail
	}
	for b := lo + 2; b < kernels.HistoryBins && h.atLeast[b] > 0; b++ {
		sum += 2 * h.atLeast[b]
	}
	const halfBin = math.Ln2 / (2 * kernels.HistoryFine)
	h.edge = uint32(lo+1) * (kernels.SurpriseFine / kernels.HistoryFine)
	h.excess = (float32(h.shape.expected*h.shape.trust) + float32(float32(sum)*halfBin)) / (h.shape.trust +
		float32(tail))
	h.logTail = fmath.Log((h.total + 1) / (float32(tail) + 1))
}

// against returns the evidence of a fine bin, at least 1, from the cache that fit empties.
func (h *history) against(bin uint32) float32 {
	if h.evidence[bin] == 0 {
		tail := evidenceOf(h.surprisal(bin))
		reached := float32(h.atLeast[bin/(kernels.SurpriseFine/kernels.HistoryFine)])
		weight := reached / (reached + kernels.RankDoubt)
		seen := float32(weight * ((reached + 0.5) / (h.total + 1)))
		h.evidence[bin] = tail / ((1 - weight) + float32(tail*seen))
	}
	return h.evidence[bin]
}

// mostEvidence returns the most evidence of all kinds together that a group of some blocks knows.
func mostEvidence(blocks float32) float32 {
	blocks++
	return blocks * blocks
}

// young bounds the evidence of all kinds together by most.
func young(evidence, most float32) float32 { return evidence / (1 + evidence/most) }

// grown returns the evidence that young makes this one: infinite if a group does not know it yet.
func grown(evidence, most float32) float32 {
	if evidence < most {
		return evidence / (1 - evidence/most)
	}
	return float32(math.Inf(1))
}

// againstAll adds to each sum what against returns for its bin.
func (h *history) againstAll(bins []uint32, sums []float32) {
	bins = bins[:len(sums)]
	for a := range sums {
		bin := bins[a]
		evidence := h.evidence[bin%kernels.SurpriseBins]
		if evidence == 0 {
			evidence = h.against(bin)
		}
		sums[a] += evidence
	}
}

// evidenceOf returns the inverse of the probability of a surprise in nats, which is limited to
// [0, MostNats].
func evidenceOf(nats float32) float32 {
	return fmath.Exp(fmath.Max(0, fmath.Min(kernels.MostNats, nats)))
}

// surprisal computes the surprise of a bin in nats, if nothing is known but the shape of the tail.
func (h *history) surprisal(bin uint32) float32 {
	const fine = math.Ln2 / kernels.SurpriseFine
	rank := fmath.Log((h.total + 1) / (float32(h.atLeast[bin/(kernels.SurpriseFine/kernels.HistoryFine)]) + 0.5))
	if bin < h.edge {
		return rank
	}
	tail := h.logTail + float32(float32(bin-h.edge)*fine)/h.excess
	return tail + float32(h.shape.rankMix*(rank-tail))
}

// add counts the largest surprise of a block, and halves all counts when they have grown to memory
// blocks: old ones fade.
func (h *history) add(bin, memory uint32) {
	for b := uint32(0); b <= bin/(kernels.SurpriseFine/kernels.HistoryFine); b++ {
		h.atLeast[b]++
	}
	if h.atLeast[0] >= memory {
		for b := range h.atLeast {
			h.atLeast[b] /= 2
		}
	}
}
