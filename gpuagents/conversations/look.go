package conversations

import (
	"context"
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// The most values of an embedding, and how many a longer state is projected to.
const (
	MaxEmbedding = 512
	projected    = 256
)

// EmbeddingWidth returns the number of values of an embedding.
func (c *Conversations) EmbeddingWidth() int {
	if w := c.machine.Parameters().Width; w <= MaxEmbedding {
		return w
	}
	return projected
}

// Look calls fn for each of some agents that have read tokens, in their order. embedding is the last
// normalised state of the model, all of it or the signs of a fixed random projection applied to it,
// and logits are of some tokens behind the last one that the agent has read. Both are valid during
// the call. Look changes no agent: the last token of each is read once more.
func (c *Conversations) Look(
	ctx context.Context, agents []int, tokens []int32, fn func(agent int, embedding, logits []float32),
) error {
	if err := c.ready(); err != nil {
		return err
	}
	var all []*reading
	for _, agent := range agents {
		if r := c.record(agent); r.read > 0 {
			all = append(all, &reading{agent: agent, from: r.read - 1, tokens: r.tokens[r.read-1 : r.read]})
		}
	}
	width := c.machine.Parameters().Width
	state, logits, embedding := make([]float32, width), make([]float32, len(tokens)), make([]float32, projected)
	return c.step(ctx, all, func(agent, run int) error {
		c.machine.Last(run, state)
		if err := c.machine.Logits(context.WithoutCancel(ctx), run, tokens, logits); err != nil {
			return err
		}
		if width <= MaxEmbedding {
			fn(agent, state, logits)
			return nil
		}
		project(embedding, state)
		fn(agent, embedding, logits)
		return nil
	})
}

// project makes each value of to the sum of all values of x with random signs, divided by the root
// of their number. The signs are bits of Philox, the same for all models. Sums are in float64 and in
// order.
func project(to, x []float32) {
	scale := 1 / math.Sqrt(float64(len(x)))
	var signs [4]uint32
	for row := range to {
		sum := 0.0
		for i, v := range x {
			if i%128 == 0 {
				signs = kernels.Philox([2]uint32{0x656d62, 0}, [4]uint32{uint32(row), uint32(i / 128), 0, 0})
			}
			if signs[i%128/32]>>(i%32)&1 != 0 {
				sum -= float64(v)
			} else {
				sum += float64(v)
			}
		}
		to[row] = float32(sum * scale)
	}
}

// Ballot returns the candidate with the largest logit, the first of several.
func Ballot(logits []float32) int {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return best
}
