package conversations

import (
	"context"
	"slices"

	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/transformer"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// reading is tokens that a conversation reads in a step.
type reading struct {
	agent, from int
	tokens      []int32
	draw        bool
	drawn       int32
}

// Reduce has conversations stepped one by one, or ends that. It changes no bit.
func (c *Conversations) Reduce(on bool) { c.reduced = on }

// Active returns how many conversations take part in the next step.
func (c *Conversations) Active() int { return len(c.active) }

// Tick makes steps: in each, an active conversation reads up to a chunk of tokens, and makes one if
// none is left to read. rows are the tokens in the order of the steps, and by agent in each, and
// steps counts the steps of conversations. When ctx ends, they are between two steps.
func (c *Conversations) Tick(ctx context.Context, count int) (rows []swarms.TokenRow, steps int, err error) {
	if err := c.ready(); err != nil {
		return nil, 0, err
	}
	if n := len(c.active); count > 1 && count*n > swarms.MaxTokenRows {
		return nil, 0, jobs.Errorf(jobs.CodeInvalid, "tick: count %d and %d active conversations make up to %d "+
			"tokens, and an answer has at most %d: use a count of at most %d", count, n, count*n, swarms.MaxTokenRows,
			max(1, swarms.MaxTokenRows/n))
	}
	c.torn = true
	for range count {
		if len(c.active) == 0 {
			break
		}
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		steps += len(c.active)
		all := make([]*reading, len(c.active))
		for i, agent := range c.active {
			all[i] = c.next(agent)
		}
		if err := c.step(ctx, all, nil); err != nil {
			return nil, 0, err
		}
		for _, g := range all {
			if row, is := c.apply(g); is {
				rows = append(rows, row)
			}
		}
	}
	return rows, steps, c.keep(ctx)
}

// next returns what an active conversation does in a step.
func (c *Conversations) next(agent int) *reading {
	r := c.changing(agent)
	g := &reading{agent: agent, from: r.read, tokens: r.tokens[r.read:min(len(r.tokens), r.read+c.o.Chunk)]}
	if r.left == 0 || r.read+len(g.tokens) < len(r.tokens) {
		return g
	}
	g.draw = true
	return g
}

// run returns what a conversation reads as a run of a machine.
func (c *Conversations) run(g *reading, of []uint64) transformer.Run {
	run := transformer.Run{
		From: g.from, Tokens: g.tokens, Draw: g.draw, Agent: uint64(c.id(g.agent)), Frames: make([]uint32, len(of)),
	}
	for i, page := range of {
		run.Frames[i] = c.memory.Frame(int(page))
	}
	if !g.draw {
		return run
	}
	r := c.all[g.agent]
	s := r.prompt.sampling
	run.Seed, run.Recent = s.Seed, r.tokens[max(0, len(r.tokens)-transformer.MaxRecent):]
	if s.Seed == 0 {
		run.Seed = c.o.Seed
	}
	run.Sampling = transformer.Sampling{
		Temperature: s.Temperature, TopP: s.TopP, MinP: s.MinP, Repetition: s.Repetition, TopK: s.TopK,
	}
	return run
}

// apply brings what a conversation has done in a step into its record. It returns a row if the
// conversation has made a token, or has ended.
func (c *Conversations) apply(g *reading) (row swarms.TokenRow, is bool) {
	r := c.all[g.agent]
	r.read += len(g.tokens)
	row = swarms.TokenRow{Agent: c.id(g.agent), At: len(r.tokens), Token: swarms.NoToken}
	if g.draw {
		row.Token = g.drawn
		r.tokens, r.left = append(r.tokens, g.drawn), r.left-1
	}
	switch {
	case r.read < len(r.tokens) && !g.draw:
		return row, false
	case !g.draw:
		row.Ended = swarms.EndedRead
	case slices.Contains(r.prompt.stop, g.drawn):
		row.Ended = swarms.EndedStop
	case r.left == 0:
		row.Ended = swarms.EndedMax
	case len(r.tokens) == c.o.Context:
		row.Ended = swarms.EndedContext
	}
	if row.Ended != "" {
		r.left, r.ended = 0, row.Ended
		c.setActive(g.agent, r, false)
	}
	return row, true
}

// maxLooked is how many conversations are looked at in a step of the machine.
const maxLooked = 64

// step has conversations read tokens, each at most once, in the order of their agents. With look it
// changes no page: what is read is there, and look is called for each run of a step of the machine.
// The end of ctx interrupts it between two sets of pages.
func (c *Conversations) step(ctx context.Context, all []*reading, look func(agent, run int) error) error {
	units := make([]pages.Unit, len(all))
	for i, g := range all {
		u := &units[i]
		for k := range c.pagesOf(g.from + len(g.tokens)) {
			u.Pages = append(u.Pages, uint64(c.page(g.agent, k)))
		}
		if u.Read = g.from / c.o.positions(); look != nil {
			u.Read = len(u.Pages)
		}
	}
	sets, of := c.memory.PlanUnits(units)
	wait := context.WithoutCancel(ctx)
	if c.memory.Resident() {
		ctx = wait
	}
	return c.memory.Each(ctx, sets, pages.Random, func(i int) error {
		part, pinned := all[:of[i]], units[:of[i]]
		all, units = all[of[i]:], units[of[i]:]
		runs, out := make([]transformer.Run, len(part)), make([]transformer.Token, len(part))
		for k, g := range part {
			runs[k] = c.run(g, pinned[k].Pages)
			c.memory.MarkDirty(pinned[k].Pages[pinned[k].Read:])
		}
		each := len(runs)
		if c.reduced {
			each = 1
		}
		if look != nil {
			each = min(each, maxLooked)
		}
		for from := 0; from < len(runs); from += each {
			to := min(from+each, len(runs))
			if err := c.machine.Step(wait, c.memory.Arena(), runs[from:to], out[from:to]); err != nil {
				return err
			}
			for k := from; look != nil && k < to; k++ {
				if err := look(part[k].agent, k-from); err != nil {
					return err
				}
			}
		}
		for k, g := range part {
			g.drawn = out[k].Token
		}
		return nil
	})
}
