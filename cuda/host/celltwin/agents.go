package celltwin

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// The twins of the kernels of agent-addressed swarms: a tick and a step of each cell, and the
// kernels that all cells share.
func init() {
	for _, class := range []int{8, 16, kernels.AgentMostHidden} {
		for _, elem := range []kernels.Elem{kernels.F32, kernels.BF16} {
			open := func(s *agentSwarm, table []uint32) agentCell { return newAgentGRU(s, table, class, elem) }
			twins.Register(kernels.AgentGRUName("tick", class, elem), func(b *twins.Block, a *kernels.TickBound) {
				agentTick(b, &a.TickingBound, open, nil)
			})
			twins.Register(kernels.AgentGRUName("told", class, elem), func(b *twins.Block, a *kernels.ToldBound) {
				agentTold(b, a, class, elem)
			})
			twins.Register(kernels.AgentGRUName("step", class, elem), func(b *twins.Block, a *kernels.StepBound) {
				agentStep(b, a, open)
			})
		}
	}
	open := func(s *agentSwarm, _ []uint32) agentCell { return newAgentLeaky(s) }
	twins.Register("leaky_tick", func(b *twins.Block, a *kernels.TickBound) {
		agentTick(b, &a.TickingBound, open, nil)
	})
	twins.Register("leaky_step", func(b *twins.Block, a *kernels.StepBound) { agentStep(b, a, open) })
	for qubits := 1; qubits <= kernels.QuantumMostQubits; qubits++ {
		open := func(s *agentSwarm, table []uint32) agentCell { return newAgentQuantum(s, table, qubits) }
		twins.Register(kernels.AgentQuantumName("tick", qubits), func(b *twins.Block, a *kernels.TickBound) {
			agentTick(b, &a.TickingBound, open, nil)
		})
		twins.Register(kernels.AgentQuantumName("step", qubits), func(b *twins.Block, a *kernels.StepBound) {
			agentStep(b, a, open)
		})
	}
	twins.Register("step_decide", stepDecide)
	twins.Register("agent_sums", agentSums)
	twins.Register("agent_learn", agentLearn)
	twins.Register("agent_nodes", agentNodes)
}

// agentSwarm is an agent-addressed swarm as its kernels get it.
type agentSwarm struct {
	arena, host []byte // the frames in device memory and in host memory
	pageBytes   uint64
	frames      []uint32 // by page
	offsets     []uint32 // by variable, in bytes from the start of a page
	words       []uint32 // the parameters, by kernels.AgentCandidates and so on
	// agents is the number of agents of a group, slots the number of groups of a page.
	agents, slots, groups, candidates int
}

// openAgents reads the arguments that all kernels of agents share.
func openAgents(a *kernels.PagedBound, groups uint32, host []byte) *agentSwarm {
	return &agentSwarm{
		arena: a.Pages, host: host, pageBytes: a.PageBytes, frames: a.Frames, offsets: a.Layout[2:], words: a.Params,
		agents: int(a.Layout[0]), slots: int(a.Layout[1]), groups: int(groups),
		candidates: int(a.Params[kernels.AgentCandidates]),
	}
}

// variable returns the content of a page from the start of a variable on.
func (s *agentSwarm) variable(page, v int) []byte {
	arena, frame := s.arena, uint64(s.frames[page])
	if frame>>kernels.AgentHostBit != 0 {
		arena, frame = s.host, frame&(1<<kernels.AgentHostBit-1)
	}
	return arena[frame*s.pageBytes:][:s.pageBytes][s.offsets[v]:]
}

func (s *agentSwarm) counts(group int) []uint32 {
	at := group % s.slots * s.candidates * 4
	return device.Of[uint32](s.variable(group/s.slots, kernels.AgentVarCounts)[at : at+4*s.candidates])
}

func (s *agentSwarm) round(group int) *uint64 { return s.word(group, kernels.AgentVarRound) }

func (s *agentSwarm) word(group, v int) *uint64 {
	return &device.Of[uint64](s.variable(group/s.slots, v)[:8*s.slots])[group%s.slots]
}

// vote returns the vote of an agent, which is its candidate plus one, or 0 before its first step.
// at is the index of the agent in the page.
func (s *agentSwarm) vote(page, at int) *byte { return &s.variable(page, kernels.AgentVarVote)[at] }

// decide returns the decision of a group with these counts.
func (s *agentSwarm) decide(counts []uint32) byte {
	return byte(decision(counts, kernels.Rule(s.words[kernels.AgentRule]), s.words[kernels.AgentQuorum]))
}

// agentCell is the step of one agent, the one at index at of a page.
type agentCell interface {
	// hold stores the inputs of an observation for the next steps.
	hold(page, at int, inputs []float32)
	// step updates the agent by the inputs that it holds and returns the candidate that it votes
	// for.
	step(page, at int) int
	// stepMany steps the first agents from index at on, several at a time and each a number of times,
	// and sets the candidates that they vote for after that, or kernels.AgentNoVote. It returns how
	// many of the agents of best it has stepped; step is for the others. Steps are 0 in a measurement
	// alone.
	stepMany(page, at, steps int, best []byte) int
}

// agentTick is the twin of tick in agents.cuh: each block steps all agents of its share of the
// groups, and the last one publishes the sums. Agents hear their group by told if it is not nil,
// and make one step.
func agentTick(b *twins.Block, a *kernels.TickingBound, open func(*agentSwarm, []uint32) agentCell, told *telling) {
	s := openAgents(&a.PagedBound, a.Groups, nil)
	cell, steps, scratch, result := open(s, a.Table), a.Steps, a.Scratch, a.Result
	_, measures := cell.(*agentQuantum)
	sums, best := make([]uint64, s.candidates), make([]byte, s.agents)
	begin := int(a.First) * s.slots
	groups := min(begin+int(a.Count)*s.slots, s.groups) - begin
	first, end := b.Part(uint64(groups))
	if told != nil && steps > 0 {
		told.begin(b)
	}
	for g := begin + int(first); g < begin+int(end); g++ {
		if told != nil && steps == 0 {
			if told.nodes > 0 {
				told.addTotal(g, 0)
			}
			continue
		}
		if told != nil {
			told.tell(g)
		}
		counts := s.counts(g)
		clear(counts)
		page, from, done := g/s.slots, g%s.slots*s.agents, 0
		if steps > 0 || measures { // a tick of no steps votes for the first candidate
			done = cell.stepMany(page, from, int(steps), best)
		}
		for i := done; i < s.agents; i++ {
			best[i] = 0
			for range steps {
				best[i] = byte(cell.step(page, from+i))
			}
		}
		if told != nil {
			told.restore(g)
		}
		votes := s.variable(page, kernels.AgentVarVote)[from:][:s.agents]
		for i, c := range best {
			if votes[i] = c + 1; c != kernels.AgentNoVote {
				counts[c]++
			}
		}
		if told != nil {
			told.keep(g)
		}
		for c, n := range counts {
			sums[c] += uint64(n)
		}
		*s.round(g) += uint64(steps)
		a.Decisions[g] = s.decide(counts)
	}
	// A swarm may be stepped in several launches: each counts its pages, and the last one
	// publishes.
	if a.Tally != kernels.AgentTickSilent {
		for c, n := range sums {
			atomic.AddUint64(&scratch[kernels.AgentSum+c], n)
		}
	}
	if !twins.LastBlock(b, scratch) {
		return
	}
	for c := 0; c < s.candidates && a.Tally == kernels.AgentTickPublish; c++ {
		scratch[kernels.AgentTally+c] = scratch[kernels.AgentSum+c]
		result[kernels.AgentResultTally+c] = scratch[kernels.AgentSum+c]
		scratch[kernels.AgentSum+c] = 0
	}
	result[kernels.AgentStepped], result[kernels.AgentOutside],
		result[kernels.AgentRefused] = uint64(groups)*uint64(s.agents)*uint64(steps), 0, 0
	atomic.StoreUint64(&result[kernels.AgentDone], uint64(a.Sequence))
}

// agentStep is the twin of gru_step.cu and leaky_step.cu: each block steps its share of the
// observed agents. An agent that does not exist, or inputs that are not finite, are counted and
// left out.
func agentStep(b *twins.Block, a *kernels.StepBound, open func(*agentSwarm, []uint32) agentCell) {
	s := openAgents(&a.PagedBound, a.Groups, a.Host)
	cell, agents, votes, scratch := open(s, a.Table), a.Agents, a.Votes, a.Scratch
	features := int(s.words[kernels.AgentFeatures])
	held := make([]float32, features)
	n := a.Count
	if n == kernels.AgentHeaded {
		n = a.Head[0]
	}
	first, end := b.Part(uint64(n))
	for i := int(first); i < int(end); i++ {
		votes[i] = kernels.AgentNoVote // until the agent has stepped
		group := int(agents[i]) / s.agents
		if group >= s.groups {
			atomic.AddUint64(&scratch[kernels.AgentOutside], 1)
			continue
		}
		copy(held, a.Inputs[i*features:])
		if slices.ContainsFunc(held, func(v float32) bool { return v-v != 0 }) {
			atomic.AddUint64(&scratch[kernels.AgentRefused], 1)
			continue
		}
		page := group / s.slots
		at := int(agents[i]) - page*s.slots*s.agents
		cell.hold(page, at, held)
		best := cell.step(page, at)
		votes[i] = byte(best)
		atomic.AddUint64(&scratch[kernels.AgentStepped], 1)
		s.revote(scratch, group, s.vote(page, at), best)
	}
}

// revote replaces the vote of an agent in the counts of its group and of the swarm.
func (s *agentSwarm) revote(scratch []uint64, group int, vote *byte, best int) {
	old := int(*vote)
	if old == best+1 {
		return
	}
	*vote = byte(best + 1)
	counts := s.counts(group)
	atomic.AddUint32(&counts[best], 1)
	atomic.AddUint64(&scratch[kernels.AgentTally+best], 1)
	if old >= 1 && old <= s.candidates {
		atomic.AddUint32(&counts[old-1], math.MaxUint32)
		atomic.AddUint64(&scratch[kernels.AgentTally+old-1], math.MaxUint64)
	}
}

// stepDecide is the twin of step_decide.cu: it decides the groups of the observed agents after
// their steps, and advances the round of each such group once.
func stepDecide(b *twins.Block, a *kernels.StepDecideBound) {
	s := openAgents(&a.PagedBound, a.Groups, a.Host)
	n, sequence, scratch, result := a.Count, a.Number, a.Scratch, a.Result
	if n == kernels.AgentHeaded {
		n, sequence = a.Head[0], a.Head[1]
	}
	first, end := b.Part(uint64(n))
	for i := int(first); i < int(end); i++ {
		a.Decisions[i] = kernels.AgentNoVote
		if a.Votes[i] == kernels.AgentNoVote {
			continue
		}
		group := int(a.Agents[i]) / s.agents
		a.Decisions[i] = s.decide(s.counts(group))
		if atomic.SwapUint32(&a.Stamps[group], sequence) != sequence {
			*s.round(group)++
		}
	}
	if !twins.LastBlock(b, scratch) {
		return
	}
	copy(result[kernels.AgentResultTally:], scratch[kernels.AgentTally:][:s.candidates])
	for i := kernels.AgentStepped; i <= kernels.AgentRefused; i++ {
		result[i] = scratch[i]
		scratch[i] = 0
	}
	atomic.StoreUint64(&result[kernels.AgentDone], uint64(sequence))
}

// agentSums is the twin of agent_sums.cu: it adds a variable of the agents of each run, in their
// order. Agents that never stepped, whose page is in host memory, or whose row is not finite are
// left out.
func agentSums(b *twins.Block, a *kernels.AgentSumsBound) {
	s := openAgents(&a.PagedBound, a.Groups, nil)
	variable, width, runs := int(a.Variable), int(a.Width), a.Runs
	stride := width
	if width > 1 {
		stride *= 2
	}
	memory, per := make([]float32, width), s.agents*s.slots
	first, end := b.Part(uint64(a.N))
	for i := int(first); i < int(end); i++ {
		sum, added := a.Sums[i*width:][:width], uint32(0)
		for place := int(runs[2*i]); place < int(runs[2*i])+int(runs[2*i+1]); place++ {
			agent := place
			if a.Ordered != 0 {
				agent = int(a.Order[place])
			}
			page, at := agent/per, agent%per
			if s.frames[page]>>kernels.AgentHostBit != 0 || *s.vote(page, at) == 0 {
				continue
			}
			row := memory
			if a.BF16 != 0 {
				twins.Widened(device.Of[uint16](s.variable(page, variable)[2*at*stride:][:2*width]), row)
			} else {
				row = s.floats(page, variable, at*stride, width)
			}
			if !twins.WholeRow(row) {
				continue
			}
			for d, v := range row {
				sum[d] += v
			}
			added++
		}
		a.Counts[i] = added
	}
}

// agentLeaky is the twin of leaky_agents.cuh.
type agentLeaky struct {
	s                      *agentSwarm
	decay, threshold, rate float32
	lanes                  *lanes.Leaky
}

func newAgentLeaky(s *agentSwarm) agentCell {
	word := func(i int) float32 { return math.Float32frombits(s.words[i]) }
	c := &agentLeaky{
		s: s, decay: word(kernels.AgentDecay), threshold: word(kernels.AgentThreshold),
		rate: word(kernels.AgentTraceRate),
	}
	c.lanes = lanes.NewLeaky(c.decay, c.threshold, c.rate)
	return c
}

func (s *agentSwarm) floats(page, v, at, n int) []float32 {
	return device.Of[float32](s.variable(page, v)[4*at : 4*(at+n)])
}

// hold implements agentCell. The second input is the gain; it is 0 if there is one feature only.
func (c *agentLeaky) hold(page, at int, inputs []float32) {
	to := c.s.floats(page, kernels.AgentVarInput, 2*at, 2)
	to[1] = 0
	for k, v := range inputs {
		to[k] = fmath.Clamp(v, kernels.AgentInput)
	}
}

func (c *agentLeaky) stepMany(page, at, steps int, best []byte) int {
	n := len(best)
	return c.lanes.Step(
		c.s.floats(page, kernels.AgentVarInput, 2*at, 2*n), c.s.floats(page, kernels.AgentVarPotential, at, n),
		c.s.floats(page, kernels.AgentVarTrace, at, n), steps, best,
	)
}

// step implements agentCell: the potential decays and takes in the input, and an agent whose
// potential passes the threshold spikes, which is its vote.
func (c *agentLeaky) step(page, at int) int {
	input := c.s.floats(page, kernels.AgentVarInput, 2*at, 2)
	potential, trace := &c.s.floats(page, kernels.AgentVarPotential, at, 1)[0],
		&c.s.floats(page, kernels.AgentVarTrace, at, 1)[0]
	v, spike, vote := fmath.FMA(c.decay, *potential, fmath.FMA(input[0], input[1], input[0])), float32(0), 0
	if v > c.threshold {
		v, spike, vote = v-c.threshold, 1, 1
	}
	*potential = v
	*trace = fmath.FMA(c.rate, spike-*trace, *trace)
	return vote
}
