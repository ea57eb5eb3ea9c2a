package swarms

import "math"

// Limits of the entries of a swarm whose agents are conversations.
const (
	// MaxPromptTokens is the largest number of tokens of a Prompt, and of a Text. Their JSON is less
	// than the largest message.
	MaxPromptTokens = 100_000
	// MaxStopTokens is the largest number of tokens that end an answer.
	MaxStopTokens = 16
	// MaxTokenRows is the largest number of rows of a Ticked, and of conversations of a shard that are
	// active at a time.
	MaxTokenRows = 12_288
)

// Prompt appends tokens to what a conversation has yet to read, and has it make an answer. The
// limit, the sampling and the stops of an earlier prompt do not count any more.
type Prompt struct {
	Version int     `json:"v"`
	Agent   uint32  `json:"agent"`
	Tokens  []int32 `json:"tokens"` // at most MaxPromptTokens; none continues what is there
	// Max is how many tokens the answer has at most. 0 reads the tokens and makes none.
	Max      int      `json:"max"`
	Sampling Sampling `json:"sampling,omitzero"`
	// Stop are tokens that end the answer. One that is made is the last token of the answer.
	Stop []int32 `json:"stop,omitempty"`
}

// Sampling is how a token is drawn from the logits of a model. The zero value takes the token with
// the largest logit. Repetition and temperature change logits first. Then top_k,
// top_p and min_p each filter what is left, in this order.
type Sampling struct {
	Temperature float32 `json:"temperature,omitempty"` // 0: the largest logit; at most 100
	TopK        int     `json:"top_k,omitempty"`       // the most likely tokens that are kept; 0: all
	TopP        float32 `json:"top_p,omitempty"`       // the least share of the likelihood that is kept; 0: all
	MinP        float32 `json:"min_p,omitempty"`       // of the largest likelihood, below 1; 0: all
	// Repetition divides the positive logits of the last tokens, and multiplies the negative ones;
	// 0 and 1: neither.
	Repetition float32 `json:"repetition,omitempty"`
	Seed       uint64  `json:"seed,omitempty"` // of the draws; 0: the seed of the swarm
}

// Place names a conversation and a number of tokens of it. It is the answer to a Prompt, a Cancel,
// a Rewind and a Fork: At is how many tokens the conversation has then, and so the position of the
// next token that it makes.
type Place struct {
	Version int    `json:"v"`
	Agent   uint32 `json:"agent"`
	At      int    `json:"at"`
}

// Cancel ends the answer of a conversation. What it has read and made stays.
type Cancel struct {
	Version int    `json:"v"`
	Agent   uint32 `json:"agent"`
}

// Rewind shortens a conversation to its first To tokens, and ends its answer.
type Rewind struct {
	Version int    `json:"v"`
	Agent   uint32 `json:"agent"`
	To      int    `json:"to"`
}

// Fork makes Into a copy of the first To tokens of Agent, with what was read of them. Both are
// agents of one shard. Agent goes on, and what Into was is lost.
type Fork struct {
	Version int    `json:"v"`
	Agent   uint32 `json:"agent"`
	Into    uint32 `json:"into"`
	To      *int   `json:"to,omitempty"` // nil: all tokens
}

// TokenRow is a token that a conversation has made in a tick, or its end.
type TokenRow struct {
	Agent uint32 `json:"agent"`
	At    int    `json:"at"`    // position in the conversation, from 0
	Token int32  `json:"token"` // NoToken: none was made
	// Ended is why the conversation makes no more tokens: EndedStop, EndedMax or EndedContext, or
	// EndedRead if it was to make none; empty: it makes more.
	Ended string `json:"ended,omitempty"`
}

// NoToken is the token of a row that has none.
const NoToken = -1

// Why a conversation makes no more tokens.
const (
	EndedStop    = "stop"    // it has made a token of Prompt.Stop
	EndedMax     = "max"     // it has made as many tokens as it was to make
	EndedContext = "context" // it has as many tokens as its context
	EndedRead    = "read"    // it has read the prompt, and was to make no tokens
)

// TextRange asks for the tokens of a conversation from a position on, and with Embedding for the
// embedding of what it has read.
type TextRange struct {
	Agent     uint32 `json:"agent"`
	From      int    `json:"from"`
	Embedding bool   `json:"embedding,omitempty"`
}

// Text is the answer to a query for the tokens of a conversation: from From on, at most
// MaxPromptTokens.
type Text struct {
	Version int     `json:"v"`
	Agent   uint32  `json:"agent"`
	From    int     `json:"from"`
	Tokens  []int32 `json:"tokens"`
	At      int     `json:"at"`   // tokens of the conversation
	Read    int     `json:"read"` // tokens that the agent has read
	// Active reports whether the next tick has the agent read or make tokens, and Left is how many it
	// makes at most.
	Active bool `json:"active,omitempty"`
	Left   int  `json:"left,omitempty"`
	// Ended is why the last answer has ended, as in TokenRow; empty: there was none, it has not, or it
	// was cancelled.
	Ended string `json:"ended,omitempty"`
	// Embedding is the last normalised state of the model, or its projection; nil: it was not asked
	// for, or nothing is read.
	Embedding []float32 `json:"embedding,omitempty"`
}

// DecodePrompt reads the data of an EntryPrompt, as DecodeTick does.
func DecodePrompt(data []byte) (p Prompt, err error) {
	if err := decodeEntry("prompt", data, &p, &p.Version); err != nil {
		return p, err
	}
	return p, p.Validate()
}

// Validate checks the fields of a prompt without regard to its swarm. The error names the field, its
// value and the cure.
func (p Prompt) Validate() error {
	switch {
	case len(p.Tokens) > MaxPromptTokens:
		return invalid("prompt: %d tokens: use at most %d, and further prompts for the rest", len(p.Tokens),
			MaxPromptTokens)
	case p.Max < 0 || p.Max > math.MaxInt32:
		return invalid("prompt: max %d: use 0 to read, or how many tokens to make at most", p.Max)
	case len(p.Stop) > MaxStopTokens:
		return invalid("prompt: %d stop tokens: use at most %d", len(p.Stop), MaxStopTokens)
	}
	return p.Sampling.Validate()
}

// Validate checks the ranges of the filters. The error names the field, its value and the cure.
func (s Sampling) Validate() error {
	finite := func(v, least, most float32) bool { return v >= least && v <= most } // no NaN is
	switch {
	case !finite(s.Temperature, 0, 100):
		return invalid("prompt: temperature %v: use 0 to 100", s.Temperature)
	case s.TopK < 0 || s.TopK > math.MaxInt32:
		return invalid("prompt: top_k %d: use 1 or more, or 0 for all tokens", s.TopK)
	case !finite(s.TopP, 0, 1):
		return invalid("prompt: top_p %v: use a share up to 1, or 0 for all tokens", s.TopP)
	case !finite(s.MinP, 0, 1) || s.MinP == 1:
		return invalid("prompt: min_p %v: use a share below 1, or 0 for all tokens", s.MinP)
	case s.Repetition != 0 && !finite(s.Repetition, 0.01, 100):
		return invalid("prompt: repetition %v: use 0.01 to 100, or 0 for none", s.Repetition)
	}
	return nil
}

// DecodeCancel reads the data of an EntryCancel, as DecodeTick does.
func DecodeCancel(data []byte) (c Cancel, err error) {
	return c, decodeEntry("cancel", data, &c, &c.Version)
}

// DecodeRewind reads the data of an EntryRewind, as DecodeTick does.
func DecodeRewind(data []byte) (r Rewind, err error) {
	if err := decodeEntry("rewind", data, &r, &r.Version); err != nil {
		return r, err
	}
	if r.To < 0 {
		return r, invalid("rewind: to %d: use 0 or more", r.To)
	}
	return r, nil
}

// DecodeFork reads the data of an EntryFork, as DecodeTick does.
func DecodeFork(data []byte) (f Fork, err error) {
	if err := decodeEntry("fork", data, &f, &f.Version); err != nil {
		return f, err
	}
	switch {
	case f.To != nil && *f.To < 0:
		return f, invalid("fork: to %d: use 0 or more, or leave it out", *f.To)
	case f.Agent == f.Into:
		return f, invalid("fork: agent %d into itself: name another agent, or use rewind", f.Agent)
	}
	return f, nil
}

// DecodePlace reads the data of an EntryPlace.
func DecodePlace(data []byte) (p Place, err error) {
	return p, decodeEntry("place", data, &p, &p.Version)
}

// DecodeText reads the data of an EntryText.
func DecodeText(data []byte) (t Text, err error) {
	if err := decodeEntry("text", data, &t, &t.Version); err != nil {
		return t, err
	}
	if t.From < 0 || t.From > t.At || len(t.Tokens) > t.At-t.From || t.Read < 0 || t.Read > t.At {
		return t, invalid("text: %d tokens from %d on of %d, and %d are read", len(t.Tokens), t.From, t.At, t.Read)
	}
	return t, nil
}
