package transformer_test

import (
	"flag"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/conversations"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/transformer"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// positions is the length of the conversations of BenchmarkPrefix and BenchmarkResume.
var positions = flag.Int("positions", 1024, "tokens of a known prefix, and of a conversation that is resumed")

// shaped is a machine with its parameters.
type shaped struct {
	*transformer.Machine
	p architecture.Parameters
}

func (s shaped) Parameters() *architecture.Parameters { return &s.p }

// converse opens conversations with room for -positions tokens and some more, of each pages. With few
// the device has frames for one of them, and the others are in host memory.
func converse(b *testing.B, agents int, few bool) (c *conversations.Conversations, each int) {
	b.Helper()
	dev, context := opentest.Open(b, *opentest.Name, cuda.Options{}), *positions+64
	m, p, page := transformer.Shaped(b, dev, context)
	cell, err := cells.BindTransformer(map[string]float64{"context": float64(context), "chunk": 512}, 2,
		cells.Voting{Rule: kernels.RulePlurality})
	testkit.NoError(b, "cells.BindTransformer", err)
	layout, err := cell.Layout(page)
	testkit.NoError(b, "Layout", err)
	o := conversations.Options{
		Layout: layout, Agents: agents, Context: context, Chunk: 512, CacheBytes: transformer.PositionBytes(p),
	}
	var budget *pages.Budget
	if each = 1 + (context-1)/(page/int(o.CacheBytes)); few {
		budget = pages.NewBudget(int64(each+2)*int64(page), int64(agents*(each+1)+128)*int64(page))
	}
	c, err = conversations.New(dev, budget, o)
	testkit.NoError(b, "conversations.New", err)
	b.Cleanup(func() { testkit.NoError(b, "Close", c.Close()) })
	testkit.NoError(b, "Open", c.Memory().Open(b.Context(), nil))
	testkit.NoError(b, "Equip", c.Equip(b.Context(), shaped{m, p}))
	return c, each
}

// first gives an agent tokens and ticks until it has made a token.
func first(b *testing.B, c *conversations.Conversations, agent int, tokens []int32) {
	b.Helper()
	_, err := c.Prompt(b.Context(), agent, swarms.Prompt{Tokens: tokens, Max: 1})
	testkit.NoError(b, "Prompt", err)
	for c.Active() > 0 {
		_, _, err := c.Tick(b.Context(), 1)
		testkit.NoError(b, "Tick", err)
	}
}

// text returns n tokens.
func text(n int) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = int32(7 * i % 2000)
	}
	return all
}

// timed runs fn behind prepare, which is not timed, and returns the mean time.
func timed(b *testing.B, prepare, fn func()) time.Duration {
	b.Helper()
	var all time.Duration
	n := 0
	for b.Loop() {
		prepare()
		began := time.Now()
		fn()
		all += time.Since(began)
		n++
	}
	mean := all / time.Duration(n)
	b.ReportMetric(float64(mean.Microseconds())/1000, "ms/first")
	return mean
}

// BenchmarkPrefix is the time to the first token of an answer to 16 tokens behind -positions tokens:
// known is a fork of an agent that has read them, and read reads them.
func BenchmarkPrefix(b *testing.B) {
	c, _ := converse(b, 2, false)
	before, rest := text(*positions), text(16)
	first(b, c, 0, before)
	rewind := func() { testkit.NoError(b, "Rewind", c.Rewind(b.Context(), 1, 0)) }
	b.Run("known", func(b *testing.B) {
		timed(b, rewind, func() {
			testkit.NoError(b, "Fork", c.Fork(b.Context(), 0, 1, len(before)))
			first(b, c, 1, rest)
		})
	})
	b.Run("read", func(b *testing.B) {
		timed(b, rewind, func() { first(b, c, 1, append(before[:len(before):len(before)], rest...)) })
	})
}

// BenchmarkResume is the time to the next token of a conversation of -positions tokens whose cache is
// in host memory, and when the cache is made again from the tokens.
func BenchmarkResume(b *testing.B) {
	c, each := converse(b, 3, true)
	all := text(*positions)
	for agent := range 3 {
		first(b, c, agent, all)
	}
	rewind := func(agent int) { testkit.NoError(b, "Rewind", c.Rewind(b.Context(), agent, len(all))) }
	b.Run("host", func(b *testing.B) {
		moved := 0
		timed(b, func() {
			for agent := range 3 {
				rewind(agent)
			}
			first(b, c, 1, nil) // the others take the frames
			first(b, c, 2, nil)
			where := make([]pages.Location, each)
			c.Memory().Peek().Locations(c.Memory().Count()-3*each, where) // the cache of agent 0
			for _, page := range where {
				if page.Tier == 1 {
					moved++
				}
			}
		}, func() { first(b, c, 0, nil) })
		b.ReportMetric(float64(moved)/float64(b.N)/float64(each), "moved") // a share of the pages
	})
	b.Run("read", func(b *testing.B) {
		timed(b, func() { testkit.NoError(b, "Rewind", c.Rewind(b.Context(), 0, 0)) }, func() { first(b, c, 0, all) })
	})
}
