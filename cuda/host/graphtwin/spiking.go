package graphtwin

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

func init() {
	twin.Raw(graphset.List, list)
	twin.Raw(graphset.Pick, pick)
	twin.Raw(graphset.Push, push)
	twin.Raw(graphset.Send, send)
	twin.Raw(graphset.Recall, recall)
	twin.Raw(graphset.Remember, remember)
	twin.Raw(graphset.LIF, lif)
	twin.Raw(graphset.Put, put)
	twin.Raw(graphset.Take, take)
}

// list is the twin of list.cu.
func list(b *twin.Block) {
	all, agents, active, counts, which := pagesOf(b), uint64(b.Uint32(4)), twin.Mem[uint32](b, 5),
		twin.Mem[uint32](b, 6), b.Uint32(7)
	first, end := b.Part(agents)
	for id := first; id < end; id++ {
		if *all.state(uint32(id)) == graphset.Spike {
			active[atomic.AddUint32(&counts[which], 1)-1] = uint32(id)
		}
	}
}

// pick is the twin of pick.cu.
func pick(b *twin.Block) {
	bits, agents, active, counts, which := twin.Mem[uint32](b, 0), uint64(b.Uint32(1)), twin.Mem[uint32](b, 2),
		twin.Mem[uint32](b, 3), b.Uint32(4)
	first, end := b.Part(agents)
	for id := first; id < end; id++ {
		if bits[id/32]>>(id%32)&1 == 1 {
			active[atomic.AddUint32(&counts[which], 1)-1] = uint32(id)
		}
	}
}

// rows are the links of agents, as the kernels that carry spikes have them.
type rows struct {
	offsets []uint64
	degree  uint64
	lengths []uint32 // nil: rows have all links
}

// rowsOf returns the rows of a launch whose parameters have these numbers.
func rowsOf(b *twin.Block, offsets, degree, partial int) *rows {
	r := &rows{offsets: twin.Mem[uint64](b, offsets), degree: uint64(b.Uint32(degree))}
	if b.Uint32(partial) != 0 {
		r.lengths = twin.Mem[uint32](b, partial+1)
	}
	return r
}

// of returns the place of the links of an agent.
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

// push is the twin of push.cu.
func push(b *twin.Block) {
	active, counts, which, sums := twin.Mem[uint32](b, 0), twin.Mem[uint32](b, 1), b.Uint32(2), twin.Mem[int32](b, 3)
	all, columns, weights := rowsOf(b, 4, 7, 12), twin.Mem[uint32](b, 5), twin.Mem[int32](b, 6)
	weighted, exciting := b.Uint32(8) != 0, b.Uint32(9)
	if b.Index == 0 {
		counts[1-which] = 0
	}
	first, end := b.Part(uint64(counts[which]))
	for _, id := range active[first:end] {
		from, to := all.of(id)
		weight := b.Int32(11)
		if id < exciting {
			weight = b.Int32(10)
		}
		for at := from; at < to; at++ {
			if weighted {
				weight = weights[at]
			}
			atomic.AddInt32(&sums[columns[at]], weight)
		}
	}
}

// word returns the place of a variable of an agent, whose elements have 4 bytes.
func word[T device.Scalar](p *pages, words []T, offset, id uint32) *T {
	return &words[(uint64(p.frames[id/p.per])*p.pageBytes+uint64(offset))/4+uint64(id%p.per)]
}

// lif is the twin of lif.cu.
func lif(b *twin.Block) {
	all, agents := pagesOf(b), uint64(b.Uint32(4))
	resting, potentials, currents := b.Uint32(5), b.Uint32(6), b.Uint32(7)
	floats, sums := twin.Mem[float32](b, 0), twin.Mem[int32](b, 8)
	active, counts, which := twin.Mem[uint32](b, 9), twin.Mem[uint32](b, 10), b.Uint32(11)
	decay, threshold, refractory, noise := b.Float32(12), b.Float32(13), byte(b.Uint32(14)), b.Float32(15)
	key, base := [2]uint32{b.Uint32(17), b.Uint32(18)}, b.Uint32(23)
	found := marks(b, 21, active, &counts[which])
	var spikes, seen uint64
	draws := [4]uint32{1 << 31, 1 << 31, 1 << 31, 1 << 31}
	first, end := b.Part((agents + 31) / 32) // words of bits
	for four := first * 8; four < min(end*8, (agents+3)/4); four++ {
		if noise != 0 {
			draws = kernels.Philox(key, [4]uint32{0, base/4 + uint32(four), b.Uint32(16)})
		}
		for at := uint32(four * 4); uint64(at) < min(four*4+4, agents); at++ {
			id, sum, spike := base+at, sums[at], byte(0)
			sums[at] = 0
			rest := &all.bytes[uint64(all.frames[id/all.per])*all.pageBytes+uint64(resting)+uint64(id%all.per)]
			if *rest > 0 {
				*rest--
			} else {
				v := word(all, floats, potentials, id)
				drawn := float32(int32(draws[id%4]>>8)-1<<23) * 0x1p-23
				now := float32(*v * decay)
				now += *word(all, floats, currents, id)
				now += float32(drawn * noise)
				now += float32(float32(sum) * 0x1p-16)
				if *v = now; now >= threshold {
					*v, *rest, spike = 0, refractory, graphset.Spike
				}
			}
			*all.state(id) = spike
			if seen++; spike == graphset.Spike {
				spikes++
			}
			found(at, id, spike == graphset.Spike)
		}
	}
	if b.Uint32(19) != 0 {
		tally := twin.Mem[uint64](b, 20)
		atomic.AddUint64(&tally[0], seen-spikes)
		atomic.AddUint64(&tally[1], spikes)
	}
}

// marks returns what takes the neurons of a launch, in words of 32. If the parameter marked is 1,
// it writes the bits of those that spike, which are the next parameter. Else it appends them to a
// list.
func marks(b *twin.Block, marked int, active []uint32, count *uint32) func(at, id uint32, spike bool) {
	if b.Uint32(marked) == 0 {
		return func(_, id uint32, spike bool) {
			if spike {
				active[atomic.AddUint32(count, 1)-1] = id
			}
		}
	}
	bits := twin.Mem[uint32](b, marked+1)
	return func(at, _ uint32, spike bool) {
		if at%32 == 0 {
			bits[at/32] = 0
		}
		if spike {
			bits[at/32] |= 1 << (at % 32)
		}
	}
}

// put is the twin of put.cu.
func put(b *twin.Block) {
	each(b, func(place *uint32, value *uint32) { *place = *value })
}

// take is the twin of take.cu.
func take(b *twin.Block) {
	each(b, func(place *uint32, value *uint32) { *value = *place })
}

// each calls f for the word of each agent of a list and its value.
func each(b *twin.Block, f func(place, value *uint32)) {
	all, words, offset, ids, values := pagesOf(b), twin.Mem[uint32](b, 0), b.Uint32(4), twin.Mem[uint32](b, 5),
		twin.Mem[uint32](b, 7)
	first, end := b.Part(uint64(b.Uint32(6)))
	for i := first; i < end; i++ {
		f(word(all, words, offset, ids[i]), &values[i])
	}
}
