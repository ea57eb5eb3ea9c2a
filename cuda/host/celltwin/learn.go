package celltwin

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// agentLearn is the twin of agent_learn.cu: it merges values into the copies of nodes that groups
// have.
func agentLearn(b *twins.Block, a *kernels.AgentLearnBound) {
	s := openAgents(&a.PagedBound, a.Groups, a.Host)
	width, merge, rate := int(a.Width), a.Merge, math.Float32frombits(a.Rate)
	if merge != kernels.AgentMergeEMA {
		rate = 0.5
	}
	first, end := b.Part(uint64(a.N))
	for i := first; i < end; i++ {
		run := a.Runs[4*i:][:4]
		page := int(run[0])
		for slot := int(run[1]); slot < int(run[1]+run[2]); slot++ {
			g := page*s.slots + slot
			node := s.floats(page, kernels.AgentVarKnowledge, slot*width, width)
			updates := s.word(g, kernels.AgentVarUpdates)
			for k, v := range a.Values[int(run[3])*width:][:width] {
				switch {
				case a.Replace != 0 || *updates == 0:
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
