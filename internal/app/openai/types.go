package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/internal/app/generation"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// The roles of messages. A developer is a system.
const (
	roleSystem    = "system"
	roleUser      = "user"
	roleAssistant = "assistant"
	roleDeveloper = "developer"
)

// Message is one message of a conversation.
type Message struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
	Name    string  `json:"name,omitempty"` // not read

	// What answers of other servers have in it, and clients send back.
	Refusal     any `json:"refusal,omitempty"`
	Annotations any `json:"annotations,omitempty"`
}

// Content is the text of a message: a string, or parts of type text.
type Content string

// UnmarshalJSON implements json.Unmarshaler.
func (c *Content) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte{'['}) {
		var parts []struct{ Type, Text string }
		if err := json.Unmarshal(data, &parts); err != nil {
			return err
		}
		all := ""
		for _, p := range parts {
			if p.Type != "text" {
				return fmt.Errorf("content of type %q: this server reads text alone", p.Type)
			}
			all += p.Text
		}
		*c = Content(all)
		return nil
	}
	return json.Unmarshal(data, (*string)(c))
}

// texts decodes one text or several.
func texts(data json.RawMessage) (all []string, err error) {
	var one string
	if json.Unmarshal(data, &one) == nil {
		return []string{one}, nil
	}
	if json.Unmarshal(data, &all) != nil {
		return nil, errors.New("use a text, or an array of texts")
	}
	return all, nil
}

// rows decodes arrays of tokens, or one.
func rows(data json.RawMessage) (all [][]int32, err error) {
	var one []int32
	if json.Unmarshal(data, &one) == nil {
		return [][]int32{one}, nil
	}
	if json.Unmarshal(data, &all) != nil {
		return nil, errors.New("use a text, an array of texts, or arrays of tokens")
	}
	return all, nil
}

// Sampled are the fields of requests that make tokens.
type Sampled struct {
	Model       string   `json:"model"`
	Temperature *float32 `json:"temperature,omitempty"` // 1 by default
	TopP        *float32 `json:"top_p,omitempty"`
	TopK        int      `json:"top_k,omitempty"`
	MinP        float32  `json:"min_p,omitempty"`
	Repetition  float32  `json:"repetition_penalty,omitempty"`
	Seed        *int64   `json:"seed,omitempty"`
	// Stop is a text, or an array of up to four texts.
	Stop          json.RawMessage `json:"stop,omitempty"`
	MaxTokens     *int            `json:"max_tokens,omitempty"`
	Stream        bool            `json:"stream,omitempty"`
	StreamOptions *StreamOptions  `json:"stream_options,omitempty"`
	// Conversation is an id that the client has chosen: the agent that has answered before continues.
	// The header X-Exoswarm-Conversation is the same.
	Conversation string `json:"conversation,omitempty"`

	// Fields with other values than these are refused.
	N                *int     `json:"n,omitempty"`                 // 1
	PresencePenalty  *float32 `json:"presence_penalty,omitempty"`  // 0
	FrequencyPenalty *float32 `json:"frequency_penalty,omitempty"` // 0
	LogitBias        any      `json:"logit_bias,omitempty"`        // empty

	// Fields that change no answer.
	User             any `json:"user,omitempty"`
	Metadata         any `json:"metadata,omitempty"`
	Store            any `json:"store,omitempty"`
	ServiceTier      any `json:"service_tier,omitempty"`
	PromptCacheKey   any `json:"prompt_cache_key,omitempty"`
	SafetyIdentifier any `json:"safety_identifier,omitempty"`
}

// StreamOptions are the options of a stream.
type StreamOptions struct {
	IncludeUsage       bool `json:"include_usage,omitempty"`
	IncludeObfuscation bool `json:"include_obfuscation,omitempty"` // not done
}

// ChatRequest is the body of a request for the next message of a conversation.
type ChatRequest struct {
	Sampled
	Messages            []Message `json:"messages"`
	MaxCompletionTokens *int      `json:"max_completion_tokens,omitempty"`

	// Fields with other values than these are refused.
	LogProbs       any `json:"logprobs,omitempty"` // false
	TopLogProbs    any `json:"top_logprobs,omitempty"`
	Tools          any `json:"tools,omitempty"`           // empty
	ToolChoice     any `json:"tool_choice,omitempty"`     // none
	ResponseFormat any `json:"response_format,omitempty"` // {"type": "text"}
	// It changes no answer.
	ParallelToolCalls any `json:"parallel_tool_calls,omitempty"`
}

// CompletionRequest is the body of a request for the text behind another.
type CompletionRequest struct {
	Sampled
	// Prompt is a text, an array with one text, or an array of tokens.
	Prompt json.RawMessage `json:"prompt"`

	// Fields with other values than these are refused.
	BestOf   *int `json:"best_of,omitempty"` // 1
	Echo     bool `json:"echo,omitempty"`
	LogProbs any  `json:"logprobs,omitempty"` // null
	Suffix   any  `json:"suffix,omitempty"`   // empty
}

// EmbeddingRequest is the body of a request for embeddings.
type EmbeddingRequest struct {
	Model string `json:"model"`
	// Input is a text, an array of texts, or arrays of tokens.
	Input          json.RawMessage `json:"input"`
	EncodingFormat string          `json:"encoding_format,omitempty"` // float or base64
	Dimensions     *int            `json:"dimensions,omitempty"`      // refused
	User           any             `json:"user,omitempty"`            // not read
}

// Answer is the answer to a chat or a completion, or an event of its stream.
type Answer struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"` // Unix time
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitempty"`
}

// Choice is an answer, or a part of it.
type Choice struct {
	Index   int     `json:"index"`
	Message *Said   `json:"message,omitempty"` // of a chat
	Delta   *Said   `json:"delta,omitempty"`   // of an event of a chat
	Text    *string `json:"text,omitempty"`    // of a completion
	// LogProbs is null.
	LogProbs *struct{} `json:"logprobs"`
	// FinishReason is null before the last event, stop behind a text or a token that ends answers, and
	// length at max_tokens or at the end of the context.
	FinishReason *generation.Finish `json:"finish_reason"`
}

// Said is a message of the model, or a part of it.
type Said struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int            `json:"prompt_tokens"`
	CompletionTokens int            `json:"completion_tokens"`
	TotalTokens      int            `json:"total_tokens"`
	Details          *PromptDetails `json:"prompt_tokens_details,omitempty"`
}

// PromptDetails say how many tokens of a prompt were known.
type PromptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

// ModelList is the list of the models that are served.
type ModelList struct {
	Object string      `json:"object"`
	Data   []ModelItem `json:"data"`
}

// ModelItem is a model.
type ModelItem struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"` // Unix time
	OwnedBy string `json:"owned_by"`
}

// EmbeddingList is the answer to an EmbeddingRequest.
type EmbeddingList struct {
	Object string      `json:"object"`
	Data   []Embedding `json:"data"`
	Model  string      `json:"model"`
	Usage  EmbedUsage  `json:"usage"`
}

// Embedding is one embedding.
type Embedding struct {
	Object string `json:"object"`
	Index  int    `json:"index"`
	// Embedding is an array of numbers, or a text: little-endian float32 in base64.
	Embedding any `json:"embedding"`
}

// EmbedUsage counts the tokens of inputs.
type EmbedUsage struct {
	PromptTokens int `json:"prompt_tokens"`
	TotalTokens  int `json:"total_tokens"`
}

// inForm returns an embedding in a form of EmbeddingRequest.
func inForm(values []float32, form string) any {
	if form != "base64" {
		return values
	}
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return base64.StdEncoding.EncodeToString(data)
}

// empty reports whether a field that this server does not do has a value that changes nothing.
func empty(v any, harmless ...any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0 || len(v) == 1 && v["type"] == "text" && slices.Contains(harmless, any("text"))
	}
	return slices.Contains(harmless, v)
}

// sampling checks the common fields, and returns what they say.
func (s *Sampled) sampling() (r generation.Request, err error) {
	r.Sampling = swarms.Sampling{Temperature: 1, TopK: s.TopK, MinP: s.MinP, Repetition: s.Repetition}
	if s.Temperature != nil {
		r.Sampling.Temperature = *s.Temperature
	}
	if s.TopP != nil {
		r.Sampling.TopP = *s.TopP
	}
	between := func(name string, v, least, most float32) {
		if err == nil && !(v >= least && v <= most) { // also NaN
			err = invalid(name, "%s is %v: use %v to %v", name, v, least, most)
		}
	}
	between("temperature", r.Sampling.Temperature, 0, 2)
	between("top_p", r.Sampling.TopP, 0, 1)
	between("min_p", s.MinP, 0, 1)
	between("repetition_penalty", s.Repetition, 0, 10)
	between("top_k", float32(s.TopK), 0, 1<<20)
	if err != nil {
		return r, err
	}
	if r.Seeded = s.Seed != nil; r.Seeded {
		r.Sampling.Seed = uint64(*s.Seed)
	}
	if s.MaxTokens != nil {
		if r.Max = *s.MaxTokens; r.Max < 1 {
			return r, invalid("max_tokens", "max_tokens is %d: use 1 or more", r.Max)
		}
	}
	const stops = 4
	if len(s.Stop) > 0 {
		if r.Stops, err = texts(s.Stop); err != nil {
			return r, invalid("stop", "stop: %v", err)
		}
	}
	if len(r.Stops) > stops || slices.Contains(r.Stops, "") {
		return r, invalid("stop", "stop: use at most %d texts, none of them empty", stops)
	}
	one, zero := 1, float32(0)
	for _, f := range []struct {
		name string
		ok   bool
	}{
		{"n", s.N == nil || *s.N == one},
		{"presence_penalty", s.PresencePenalty == nil || *s.PresencePenalty == zero},
		{"frequency_penalty", s.FrequencyPenalty == nil || *s.FrequencyPenalty == zero},
		{"logit_bias", empty(s.LogitBias)},
	} {
		if !f.ok {
			return r, unsupported(f.name)
		}
	}
	r.Conversation = s.Conversation
	return r, nil
}

// check checks the messages, and writes developer as system.
func check(messages []Message) error {
	if len(messages) == 0 {
		return invalid("messages", "messages is empty: it has the conversation, with the question as its last message")
	}
	for i, m := range messages {
		switch m.Role {
		case roleDeveloper:
			messages[i].Role = roleSystem
		case roleSystem, roleUser, roleAssistant:
		default:
			return invalid(fmt.Sprintf("messages[%d].role", i), "messages[%d] has the role %q: use %s", i, m.Role,
				strings.Join([]string{roleSystem, roleUser, roleAssistant}, ", "))
		}
	}
	return nil
}
