// Package generation makes the tokens of conversations with a swarm of the cell transformer: it
// keeps ticks in flight, finds known beginnings, ends streams at stop texts, and continues streams
// after a client or this process was gone.
package generation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// inFlight is how many ticks are in the log without an answer while an agent is active: an entry
// takes about as long through the log as a token of a small model on a device.
const inFlight = 8

// Options configure a Generator. All are required but Log.
type Options struct {
	// In and Out are the logs of the only shard of the swarm.
	In, Out swarms.Log
	// Keys has the ids of conversations by agent. No other writer appends to it.
	Keys *statelog.Keys
	// Agents is the number of agents, and Context the most tokens that each has.
	Agents, Context int
	// Decoder returns a decoder for the text of one stream.
	Decoder func() Decoder
	// Log receives failures of the logs; nil for none.
	Log *slog.Logger
}

// Generator has the conversations of one swarm. It learns what the agents have when it is opened, and
// follows the answers of the log from then on, also to entries of other clients. Its methods may be
// called from several goroutines.
type Generator struct {
	o      Options
	ctx    context.Context //nolint:containedctx // of its goroutines: it ends with Close
	cancel context.CancelCauseFunc
	done   sync.WaitGroup

	mu        sync.Mutex
	places    []*place
	byKey     map[string]*place
	prefixes  prefixes
	clock     uint64
	streams   int // whose agent may be active
	work      chan struct{}
	queue     []*entry
	appended  uint64 // the last entry of In that this process knows
	appending chan struct{}
	waiting   map[uint64]*entry
	ticks     int // own ones without an answer

	keys sync.Mutex // of Options.Keys
}

// entry is an own entry, from its place in the queue to its answer.
type entry struct {
	swarms.Entry
	about  *place        // nil for a tick
	from   *place        // of a fork
	done   chan struct{} // closed behind the answer
	frees  *Stream       // whose agent is free behind the answer; nil for none
	answer swarms.Entry  // behind done
}

// Open returns the generator of a swarm that is served. It asks for all conversations, and cancels
// what a former process has left active. The caller calls Close.
func Open(ctx context.Context, o Options) (*Generator, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Generator{
		o: o, byKey: map[string]*place{}, prefixes: prefixes{}, work: make(chan struct{}, 1),
		waiting: map[uint64]*entry{},
	}
	for id := range o.Agents {
		g.places = append(g.places, &place{id: uint32(id), changed: make(chan struct{})})
	}
	if err := g.loadKeys(ctx); err != nil {
		return nil, fmt.Errorf("ids of conversations: %w", err)
	}
	last, err := o.In.Last(ctx)
	if err != nil {
		return nil, err
	}
	answered, err := o.Out.Last(ctx)
	if err != nil {
		return nil, err
	}
	g.appended = last.Seq
	g.ctx, g.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	g.done.Add(2)
	go g.read(answered.Seq + 1)
	go g.write()
	if err := g.learn(ctx); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// learn asks for the tokens of all agents, and cancels the active ones.
func (g *Generator) learn(ctx context.Context) error {
	all := func(of func(p *place) *entry) error {
		g.mu.Lock()
		var asked []*entry
		for _, p := range g.places {
			if e := of(p); e != nil {
				asked = append(asked, e)
			}
		}
		g.submit(asked...)
		g.mu.Unlock()
		for _, e := range asked {
			if err := g.await(ctx, e); err != nil {
				return err
			}
		}
		return nil
	}
	// A long conversation takes several answers.
	for from := 0; from < max(g.o.Context, 1); from += swarms.MaxPromptTokens {
		if err := all(func(p *place) *entry {
			if p.known {
				return nil
			}
			return g.about(p, swarms.EntryQuery, swarms.Query{
				Version: jobs.Version, Text: &swarms.TextRange{Agent: p.id, From: len(p.tokens)},
			})
		}); err != nil {
			return err
		}
	}
	return all(func(p *place) *entry {
		if !p.active {
			return nil
		}
		return g.about(p, swarms.EntryCancel, swarms.Cancel{Version: jobs.Version, Agent: p.id})
	})
}

// Close ends all streams with ErrClosed, and the goroutines. A second call does nothing.
func (g *Generator) Close() {
	g.cancel(ErrClosed)
	g.done.Wait()
}

// fail ends the generator: nothing is known of the log any more.
func (g *Generator) fail(err error) {
	if g.ctx.Err() == nil {
		g.o.Log.Error("a swarm that serves a model cannot be followed", "error", err)
		g.cancel(fmt.Errorf("%w: %w", ErrClosed, err))
	}
}

func (g *Generator) loadKeys(ctx context.Context) error {
	if err := g.o.Keys.Open(ctx); err != nil {
		return err
	}
	all, err := g.o.Keys.Load(ctx, -1)
	if err != nil {
		return err
	}
	for _, a := range all {
		if a.Group < len(g.places) {
			g.name(g.places[a.Group], a.Key)
		}
	}
	return nil
}

// name gives an agent to the conversation of a key, or to none.
func (g *Generator) name(p *place, key string) {
	if g.byKey[p.key] == p {
		delete(g.byKey, p.key)
	}
	if p.key = key; key != "" {
		g.byKey[key] = p
	}
}

// about returns an own entry about an agent. The caller has mu, and submits it.
func (g *Generator) about(p *place, kind string, v any) *entry {
	p.waiting++
	data, _ := json.Marshal(v) // structs of numbers
	return &entry{Entry: swarms.Entry{Kind: kind, Data: data}, about: p, done: make(chan struct{})}
}

// tick returns a tick.
func tick() *entry {
	data, _ := json.Marshal(swarms.Tick{Version: jobs.Version, Count: 1})
	return &entry{Entry: swarms.Entry{Kind: swarms.EntryTick, Data: data}}
}

// refusal returns the error of an agent process in an answer.
func refusal(a swarms.Entry) error {
	refused := &jobs.Error{}
	if err := json.Unmarshal(a.Data, refused); err != nil {
		return jobs.Errorf(jobs.CodeInternal, "entry %d was refused without a reason: %v", a.Ref, err)
	}
	return refused
}

// submit has entries appended in their order, one behind the other. The caller has mu.
func (g *Generator) submit(all ...*entry) {
	g.queue = append(g.queue, all...)
	g.wake()
}

// wake has the writer look for work.
func (g *Generator) wake() {
	select {
	case g.work <- struct{}{}:
	default:
	}
}

// await waits for the answer to an own entry. The error of a refused entry is a *jobs.Error.
func (g *Generator) await(ctx context.Context, e *entry) error {
	select {
	case <-e.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-g.ctx.Done():
		return context.Cause(g.ctx)
	}
	if e.answer.Kind == swarms.EntryRejected {
		return refusal(e.answer)
	}
	return nil
}

// write appends own entries, and ticks while a stream waits for tokens, until the generator ends.
func (g *Generator) write() {
	defer g.done.Done()
	for {
		g.mu.Lock()
		batch := g.queue
		g.queue = nil
		if g.streams > 0 {
			for ; g.ticks < inFlight; g.ticks++ {
				batch = append(batch, tick())
			}
		}
		g.mu.Unlock()
		if len(batch) == 0 {
			select {
			case <-g.work:
				continue
			case <-g.ctx.Done():
				return
			}
		}
		if err := g.append(batch); err != nil {
			g.fail(err)
			return
		}
	}
}

// append appends entries behind the end of the log. The reader waits meanwhile with answers to
// entries that may be among them.
func (g *Generator) append(batch []*entry) error {
	g.mu.Lock()
	g.appending = make(chan struct{})
	last := g.appended
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		close(g.appending)
		g.appending = nil
		g.mu.Unlock()
	}()
	for {
		all := make([]swarms.Entry, len(batch))
		for i, e := range batch {
			all[i] = e.Entry
			all[i].Ref = last + uint64(i) + 1
		}
		err := g.again(func() error { return g.o.In.Append(g.ctx, last, all...) })
		if err == nil {
			break
		}
		if !errors.Is(err, jobs.ErrFenced) {
			return err
		}
		end, err := g.o.In.Last(g.ctx)
		if err != nil {
			return err
		}
		if end.Kind == swarms.EntryEnd {
			return jobs.Errorf(jobs.CodeInvalid, "the log of the swarm has ended")
		}
		last = max(last, end.Seq)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, e := range batch {
		g.waiting[last+uint64(i)+1] = e
	}
	g.appended = last + uint64(len(batch))
	return nil
}
