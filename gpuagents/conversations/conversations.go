// Package conversations keeps the conversations of a shard with a language model: their tokens,
// their caches of keys and values in pages, and the order in which they read and make tokens.
//
// A conversation is an agent. Its record is in the first pages, which have the layout of the cell
// transformer. Behind them an agent has as many pages as its context needs, each with a run of
// positions; a page that no token has reached does not exist. The caches follow from the tokens, so
// Restored reads the tokens again of a record whose cache is not there.
package conversations

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// Options describe the conversations of a shard.
type Options struct {
	Layout  kernels.Layout // of the records
	Agents  int            // of the shard
	First   uint32         // the first agent, in the swarm
	Context int            // most tokens of a conversation
	Chunk   int            // most tokens that one reads in a step
	Seed    uint64         // of the swarm
	// CacheBytes is how many bytes a position takes, at most a page.
	CacheBytes int64
}

// positions returns how many positions a page has.
func (o *Options) positions() int { return int(int64(o.Layout.PageBytes) / o.CacheBytes) }

// Conversations are the conversations of a shard, with ids from 0 on. One goroutine uses them. A
// *jobs.Error refuses what it is returned for, which has then changed nothing. After any other
// error, and when a context has ended a step, records and pages do not fit each other until
// Restored or Reset.
type Conversations struct {
	o       Options
	each    int // pages of a cache
	first   int // the first page of the first cache
	memory  *pages.Memory
	machine Machine // nil before Equip
	all     []*record
	active  []int // in ascending order
	touched []int // whose records are not in the pages
	reduced bool  // runs are stepped one by one
	torn    bool  // records and pages do not fit each other
}

// ErrTorn is an operation on conversations whose records and pages do not fit each other.
var ErrTorn = fmt.Errorf("%w: conversations are between two steps", gpubatch.ErrDevice)

// New makes the conversations of a shard, with pages that take the budget b. The memory is not open.
// The caller closes them before the device. A *jobs.Error means that there is no room for the pages
// of one conversation, which are on the device together.
func New(dev device.Device, b *pages.Budget, o Options) (*Conversations, error) {
	l := o.Layout
	groups := o.Agents / l.Agents
	c := &Conversations{
		o: o, first: (groups + l.Slots - 1) / l.Slots,
		all: make([]*record, o.Agents),
	}
	c.each = c.pagesOf(o.Context)
	var err error
	n := c.first + o.Agents*c.each
	together := max(c.each, 2) // a fork copies a page into another one
	if c.memory, err = pages.NewMemory(dev, b.WithTogether(together), groups, l.PageBytes, n); err != nil {
		return nil, err
	}
	return c, nil
}

// Memory returns the pages, which belong to the Conversations.
func (c *Conversations) Memory() *pages.Memory { return c.memory }

// Equip gives the conversations the machine that computes them, which they close, and reads what
// Restored could not read without it.
func (c *Conversations) Equip(ctx context.Context, m Machine) error {
	if c.machine != nil {
		return errors.Join(errors.New("the conversations have a machine"), m.Close())
	}
	c.machine = m
	return c.readAgain(ctx)
}

// Close releases the memory and the machine.
func (c *Conversations) Close() error {
	var err error
	if c.machine != nil {
		err = c.machine.Close()
	}
	return errors.Join(err, c.memory.Close())
}

// Reset makes all conversations empty.
func (c *Conversations) Reset(ctx context.Context) error {
	clear(c.all)
	c.active, c.touched, c.torn = nil, nil, false
	return c.memory.Reset(ctx)
}

// Restored reads the records from the pages, after pages were opened or written.
func (c *Conversations) Restored(ctx context.Context) error {
	clear(c.all)
	c.active, c.touched, c.torn = nil, nil, false
	l := c.o.Layout
	words := make([]uint32, l.PageBytes/4)
	for page := range c.first {
		if !c.memory.Made()[page] {
			continue
		}
		if err := c.memory.Read(ctx, uint64(page), device.Bytes(words)); err != nil {
			return err
		}
		of := func(agent, variable int) []uint32 {
			_, off := word(l, agent, variable, 0)
			return words[off/4:][:l.Vars[variable].Width]
		}
		agents := l.Slots * l.Agents
		for agent := page * agents; agent < min(c.o.Agents, (page+1)*agents); agent++ {
			r := &record{}
			if err := r.decode(of(agent, cells.ConversationProgress), of(agent, cells.ConversationSettings),
				of(agent, cells.ConversationText)); err != nil {
				return fmt.Errorf("record of agent %d: %w", c.id(agent), err)
			}
			if len(r.tokens) == 0 {
				continue
			}
			if c.all[agent] = r; r.active {
				c.active = append(c.active, agent)
			}
		}
	}
	if c.machine == nil {
		return nil
	}
	return c.readAgain(ctx)
}

// readAgain reads the tokens of conversations whose caches are not in pages, as in a snapshot.
func (c *Conversations) readAgain(ctx context.Context) error {
	var lacking []*reading
	made := c.memory.Made()
	for agent, r := range c.all {
		if r == nil || r.read == 0 {
			continue
		}
		if slices.Contains(made[c.page(agent, 0):][:c.pagesOf(r.read)], false) {
			lacking = append(lacking, &reading{agent: agent})
		}
	}
	for len(lacking) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, g := range lacking {
			r := c.all[g.agent]
			g.tokens = r.tokens[g.from:min(r.read, g.from+c.o.Chunk)]
		}
		if err := c.step(ctx, lacking, nil); err != nil {
			return err
		}
		lacking = slices.DeleteFunc(lacking, func(g *reading) bool {
			g.from += len(g.tokens)
			return g.from == c.all[g.agent].read
		})
	}
	return nil
}

// ready returns an error unless records and pages fit each other and there is a machine.
func (c *Conversations) ready() error {
	switch {
	case c.torn:
		return ErrTorn
	case c.machine == nil:
		return errors.New("conversations have no model yet")
	}
	return nil
}

// id returns the id in the swarm of an agent.
func (c *Conversations) id(agent int) uint32 { return c.o.First + uint32(agent) }

// page returns page k of the cache of an agent.
func (c *Conversations) page(agent, k int) int { return c.first + agent*c.each + k }

// pagesOf returns how many pages have the first tokens of a conversation.
func (c *Conversations) pagesOf(tokens int) int {
	return (tokens + c.o.positions() - 1) / c.o.positions()
}

// record returns the record of an agent, also of an empty one.
func (c *Conversations) record(agent int) *record {
	if r := c.all[agent]; r != nil {
		return r
	}
	return &record{}
}

// changing returns the record of an agent, which is about to change.
func (c *Conversations) changing(agent int) *record {
	r := c.record(agent)
	if c.all[agent] = r; !r.changed {
		r.changed = true
		c.touched = append(c.touched, agent)
	}
	return r
}

// setActive has an agent take part in steps, or not.
func (c *Conversations) setActive(agent int, r *record, on bool) {
	r.active = on
	at, is := slices.BinarySearch(c.active, agent)
	switch {
	case on && !is:
		c.active = slices.Insert(c.active, at, agent)
	case !on && is:
		c.active = slices.Delete(c.active, at, at+1)
	}
}

// keep writes what has changed into the pages.
func (c *Conversations) keep(ctx context.Context) error {
	var parts []pager.Part
	for _, agent := range c.touched {
		parts = c.all[agent].parts(parts, c.o.Layout, agent)
	}
	c.touched = c.touched[:0]
	c.torn = true
	if err := c.memory.WriteAll(context.WithoutCancel(ctx), parts); err != nil {
		return err
	}
	c.torn = false
	return nil
}

// Prompt appends tokens to a conversation, and has it answer. It returns how many tokens the
// conversation has then.
func (c *Conversations) Prompt(ctx context.Context, agent int, p swarms.Prompt) (at int, err error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	r := c.record(agent)
	total := len(r.tokens) + len(p.Tokens)
	for i, t := range p.Tokens {
		if t < 0 || int(t) >= c.machine.Parameters().Vocabulary {
			return 0, jobs.Errorf(jobs.CodeInvalid, "prompt: token %d is %d, and the model has %d: encode the text "+
				"with the tokenizer of the model", i, t, c.machine.Parameters().Vocabulary)
		}
	}
	switch _, is := slices.BinarySearch(c.active, agent); {
	case total == 0:
		return 0, jobs.Errorf(jobs.CodeInvalid, "prompt: agent %d has no tokens, and the prompt has none: give it some",
			c.id(agent))
	case total > c.o.Context || total == c.o.Context && p.Max > 0:
		return 0, jobs.Errorf(jobs.CodeInvalid, "prompt: agent %d has %d tokens, and with %d more there is no room in "+
			"its context of %d: rewind it, or use another agent", c.id(agent), len(r.tokens), len(p.Tokens),
			c.o.Context)
	case !is && len(c.active) >= swarms.MaxTokenRows:
		return 0, jobs.Errorf(jobs.CodeInvalid, "prompt: %d conversations of the shard are active, and no more may "+
			"be: wait until some have ended, or create the swarm with more shards", len(c.active))
	}
	r = c.changing(agent)
	if r.tokens = append(r.tokens, p.Tokens...); r.read == len(r.tokens) {
		r.read-- // the answer follows its last token
	}
	r.prompt, r.set, r.left, r.ended = settings{p.Sampling, p.Stop}, true, p.Max, ""
	c.setActive(agent, r, true)
	return len(r.tokens), c.keep(ctx)
}

// Cancel ends the answer of a conversation. It returns how many tokens the conversation has.
func (c *Conversations) Cancel(ctx context.Context, agent int) (at int, err error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	r := c.record(agent)
	if !r.active {
		return len(r.tokens), nil
	}
	r = c.changing(agent)
	r.left = 0
	c.setActive(agent, r, false)
	return len(r.tokens), c.keep(ctx)
}

// Rewind shortens a conversation to its first tokens.
func (c *Conversations) Rewind(ctx context.Context, agent, to int) error {
	if err := c.ready(); err != nil {
		return err
	}
	r := c.record(agent)
	if to > len(r.tokens) {
		return jobs.Errorf(jobs.CodeInvalid, "rewind: agent %d has %d tokens, fewer than %d: use at most that",
			c.id(agent), len(r.tokens), to)
	}
	r = c.changing(agent)
	c.setActive(agent, r, false)
	r.shorten(to)
	return c.keep(ctx)
}

// Fork makes an agent a copy of the first tokens of another one, with its cache.
func (c *Conversations) Fork(ctx context.Context, agent, into, to int) error {
	if err := c.ready(); err != nil {
		return err
	}
	from := c.record(agent)
	switch {
	case to > len(from.tokens):
		return jobs.Errorf(jobs.CodeInvalid, "fork: agent %d has %d tokens, fewer than %d: use at most that",
			c.id(agent), len(from.tokens), to)
	case c.record(into).active:
		return jobs.Errorf(jobs.CodeInvalid, "fork: agent %d makes an answer: cancel it first, or name another agent",
			c.id(into))
	}
	r := from.copyTo(to)
	c.torn = true
	if err := c.copyPages(context.WithoutCancel(ctx), agent, into, c.pagesOf(r.read)); err != nil {
		return err
	}
	c.all[into], c.touched = r, append(c.touched, into)
	return c.keep(ctx)
}

// copyPages copies the first n pages of the cache of an agent into the cache of another one, on the
// device.
func (c *Conversations) copyPages(ctx context.Context, agent, into, n int) error {
	all := make([]pages.Unit, n)
	for k := range all {
		all[k] = pages.Unit{Pages: []uint64{uint64(c.page(agent, k)), uint64(c.page(into, k))}, Read: 1}
	}
	sets, of := c.memory.PlanUnits(all)
	return c.memory.Each(ctx, sets, pages.Random, func(i int) error {
		part := all[:of[i]]
		all = all[of[i]:]
		arena, size := c.memory.Arena(), int64(c.o.Layout.PageBytes)
		for _, u := range part {
			from, to := int64(c.memory.Frame(int(u.Pages[0]))), int64(c.memory.Frame(int(u.Pages[1])))
			if err := arena.Copy(to*size, arena, from*size, size); err != nil {
				return fmt.Errorf("%w: copy a page of a conversation: %w", gpubatch.ErrDevice, err)
			}
			c.memory.MarkDirty(u.Pages[1:])
		}
		return nil
	})
}

// Text returns tokens of a conversation from a position on, and its progress.
func (c *Conversations) Text(agent, from int) (swarms.Text, error) {
	r := c.record(agent)
	if from > len(r.tokens) {
		return swarms.Text{}, jobs.Errorf(jobs.CodeInvalid, "query: text of agent %d from %d on: it has %d tokens: "+
			"use at most that", c.id(agent), from, len(r.tokens))
	}
	return swarms.Text{
		Version: jobs.Version, Agent: c.id(agent), From: from,
		Tokens: r.tokens[from:min(len(r.tokens), from+swarms.MaxPromptTokens)],
		At:     len(r.tokens), Read: r.read, Active: r.active, Left: r.left,
		Ended: r.ended,
	}, nil
}

// Progress returns how many tokens a conversation has read and has, and how many it makes at most.
func (c *Conversations) Progress(agent int) (read, tokens, left int) {
	r := c.record(agent)
	return r.read, len(r.tokens), r.left
}
