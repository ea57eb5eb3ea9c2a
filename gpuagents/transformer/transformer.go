// Package transformer computes language models on a device: it reads tokens of agents into their
// pages of keys and values, and draws the next tokens.
//
// A Machine has no state of agents. A page of an agent has a run of positions of all layers:
// float32[layer][keys, values][position][heads of keys and values * head width]. The caller keeps
// the pages, and names their frames in each Run.
//
// The result of a Run depends on its tokens and pages, and neither on other runs of the Step nor on
// how its tokens are cut into steps: RFC 0076 has the order of each sum. The results have the same
// bits on every device.
package transformer

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
)

// ErrModel is a model that this package cannot compute, or a tensor that is not the model's.
var ErrModel = errors.New("model that cannot be computed")

// ErrRun is a Run that the machine refuses: a token beyond the vocabulary, a position beyond the
// context or the pages, or a sampling that is none.
var ErrRun = errors.New("run that cannot be computed")

// Weights has the tensors of a model by their canonical names (package architecture). Matrices are
// F32, BF16 or Q8_0, and vectors F32. If it has the method Pass of weights.Model, each walk over
// the layers is such a pass.
type Weights interface {
	// Tensor returns a tensor of the model, which stays in its place until the machine is closed.
	Tensor(name string) (weights.Tensor, error)
}

// Options configure New.
type Options struct {
	Parameters architecture.Parameters
	// Context is the maximum of positions of an agent; 0: the model's.
	Context int
	// Chunk is the maximum of tokens that go through the layers together; 0: 256. It bounds the
	// memory of the machine, and changes no result.
	Chunk int
	// PagePositions is the number of positions of a page.
	PagePositions int
	// PageSize is the number of bytes of a frame, at least PageBytes; 0: PageBytes.
	PageSize int64
}

// Run is what a Step does for one agent.
type Run struct {
	// Frames has the frame of each page of the agent, from the first one on, at least up to the
	// last position of Tokens. A frame with positions of Tokens is in no other run of the Step.
	Frames []uint32
	// From is the position of the first of Tokens. The positions before it are in the pages.
	From int
	// Tokens are read, at least one.
	Tokens []int32
	// Draw asks for the token that follows.
	Draw     bool
	Sampling Sampling
	// Recent are the last tokens before the drawn one, Tokens among them, whose repetition is made
	// less likely: at most MaxRecent.
	Recent []int32
	// Seed and Agent, and the position of the drawn token, are what a draw depends on besides the
	// logits.
	Seed, Agent uint64
}

// MaxRecent is the maximum of Run.Recent.
const MaxRecent = 64

// Sampling is how a token is drawn. The logits of Recent are made less likely first, then all are
// divided by Temperature. TopK, TopP and MinP follow in this order, each on the remaining tokens. The zero
// value takes the token with the largest logit, the least one of several.
type Sampling struct {
	Temperature float32 `json:"temperature,omitempty"` // 0: the largest logit; at most 100
	TopP        float32 `json:"top_p,omitempty"`       // likeliest tokens whose sum reaches it; 0 or 1: all
	MinP        float32 `json:"min_p,omitempty"`       // least share of the likeliest's likelihood
	// Repetition divides positive logits of Recent and multiplies negative ones; 0: 1.
	Repetition float32 `json:"repetition,omitempty"`
	TopK       int     `json:"top_k,omitempty"` // the likeliest tokens; 0: all
}

// Check refuses a sampling with a value outside of its range. The error is an ErrRun.
func (s Sampling) Check() error {
	switch {
	case !(s.Temperature >= 0 && s.Temperature <= 100):
		return fmt.Errorf("%w: temperature %v: use 0 to 100", ErrRun, s.Temperature)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("%w: top_p %v: use 0 to 1", ErrRun, s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf("%w: min_p %v: use 0 to 1", ErrRun, s.MinP)
	case !(s.Repetition == 0 || s.Repetition >= 0.01 && s.Repetition <= 100):
		return fmt.Errorf("%w: repetition %v: use 0.01 to 100, or 0 for none", ErrRun, s.Repetition)
	case s.TopK < 0:
		return fmt.Errorf("%w: top_k %d: use 0 or more", ErrRun, s.TopK)
	}
	return nil
}

// Token is a token that was drawn, and the logarithm of its likelihood before any sampling.
type Token struct {
	Token   int32
	LogProb float32
}

// PositionBytes is the number of bytes of a position of an agent.
func PositionBytes(p architecture.Parameters) int64 {
	return int64(p.Layers) * 2 * 4 * int64(p.KVHeads) * int64(p.HeadWidth)
}

// PageBytes is the number of bytes of a page of positions.
func PageBytes(p architecture.Parameters, positions int) int64 {
	return int64(positions) * PositionBytes(p)
}
