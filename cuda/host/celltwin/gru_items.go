package celltwin

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

func init() {
	for _, class := range []int{8, 16, kernels.AgentMostHidden} {
		for _, elem := range []kernels.Elem{kernels.F32, kernels.BF16} {
			twins.Register(kernels.AgentGRUName("score", class, elem), func(b *twins.Block, a *kernels.ScoreBound) {
				agentScore(b, a, class, elem)
			})
		}
	}
}

// noScore is a NaN by its bits: the score of an observation that asks for none, or was refused.
const noScore = 0x7fc00000

// agentScore is the twin of gru_score.cu: each block computes the scores of its share of the
// observations, by the units that their agents have behind the step.
func agentScore(b *twins.Block, a *kernels.ScoreBound, class int, elem kernels.Elem) {
	c := agentGRU{s: openAgents(&a.PagedBound, a.Groups, a.Host), class: class, elem: elem}
	items, units := openItems(a.Table, int(a.Of), class), make([]float32, class)
	n := a.Count
	if n == kernels.AgentHeaded {
		n = a.Head[0]
	}
	first, end := b.Part(uint64(n))
	for i := int(first); i < int(end); i++ {
		a.Scores[i] = math.Float32frombits(noScore)
		item := a.Items[i]
		if item < 0 || int(item) >= len(items.bias) || a.Votes[i] == kernels.AgentNoVote {
			continue
		}
		page := int(a.Agents[i]) / c.s.agents / c.s.slots
		c.load(units, page, int(a.Agents[i])-page*c.s.slots*c.s.agents, 0)
		a.Scores[i] = items.score(units, int(item))
	}
}

// itemTable is a table of items; see kernels.AgentItemsTable.
type itemTable struct {
	logistic fmath.Logistic
	bias     []int32
	weights  []int16
	class    int
}

func openItems(table []uint32, items, class int) *itemTable {
	t := &itemTable{class: class, bias: device.Of[int32](device.Bytes(table[kernels.AgentItemsBias:][:items]))}
	for i := range t.logistic {
		t.logistic[i] = math.Float32frombits(table[kernels.AgentItemsLogistic+i])
	}
	at, end := kernels.AgentItemsReadout(items), kernels.AgentItemsTable(items, class)
	t.weights = device.Of[int16](device.Bytes(table[at:end]))
	return t
}

// score returns the score of units for an item.
func (t *itemTable) score(units []float32, item int) float32 {
	sum := t.bias[item]
	for k, w := range t.weights[item*t.class:][:t.class] {
		x, y := fixValue(units[k], kernels.AgentUnitBits), fix(uint32(uint16(w)))
		sum += x.high*y.number + x.low*y.high
	}
	return t.logistic.At(float32(sum))
}
