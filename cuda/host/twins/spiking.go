package twins

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

func init() {
	Register(graphset.List, list)
	Register(graphset.Pick, pick)
	Register(graphset.Push, push)
	Register(graphset.Send, send)
	Register(graphset.Recall, recall)
	Register(graphset.Remember, remember)
	Register(graphset.LIF, lif)
	Register(graphset.Put, put)
	Register(graphset.Take, take)
}

func list(b *Block, a *graphset.ListBound) {
	all := graphPagesOf(&a.PagesBound)
	first, end := b.Part(uint64(a.Agents))
	for id := first; id < end; id++ {
		if *all.state(uint32(id)) == graphset.Spike {
			a.Active[atomic.AddUint32(&a.Counts[a.Which], 1)-1] = uint32(id)
		}
	}
}

func pick(b *Block, a *graphset.PickBound) {
	first, end := b.Part(uint64(a.Agents))
	for id := first; id < end; id++ {
		if a.Bits[id/32]>>(id%32)&1 == 1 {
			a.Active[atomic.AddUint32(&a.Counts[a.Which], 1)-1] = uint32(id)
		}
	}
}

// rows are the links of agents, as the kernels that carry spikes have them.
type rows struct {
	offsets []uint64
	degree  uint64
	lengths []uint32 // nil: rows have all links
}

func rowsOf(offsets []uint64, degree uint32, a *graphset.CarriedBound) rows {
	r := rows{offsets: offsets, degree: uint64(degree)}
	if a.Partial != 0 {
		r.lengths = a.Lengths
	}
	return r
}

// spiked returns the share of a block in a list of neurons. The first block empties the other list.
func spiked(b *Block, a *graphset.ActiveBound) []uint32 {
	if b.Index == 0 {
		a.Counts[1-a.Which] = 0
	}
	first, end := b.Part(uint64(a.Counts[a.Which]))
	return a.Active[first:end]
}

// weightOf returns the weight of the links of a neuron, unless each link has a weight.
func weightOf(id uint32, a *graphset.CarriedBound) int32 {
	if id < a.Exciting {
		return int32(a.Excitation)
	}
	return int32(a.Inhibition)
}

func (r *rows) of(id uint32) (from, to uint64) {
	from, to = uint64(id)*r.degree, (uint64(id)+1)*r.degree
	if r.degree == 0 {
		from, to = r.offsets[id], r.offsets[id+1]
	}
	if r.lengths != nil {
		to = from + uint64(r.lengths[id])
	}
	return from, to
}

func push(b *Block, a *graphset.PushBound) {
	all := rowsOf(a.Offsets, a.Degree, &a.CarriedBound)
	for _, id := range spiked(b, &a.ActiveBound) {
		from, to := all.of(id)
		weight := weightOf(id, &a.CarriedBound)
		for at := from; at < to; at++ {
			if a.Weighted != 0 {
				weight = a.Weights[at]
			}
			atomic.AddInt32(&a.Sums[a.Columns[at]], weight)
		}
	}
}

func word[T device.Scalar](p *graphPages, words []T, offset, id uint32) *T {
	return &words[(uint64(p.Frames[id/p.Per])*p.PageBytes+uint64(offset))/4+uint64(id%p.Per)]
}

func lif(b *Block, a *graphset.LIFBound) {
	all, floats, agents := graphPagesOf(&a.PagesBound), device.Of[float32](a.Pages), uint64(a.Agents)
	found := marks(&a.TickedBound, &a.ActiveBound)
	var spikes, seen uint64
	draws := [4]uint32{1 << 31, 1 << 31, 1 << 31, 1 << 31}
	first, end := b.Part((agents + 31) / 32) // words of bits
	for four := first * 8; four < min(end*8, (agents+3)/4); four++ {
		if a.Noise != 0 {
			draws = kernels.Philox([2]uint32{a.Key0, a.Key1}, [4]uint32{0, a.FirstID/4 + uint32(four), a.Tick})
		}
		for at := uint32(four * 4); uint64(at) < min(four*4+4, agents); at++ {
			id, sum, spike := a.FirstID+at, a.Sums[at], byte(0)
			a.Sums[at] = 0
			rest := &a.Pages[uint64(a.Frames[id/a.Per])*a.PageBytes+uint64(a.Resting)+uint64(id%a.Per)]
			if *rest > 0 {
				*rest--
			} else {
				v := word(all, floats, a.Potentials, id)
				drawn := float32(int32(draws[id%4]>>8)-1<<23) * 0x1p-23
				now := float32(*v * a.Decay)
				now += *word(all, floats, a.Currents, id)
				now += float32(drawn * a.Noise)
				now += float32(float32(sum) * 0x1p-16)
				if *v = now; now >= a.Threshold {
					*v, *rest, spike = 0, byte(a.Refractory), graphset.Spike
				}
			}
			*all.state(id) = spike
			if seen++; spike == graphset.Spike {
				spikes++
			}
			found(at, id, spike == graphset.Spike)
		}
	}
	talliedNodes(&a.TickedBound, seen, spikes)
}

// talliedNodes adds the neurons in each state to the tally, if the launch counts them.
func talliedNodes(a *graphset.TickedBound, seen, spikes uint64) {
	if a.Count != 0 {
		atomic.AddUint64(&a.Tally[0], seen-spikes)
		atomic.AddUint64(&a.Tally[1], spikes)
	}
}

// marks returns what takes the neurons of a launch, in words of 32. If marked is 1, it writes a bit
// for each neuron that spikes. Otherwise it appends these neurons to a list.
func marks(a *graphset.TickedBound, list *graphset.ActiveBound) func(at, id uint32, spike bool) {
	if a.Marked == 0 {
		return func(_, id uint32, spike bool) {
			if spike {
				list.Active[atomic.AddUint32(&list.Counts[list.Which], 1)-1] = id
			}
		}
	}
	return func(at, _ uint32, spike bool) {
		if at%32 == 0 {
			a.Bits[at/32] = 0
		}
		if spike {
			a.Bits[at/32] |= 1 << (at % 32)
		}
	}
}

func put(b *Block, a *graphset.WordsBound) {
	each(b, a, func(place *uint32, value *uint32) { *place = *value })
}

func take(b *Block, a *graphset.WordsBound) {
	each(b, a, func(place *uint32, value *uint32) { *value = *place })
}

// each calls f for the word of each agent of a list and its value.
func each(b *Block, a *graphset.WordsBound, f func(place, value *uint32)) {
	all, words := graphPagesOf(&a.PagesBound), device.Of[uint32](a.Pages)
	first, end := b.Part(uint64(a.N))
	for i := first; i < end; i++ {
		f(word(all, words, a.Offset, a.IDs[i]), &a.Values[i])
	}
}
