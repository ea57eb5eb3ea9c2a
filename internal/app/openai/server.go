// Package openai serves language models over HTTP in the form of the API of OpenAI: models, chat
// completions, completions and embeddings. The events of its streams have positions as ids, so that
// a stream continues where a client has lost it.
package openai

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/generation"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

// ConversationHeader has the id of a conversation that a client has chosen.
const ConversationHeader = "X-Exoswarm-Conversation"

const (
	maxBodies = 64 << 20 // bytes of the bodies in memory at a time
	maxBody   = 4 << 20  // bytes of a body
	// A body comes without a pause of bodyPause, and at bodyRate bytes a second after the first one.
	bodyPause = 10 * time.Second
	bodyRate  = 64 << 10
	maxID     = 256 // bytes of the id of a conversation
)

// Model is a model that is served. Its fields are not changed.
type Model struct {
	Name      string
	Created   time.Time
	Tokenizer *tokenizer.Tokenizer
	Form      Form

	ends      []int32
	generator atomic.Pointer[generation.Generator]
}

// Ready has requests answered by a generator. Requests before it are told to wait. The caller keeps
// it open while the server has requests.
func (m *Model) Ready(g *generation.Generator) { m.generator.Store(g) }

// start begins an answer.
func (m *Model) start(ctx context.Context, r generation.Request) (*generation.Stream, error) {
	g := m.generator.Load()
	if g == nil {
		return nil, &fault{
			status: http.StatusServiceUnavailable, after: time.Second, code: "model_loading",
			text: fmt.Sprintf("model %s is being loaded: try again", m.Name),
		}
	}
	return g.Start(ctx, r)
}

// Options configure a Server.
type Options struct {
	Models []*Model
	// Log receives failures; nil for none.
	Log *slog.Logger
	// Patience is how long a client may not read before its answer is cancelled; 0 means 5 s. Beat is
	// the time between signs of life of a stream; 0 means 15 s.
	Patience, Beat time.Duration
}

// Server answers requests. Its methods may be called from several goroutines.
type Server struct {
	o      Options
	bodies *httpapi.Bodies
}

// New returns a server. It fails if the tokenizer of a model does not have what its form needs.
func New(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Patience == 0 {
		o.Patience = 5 * time.Second
	}
	if o.Beat == 0 {
		o.Beat = 15 * time.Second
	}
	for _, m := range o.Models {
		ends, err := m.Form.check(m.Tokenizer)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Name, err)
		}
		m.ends = slices.Compact(slices.Sorted(slices.Values(append(ends, m.Tokenizer.Ends()...))))
	}
	s := &Server{o: o, bodies: httpapi.NewBodies(maxBodies)}
	s.bodies.Wait, s.bodies.Pause, s.bodies.Rate = bodyPause, bodyPause, bodyRate
	return s, nil
}

// Routes returns the routes below /v1/. The caller checks the login, and answers errors with Fail.
// The routes of a nil server only describe themselves.
func (s *Server) Routes() []httpapi.Route {
	name := httpapi.Param{Name: "model", In: "path", Kind: "string", Doc: "name of a model"}
	stream := " With stream, the answer is text/event-stream: the id of an event is a position in the conversation, " +
		"and a request with the header Last-Event-ID continues behind it."
	all := []httpapi.Route{
		{
			Method: http.MethodGet, Path: "models", Name: "listModels", Answer: ModelList{}, Serve: s.list,
			Summary: "The models that are served.",
		},
		{
			Method: http.MethodGet, Path: "models/{model}", Name: "getModel", Params: []httpapi.Param{name},
			Answer: ModelItem{}, Serve: s.model, Summary: "A model that is served.",
		},
		{
			Method: http.MethodPost, Path: "chat/completions", Name: "createChatCompletion", Body: ChatRequest{},
			Answer: Answer{}, Serve: s.chat, Summary: "The next message of a conversation." + stream,
		},
		{
			Method: http.MethodPost, Path: "completions", Name: "createCompletion", Body: CompletionRequest{},
			Answer: Answer{}, Serve: s.completion, Summary: "The text behind another." + stream,
		},
		{
			Method: http.MethodPost, Path: "embeddings", Name: "createEmbedding", Body: EmbeddingRequest{},
			Answer: EmbeddingList{}, Serve: s.embed, Summary: "The embeddings of texts.",
		},
	}
	for i := range all {
		all[i].Server, all[i].Failure = "/v1", Failure{}
	}
	return all
}

func (m *Model) item() ModelItem {
	return ModelItem{ID: m.Name, Object: "model", Created: m.Created.Unix(), OwnedBy: "exoswarm"}
}

func (s *Server) list(w http.ResponseWriter, _ *httpapi.Request) error {
	all := ModelList{Object: "list", Data: []ModelItem{}}
	for _, m := range s.o.Models {
		all.Data = append(all.Data, m.item())
	}
	httpapi.WriteJSON(w, http.StatusOK, all)
	return nil
}

func (s *Server) model(w http.ResponseWriter, r *httpapi.Request) error {
	m, err := s.named(r.Params["model"])
	if err == nil {
		httpapi.WriteJSON(w, http.StatusOK, m.item())
	}
	return err
}

func (s *Server) named(name string) (*Model, error) {
	var names []string
	for _, m := range s.o.Models {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return nil, &fault{
		status: http.StatusNotFound, param: "model", code: "model_not_found",
		text: fmt.Sprintf("model %.100q is not served: use one of %s", name, strings.Join(names, ", ")),
	}
}

// receive reads the body of a request into v.
func (s *Server) receive(w http.ResponseWriter, r *httpapi.Request, v any) error {
	if m := httpapi.Media(r.Request); m != httpapi.JSON {
		return &fault{
			status: http.StatusUnsupportedMediaType, text: fmt.Sprintf("media type %q: use %s", m, httpapi.JSON),
		}
	}
	body, free, err := s.bodies.Read(w, r.Request, maxBody)
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	defer free()
	// An answer takes as long as it takes: each write has a deadline of its own.
	c := http.NewResponseController(w)
	_, _ = c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})
	switch err := httpapi.Decode(bytes.NewReader(body), v); {
	case errors.Is(err, io.EOF):
		return invalid("", "the body is empty: it is a JSON object")
	case err != nil:
		return invalid("", "the body is not what this operation takes: %v", err)
	}
	return nil
}

// kind is how answers to chats and to completions differ.
type kind struct {
	prefix, object, events string
	choice                 func(text, role string, event bool) Choice
}

var (
	chatKind = kind{
		prefix: "chatcmpl-", object: "chat.completion", events: "chat.completion.chunk",
		choice: func(text, role string, event bool) Choice {
			said := &Said{Role: role, Content: &text}
			if event {
				return Choice{Delta: said}
			}
			return Choice{Message: said}
		},
	}
	textKind = kind{
		prefix: "cmpl-", object: "text_completion", events: "text_completion",
		choice: func(text, _ string, _ bool) Choice { return Choice{Text: &text} },
	}
)

func (s *Server) chat(w http.ResponseWriter, r *httpapi.Request) error {
	var in ChatRequest
	if err := s.receive(w, r, &in); err != nil {
		return err
	}
	m, err := s.named(in.Model)
	if err != nil {
		return err
	}
	if err := check(in.Messages); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		ok   bool
	}{
		{"logprobs", empty(in.LogProbs, false)},
		{"top_logprobs", empty(in.TopLogProbs, 0.0)},
		{"tools", empty(in.Tools)},
		{"tool_choice", empty(in.ToolChoice, "none", "auto")},
		{"response_format", empty(in.ResponseFormat, "text")},
	} {
		if !f.ok {
			return unsupported(f.name)
		}
	}
	if in.MaxCompletionTokens != nil {
		in.MaxTokens = in.MaxCompletionTokens
	}
	ids, err := tokens(m.Tokenizer, m.Form.turns(in.Messages))
	if err != nil {
		return invalid("messages", "messages: %v", err)
	}
	return s.answer(w, r, m, &in.Sampled, ids, m.Form.stops, chatKind)
}

func (s *Server) completion(w http.ResponseWriter, r *httpapi.Request) error {
	var in CompletionRequest
	if err := s.receive(w, r, &in); err != nil {
		return err
	}
	m, err := s.named(in.Model)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		ok   bool
	}{
		{"best_of", in.BestOf == nil || *in.BestOf == 1},
		{"echo", !in.Echo},
		{"logprobs", empty(in.LogProbs)},
		{"suffix", empty(in.Suffix, "")},
	} {
		if !f.ok {
			return unsupported(f.name)
		}
	}
	all, err := m.rows(in.Prompt)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%d of them: use one", len(all))
	}
	if err != nil {
		return invalid("prompt", "prompt: %v", err)
	}
	return s.answer(w, r, m, &in.Sampled, all[0], nil, textKind)
}

// rows returns the tokens of inputs. A text begins with the token that a text of the model begins
// with.
func (m *Model) rows(in json.RawMessage) (all [][]int32, err error) {
	some, err := texts(in)
	if err != nil {
		return rows(in)
	}
	for _, text := range some {
		var row []int32
		if id, is := m.Tokenizer.Begin(); is {
			row = append(row, id)
		}
		ids, err := m.Tokenizer.Encode(text, false)
		if err != nil {
			return nil, err
		}
		all = append(all, append(row, ids...))
	}
	return all, nil
}

// answer answers a request for tokens, at once or by events.
func (s *Server) answer(
	w http.ResponseWriter, r *httpapi.Request, m *Model, in *Sampled, ids []int32, stops []string, k kind,
) error {
	q, err := in.sampling()
	if err != nil {
		return err
	}
	if id := r.Header.Get(ConversationHeader); id != "" {
		q.Conversation = id
	}
	if len(q.Conversation) > maxID {
		return invalid("conversation", "conversation: use an id of at most %d bytes", maxID)
	}
	q.Tokens, q.Ends = ids, m.ends
	q.Stops = append(slices.Clone(q.Stops), stops...)
	after := -1
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		if after, err = strconv.Atoi(last); err != nil || after < 0 {
			return invalid("", "Last-Event-ID is %.100q: use the id of the last event that has arrived", last)
		}
		q.Resume = true
	}
	if q.Resume && (!in.Stream || q.Conversation == "") {
		return invalid("", "Last-Event-ID continues the stream of a conversation: use stream and conversation")
	}
	g, err := m.start(r.Context(), q)
	if err != nil {
		return s.failed(r, err)
	}
	defer g.Close()
	out := Answer{ID: k.prefix + rand.Text(), Object: k.object, Created: time.Now().Unix(), Model: m.Name}
	if in.Stream {
		out.Object = k.events
		e := &events{
			s: s, w: w, rc: http.NewResponseController(w), answer: out, kind: k, after: after,
			usage: in.StreamOptions != nil && in.StreamOptions.IncludeUsage,
		}
		e.run(r, g, len(ids))
		return nil
	}
	var text strings.Builder
	for {
		p, err := g.Next(r.Context())
		if err != nil {
			return s.failed(r, err)
		}
		if text.WriteString(p.Text); p.Finish != "" {
			c := k.choice(text.String(), roleAssistant, false)
			c.FinishReason = &p.Finish
			out.Choices, out.Usage = []Choice{c}, usage(g, len(ids))
			return s.write(w, out)
		}
	}
}

// write answers with v. A client that does not read it is left.
func (s *Server) write(w http.ResponseWriter, v any) error {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.o.Patience)) // the recorder of a test has none
	httpapi.WriteJSON(w, http.StatusOK, v)
	return nil
}

func usage(g *generation.Stream, prompt int) *Usage {
	return &Usage{
		PromptTokens: prompt, CompletionTokens: g.Drawn(), TotalTokens: prompt + g.Drawn(),
		Details: &PromptDetails{g.Cached()},
	}
}

// failed logs a failure that is not the client's.
func (s *Server) failed(r *httpapi.Request, err error) error {
	if f := faultOf(err); f.status >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.o.Log.Warn("a request to a model failed", "path", r.URL.Path, "error", err)
	}
	return err
}

// maxInputs is the most inputs of a request for embeddings.
const maxInputs = 2048

func (s *Server) embed(w http.ResponseWriter, r *httpapi.Request) error {
	var in EmbeddingRequest
	if err := s.receive(w, r, &in); err != nil {
		return err
	}
	m, err := s.named(in.Model)
	if err != nil {
		return err
	}
	if in.Dimensions != nil {
		return unsupported("dimensions")
	}
	if in.EncodingFormat != "" && in.EncodingFormat != "float" && in.EncodingFormat != "base64" {
		return invalid("encoding_format", "encoding_format is %.100q: use float or base64", in.EncodingFormat)
	}
	all, err := m.rows(in.Input)
	if err == nil && (len(all) == 0 || len(all) > maxInputs) {
		err = fmt.Errorf("%d of them: use 1 to %d", len(all), maxInputs)
	}
	if err != nil {
		return invalid("input", "input: %v", err)
	}
	out := EmbeddingList{Object: "list", Model: m.Name}
	for i, row := range all {
		values, err := m.embedding(r.Context(), row)
		if err != nil {
			return s.failed(r, err)
		}
		out.Data = append(out.Data, Embedding{
			Object: "embedding", Index: i, Embedding: inForm(values, in.EncodingFormat),
		})
		out.Usage.PromptTokens += len(row)
	}
	out.Usage.TotalTokens = out.Usage.PromptTokens
	return s.write(w, out)
}

// embedding has an agent read tokens, and returns its embedding.
func (m *Model) embedding(ctx context.Context, tokens []int32) ([]float32, error) {
	g, err := m.start(ctx, generation.Request{Tokens: tokens, Read: true})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	if _, err := g.Next(ctx); err != nil {
		return nil, err
	}
	return g.Embedding(ctx)
}
