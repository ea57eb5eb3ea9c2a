package graphtwin

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

func init() { twin.Raw(graphset.Izhikevich, izhikevich) }

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

// izhikevich is the twin of izhikevich.cu.
func izhikevich(b *twin.Block) {
	all, agents := pagesOf(b), uint64(b.Uint32(4))
	potentials, recoveries, currents := b.Uint32(5), b.Uint32(6), b.Uint32(7)
	floats, sums := twin.Mem[float32](b, 0), twin.Mem[int32](b, 8)
	active, counts, which := twin.Mem[uint32](b, 9), twin.Mem[uint32](b, 10), b.Uint32(11)
	types, exciting, noisy, tick := twin.Mem[float32](b, 12), b.Uint32(13), b.Uint32(14) != 0, b.Uint32(15)
	excitatory, inhibitory := typeOf(types), typeOf(types[graphset.TypeWords:])
	key, base := [2]uint32{b.Uint32(16), b.Uint32(17)}, b.Uint32(22)
	found := marks(b, 20, active, &counts[which])
	var spikes, seen uint64
	draws := [4]uint32{1 << 31, 1 << 31, 1 << 31, 1 << 31}
	first, end := b.Part((agents + 31) / 32) // words of bits
	for four := first * 8; four < min(end*8, (agents+3)/4); four++ {
		if noisy {
			draws = kernels.Philox(key, [4]uint32{0, base/4 + uint32(four), tick})
		}
		for at := uint32(four * 4); uint64(at) < min(four*4+4, agents); at++ {
			id, t := base+at, excitatory
			if id >= exciting {
				t = inhibitory
			}
			drawn := float32(int32(draws[id%4]>>8)-1<<23) * 0x1p-23
			input := *word(all, floats, currents, id)
			input += float32(drawn * t.noise)
			input += float32(float32(sums[at]) * 0x1p-16)
			sums[at] = 0
			v, u := word(all, floats, potentials, id), word(all, floats, recoveries, id)
			if tick == 0 {
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
	if b.Uint32(18) != 0 {
		tally := twin.Mem[uint64](b, 19)
		atomic.AddUint64(&tally[0], seen-spikes)
		atomic.AddUint64(&tally[1], spikes)
	}
}
