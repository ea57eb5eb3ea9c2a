package celltwin

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// telling is what agents hear of their group, as a kernel of kernels.ToldArgs gets it.
type telling struct {
	s                             *agentSwarm
	decision, node, width, hidden int // inputs count from 1 on; 0: it is not heard
	merge                         uint32
	rate                          float32
	bf16                          bool
	by                            uint32
	values                        []float32 // [nodes][width], by vote and key
	held                          []float32 // what agents of a group hold in place of what they hear, by agent
	kept                          []int32   // by group, see kernels.ToldArgs; nil: sums are not kept
	fresh                         bool
	nodes                         int      // of several groups each; 0: each group has one
	totals                        []uint64 // [3][nodes][width+1]
	turn                          int
	nodeOf                        []uint32 // by group
}

// agentTold is the twin of gru_tick.cu for agents that hear their group: a tick, before which the
// inputs that are heard are put into the rows of agents, and after which the rows have again what
// they held.
func agentTold(b *twins.Block, a *kernels.ToldBound, class int, elem kernels.Elem) {
	t := telling{
		s: openAgents(&a.PagedBound, a.Groups, nil), decision: int(a.Decision), node: int(a.Node), width: int(a.Width),
		merge: a.Merge, rate: math.Float32frombits(a.Rate), hidden: class, bf16: elem == kernels.BF16,
		fresh: a.Fresh != 0, nodes: int(a.Nodes), turn: int(a.Turn), by: a.By,
	}
	if t.by != kernels.AgentByGroup {
		t.values = a.Values
	}
	if t.nodes > 0 {
		t.totals, t.nodeOf = a.Totals, a.NodeOf
	} else if t.node > 0 && kernels.AgentKeeps(t.s.agents) {
		t.kept = a.Sums
	}
	agentTick(b, &a.TickingBound, func(s *agentSwarm, table []uint32) agentCell {
		return newAgentGRU(s, table, class, elem)
	}, &t)
}

// heard returns the numbers of the inputs that are heard, from 0 on: the decision, and then the
// node.
func (t *telling) heard() (inputs []int) {
	if t.decision > 0 {
		inputs = append(inputs, t.decision-1)
	}
	for k := 0; k < t.width && t.node > 0; k++ {
		inputs = append(inputs, t.node-1+k)
	}
	return inputs
}

// tell updates the node of a group, and puts what its agents hear into their rows.
func (t *telling) tell(g int) {
	s, values := t.s, []float32(nil)
	if t.decision > 0 {
		values = append(values, 0)
		if c := s.decide(s.counts(g)); c != kernels.AgentNoVote {
			values[0] = float32(c+1) / float32(s.candidates)
		}
	}
	first := len(values)
	if t.node > 0 {
		values = append(values, t.update(g)...)
	}
	t.held = t.held[:0]
	for a := range s.agents {
		at := g%s.slots*s.agents + a
		if t.node > 0 && t.by != kernels.AgentByGroup {
			clear(values[first:])
			if k := t.nodeAt(g, a); k >= 0 {
				copy(values[first:], t.values[k*t.width:][:t.width])
			}
		}
		for k, input := range t.heard() {
			t.held = append(t.held, t.get(g/s.slots, at, t.hidden+input))
			t.put(g/s.slots, at, t.hidden+input, values[k])
		}
	}
}

// restore undoes what tell has put into the rows of the group.
func (t *telling) restore(g int) {
	inputs := t.heard()
	for i, v := range t.held {
		t.put(g/t.s.slots, g%t.s.slots*t.s.agents+i/len(inputs), t.hidden+inputs[i%len(inputs)], v)
	}
}

// update returns the node of a group after an update.
func (t *telling) update(g int) []float32 {
	s, page := t.s, g/t.s.slots
	node := s.floats(page, kernels.AgentVarKnowledge, g%s.slots*t.width, t.width)
	updates := s.word(g, kernels.AgentVarUpdates)
	sums, n := t.sums(g)
	learned := &s.variable(page, kernels.AgentVarLearned)[g%s.slots]
	if n == 0 || *learned != 0 {
		*learned = 0
		return node
	}
	mergeNode(node, sums, n, t.merge, t.rate, *updates > 0)
	*updates++
	*s.word(g, kernels.AgentVarUpdated) = *s.round(g) + 1
	return node
}

// mergeNode updates a node by the sums of its units, or the largest of each, and the number of
// agents or their weights. merged says that it was updated before.
func mergeNode(node []float32, sums []int64, n uint64, merge uint32, rate float32, merged bool) {
	for k := range node {
		v := float32(float64(sums[k]) / (float64(n) * (1 << kernels.AgentUnitBits)))
		switch {
		case merge == kernels.AgentMergeMax:
			v = float32(float64(sums[k]) / (1 << kernels.AgentUnitBits))
		case merge == kernels.AgentMergeEMA && merged:
			v = fmath.FMA(rate, v-node[k], node[k])
		}
		node[k] = v
	}
}

// agentNodes is the twin of agent_nodes.cu: it updates the values of nodes by vote and by key.
func agentNodes(b *twins.Block, a *kernels.AgentNodesBound) {
	nodes, width, turn, flags := int(a.Nodes), int(a.Width), int(a.Turn), a.Flags
	first, end := b.Part(uint64(nodes))
	sums := make([]int64, width)
	for i := int(first); i < int(end); i++ {
		from := a.Totals[(turn*nodes+i)*(width+1):][:width+1]
		n, merged, learned := from[width], flags[i]&kernels.AgentNodeMerged != 0, flags[i]&kernels.AgentNodeLearned != 0
		flags[i] = 0
		if merged || n > 0 && !learned {
			flags[i] = kernels.AgentNodeMerged
		}
		if n == 0 || learned {
			continue
		}
		for k, v := range from[:width] {
			sums[k] = int64(v)
			if a.Merge == kernels.AgentMergeMax {
				sums[k] -= 1 << kernels.AgentUnitBits
			}
		}
		mergeNode(a.Values[i*width:][:width], sums, n, a.Merge, math.Float32frombits(a.Rate), merged)
	}
}

// nodeAt returns the node of agent a of a group, by its present vote; -1: it has none.
func (t *telling) nodeAt(g, a int) int {
	switch t.by {
	case kernels.AgentByVote:
		if v := int(*t.s.vote(g/t.s.slots, g%t.s.slots*t.s.agents+a)); v <= t.nodes {
			return v - 1
		}
		return -1
	case kernels.AgentByKey:
		return (g*t.s.agents + a) % t.nodes
	}
	return int(t.nodeOf[g])
}

// hears returns what an agent of a group with a node heard of it in the last step.
func (t *telling) hears(g, node int) []float32 {
	from := t.s.floats(g/t.s.slots, kernels.AgentVarKnowledge, g%t.s.slots*t.width, t.width)
	if t.by != kernels.AgentByGroup {
		from = t.values[node*t.width:][:t.width]
	}
	if !t.bf16 {
		return from
	}
	held := make([]float32, t.width)
	for k, v := range from {
		held[k] = device.FromBF16(device.ToBF16(v))
	}
	return held
}

// numberOf returns a unit of an agent or a node as an integer of 2^-bits.
func numberOf(v float32, bits int) int32 {
	return int32(math.RoundToEven(float64(fmath.Clamp(v, 1)) * float64(int(1)<<bits)))
}

// weight returns the weight of an agent with these units in the node that it has heard.
func (t *telling) weight(units, node []float32) int64 {
	if t.merge != kernels.AgentMergeAttention {
		return 1
	}
	far := int32(0)
	for k, v := range node {
		n := numberOf(v, kernels.AgentNodeBits)
		far += max(n, -n)<<kernels.AgentUnitBits - n*numberOf(units[k], kernels.AgentUnitBits)
	}
	e := 1 / fmath.Exp(min(float32(far)*t.rate, kernels.AgentFarthest))
	return max(1, int64(math.RoundToEven(float64(e)*(1<<kernels.AgentWeightBits))))
}

// addAlone adds each agent of a group to the sums of its own node, of an entry behind the present
// one.
func (t *telling) addAlone(g, behind int) {
	units := make([]float32, t.width)
	for a := range t.s.agents {
		page, at := g/t.s.slots, g%t.s.slots*t.s.agents+a
		whole := *t.s.vote(page, at) != 0
		for k := range units {
			units[k] = t.get(page, at, k)
			whole = whole && units[k]-units[k] == 0
		}
		node := t.nodeAt(g, a)
		if !whole || node < 0 {
			continue
		}
		w := t.weight(units, t.hears(g, node))
		to := t.totals[((t.turn+behind)%3*t.nodes+node)*(t.width+1):][:t.width+1]
		for k, v := range units {
			t.merged(&to[k], w*int64(numberOf(v, kernels.AgentUnitBits)))
		}
		atomic.AddUint64(&to[t.width], uint64(w))
	}
}

// merged merges a value into a sum of a node, to which other blocks add too.
func (t *telling) merged(to *uint64, v int64) {
	if t.merge != kernels.AgentMergeMax {
		atomic.AddUint64(to, uint64(v))
		return
	}
	largest := uint64(v + 1<<kernels.AgentUnitBits)
	for old := atomic.LoadUint64(to); largest > old && !atomic.CompareAndSwapUint64(to, old, largest); {
		old = atomic.LoadUint64(to)
	}
}

// sums returns the sums that a group updates its node by, or the largest of each, and the number of
// agents in them.
func (t *telling) sums(g int) (sums []int64, n uint64) {
	if t.nodes > 0 {
		from := t.total(g, 0)
		for _, v := range from[:t.width] {
			if t.merge == kernels.AgentMergeMax {
				v -= 1 << kernels.AgentUnitBits
			}
			sums = append(sums, int64(v))
		}
		return sums, from[t.width]
	}
	of, count, _ := t.add(g)
	if t.kept != nil && t.fresh && t.place(g)[kernels.AgentMostNode] >= 0 {
		of, count = t.place(g), t.place(g)[kernels.AgentMostNode]
	}
	for _, v := range of {
		sums = append(sums, int64(v))
	}
	return sums, uint64(count)
}

// total returns the sums of the node of a group, of an entry behind the present one.
func (t *telling) total(g, behind int) []uint64 {
	return t.totals[((t.turn+behind)%3*t.nodes+int(t.nodeOf[g]))*(t.width+1):][:t.width+1]
}

// begin clears the sums that the step after this one adds to. Each block clears its share.
func (t *telling) begin(b *twins.Block) {
	if t.nodes == 0 {
		return
	}
	all := uint64(t.nodes * (t.width + 1))
	first, end := b.Part(all)
	clear(t.totals[uint64((t.turn+2)%3)*all:][first:end])
}

// addTotal adds the units of a group to the sums of its node, of an entry behind the present one.
// Other blocks add at the same time.
func (t *telling) addTotal(g, behind int) {
	if t.node == 0 {
		return
	}
	if t.by != kernels.AgentByGroup || t.merge == kernels.AgentMergeAttention {
		t.addAlone(g, behind)
		return
	}
	sums, n, _ := t.add(g)
	if n == 0 {
		return
	}
	to := t.total(g, behind)
	for k := range t.width {
		t.merged(&to[k], int64(sums[k]))
	}
	atomic.AddUint64(&to[t.width], uint64(n))
}

// add returns the sums of the units of the agents of a group that have stepped and are finite, or
// the largest of each; how many they are; and whether all are finite.
func (t *telling) add(g int) (sums []int32, n int32, finite bool) {
	s := t.s
	sums, finite = make([]int32, kernels.AgentMostNode), true
	if t.merge == kernels.AgentMergeMax {
		for k := range sums {
			sums[k] = -1 << kernels.AgentUnitBits
		}
	}
	units := make([]float32, t.width)
	for a := range s.agents {
		at, whole := g%s.slots*s.agents+a, true
		for k := range units {
			units[k] = t.get(g/s.slots, at, k)
			whole = whole && units[k]-units[k] == 0
		}
		finite = finite && whole
		if *s.vote(g/s.slots, at) == 0 || !whole {
			continue
		}
		n++
		for k, v := range units {
			i := numberOf(v, kernels.AgentUnitBits)
			if t.merge == kernels.AgentMergeMax {
				sums[k] = max(sums[k], i)
			} else {
				sums[k] += i
			}
		}
	}
	return sums, n, finite
}

// place returns what is kept of a group.
func (t *telling) place(g int) []int32 {
	const n = kernels.AgentMostNode + 1
	return t.kept[g*n:][:n]
}

// keep stores the sums of a group whose agents have all stepped.
func (t *telling) keep(g int) {
	if t.nodes > 0 {
		t.addTotal(g, 1)
	}
	if t.kept == nil {
		return
	}
	to := t.place(g)
	sums, n, finite := t.add(g)
	if !finite {
		clear(to)
		to[kernels.AgentMostNode] = -1
		return
	}
	copy(to, sums)
	to[kernels.AgentMostNode] = n
}

func (t *telling) get(page, at, k int) float32 {
	i := 2*at*t.hidden + k
	if t.bf16 {
		return device.FromBF16(device.Of[uint16](t.s.variable(page, kernels.AgentVarRow)[2*i : 2*i+2])[0])
	}
	return t.s.floats(page, kernels.AgentVarRow, i, 1)[0]
}

func (t *telling) put(page, at, k int, v float32) {
	i := 2*at*t.hidden + k
	if t.bf16 {
		device.Of[uint16](t.s.variable(page, kernels.AgentVarRow)[2*i : 2*i+2])[0] = device.ToBF16(v)
		return
	}
	t.s.floats(page, kernels.AgentVarRow, i, 1)[0] = v
}
