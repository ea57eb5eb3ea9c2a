package generation

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// place is one agent of the swarm: room for a conversation. Generator.mu guards its fields.
type place struct {
	id  uint32
	key string // the id of its conversation; empty: nobody's
	// known reports whether tokens are what the agent has. Otherwise they are empty, and the next
	// request rewinds the agent to 0.
	known  bool
	tokens []int32 // read, to be read, and made
	read   int     // the agent has read tokens[:read] for certain
	first  int     // the tokens from first on were made; their prompt ends before them
	active bool    // it reads or makes tokens in ticks
	ended  bool    // it has made all tokens of its prompt

	chain []digest // of tokens[:read], see prefixes
	same  int      // tokens[:same] are as the chain has them

	stream  *Stream       // the request that has the agent
	freed   chan struct{} // closed when the agent is free again
	waiting int           // own entries about the agent without an answer
	used    uint64        // the order of the last uses
	changed chan struct{} // closed at each change
}

func (p *place) forget() {
	p.known, p.active, p.ended = false, false, false
	p.tokens, p.read, p.first, p.same = nil, 0, 0, 0
}

// keep shortens the conversation to n tokens.
func (p *place) keep(n int) {
	p.tokens = p.tokens[:n]
	p.read, p.same, p.first = min(p.read, n), min(p.same, n), min(p.first, n)
	p.active, p.ended = false, false
}

// apply follows an own entry with its answer. The caller has mu.
func (g *Generator) apply(e *entry, answer swarms.Entry) error {
	if answer.Kind == swarms.EntryRejected {
		return nil
	}
	p := e.about
	if e.Kind == swarms.EntryQuery {
		t, err := swarms.DecodeText(answer.Data)
		if err == nil {
			err = p.is(t)
		}
		return err
	}
	at, err := swarms.DecodePlace(answer.Data)
	if err != nil {
		return err
	}
	switch e.Kind {
	case swarms.EntryFork:
		p.forget()
		if from := e.from; from.known && at.At <= len(from.tokens) {
			p.known, p.tokens, p.read = true, slices.Clone(from.tokens[:at.At]), min(from.read, at.At)
			p.first = at.At
		}
		return nil
	case swarms.EntryPrompt:
		in, err := swarms.DecodePrompt(e.Data)
		if err != nil {
			return err
		}
		p.tokens = append(p.tokens, in.Tokens...)
		if p.active, p.ended = true, false; len(in.Tokens) > 0 {
			p.first = len(p.tokens)
		}
	case swarms.EntryRewind:
		if p.known = p.known || at.At == 0; at.At <= len(p.tokens) {
			p.keep(at.At)
		}
	case swarms.EntryCancel:
		p.active, p.ended = false, false
	}
	if at.At != len(p.tokens) {
		p.forget()
	}
	return nil
}

// is sets the conversation to what the agent has.
func (p *place) is(t swarms.Text) error {
	switch {
	case t.From != len(p.tokens):
		return fmt.Errorf("agent %d has told its tokens from %d on, and was asked from %d on", p.id, t.From,
			len(p.tokens))
	case t.From == 0:
		p.forget()
	}
	p.tokens = append(p.tokens, t.Tokens...)
	p.known = len(p.tokens) == t.At
	p.read, p.active, p.ended = min(t.Read, len(p.tokens)), t.Active, t.Ended != ""
	return nil
}

// follow follows an answer to an entry of another client, or to a tick. The caller has mu.
func (g *Generator) follow(a swarms.Entry) error {
	switch a.Kind {
	case swarms.EntryPlace: // what was done to the agent is not known
		at, err := swarms.DecodePlace(a.Data)
		if err != nil {
			return err
		}
		if int(at.Agent) < len(g.places) {
			g.lose(g.places[at.Agent])
		}
	case swarms.EntryCleared:
		for _, p := range g.places {
			g.lose(p)
		}
	case swarms.EntryTicked:
		t, err := swarms.DecodeTicked(a.Data)
		if err != nil {
			return err
		}
		for _, r := range t.Tokens {
			if int(r.Agent) < len(g.places) {
				g.made(g.places[r.Agent], r)
			}
		}
	}
	return nil
}

// lose forgets a conversation that another client has changed. An own entry without an answer comes
// behind the change, and tells what is then.
func (g *Generator) lose(p *place) {
	p.forget()
	if p.stream != nil && p.waiting == 0 {
		p.stream.failed = ErrTaken
	}
	g.touch(p)
}

// made follows a token that an agent has made, or the end of its answer.
func (g *Generator) made(p *place, r swarms.TokenRow) {
	switch {
	case !p.known || r.Token == swarms.NoToken:
	case r.At != len(p.tokens):
		g.lose(p)
		return
	default:
		p.tokens = append(p.tokens, r.Token)
		p.read = r.At
	}
	if r.Ended != "" {
		p.active, p.ended = false, true
		if r.Ended == swarms.EndedRead {
			p.read = len(p.tokens)
		}
	}
	g.touch(p)
}

// touch tells the stream of an agent that it has changed.
func (g *Generator) touch(p *place) {
	g.prefixes.update(p)
	close(p.changed)
	p.changed = make(chan struct{})
}
