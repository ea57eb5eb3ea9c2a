package conversations

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/transformer"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

const (
	testPage    = 4 << 10
	testContext = 100
	testAgents  = 24
	testFirst   = 70
)

func testOptions(t testing.TB, chunk int) Options {
	t.Helper()
	cell, err := cells.BindTransformer(map[string]float64{"context": testContext, "chunk": float64(chunk)}, 2,
		cells.Voting{Rule: kernels.RulePlurality})
	testkit.NoError(t, "cells.BindTransformer", err)
	l, err := cell.Layout(testPage)
	testkit.NoError(t, "Layout", err)
	return Options{
		Layout: l, Agents: testAgents, First: testFirst, Context: testContext, Chunk: chunk, CacheBytes: 256, Seed: 9,
	}
}

// open makes conversations over a store, which may be nil, as a process does.
func open(t testing.TB, d device.Device, b *pages.Budget, store pages.Store, o Options) *Conversations {
	t.Helper()
	c, err := New(d, b, o)
	testkit.NoError(t, "New", err)
	t.Cleanup(func() { testkit.NoError(t, "Close", c.Close()) })
	testkit.NoError(t, "Open", c.memory.Open(t.Context(), store))
	testkit.NoError(t, "Restored", c.Restored(t.Context()))
	testkit.NoError(t, "Equip", c.Equip(t.Context(), &hashes{t: t, o: o}))
	return c
}

// plain is what conversations must do, without pages: each step hashes all tokens again.
type plain struct {
	o   Options
	all [testAgents]plainAgent
}

type plainAgent struct {
	tokens []int32
	read   int
	left   int
	active bool
	prompt swarms.Prompt
	ended  string
}

func (p *plain) draw(agent int) int32 {
	a := p.all[agent]
	var firsts []uint64
	last := uint64(0)
	for i, token := range a.tokens {
		if last = chained(last, token); i%p.o.positions() == 0 {
			firsts = append(firsts, last)
		}
	}
	run := transformer.Run{
		Seed: a.prompt.Sampling.Seed, Agent: uint64(testFirst + agent),
		Sampling: transformer.Sampling{Temperature: a.prompt.Sampling.Temperature},
		Recent:   a.tokens[max(0, len(a.tokens)-64):],
	}
	if run.Seed == 0 {
		run.Seed = p.o.Seed
	}
	return drawn(last, firsts, run)
}

func (p *plain) tick(count int) (rows []swarms.TokenRow) {
	for range count {
		for i := range p.all {
			a := &p.all[i]
			if !a.active {
				continue
			}
			a.read = min(len(a.tokens), a.read+p.o.Chunk)
			if a.read < len(a.tokens) {
				continue
			}
			row := swarms.TokenRow{Agent: uint32(testFirst + i), At: len(a.tokens), Token: swarms.NoToken}
			if a.left == 0 {
				row.Ended = swarms.EndedRead
			} else {
				row.Token = p.draw(i)
				a.tokens = append(a.tokens, row.Token)
				a.left--
				switch {
				case slices.Contains(a.prompt.Stop, row.Token):
					row.Ended = swarms.EndedStop
				case a.left == 0:
					row.Ended = swarms.EndedMax
				case len(a.tokens) == p.o.Context:
					row.Ended = swarms.EndedContext
				}
			}
			if a.ended = row.Ended; row.Ended != "" {
				a.left, a.active = 0, false
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// refused reports whether an error refuses an operation, and fails for any other error.
func refused(t testing.TB, what string, err error) bool {
	t.Helper()
	if err != nil && !errors.As(err, new(*jobs.Error)) {
		t.Fatalf("%s: %v", what, err)
	}
	return err != nil
}

// random applies a random operation to both, and compares what they answer.
func (p *plain) random(t testing.TB, r *rand.Rand, c *Conversations) {
	t.Helper()
	ctx, agent, other := t.Context(), r.IntN(testAgents), r.IntN(testAgents)
	a := &p.all[agent]
	switch r.IntN(9) {
	case 0, 1, 2:
		q := swarms.Prompt{Version: jobs.Version, Max: r.IntN(20) * r.IntN(2)}
		for range r.IntN(40) * r.IntN(3) / 2 {
			q.Tokens = append(q.Tokens, int32(r.IntN(vocabulary)))
		}
		if r.IntN(2) == 0 {
			q.Sampling = swarms.Sampling{Temperature: 1, Seed: uint64(r.IntN(2))}
		}
		for range r.IntN(3) {
			q.Stop = append(q.Stop, int32(r.IntN(vocabulary)))
		}
		total := len(a.tokens) + len(q.Tokens)
		at, err := c.Prompt(ctx, agent, q)
		wrong := total == 0 || total > testContext || total == testContext && q.Max > 0
		if refused(t, "Prompt", err) != wrong {
			t.Fatalf("Prompt of %d tokens behind %d: %v", len(q.Tokens), len(a.tokens), err)
		}
		if wrong {
			return
		}
		if a.tokens = append(a.tokens, q.Tokens...); a.read == len(a.tokens) {
			a.read--
		}
		a.left, a.active, a.prompt, a.ended = q.Max, true, q, ""
		if at != len(a.tokens) {
			t.Fatalf("Prompt: at %d, want %d", at, len(a.tokens))
		}
	case 3:
		at, err := c.Cancel(ctx, agent)
		testkit.NoError(t, "Cancel", err)
		if a.left, a.active = 0, false; at != len(a.tokens) {
			t.Fatalf("Cancel: at %d, want %d", at, len(a.tokens))
		}
	case 4:
		to := r.IntN(len(a.tokens) + 2)
		if refused(t, "Rewind", c.Rewind(ctx, agent, to)) != (to > len(a.tokens)) {
			t.Fatalf("Rewind of %d tokens to %d", len(a.tokens), to)
		}
		if to <= len(a.tokens) {
			a.tokens = slices.Clone(a.tokens[:to])
			a.read, a.left, a.active, a.ended = min(a.read, max(0, to-1)), 0, false, ""
		}
	case 5:
		if agent == other {
			return
		}
		to := r.IntN(len(a.tokens) + 1)
		if refused(t, "Fork", c.Fork(ctx, agent, other, to)) != p.all[other].active {
			t.Fatalf("Fork into an agent that is active: %v", p.all[other].active)
		}
		if !p.all[other].active {
			p.all[other] = plainAgent{tokens: slices.Clone(a.tokens[:to]), read: min(a.read, max(0, to-1))}
		}
	default:
		n := 1 + r.IntN(12)
		rows, _, err := c.Tick(ctx, n)
		testkit.NoError(t, "Tick", err)
		if d := cmp.Diff(p.tick(n), rows); d != "" {
			t.Fatalf("a tick of %d steps (-want +got):\n%s", n, d)
		}
	}
}

// check compares all texts.
func (p *plain) check(t testing.TB, c *Conversations) {
	t.Helper()
	active := 0
	for i := range p.all {
		a := &p.all[i]
		if a.active {
			active++
		}
		text, err := c.Text(i, 0)
		testkit.NoError(t, "Text", err)
		if !slices.Equal(text.Tokens, a.tokens) || text.Read != a.read || text.Left != a.left ||
			text.Active != a.active || text.Ended != a.ended || text.At != len(a.tokens) {
			t.Fatalf("agent %d: %+v, want %+v", i, text, a)
		}
	}
	if active != c.Active() {
		t.Fatalf("%d conversations are active, want %d", c.Active(), active)
	}
}

// few is a budget with room for some pages on the device, and for the rest in host memory.
func few(frames int) *pages.Budget { return pages.NewBudget(int64(frames)*testPage+1, 1<<30) }

// TestRandom: conversations with frames for all pages and for a tenth make the tokens of a plain
// form that hashes all tokens in each step, also while the device gets one run at a time.
func TestRandom(t *testing.T) {
	d := opentest.Device(t)
	for seed := range uint64(testkit.Of(40, 12)) {
		r := rand.New(rand.NewPCG(seed, 1))
		o := testOptions(t, []int{1, 3, 16, 512}[seed%4])
		b := few(9 + r.IntN(12))
		if seed%3 == 0 {
			b = nil
		}
		c, p := open(t, d, b, nil, o), &plain{o: o}
		if c.memory.Resident() != (b == nil) {
			t.Fatalf("resident: %v", c.memory.Resident())
		}
		for range 60 {
			c.Reduce(r.IntN(3) == 0)
			p.random(t, r, c)
		}
		p.check(t, c)
		testkit.NoError(t, "Reset", c.Reset(t.Context()))
		(&plain{o: o}).check(t, c)
		if slices.Contains(c.memory.Made(), true) {
			t.Error("pages are there behind a reset")
		}
		testkit.NoError(t, "Close", c.Close())
	}
}

// TestFork: agents that are copies of the first tokens of another one make its tokens, with frames for
// all pages and with the fewest, and the copied pages are in the next checkpoint.
func TestFork(t *testing.T) {
	d, o := opentest.Device(t), testOptions(t, 16)
	for _, b := range []*pages.Budget{nil, few(8)} {
		c, p := open(t, d, b, nil, o), &plain{o: o}
		prompt := func(agent int, q swarms.Prompt) {
			_, err := c.Prompt(t.Context(), agent, q)
			testkit.NoError(t, "Prompt", err)
			a := &p.all[agent]
			a.tokens = append(a.tokens, q.Tokens...)
			a.read, a.left, a.active, a.prompt = min(a.read, len(a.tokens)-1), q.Max, true, q
		}
		tick := func() {
			t.Helper()
			rows, _, err := c.Tick(t.Context(), 20)
			testkit.NoError(t, "Tick", err)
			if d := cmp.Diff(p.tick(20), rows); d != "" {
				t.Fatalf("a tick (-want +got):\n%s", d)
			}
		}
		long := swarms.Prompt{Max: 10}
		for i := range 70 {
			long.Tokens = append(long.Tokens, int32(i%vocabulary))
		}
		prompt(0, long)
		tick()
		clear(c.memory.Dirty())
		for into := 1; into < testAgents; into++ {
			to := 3*into + 8
			testkit.NoError(t, "Fork", c.Fork(t.Context(), 0, into, to))
			p.all[into] = plainAgent{tokens: slices.Clone(p.all[0].tokens[:to]), read: to - 1}
			for k := range c.pagesOf(to - 1) {
				if !c.memory.Dirty()[c.page(into, k)] {
					t.Errorf("page %d of a fork of %d tokens does not get into the next checkpoint", k, to)
				}
			}
		}
		for agent := range testAgents {
			prompt(agent, swarms.Prompt{Max: 5})
		}
		tick()
		p.check(t, c)
	}
}

// TestProcesses: a process that opens the pages of the last checkpoint goes on from it. One that has
// the records alone, as of a snapshot, reads the tokens again.
func TestProcesses(t *testing.T) {
	d := opentest.Device(t)
	for seed := range uint64(testkit.Of(20, 6)) {
		r := rand.New(rand.NewPCG(seed, 2))
		disk := tierstest.NewMem(1 << 30)
		openStore := func() *pagestore.Store {
			s, err := pagestore.Open(pagestore.Options{
				FS: disk, Tables: tierstest.Backend{FS: disk}, PageSize: testPage,
				Tiers: []pagestore.Tier{{
					Name: "disk", Dir: "/disk", Capacity: 64 << 20, SegmentBytes: 64 << 10, DiskReserve: -1,
				}},
			})
			testkit.NoError(t, "pagestore.Open", err)
			return s
		}
		store, o := openStore(), testOptions(t, 5)
		c, p := open(t, d, few(9+r.IntN(9)), store, o), &plain{o: o}
		kept := *p
		for range 80 {
			p.random(t, r, c)
			switch r.IntN(8) {
			case 0:
				testkit.NoError(t, "Checkpoint", c.memory.Checkpoint(t.Context(), nil))
				kept = *p
				for i := range kept.all {
					kept.all[i].tokens = slices.Clone(p.all[i].tokens)
				}
			case 1: // the process ends
				testkit.NoError(t, "Close", errors.Join(c.Close(), store.Close()))
				if r.IntN(2) == 0 { // with the power
					disk = disk.Crash(0.5, r)
				}
				store = openStore()
				c = open(t, d, few(9+r.IntN(9)), store, o)
				*p = kept
				for i := range p.all {
					p.all[i].tokens = slices.Clone(kept.all[i].tokens)
				}
				p.check(t, c)
			case 2: // another process takes a snapshot up
				from := c
				to := open(t, d, nil, nil, o)
				page := make([]byte, testPage)
				for k := range from.first {
					testkit.NoError(t, "Read", from.memory.Read(t.Context(), uint64(k), page))
					testkit.NoError(t, "Write", to.memory.Write(t.Context(), uint64(k), page))
				}
				testkit.NoError(t, "Restored", to.Restored(t.Context()))
				p.check(t, to)
				copied := *p
				for i := range copied.all {
					copied.all[i].tokens = slices.Clone(p.all[i].tokens)
				}
				for range 5 {
					copied.random(t, r, to)
				}
				testkit.NoError(t, "Close", to.Close())
			}
		}
		p.check(t, c)
		testkit.NoError(t, "Close", errors.Join(c.Close(), store.Close()))
	}
}

// TestPagesThatAreNotReached: a conversation has pages for its tokens alone, and a step changes the
// pages of its new positions and no others.
func TestPagesThatAreNotReached(t *testing.T) {
	o := testOptions(t, 512)
	c := open(t, opentest.Device(t), nil, nil, o)
	_, err := c.Prompt(t.Context(), 3, swarms.Prompt{Tokens: make([]int32, 40), Max: 9})
	testkit.NoError(t, "Prompt", err)
	_, _, err = c.Tick(t.Context(), 1)
	testkit.NoError(t, "Tick", err)
	caches := func(of []bool) (all []int) {
		for i, is := range of[c.first:] {
			if is {
				all = append(all, i)
			}
		}
		return all
	}
	if got, want := caches(c.memory.Made()), []int{21, 22, 23}; !slices.Equal(got, want) {
		t.Errorf("40 tokens of agent 3, 16 a page, have the pages %d, want %d", got, want)
	}
	clear(c.memory.Dirty())
	_, _, err = c.Tick(t.Context(), 1)
	testkit.NoError(t, "Tick", err)
	if got, want := caches(c.memory.Dirty()), []int{23}; !slices.Equal(got, want) {
		t.Errorf("a token changes the pages %d, want %d", got, want)
	}
}

// TestRefusals: what does not fit is refused with a cure, and changes nothing.
func TestRefusals(t *testing.T) {
	o := testOptions(t, 512)
	c := open(t, opentest.Device(t), nil, nil, o)
	_, err := c.Prompt(t.Context(), 0, swarms.Prompt{Tokens: []int32{1, 2}, Max: 80})
	testkit.NoError(t, "Prompt", err)
	for _, of := range []struct {
		want string
		do   func() error
	}{
		{"token 1 is 50, and the model has 50", func() error {
			_, err := c.Prompt(t.Context(), 1, swarms.Prompt{Tokens: []int32{0, 50}})
			return err
		}},
		{"agent 71 has no tokens", func() error {
			_, err := c.Prompt(t.Context(), 1, swarms.Prompt{Max: 3})
			return err
		}},
		{"agent 70 has 2 tokens, and with 99 more there is no room", func() error {
			_, err := c.Prompt(t.Context(), 0, swarms.Prompt{Tokens: make([]int32, 99)})
			return err
		}},
		{"agent 70 has 2 tokens, fewer than 3", func() error { return c.Rewind(t.Context(), 0, 3) }},
		{"agent 70 makes an answer: cancel it first", func() error { return c.Fork(t.Context(), 1, 0, 0) }},
		{"agent 71 has 0 tokens, fewer than 1", func() error { return c.Fork(t.Context(), 1, 2, 1) }},
		{"use at most that", func() error { _, err := c.Text(0, 3); return err }},
	} {
		if err := of.do(); !refused(t, of.want, err) || !strings.Contains(err.Error(), of.want) {
			t.Errorf("%v, want %s", err, of.want)
		}
	}
	for agent := range testAgents {
		_, err := c.Prompt(t.Context(), agent, swarms.Prompt{Tokens: []int32{1}, Max: 3})
		testkit.NoError(t, "Prompt", err)
	}
	_, _, err = c.Tick(t.Context(), 513)
	if !refused(t, "Tick", err) || !strings.Contains(err.Error(), "use a count of at most 512") {
		t.Errorf("a tick of 513 steps of 24 conversations: %v", err)
	}
	if _, _, err = c.Tick(t.Context(), 512); err != nil {
		t.Errorf("a tick of 512 steps: %v", err)
	}
	_, err = New(c.memory.Device(), pages.NewBudget(6*testPage, 1<<30), o)
	if !refused(t, "New", err) || !strings.Contains(err.Error(), "too few on the device") {
		t.Errorf("6 frames for conversations of 7 pages: %v", err)
	}
}

// TestTorn: behind a tick that a context has ended, everything fails until the pages are read again.
func TestTorn(t *testing.T) {
	c := open(t, opentest.Device(t), nil, nil, testOptions(t, 512))
	_, err := c.Prompt(t.Context(), 0, swarms.Prompt{Tokens: []int32{1, 2}, Max: 80})
	testkit.NoError(t, "Prompt", err)
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrDrain)
	if _, _, err := c.Tick(ended, 3); !errors.Is(err, jobs.ErrDrain) {
		t.Errorf("a tick whose context has ended: %v", err)
	}
	for i, err := range []error{
		func() error { _, err := c.Prompt(t.Context(), 0, swarms.Prompt{Max: 1}); return err }(),
		func() error { _, err := c.Cancel(t.Context(), 0); return err }(),
		func() error { _, _, err := c.Tick(t.Context(), 1); return err }(),
		c.Rewind(t.Context(), 0, 1), c.Fork(t.Context(), 0, 1, 1),
	} {
		if !errors.Is(err, ErrTorn) {
			t.Errorf("call %d behind it: %v, want %v", i, err, ErrTorn)
		}
	}
	testkit.NoError(t, "Restored", c.Restored(t.Context()))
	rows, _, err := c.Tick(t.Context(), 1)
	testkit.NoError(t, "Tick", err)
	if len(rows) != 1 || rows[0].At != 2 {
		t.Errorf("rows %+v, want one at 2", rows)
	}
}

// TestDamagedRecord: words that no conversation has are an error, and no panic.
func TestDamagedRecord(t *testing.T) {
	o, d := testOptions(t, 512), opentest.Device(t)
	for variable, words := range map[int][]uint32{
		cells.ConversationProgress: {3, 2, 0, 0, 0},
		cells.ConversationSettings: {cells.SettingsStops: 1 << 31},
		cells.ConversationText:     nil,
	} {
		c := open(t, d, nil, nil, o)
		if words == nil {
			variable, words = cells.ConversationProgress, []uint32{0, testContext + 1, 0, 0, 0}
		}
		one := part(o.Layout, 5, variable, 0, words)
		page := make([]byte, testPage)
		copy(page[one.Off:], one.Bytes)
		testkit.NoError(t, "Write", c.memory.Write(t.Context(), one.Page, page))
		if err := c.Restored(t.Context()); err == nil || !strings.Contains(err.Error(), "record of agent 75") {
			t.Errorf("words %s: %v, want an error", fmt.Sprint(words), err)
		}
	}
}
