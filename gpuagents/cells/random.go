package cells

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// source draws the random numbers of one agent: Philox under the swarm's seed, with the agent's
// index and the position of the draw as counter. The same draws in the same order give the same
// numbers.
type source struct {
	key   [2]uint32
	agent uint32
	drawn uint32
	block [4]uint32
}

// newSource returns the source of an agent, by its index in its group. The same arguments give the
// same numbers on every machine.
func newSource(seed uint64, agent int) *source {
	return &source{key: [2]uint32{uint32(seed), uint32(seed >> 32)}, agent: uint32(agent)}
}

// uniform is a number in [0, 1), a multiple of 2^-24.
func (s *source) uniform() float64 {
	if s.drawn%4 == 0 {
		s.block = kernels.Philox(s.key, [4]uint32{s.drawn / 4, s.agent, 0, 0})
	}
	v := s.block[s.drawn%4]
	s.drawn++
	return float64(v>>8) / (1 << 24)
}

// spread is a number of mean 0, uniform, with the standard deviation given.
func (s *source) spread(deviation float64) float32 {
	const sqrt3 = 1.7320508075688772
	return float32((2*s.uniform() - 1) * (deviation * sqrt3))
}

// rate is 1/τ for a time constant τ drawn evenly over the octaves from low to high observations.
func (s *source) rate(low, high float64) float32 {
	return float32(1 / octaves(low, s.uniform()*span(low, high)))
}

// octaves is low·2^x, straight between whole octaves; span is its inverse at high. Both use exact
// operations only, where an exponential differs between machines in its last digit.
func octaves(low, x float64) float64 {
	whole := math.Floor(x)
	return math.Ldexp(low, int(whole)) * (1 + (x - whole))
}

func span(low, high float64) float64 {
	fraction, exponent := math.Frexp(high / low) // high/low = fraction·2^exponent, fraction in [1/2, 1)
	return float64(exponent-1) + (2*fraction - 1)
}
