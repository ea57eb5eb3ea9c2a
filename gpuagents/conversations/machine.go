package conversations

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Machine computes a language model. Its results for a run depend on the tokens of the run and of
// the pages before it alone: on no other run, and not on how the tokens are cut into runs.
type Machine interface {
	// Vocabulary returns the number of tokens of the model.
	Vocabulary() int
	// Step reads the tokens of each run, writes their keys and values into the pages, and returns a
	// token for each run that draws, in their order. It waits for the device.
	Step(ctx context.Context, pool device.Buffer, runs []Run) ([]int32, error)
	// Close releases the machine. A second call does nothing.
	Close() error
}

// Run is tokens that one conversation reads in a step.
type Run struct {
	Frames []uint32 // of the pages of the conversation, in order, up to the last token
	From   int      // position of the first token
	Tokens []int32
	Draw   *Draw // nil: no token is drawn behind the last one
}

// Draw is how a token is drawn.
type Draw struct {
	Temperature, TopP, MinP, Repetition float32
	TopK                                int
	Seed                                uint64
	Agent                               uint64  // of the swarm
	Last                                []int32 // the last tokens, which Repetition counts for
}

// repeats is how many of the last tokens of a conversation Sampling.Repetition counts for.
const repeats = 64
