package celltwin

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/fmath"
	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// telling is what agents hear of their group, as agent_tell gets it.
type telling struct {
	s                             *agentSwarm
	decision, node, width, hidden int // inputs count from 1 on; 0: it is not heard
	merge                         uint32
	rate                          float32
	bf16                          bool
}

// agentTell is the twin of agent_tell.cu: each block tells its share of the groups.
func agentTell(b *twin.Block) {
	t := telling{
		s: openAgents(b, 5), decision: int(b.Uint32(8)), node: int(b.Uint32(9)), width: int(b.Uint32(10)),
		merge: b.Uint32(11), rate: math.Float32frombits(b.Uint32(12)), hidden: int(b.Uint32(13)),
		bf16: b.Uint32(14) != 0,
	}
	begin := int(b.Uint32(6)) * t.s.slots
	end := min(begin+int(b.Uint32(7))*t.s.slots, t.s.groups)
	from, to := b.Part(uint64(max(0, end-begin)))
	for g := begin + int(from); g < begin+int(to); g++ {
		t.group(g)
	}
}

// group updates the node of a group, and writes what its agents hear.
func (t *telling) group(g int) {
	s := t.s
	decision, node := float32(0), []float32(nil)
	if t.decision > 0 {
		if c := s.decide(s.counts(g)); c != kernels.AgentNoVote {
			decision = float32(c+1) / float32(s.candidates)
		}
	}
	if t.node > 0 {
		node = t.update(g)
	}
	for a := range s.agents {
		at := g%s.slots*s.agents + a
		if t.decision > 0 {
			t.put(g/s.slots, at, t.hidden+t.decision-1, decision)
		}
		for k, v := range node {
			t.put(g/s.slots, at, t.hidden+t.node-1+k, v)
		}
	}
}

// update returns the node of a group after an update.
func (t *telling) update(g int) []float32 {
	s, page := t.s, g/t.s.slots
	node := s.floats(page, kernels.AgentVarKnowledge, g%s.slots*t.width, t.width)
	updates := &device.Of[uint64](s.variable(page, kernels.AgentVarUpdates)[:8*s.slots])[g%s.slots]
	sums, most, n := make([]int64, t.width), make([]int64, t.width), int64(0)
	for k := range most {
		most[k] = -1 << kernels.AgentUnitBits
	}
	units := make([]float32, t.width)
	for a := range s.agents {
		at, finite := g%s.slots*s.agents+a, true
		for k := range units {
			units[k] = t.get(page, at, k)
			finite = finite && units[k]-units[k] == 0
		}
		if *s.vote(page, at) == 0 || !finite {
			continue
		}
		n++
		for k, v := range units {
			i := int64(math.RoundToEven(float64(fmath.Clamp(v, 1)) * (1 << kernels.AgentUnitBits)))
			sums[k] += i
			most[k] = max(most[k], i)
		}
	}
	if n == 0 {
		return node
	}
	for k := range node {
		v := float32(float64(sums[k]) / (float64(n) * (1 << kernels.AgentUnitBits)))
		switch {
		case t.merge == kernels.AgentMergeMax:
			v = float32(most[k]) / (1 << kernels.AgentUnitBits)
		case t.merge == kernels.AgentMergeEMA && *updates > 0:
			v = fmath.FMA(t.rate, v-node[k], node[k])
		}
		node[k] = v
	}
	*updates++
	return node
}

// get returns an element of the row of an agent.
func (t *telling) get(page, at, k int) float32 {
	i := 2*at*t.hidden + k
	if t.bf16 {
		return device.FromBF16(device.Of[uint16](t.s.variable(page, kernels.AgentVarRow)[2*i : 2*i+2])[0])
	}
	return t.s.floats(page, kernels.AgentVarRow, i, 1)[0]
}

// put sets an element of the row of an agent.
func (t *telling) put(page, at, k int, v float32) {
	i := 2*at*t.hidden + k
	if t.bf16 {
		device.Of[uint16](t.s.variable(page, kernels.AgentVarRow)[2*i : 2*i+2])[0] = device.ToBF16(v)
		return
	}
	t.s.floats(page, kernels.AgentVarRow, i, 1)[0] = v
}
