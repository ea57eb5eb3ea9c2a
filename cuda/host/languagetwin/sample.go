package languagetwin

import (
	"math"
	"math/bits"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	set "github.com/exoswarm/exoswarm/cuda/kernels/languageset"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

func init() { twins.Register(set.Sample, sample) }

// keyOf orders tokens: the larger value first, then the smaller token.
func keyOf(v float32, token int) uint64 {
	order := math.Float32bits(v)
	if order>>31 == 1 {
		order = ^order
	} else {
		order |= 1 << 31
	}
	return uint64(order)<<32 | uint64(math.MaxUint32-uint32(token))
}

func tokenOf(key uint64) int { return math.MaxUint32 - int(uint32(key)) }

// weightOf returns the likelihood of a value as an integer.
func weightOf(v, largest float32) uint64 {
	return uint64(int64(float32(fmath.PowerOfE(v-largest) * set.WeightScale)))
}

// likeliest returns the token with the largest value.
func likeliest(values []float32) int {
	best := uint64(0)
	for i, v := range values {
		best = max(best, keyOf(v, i))
	}
	return tokenOf(best)
}

// sample is the twin of sample.cu: it sorts the tokens.
func sample(b *twins.Block, a *set.SampleBound) {
	begin, end := b.Part(uint64(a.Count))
	for d := begin; d < end; d++ {
		logits := a.Logits[d*uint64(a.Vocabulary):][:a.Vocabulary]
		draw := a.Draws[d*set.DrawWords:][:set.DrawWords]
		largest, sum := logits[likeliest(logits)], uint64(0)
		for _, v := range logits {
			sum += weightOf(v, largest)
		}
		recent := draw[set.DrawRecent:][:draw[set.DrawCount]]
		before := map[uint32]float32{} // logits
		for _, token := range recent {
			if _, again := before[token]; again {
				continue
			}
			v, repetition := logits[token], math.Float32frombits(draw[set.DrawRepetition])
			before[token] = v
			if v > 0 {
				logits[token] = v / repetition
			} else {
				logits[token] = float32(v * repetition)
			}
		}
		token := choose(logits, draw)
		v, again := before[uint32(token)]
		if !again {
			v = logits[token]
		}
		a.Tokens[2*d] = uint32(token)
		a.Tokens[2*d+1] = math.Float32bits(v - largest - fmath.Log(float32(float32(sum)*(1.0/set.WeightScale))))
	}
}

// choose draws one of the tokens.
func choose(logits []float32, draw []uint32) int {
	float := func(word int) float32 { return math.Float32frombits(draw[word]) }
	best, temperature := likeliest(logits), float(set.DrawTemperature)
	if !(temperature > 0) {
		return best
	}
	keys, top := make([]uint64, len(logits)), logits[best]/temperature
	for i, v := range logits {
		keys[i] = keyOf(v/temperature, i)
	}
	slices.Sort(keys)
	slices.Reverse(keys)
	if k := draw[set.DrawTopK]; k > 0 && int(k) < len(keys) {
		keys = keys[:k]
	}
	weights, total := make([]uint64, len(keys)), uint64(0)
	for i, key := range keys {
		weights[i] = weightOf(logits[tokenOf(key)]/temperature, top)
		total += weights[i]
	}
	if p := float(set.DrawTopP); p > 0 && p < 1 {
		target, sum := max(1, uint64(float64(p)*float64(total))), uint64(0)
		for i, w := range weights {
			if sum += w; sum >= target {
				weights = weights[:i+1]
				break
			}
		}
	}
	least := uint64(float32(float(set.DrawMinP) * set.WeightScale))
	total = 0
	for i, w := range weights {
		if w < least {
			weights[i] = 0
		}
		total += weights[i]
	}
	words := kernels.Philox([2]uint32{draw[set.DrawSeed], draw[set.DrawSeed+1]},
		[4]uint32{0, draw[set.DrawAgent], draw[set.DrawAgent+1], draw[set.DrawPosition]})
	target, _ := bits.Mul64(uint64(words[1])<<32|uint64(words[0]), total)
	for i, w := range weights {
		if target < w {
			return tokenOf(keys[i])
		}
		target -= w
	}
	return best // not reached: target is less than the total
}
