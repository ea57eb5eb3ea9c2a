package celltwin

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/host/fmath"
	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// agentLearn is the twin of agent_learn.cu: it merges values into the copies of nodes that groups have.
func agentLearn(b *twin.Block) {
	s := openAgents(b, 5)
	runs, values, width := twin.Mem[uint32](b, 6), twin.Mem[float32](b, 8), int(b.Uint32(9))
	merge, rate, replace := b.Uint32(10), math.Float32frombits(b.Uint32(11)), b.Uint32(12) != 0
	s.host = twin.Mem[byte](b, 13)
	if merge != kernels.AgentMergeEMA {
		rate = 0.5
	}
	first, end := b.Part(uint64(b.Uint32(7)))
	for i := first; i < end; i++ {
		run := runs[4*i:][:4]
		page := int(run[0])
		for slot := int(run[1]); slot < int(run[1]+run[2]); slot++ {
			g := page*s.slots + slot
			node := s.floats(page, kernels.AgentVarKnowledge, slot*width, width)
			updates := s.word(g, kernels.AgentVarUpdates)
			for k, v := range values[int(run[3])*width:][:width] {
				switch {
				case replace || *updates == 0:
					node[k] = v
				case merge != kernels.AgentMergeMax:
					node[k] = fmath.FMA(rate, v-node[k], node[k])
				case v > node[k]:
					node[k] = v
				}
			}
			*updates++
			*s.word(g, kernels.AgentVarUpdated) = *s.round(g)
			s.variable(page, kernels.AgentVarLearned)[slot] = 1
		}
	}
}
