// Package generationtest has a double of an agent process of the cell transformer, over the logs of
// a real queue: its model is a hash of the tokens before.
package generationtest

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Chunk is how many tokens an agent reads in a tick.
const Chunk = 16

// Agent is a double of the agent process of a swarm with one shard.
type Agent struct {
	Conn    *natsq.Conn
	Key     string // of the swarm
	In, Out swarms.Log
	Context int
	// Next returns the token behind others; nil: Hash of them among 256.
	Next func(tokens []int32, seed uint64) int32

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	all    []conversation
	answer uint64
}

type conversation struct {
	tokens []int32
	read   int
	left   int
	active bool
	prompt swarms.Prompt
}

// Hash returns a token below n that depends on all of tokens and on the seed.
func Hash(tokens []int32, seed uint64, n int32) int32 {
	h := fnv.New64a()
	data, _ := json.Marshal(struct {
		T []int32
		S uint64
	}{tokens, seed})
	_, _ = h.Write(data)
	return int32(h.Sum64() >> 8 % uint64(n))
}

// Start starts a queue and the double. The test ends both.
func Start(t testing.TB, agents, context int) *Agent {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Fast: true, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	c, err := natsq.Connect(t.Context(), natsconn.Options{InProcess: srv, Name: "test", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	a := &Agent{Conn: c, Key: "talk", Context: context, all: make([]conversation, agents)}
	a.In, a.Out = c.Swarms.Log(a.Key, 0, swarms.In), c.Swarms.Log(a.Key, 0, swarms.Out)
	for _, l := range []swarms.Log{a.In, a.Out} {
		if err := l.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a.Run(t)
	t.Cleanup(a.Stop)
	return a
}

// Stop ends the double. Entries wait then.
func (a *Agent) Stop() {
	if a.cancel != nil {
		a.cancel()
		a.done.Wait()
	}
}

// Run runs the double, from the first entry without an answer on.
func (a *Agent) Run(t testing.TB) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	last, err := a.Out.Last(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.In.Read(ctx, last.Ref+1)
	if err != nil {
		t.Fatal(err)
	}
	a.cancel, a.answer = cancel, last.Seq
	a.done.Go(func() {
		defer r.Close()
		for {
			e, err := r.Next(ctx)
			if err != nil {
				return
			}
			a.mu.Lock()
			kind, v := a.apply(e)
			a.mu.Unlock()
			data, err := json.Marshal(v)
			if err == nil {
				// What was applied is answered, also at the end.
				err = a.Out.Append(context.WithoutCancel(ctx), a.answer,
					swarms.Entry{Kind: kind, Ref: e.Seq, Data: data})
			}
			if err != nil {
				t.Errorf("append an answer: %v", err)
				return
			}
			a.answer++
		}
	})
}

// Active returns how many agents are active.
func (a *Agent) Active() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.all {
		if c.active {
			n++
		}
	}
	return n
}

// Tokens returns what an agent has.
func (a *Agent) Tokens(agent int) []int32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.all[agent].tokens)
}

func (a *Agent) apply(e swarms.Entry) (kind string, answer any) {
	place := func(agent uint32) (string, any) {
		return swarms.EntryPlace, swarms.Place{
			Version: jobs.Version, Agent: agent, At: len(a.all[agent].tokens),
		}
	}
	var err error
	switch e.Kind {
	case swarms.EntryPrompt:
		var p swarms.Prompt
		if p, err = swarms.DecodePrompt(e.Data); err == nil {
			c := &a.all[p.Agent]
			c.tokens = append(c.tokens, p.Tokens...)
			c.left, c.active, c.prompt = p.Max, true, p
			return place(p.Agent)
		}
	case swarms.EntryCancel:
		var in swarms.Cancel
		if in, err = swarms.DecodeCancel(e.Data); err == nil {
			a.all[in.Agent].active = false
			return place(in.Agent)
		}
	case swarms.EntryRewind:
		var in swarms.Rewind
		if in, err = swarms.DecodeRewind(e.Data); err == nil && in.To <= len(a.all[in.Agent].tokens) {
			a.all[in.Agent].keep(in.To)
			return place(in.Agent)
		}
	case swarms.EntryFork:
		var in swarms.Fork
		if in, err = swarms.DecodeFork(e.Data); err == nil && *in.To <= len(a.all[in.Agent].tokens) {
			c := a.all[in.Agent]
			c.tokens = slices.Clone(c.tokens)
			c.keep(*in.To)
			a.all[in.Into] = c
			return place(in.Into)
		}
	case swarms.EntryQuery:
		var in swarms.Query
		if in, err = swarms.DecodeQuery(e.Data); err == nil && in.Text != nil {
			c := a.all[in.Text.Agent]
			text := swarms.Text{
				Version: jobs.Version, Agent: in.Text.Agent, From: in.Text.From, Tokens: c.tokens[in.Text.From:],
				At: len(c.tokens), Read: c.read, Active: c.active, Left: c.left,
			}
			if in.Text.Embedding {
				text.Embedding = []float32{float32(c.read), -0.5}
			}
			return swarms.EntryText, text
		}
	case swarms.EntryTick:
		return swarms.EntryTicked, a.tick()
	}
	return swarms.EntryRejected, jobs.Errorf(jobs.CodeInvalid, "%s is refused: %v", e.Kind, err)
}

func (c *conversation) keep(n int) {
	c.tokens, c.read, c.active = c.tokens[:n], min(c.read, n), false
}

func (a *Agent) tick() swarms.Ticked {
	out := swarms.Ticked{Version: jobs.Version}
	for i := range a.all {
		c := &a.all[i]
		if !c.active {
			continue
		}
		row := swarms.TokenRow{Agent: uint32(i), At: len(c.tokens), Token: swarms.NoToken}
		switch c.read = min(c.read+Chunk, len(c.tokens)); {
		case c.read < len(c.tokens):
			continue
		case c.left == 0:
			row.Ended = swarms.EndedRead
		default:
			next := a.Next
			if next == nil {
				next = func(tokens []int32, seed uint64) int32 { return Hash(tokens, seed, 256) }
			}
			row.Token = next(c.tokens, c.prompt.Sampling.Seed)
			c.tokens = append(c.tokens, row.Token)
			switch c.left--; {
			case slices.Contains(c.prompt.Stop, row.Token):
				row.Ended = swarms.EndedStop
			case c.left == 0:
				row.Ended = swarms.EndedMax
			case len(c.tokens) == a.Context:
				row.Ended = swarms.EndedContext
			}
		}
		c.active = row.Ended == ""
		out.Tokens = append(out.Tokens, row)
	}
	return out
}
