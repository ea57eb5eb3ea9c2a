package twins_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// people is the agents of a launch of SIR, as a reader of RFC 0053 would have them.
type people struct {
	states  []byte
	met     [][]uint32 // by agent: at the other ends of its links
	weights [][]uint32 // nil: all links count
	misses  []uint32
	recover uint32
	tick    uint32
	key     [2]uint32
	first   int      // the number of the first of them
	ill     []uint32 // bits of all agents that are infected
}

// success reports whether a draw is a success of a chance.
func success(draw, chance uint32) bool { return draw < chance || chance == 1<<32-1 }

func (p *people) word(id, part, n int) uint32 {
	return kernels.Philox(p.key, [4]uint32{uint32(n / 4), uint32(p.first + id), p.tick, uint32(part + 1)})[n%4]
}

// infected reports whether the agent is infected: it tries its links one by one. A draw says how
// many trials fail before one that succeeds, so that trials of all links are known from few draws.
func (p *people) infected(id int) bool {
	for part := 0; part*graphset.Part < len(p.met[id]); part++ {
		drawn := 0
		if part == 0 {
			drawn = -1 // the first draw is one of a block of four agents
		}
		draw := func() uint32 {
			if drawn++; drawn == 0 {
				return kernels.Philox(p.key, [4]uint32{0, uint32((p.first + id) / 4), p.tick})[id%4]
			}
			return p.word(id, part, drawn-1)
		}
		left := p.met[id][part*graphset.Part : min(len(p.met[id]), (part+1)*graphset.Part)]
		failures := func() (n int, more bool) {
			w := draw()
			for n < graphset.Gaps && success(w, p.misses[n]) {
				n++
			}
			return n, n == graphset.Gaps
		}
		fail, more := failures()
		for i, other := range left {
			if fail == 0 && more {
				fail, more = failures()
			}
			if fail > 0 {
				fail--
				continue
			}
			counts := p.weights == nil || draw()>>16 < p.weights[id][part*graphset.Part+i]
			if counts && p.ill[other/32]>>(other%32)&1 == 1 {
				return true
			}
			fail, more = failures()
		}
	}
	return false
}

// step returns the states after a tick.
func (p *people) step() []byte {
	next := slices.Clone(p.states)
	for id, state := range p.states {
		w := kernels.Philox(p.key, [4]uint32{0, uint32((p.first + id) / 4), p.tick})[id%4]
		switch {
		case state == graphset.Susceptible && p.infected(id):
			next[id] = graphset.Infected
		case state == graphset.Infected && success(w, p.recover):
			next[id] = graphset.Recovered
		}
	}
	return next
}

func peopleOf(a *graphset.SIRBound) *people {
	p := &people{
		states: statesOf(&a.AgentsBound), misses: a.Misses, recover: a.Recovery, tick: a.Tick,
		key: [2]uint32{a.Key0, a.Key1}, first: int(a.FirstID), ill: a.Infected,
	}
	for id := range p.states {
		from, to := a.Offsets[id], a.Offsets[id+1] // graphs with rows of one length fit too
		p.met = append(p.met, a.Columns[from:to])
		if a.Weighted != 0 {
			p.weights = append(p.weights, device.Of[uint32](device.Bytes(a.Weights))[from:to])
		}
	}
	return p
}

func statesOf(a *graphset.AgentsBound) (states []byte) {
	for id := range a.Agents {
		states = append(states, a.Pages[uint64(a.Frames[id/a.Per])*a.PageBytes+uint64(id%a.Per)])
	}
	return states
}

// TestSIR compares random ticks with ticks of agents one by one. Nobody is lost, and bytes of no
// agent stay as they are.
func TestSIR(t *testing.T) {
	ref, r := launches.Reference(t), rand.New(rand.NewPCG(5, 3))
	infections := 0
	for i := range testkit.Of(300, 80) {
		a := launches.RandomGraph(r, graphset.SIR, r.IntN(6000))
		before := launches.Named[graphset.SIRBound](a.Params, nil)
		after := launches.Named[graphset.SIRBound](a.Params, launches.On(t, ref, graphset.SIR, a.Params))
		p := peopleOf(before)
		want := p.step()
		if !bytes.Equal(statesOf(&after.AgentsBound), want) {
			t.Fatalf("launch %d: the states differ from the states of agents one by one", i)
		}
		counts := [graphset.States]uint64{}
		for id, state := range want {
			if after.Next[id/32]>>(id%32)&1 == 1 != (state == graphset.Infected) {
				t.Fatalf("launch %d: the bit of agent %d in state %d differs", i, id, state)
			}
			counts[state]++
			if state == graphset.Infected && p.states[id] == graphset.Susceptible {
				infections++
			}
		}
		for s, n := range counts {
			if before.Count == 0 {
				n = 0
			}
			if got := after.Tally[s] - before.Tally[s]; got != n {
				t.Fatalf("launch %d: %d agents are in state %d, want %d", i, got, s, n)
			}
		}
		changed := 0
		for j := range after.Pages {
			if after.Pages[j] != before.Pages[j] {
				changed++
			}
		}
		for id, state := range want {
			if state != p.states[id] {
				changed--
			}
		}
		if changed != 0 {
			t.Fatalf("launch %d: %d bytes of no agent have changed", i, changed)
		}
	}
	if infections < 100 {
		t.Errorf("%d agents were infected: too few for a comparison", infections)
	}
}

// TestLinks: generated links are a ring where no draw replaces them, random ones go to all other
// agents alike and never to the agent itself, and the share of them is the chance.
func TestLinks(t *testing.T) {
	ref := launches.Reference(t)
	generate := func(agents, degree int, rewire uint64, seed uint32) []uint32 {
		columns := launches.Alloc(t, ref, int64(4*agents*degree))
		s := launches.NewStream(t, ref)
		launches.Start(t, s, launches.FindKernel(t, ref, graphset.Links), device.Geometry{Grid: 3, Block: 32},
			graphset.LinksArgs{
				Columns: device.Ptr(columns), Agents: uint32(agents), Degree: uint32(degree), Rewire: rewire,
				Key0: seed, Key1: 1,
			}.Args()...)
		launches.Wait(t, s)
		return device.Of[uint32](launches.Download(t, columns))
	}
	if got := generate(5, 4, 0, 1); !slices.Equal(got, []uint32{
		1, 4, 2, 3,
		2, 0, 3, 4,
		3, 1, 4, 0,
		4, 2, 0, 1,
		0, 3, 1, 2,
	}) {
		t.Errorf("the ring is %d", got)
	}
	const agents, degree = 1000, 200
	random := generate(agents, degree, 1<<32, 7)
	var to [agents]int
	for i, other := range random {
		if other >= agents || int(other) == i/degree {
			t.Fatalf("agent %d has a link to %d", i/degree, other)
		}
		to[other]++
	}
	for other, n := range to { // 200 on average, with a deviation of 14.1
		if n < 200-85 || n > 200+85 {
			t.Errorf("%d links go to agent %d, want about 200", n, other)
		}
	}
	if slices.Equal(random, generate(agents, degree, 1<<32, 8)) {
		t.Error("the seed changes nothing")
	}
	ring, replaced := generate(agents, degree, 0, 7), 0
	for i, other := range generate(agents, degree, 1<<30, 7) {
		if other != ring[i] {
			replaced++
		}
	}
	if want := agents * degree / 4; replaced < want-2000 || replaced > want+1000 { // a random one may be the same
		t.Errorf("%d links are replaced, want about %d", replaced, want)
	}
}

// TestGraphKernelsOnTheCPU compares the CUDA text of the kernels with their twins.
func TestGraphKernelsOnTheCPU(t *testing.T) {
	launches.Texts{
		Kernels: launches.GraphKernels(), Random: launches.RandomGraph, Count: testkit.Of(40, 8),
		Size: func(r *rand.Rand) int { return r.IntN(5000) },
	}.Test(t)
}
