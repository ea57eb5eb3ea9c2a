package celltwin

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// agentGRU is the twin of gru_agents.cuh: torch.nn.GRUCell with weights that all agents share, and
// a readout.
type agentGRU struct {
	s                 *agentSwarm
	class             int
	elem              kernels.Elem
	logistic          fmath.Logistic
	bias, readoutBias []int32
	weights, readout  []fixed
	row, y            []float32
	a                 []fixed    // of the row
	lanes             *lanes.GRU // nil where the processor has not the instructions
	rows              []float32  // of the agents of lanes, for bf16
}

// fixed is a fixed point number of 16 bits: 256*high + low.
type fixed struct{ number, high, low int32 }

// fix returns the number in the last 16 bits of a word.
func fix(bits uint32) fixed {
	high := int32(int8((bits + 128) >> 8))
	low := int32(int8(bits))
	return fixed{256*high + low, high, low}
}

// fixValue is a value by 2^bits, rounded to nearest: the last bits of a float32 that is 1.5 * 2^23
// and more are an integer.
func fixValue(v float32, bits int) fixed {
	return fix(math.Float32bits(fmath.FMA(v, float32(int(1)<<bits), 3<<22)))
}

// newAgentGRU reads the weights of a cell of a class from its table.
func newAgentGRU(s *agentSwarm, table []uint32, class int, elem kernels.Elem) agentCell {
	c := &agentGRU{
		s: s, class: class, elem: elem, row: make([]float32, 2*class), y: make([]float32, class),
		a: make([]fixed, 2*class),
	}
	for i := range c.logistic {
		c.logistic[i] = math.Float32frombits(table[kernels.AgentTableLogistic+i])
	}
	c.bias = device.Of[int32](device.Bytes(table[kernels.AgentTableBias:][:4*class]))
	c.readoutBias = device.Of[int32](
		device.Bytes(table[kernels.AgentTableReadoutBias(class):][:kernels.AgentMostCandidates]),
	)
	numbers := func(words []uint32) []fixed {
		to := make([]fixed, 2*len(words))
		for i, w := range words {
			to[2*i], to[2*i+1] = fix(w), fix(w>>16)
		}
		return to
	}
	c.weights = numbers(table[kernels.AgentTableWeights(class):kernels.AgentTableReadout(class)])
	c.readout = numbers(table[kernels.AgentTableReadout(class):kernels.AgentGRUTable(class)])
	c.openLanes()
	return c
}

// openLanes makes the units of lanes.Width agents at a time, if the processor can.
func (c *agentGRU) openLanes() {
	if !lanes.Available() {
		return
	}
	of := func(all []fixed) []lanes.Number {
		to := make([]lanes.Number, len(all))
		for i, n := range all {
			to[i] = lanes.Number{High: n.high, Low: n.low}
		}
		return to
	}
	c.lanes = lanes.New(&lanes.Weights{
		Hidden: c.class, BF16: c.elem == kernels.BF16, Logistic: c.logistic, UnitBits: kernels.AgentUnitBits,
		InputBits: kernels.AgentInputBits, Bias: c.bias, Gates: of(c.weights),
		ReadoutBias: c.readoutBias[:c.s.candidates], Readout: of(c.readout[:c.s.candidates*c.class]),
	})
	if c.elem == kernels.BF16 {
		c.rows = make([]float32, 2*c.class*lanes.Width)
	}
}

func (c *agentGRU) stepMany(page, at, steps int, best []byte) int {
	if c.lanes == nil {
		return 0
	}
	done := len(best) - len(best)%lanes.Width
	for i := 0; i < done; i += lanes.Width {
		c.stepLanes(page, at+i, steps)
		for a, candidate := range c.lanes.Choose() {
			best[i+a] = byte(candidate)
		}
	}
	return done
}

// stepLanes steps lanes.Width agents, the first at index at of a page.
func (c *agentGRU) stepLanes(page, at, steps int) {
	from, n := 2*at*c.class, 2*c.class*lanes.Width
	if c.elem == kernels.F32 {
		rows := c.s.floats(page, kernels.AgentVarRow, from, n)
		c.lanes.Load(rows)
		c.lanes.Step(steps)
		c.lanes.Store(rows)
		return
	}
	halves := device.Of[uint16](c.s.variable(page, kernels.AgentVarRow)[2*from:][:2*n])
	for k, half := range halves {
		c.rows[k] = device.FromBF16(half)
	}
	c.lanes.Load(c.rows)
	c.lanes.Step(steps)
	c.lanes.Store(c.rows)
	for k, v := range c.rows {
		halves[k] = device.ToBF16(v)
	}
}

// load copies elements of the row of an agent, from number from on. The units begin at 0 and the
// inputs at class.
func (c *agentGRU) load(to []float32, page, at, from int) {
	if c.elem == kernels.F32 {
		copy(to, c.s.floats(page, kernels.AgentVarRow, 2*at*c.class+from, len(to)))
		return
	}
	for k, half := range c.halves(page, at, from, len(to)) {
		to[k] = device.FromBF16(half)
	}
}

func (c *agentGRU) store(values []float32, page, at, from int) {
	if c.elem == kernels.F32 {
		copy(c.s.floats(page, kernels.AgentVarRow, 2*at*c.class+from, len(values)), values)
		return
	}
	for k, half := 0, c.halves(page, at, from, len(values)); k < len(half); k++ {
		half[k] = device.ToBF16(values[k])
	}
}

func (c *agentGRU) halves(page, at, from, n int) []uint16 {
	return device.Of[uint16](c.s.variable(page, kernels.AgentVarRow)[2*(2*at*c.class+from):][:2*n])
}

func (c *agentGRU) hold(page, at int, inputs []float32) {
	clear(c.y)
	for k, v := range inputs {
		c.y[k] = fmath.Clamp(v, kernels.AgentGRUInput)
	}
	c.store(c.y, page, at, c.class)
}

// dot returns the bias plus the products of numbers, without the products of their low bytes.
func dot(bias int32, a, w []fixed) int32 {
	for i, x := range a {
		bias += x.high*w[i].number + x.low*w[i].high
	}
	return bias
}

// step implements agentCell: gates and units as torch.nn.GRUCell has them, with sums of fixed point
// numbers, and the candidate with the largest readout, of equal ones the first.
func (c *agentGRU) step(page, at int) int {
	c.load(c.row, page, at, 0)
	H := c.class
	for k, v := range c.row {
		c.a[k] = fixValue(v, kernels.AgentUnitBits)
		if k >= H {
			c.a[k] = fixValue(v, kernels.AgentInputBits)
		}
	}
	for j := range c.y {
		bias := c.bias[4*j:][:4]
		gate := func(g int) []fixed { return c.weights[(g*H+j)*2*H:][:2*H] }
		r, z := c.logistic.At(float32(dot(bias[0], c.a, gate(0)))), c.logistic.At(float32(dot(bias[1], c.a, gate(1))))
		n, m := float32(dot(bias[2], c.a[H:], gate(2)[H:])), float32(dot(bias[3], c.a[:H], gate(2)[:H]))
		n = fmath.FMA(2, c.logistic.At(fmath.FMA(r, m, n)), -1)
		c.y[j] = fmath.FMA(z, c.row[j]-n, n)
		if c.elem == kernels.BF16 {
			c.y[j] = device.RoundBF16(c.y[j])
		}
	}
	c.store(c.y, page, at, 0)
	for k, v := range c.y {
		c.a[k] = fixValue(v, kernels.AgentUnitBits)
	}
	best, most := 0, int32(math.MinInt32)
	for candidate := range c.s.candidates {
		if sum := dot(c.readoutBias[candidate], c.a[:H], c.readout[candidate*H:][:H]); sum > most {
			best, most = candidate, sum
		}
	}
	return best
}
