package celltwin

import (
	"math"
	"math/bits"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// agentQuantum is the twin of quantum_agents.cuh.
type agentQuantum struct {
	s      *agentSwarm
	qubits int
	fresh  bool // a step begins with all qubits 0
	places uint32
	gates  []quantumGate
	state  []complex64 // of one agent, or of hold for the step behind it
}

type quantumGate struct {
	kind, target uint32
	mask         uint64
	matrix       [4]complex64
}

func newAgentQuantum(s *agentSwarm, table []uint32, qubits int) agentCell {
	c := &agentQuantum{
		s: s, qubits: qubits, fresh: table[kernels.QuantumTableFresh] != 0, places: table[kernels.QuantumTablePlaces],
		state: make([]complex64, 1<<qubits),
	}
	for g := range int(table[kernels.QuantumTableCount]) {
		w := table[kernels.QuantumTableGates+g*kernels.QuantumGateWords:][:kernels.QuantumGateWords]
		of := quantumGate{
			kind: w[0] & 15, target: w[0] >> 4,
			mask: uint64(w[kernels.QuantumGateMask]) | uint64(w[kernels.QuantumGateMask+1])<<32,
		}
		for k := range of.matrix {
			part := func(i int) float32 { return math.Float32frombits(w[kernels.QuantumGateMatrix+2*k+i]) }
			of.matrix[k] = complex(part(0), part(1))
		}
		c.gates = append(c.gates, of)
	}
	return c
}

// element returns a part of the state of an agent: the real or the imaginary part of an amplitude.
func (c *agentQuantum) element(page, at, k int) *float32 {
	return &c.s.floats(page, kernels.QuantumVarState, k*c.s.slots*c.s.agents+at, 1)[0]
}

func (c *agentQuantum) load(page, at int) {
	for r := range c.state {
		c.state[r] = complex(*c.element(page, at, 2*r), *c.element(page, at, 2*r+1))
	}
}

func (c *agentQuantum) store(page, at int) {
	for r, a := range c.state {
		*c.element(page, at, 2*r), *c.element(page, at, 2*r+1) = real(a), imag(a)
	}
}

func (c *agentQuantum) zero() {
	clear(c.state)
	c.state[0] = 1
}

// multiplied is the product of two numbers. Each operation rounds.
func multiplied(m, a complex64) complex64 {
	return complex(float32(real(m)*real(a))-float32(imag(m)*imag(a)), float32(real(m)*imag(a))+float32(imag(m)*real(a)))
}

// run is the circuit once, and normalise.
func (c *agentQuantum) run() {
	for _, g := range c.gates {
		for r := range c.state {
			q := r | 1<<g.target
			switch m := g.matrix; {
			case g.kind == kernels.QuantumFactor:
				if g.mask>>r&1 != 0 {
					c.state[r] = multiplied(m[3*(r>>g.target&1)], c.state[r])
				}
			case q == r || (g.kind == kernels.QuantumDense || g.kind == kernels.QuantumExchange) && g.mask>>r&1 == 0:
			case g.kind == kernels.QuantumExchange:
				c.state[r], c.state[q] = c.state[q], c.state[r]
			case g.kind == kernels.QuantumReal:
				x, y := c.state[r], c.state[q]
				by := func(a, b complex64) complex64 {
					u, v := real(a), real(b)
					return complex(float32(u*real(x))+float32(v*real(y)), float32(u*imag(x))+float32(v*imag(y)))
				}
				c.state[r], c.state[q] = by(m[0], m[1]), by(m[2], m[3])
			case g.kind == kernels.QuantumMixed:
				x, y := c.state[r], c.state[q]
				by := func(m, of complex64, n, a complex64) complex64 {
					u, v := real(m), imag(n)
					return complex(float32(u*real(of))-float32(v*imag(a)), float32(u*imag(of))+float32(v*real(a)))
				}
				c.state[r], c.state[q] = by(m[0], x, m[1], y), by(m[3], y, m[2], x)
			default:
				x, y := c.state[r], c.state[q]
				c.state[r] = multiplied(m[0], x) + multiplied(m[1], y)
				c.state[q] = multiplied(m[2], x) + multiplied(m[3], y)
			}
		}
	}
	sum := c.weight()
	if sum-(kernels.QuantumWeight-kernels.QuantumDrift) <= 2*kernels.QuantumDrift {
		return
	}
	scale := 1 / float32(math.Sqrt(float64(float32(sum)*(1.0/kernels.QuantumWeight))))
	for r, a := range c.state {
		c.state[r] = complex(real(a)*scale, imag(a)*scale)
	}
}

func weightOf(a complex64) uint32 {
	square := float32(real(a)*real(a)) + float32(imag(a)*imag(a))
	return math.Float32bits(float32(square*kernels.QuantumWeight)+1<<23) - math.Float32bits(1<<23)
}

func (c *agentQuantum) weight() (sum uint32) {
	for _, a := range c.state {
		sum += weightOf(a)
	}
	return sum
}

// draw returns the ballot of an agent by its draw of a number.
func (c *agentQuantum) draw(page, at int, low, high uint32) int {
	w := c.s.words
	agent := w[kernels.QuantumFirst] + uint32(page*c.s.slots*c.s.agents+at)
	random := kernels.Philox([2]uint32(w[kernels.QuantumKey:]), [4]uint32{0, agent, low, high})[0]
	target, _ := bits.Mul32(random, c.weight())
	index, sum := 0, uint32(0)
	for _, a := range c.state {
		if sum += weightOf(a); sum <= target {
			index++
		}
	}
	ballot := 0
	for q := range c.qubits {
		if place := c.places >> (4 * q) & 15; place != kernels.QuantumNoPlace {
			ballot |= index >> q & 1 << place
		}
	}
	return ballot
}

func (c *agentQuantum) draws(page, at int) *uint32 {
	return &device.Of[uint32](c.s.variable(page, kernels.QuantumVarDraws)[4*at : 4*at+4])[0]
}

// hold implements agentCell: feature i turns qubit i by RY from |0>.
func (c *agentQuantum) hold(page, at int, inputs []float32) {
	c.zero()
	for q, v := range inputs {
		sin, cos := halfAngle(fmath.Clamp(v, kernels.QuantumAngle))
		for r := range 1 << q {
			a := real(c.state[r])
			c.state[r|1<<q], c.state[r] = complex(a*sin, 0), complex(a*cos, 0)
		}
	}
	c.store(page, at)
}

// step implements agentCell. It comes after hold, and draws a ballot.
func (c *agentQuantum) step(page, at int) int {
	draws := c.draws(page, at)
	*draws++
	return c.draw(page, at, *draws, 0)
}

// stepMany implements agentCell.
func (c *agentQuantum) stepMany(page, at, steps int, best []byte) int {
	for i := range best {
		draws, begun := c.draws(page, at+i), *c.s.vote(page, at+i) != 0
		if steps == 0 && !begun {
			best[i] = kernels.AgentNoVote
			continue
		}
		if begun && (!c.fresh || steps == 0) {
			c.load(page, at+i)
		} else {
			c.zero()
		}
		if steps == 0 {
			round := c.s.words[kernels.QuantumRound:]
			best[i] = byte(c.draw(page, at+i, round[0], round[1]|kernels.QuantumVote))
			continue
		}
		for range steps {
			if c.fresh {
				c.zero()
			}
			c.run()
		}
		c.store(page, at+i)
		*draws += uint32(steps)
		best[i] = byte(c.draw(page, at+i, *draws, 0))
	}
	return len(best)
}

// halfAngle is half_angle: the sine and the cosine of half an angle.
func halfAngle(x float32) (sin, cos float32) {
	y := float64(x) * 0.5
	k := math.RoundToEven(y * 0.63661977236758134)
	r := (y - float64(k*1.57079632673412561417)) - float64(k*6.07710050650619224932e-11)
	q := r * r
	s, c := float64(-1.0/1307674368000.0), float64(1.0/20922789888000.0)
	for _, of := range [7][2]float64{
		{1.0 / 6227020800.0, -1.0 / 87178291200.0},
		{-1.0 / 39916800.0, 1.0 / 479001600.0},
		{1.0 / 362880.0, -1.0 / 3628800.0},
		{-1.0 / 5040.0, 1.0 / 40320.0},
		{1.0 / 120.0, -1.0 / 720.0},
		{-1.0 / 6.0, 1.0 / 24.0},
		{1, -0.5},
	} {
		s, c = float64(s*q)+of[0], float64(c*q)+of[1]
	}
	s, c = s*r, float64(c*q)+1
	turn := int32(k) & 3
	if turn&1 != 0 {
		s, c = c, s
	}
	if turn&2 != 0 {
		s = -s
	}
	if turn == 1 || turn == 2 {
		c = -c
	}
	return float32(s), float32(c)
}
