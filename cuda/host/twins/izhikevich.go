package twins

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

func init() { Register(graphset.Izhikevich, izhikevich) }

// neuronType is what neurons of a type have in common.
type neuronType struct{ a, b, c, d, noise float32 }

// typeOf returns a type from its numbers.
func typeOf(of []float32) neuronType { return neuronType{of[0], of[1], of[2], of[3], of[4]} }

// halfTick is the potential after half a tick. Each operation rounds once.
func halfTick(v, u, input float32) float32 {
	slope := float32(0.04 * v)
	slope += 5
	slope = float32(slope * v)
	slope += 140
	slope -= u
	slope += input
	return min(max(v+float32(0.5*slope), graphset.Lowest), graphset.Peak)
}

// step returns the potential and the recovery of a neuron after a tick, and whether it spikes.
func (t neuronType) step(v, u, input float32) (potential, recovery float32, spike bool) {
	v = halfTick(v, u, input)
	v = halfTick(v, u, input)
	pull := float32(t.b*v) - u
	u += float32(t.a * pull)
	if v == graphset.Peak {
		return t.c, u + t.d, true
	}
	return v, u, false
}

func izhikevich(b *Block, a *graphset.IzhikevichBound) {
	all, floats, agents := graphPagesOf(&a.PagesBound), device.Of[float32](a.Pages), uint64(a.Agents)
	excitatory, inhibitory := typeOf(a.Types), typeOf(a.Types[graphset.TypeWords:])
	found := marks(&a.TickedBound, &a.ActiveBound)
	var spikes, seen uint64
	draws := [4]uint32{1 << 31, 1 << 31, 1 << 31, 1 << 31}
	first, end := b.Part((agents + 31) / 32) // words of bits
	for four := first * 8; four < min(end*8, (agents+3)/4); four++ {
		if a.Noisy != 0 {
			draws = kernels.Philox([2]uint32{a.Key0, a.Key1}, [4]uint32{0, a.FirstID/4 + uint32(four), a.Tick})
		}
		for at := uint32(four * 4); uint64(at) < min(four*4+4, agents); at++ {
			id, t := a.FirstID+at, excitatory
			if id >= a.Exciting {
				t = inhibitory
			}
			drawn := float32(int32(draws[id%4]>>8)-1<<23) * 0x1p-23
			input := *word(all, floats, a.Currents, id)
			input += float32(drawn * t.noise)
			input += float32(float32(a.Sums[at]) * 0x1p-16)
			a.Sums[at] = 0
			v, u := word(all, floats, a.Potentials, id), word(all, floats, a.Recoveries, id)
			if a.Tick == 0 {
				*v, *u = t.c, float32(t.b*t.c)
			}
			var spike bool
			*v, *u, spike = t.step(*v, *u, input)
			*all.state(id) = 0
			if seen++; spike {
				*all.state(id) = graphset.Spike
				spikes++
			}
			found(at, id, spike)
		}
	}
	talliedNodes(&a.TickedBound, seen, spikes)
}
