package generation

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"slices"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Request is a beginning that a swarm shall continue.
type Request struct {
	// Conversation is an id that the caller has chosen: the next request with it finds the same
	// agent. Empty: any agent that no conversation has.
	Conversation string
	Tokens       []int32 // the beginning, one at least
	// Max is the most tokens that are drawn; 0: as many as the context has room for.
	Max      int
	Sampling swarms.Sampling
	// Seeded reports whether Sampling.Seed is given. Otherwise the seed is made of the conversation
	// and the beginning, so that a repeated request has the same answer, or drawn without a
	// conversation.
	Seeded bool
	// Read has the agent read the beginning and make nothing.
	Read bool
	// Ends are the tokens that end an answer. They are no part of its text.
	Ends []int32
	// Stops are the texts that end an answer. They are no part of its text.
	Stops []string
	// Resume continues the stream of an equal request of the conversation.
	Resume bool
}

// Finish is why an answer has ended.
type Finish string

// The values of Finish, as the OpenAI form has them.
const (
	FinishStop   Finish = "stop"   // a token or a text that ends answers
	FinishLength Finish = "length" // Request.Max, or the context is full
)

// Piece is a part of an answer.
type Piece struct {
	// At is the position of the token that released the text, in the conversation; of the last piece
	// the position behind the last token. It only grows, and a resumed stream has the same pieces.
	At     int
	Text   string
	Finish Finish // empty but for the last piece
}

// Stream is the answer to a request. One goroutine uses it, and closes it.
type Stream struct {
	g       *Generator
	p       *place
	request Request
	scan    scanner
	next    int // position of the next token
	cached  int
	over    bool
	failed  error // guarded by Generator.mu
	closed  bool
}

// Start begins an answer. It returns when the agent has the prompt, before it has read it. It fails
// with ErrTooLong, ErrBusy, ErrFull or ErrResume.
func (g *Generator) Start(ctx context.Context, r Request) (*Stream, error) {
	room := g.o.Context - len(r.Tokens)
	switch {
	case len(r.Tokens) == 0:
		return nil, jobs.Errorf(jobs.CodeInvalid, "the prompt has no tokens")
	case room < 1 || len(r.Tokens) > swarms.MaxPromptTokens:
		return nil, fmt.Errorf("%w: it has %d tokens, of at most %d", ErrTooLong, len(r.Tokens),
			min(g.o.Context-1, swarms.MaxPromptTokens))
	case r.Max < 0:
		return nil, jobs.Errorf(jobs.CodeInvalid, "at most %d tokens: use 1 or more", r.Max)
	}
	if r.Max == 0 || r.Max > room {
		r.Max = room
	}
	if r.Read {
		r.Max = 0
	}
	if !r.Seeded {
		r.Sampling.Seed = seedOf(r)
	}
	for tries := 2; ; tries-- {
		s := &Stream{
			g: g, request: r, next: len(r.Tokens), scan: scanner{decoder: g.o.Decoder(), stops: r.Stops},
		}
		prompt, err := s.take(ctx)
		if err != nil {
			return nil, err
		}
		if prompt == nil { // the stream of the former request goes on
			return s, nil
		}
		if err := g.await(ctx, prompt); err != nil {
			s.Close()
			return nil, err
		}
		if tries == 1 || !s.lost() {
			return s, nil
		}
		s.Close() // another client has changed the agent just before
	}
}

// lost reports whether what the agent has is not known.
func (s *Stream) lost() bool {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return !s.p.known
}

// seedOf returns the seed of a request without one.
func seedOf(r Request) uint64 {
	if r.Conversation == "" {
		return mathrand.Uint64()
	}
	data := []byte(r.Conversation)
	for _, t := range r.Tokens {
		data = binary.LittleEndian.AppendUint32(data, uint32(t))
	}
	sum := sha256.Sum256(data)
	return binary.LittleEndian.Uint64(sum[:])
}

// take gives the stream an agent, and submits what the agent has to do. The entry it returns is the
// last one; nil: there is nothing to do.
func (s *Stream) take(ctx context.Context) (*entry, error) {
	g := s.g
	for {
		g.keys.Lock()
		g.mu.Lock()
		last, freed, err := s.tryTake(ctx)
		g.mu.Unlock()
		g.keys.Unlock()
		if freed == nil {
			return last, err
		}
		select { // a former request of the conversation is being ended
		case <-freed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-g.ctx.Done():
			return nil, context.Cause(g.ctx)
		}
	}
}

// tryTake is take. It returns a channel if the conversation is free only later. The caller has keys
// and mu; mu is released while a new conversation is written down.
func (s *Stream) tryTake(ctx context.Context) (last *entry, freed <-chan struct{}, err error) {
	g, r := s.g, &s.request
	if g.ctx.Err() != nil {
		return nil, nil, context.Cause(g.ctx)
	}
	p := g.byKey[r.Conversation]
	if r.Resume {
		return s.resume(p)
	}
	if p != nil && p.stream != nil {
		if p.stream.closed {
			return nil, p.freed, nil
		}
		return nil, nil, ErrBusy
	}
	source := g.prefixes.longest(r.Tokens, func(p *place) bool { return p.waiting == 0 })
	if p == nil {
		if p = g.choose(source, r.Tokens); p == nil {
			return nil, nil, fmt.Errorf("%w: there are %d", ErrFull, len(g.places))
		}
	}
	s.hold(p)
	if p.key != r.Conversation {
		g.mu.Unlock()
		err = g.o.Keys.Assign(ctx, []statelog.Assignment{{Group: int(p.id), Key: r.Conversation}}, 0, nil)
		g.mu.Lock()
		if err != nil {
			s.release()
			return nil, nil, fmt.Errorf("write down a conversation: %w", err)
		}
		g.name(p, r.Conversation)
	}
	// The last token is always read, because its logits make the first one of the answer.
	use := func(tokens []int32) int { return min(common(tokens, r.Tokens), len(r.Tokens)-1) }
	begin, known, steps := use(p.tokens), use(p.tokens[:p.read]), []*entry(nil)
	switch from := source; {
	case from != nil && from != p && from.waiting == 0 && use(from.tokens[:from.read]) >= known+block:
		begin = use(from.tokens[:from.read])
		known = begin
		if p.active {
			steps = append(steps, s.rewind(0))
		}
		fork := g.about(p, swarms.EntryFork, swarms.Fork{
			Version: jobs.Version, Agent: from.id, Into: p.id, To: &begin,
		})
		fork.from = from
		steps = append(steps, fork)
	case !p.known || begin < len(p.tokens) || p.active:
		steps = append(steps, s.rewind(begin))
	}
	s.cached = known
	return s.submit(append(steps, s.prompt(r.Tokens[begin:], r.Max))...), nil, nil
}

func (s *Stream) rewind(to int) *entry {
	return s.g.about(s.p, swarms.EntryRewind, swarms.Rewind{Version: jobs.Version, Agent: s.p.id, To: to})
}

// prompt returns the entry that gives the agent tokens to read, and has it make up to most ones.
func (s *Stream) prompt(tokens []int32, most int) *entry {
	return s.g.about(s.p, swarms.EntryPrompt, swarms.Prompt{
		Version: jobs.Version, Agent: s.p.id, Tokens: tokens, Max: most, Sampling: s.request.Sampling,
		Stop: s.request.Ends,
	})
}

// submit submits entries and returns the last one. The caller has mu.
func (s *Stream) submit(all ...*entry) *entry {
	s.g.streams++
	s.g.submit(all...)
	return all[len(all)-1]
}

// hold makes p the agent of the stream. The caller has mu.
func (s *Stream) hold(p *place) {
	s.g.clock++
	s.p, p.stream, p.used, p.freed = p, s, s.g.clock, make(chan struct{})
}

// release gives the agent back. The caller has mu.
func (s *Stream) release() {
	if s.p.stream == s {
		s.p.stream = nil
		close(s.p.freed)
	}
}

// choose returns the agent for a conversation without one: that which has just this beginning, if
// no other conversation has it, and else the one that was not used for the longest time. Agents of
// conversations with an id come last.
func (g *Generator) choose(source *place, tokens []int32) *place {
	if source != nil && source.key == "" && source.stream == nil &&
		len(source.tokens)-common(source.tokens, tokens) <= block {
		return source
	}
	var best *place
	for _, p := range g.places {
		switch {
		case p.stream != nil || p.waiting > 0:
		case best == nil, p.key == "" && best.key != "":
			best = p
		case (p.key == "") == (best.key == "") && p.used < best.used:
			best = p
		}
	}
	return best
}

// resume continues the stream of a conversation, which p has.
func (s *Stream) resume(p *place) (last *entry, freed <-chan struct{}, err error) {
	n := len(s.request.Tokens)
	if p == nil || s.request.Conversation == "" {
		return nil, nil, ErrResume
	}
	if p.stream != nil && p.stream.closed || p.waiting > 0 && p.stream == nil {
		return nil, p.freed, nil
	}
	if !p.known || p.first > n || len(p.tokens) < n || !slices.Equal(p.tokens[:n], s.request.Tokens) {
		return nil, nil, ErrResume
	}
	s.cached = n
	active := p.active
	if old := p.stream; old != nil {
		// The client has come back before its former connection was noticed to be gone.
		old.failed = ErrTaken
		s.g.touch(p)
		s.g.left(old)
	}
	s.hold(p)
	drawn := len(p.tokens) - n
	if active {
		s.g.streams++
		s.g.wake()
		return nil, nil, nil
	}
	if p.ended || drawn >= s.request.Max || drawn > 0 && slices.Contains(s.request.Ends, p.tokens[n+drawn-1]) {
		s.over = true
		return nil, nil, nil
	}
	return s.submit(s.prompt([]int32{}, s.request.Max-drawn)), nil, nil
}

// left ends the count of a stream among the streams that wait for tokens. The caller has mu.
func (g *Generator) left(s *Stream) {
	if !s.over {
		s.over = true
		g.streams--
	}
}

// Next waits for the next piece. After a piece with a Finish there is none.
func (s *Stream) Next(ctx context.Context) (Piece, error) {
	for {
		piece, changed, err := s.step()
		if changed == nil {
			return piece, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return piece, context.Cause(ctx)
		case <-s.g.ctx.Done():
			return piece, context.Cause(s.g.ctx)
		}
	}
}

// step returns a piece, or a channel that is closed when there may be one.
func (s *Stream) step() (piece Piece, changed <-chan struct{}, err error) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	n := len(s.request.Tokens)
	for {
		drawn := s.next - n
		switch {
		case s.failed != nil:
			return piece, nil, s.failed
		case s.p.waiting > 0 && s.next >= len(s.p.tokens):
			return piece, s.p.changed, nil
		case !s.p.known:
			return piece, nil, ErrTaken
		case s.next < len(s.p.tokens) && drawn < s.request.Max:
			id, at := s.p.tokens[s.next], s.next
			s.next++
			if slices.Contains(s.request.Ends, id) {
				return s.last(FinishStop), nil, nil
			}
			text, stopped := s.scan.add(id)
			if stopped {
				s.g.left(s)
				return Piece{At: at + 1, Text: text, Finish: FinishStop}, nil, nil
			}
			if text != "" {
				return Piece{At: at, Text: text}, nil, nil
			}
		case drawn >= s.request.Max && !s.request.Read || s.p.ended:
			return s.last(FinishLength), nil, nil
		case !s.p.active:
			return piece, nil, ErrTaken
		default:
			return piece, s.p.changed, nil
		}
	}
}

// last returns the piece behind the last token.
func (s *Stream) last(why Finish) Piece {
	s.g.left(s)
	text, stopped := s.scan.flush()
	if stopped {
		why = FinishStop
	}
	return Piece{At: s.next, Text: text, Finish: why}
}

// Cached returns how many tokens of the beginning the agent had read before.
func (s *Stream) Cached() int { return s.cached }

// Drawn returns how many tokens Next has read.
func (s *Stream) Drawn() int { return s.next - len(s.request.Tokens) }

// Embedding returns the embedding of what the agent has read, behind the end of a Request with Read.
func (s *Stream) Embedding(ctx context.Context) ([]float32, error) {
	g := s.g
	g.mu.Lock()
	e := g.about(s.p, swarms.EntryQuery, swarms.Query{Version: jobs.Version, Text: &swarms.TextRange{
		Agent: s.p.id, From: len(s.p.tokens), Embedding: true,
	}})
	g.submit(e)
	g.mu.Unlock()
	if err := g.await(ctx, e); err != nil {
		return nil, err
	}
	t, err := swarms.DecodeText(e.answer.Data)
	return t.Embedding, err
}

// Close ends the stream. An agent that is active is cancelled. A second call does nothing.
func (s *Stream) Close() {
	g := s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	g.left(s)
	if s.p.stream != s {
		return // another request has the agent
	}
	if g.ctx.Err() != nil || !s.p.active && s.p.waiting == 0 {
		s.release()
		return
	}
	cancel := g.about(s.p, swarms.EntryCancel, swarms.Cancel{Version: jobs.Version, Agent: s.p.id})
	cancel.frees = s
	g.submit(cancel)
}
