package host

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// agentGRU is the twin of gru_agents.cuh: torch.nn.GRUCell with weights that all agents share, and a readout.
type agentGRU struct {
	s       *agentSwarm
	class   int
	elem    kernels.Elem
	weights []float32
	readout []float32
	x, h, y []float32
}

func newAgentGRU(s *agentSwarm, weights []float32, class int, elem kernels.Elem) agentCell {
	row := func() []float32 { return make([]float32, class) }
	return &agentGRU{s: s, class: class, elem: elem, weights: weights, readout: weights[6*class*class+4*class:], x: row(), h: row(), y: row()}
}

// load and store copy an agent's row of a variable.
func (c *agentGRU) load(to []float32, page, v, at int) {
	if c.elem == kernels.F32 {
		copy(to, c.s.floats(page, v, at*c.class, c.class))
		return
	}
	for k, half := range c.halves(page, v, at) {
		to[k] = device.FromBF16(half)
	}
}

func (c *agentGRU) store(from []float32, page, v, at int) {
	if c.elem == kernels.F32 {
		copy(c.s.floats(page, v, at*c.class, c.class), from)
		return
	}
	for k, half := 0, c.halves(page, v, at); k < len(half); k++ {
		half[k] = device.ToBF16(from[k])
	}
}

func (c *agentGRU) halves(page, v, at int) []uint16 {
	return device.Of[uint16](c.s.variable(page, v)[2*at*c.class:][:2*c.class])
}

func (c *agentGRU) hold(page, at int, inputs []float32) {
	clear(c.x)
	copy(c.x, inputs)
	c.store(c.x, page, kernels.AgentVarInput, at)
}

func (c *agentGRU) step(page, at int) int {
	c.load(c.x, page, kernels.AgentVarInput, at)
	c.load(c.h, page, kernels.AgentVarHidden, at)
	H := c.class
	for j := range c.y {
		bias := c.weights[6*H*H+4*j:][:4]
		row := func(gate int) (input, units []float32) {
			w := c.weights[(gate*H+j)*2*H:][:2*H]
			return w[:H], w[H:]
		}
		ri, ru := row(0)
		zi, zu := row(1)
		ni, nu := row(2)
		r, z, n, m := bias[0], bias[1], bias[2], bias[3]
		for k, x := range c.x {
			r, z, n = fma32(ri[k], x, r), fma32(zi[k], x, z), fma32(ni[k], x, n)
		}
		for k, h := range c.h {
			r, z, m = fma32(ru[k], h, r), fma32(zu[k], h, z), fma32(nu[k], h, m)
		}
		r, z = logistic32(r), logistic32(z)
		n = fma32(2, logistic32(fma32(r, m, n)), -1)
		c.y[j] = fma32(z, c.h[j]-n, n)
		if c.elem == kernels.BF16 {
			c.y[j] = roundBF16(c.y[j])
		}
	}
	c.store(c.y, page, kernels.AgentVarHidden, at)
	best, most := 0, float32(0)
	for candidate := range c.s.candidates {
		sum := c.readout[c.s.candidates*H+candidate]
		for k, h := range c.y {
			sum = fma32(c.readout[candidate*H+k], h, sum)
		}
		if candidate == 0 || sum > most {
			best, most = candidate, sum
		}
	}
	return best
}
