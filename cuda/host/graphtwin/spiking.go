package graphtwin

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

func init() {
	twin.Register(graphset.List, list)
	twin.Register(graphset.Push, push)
	twin.Register(graphset.Send, send)
	twin.Register(graphset.Recall, recall)
	twin.Register(graphset.Remember, remember)
	twin.Register(graphset.LIF, lif)
	twin.Register(graphset.Put, put)
	twin.Register(graphset.Take, take)
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

// push is the twin of push.cu.
func push(b *twin.Block) {
	active, counts, which, sums := twin.Mem[uint32](b, 0), twin.Mem[uint32](b, 1), b.Uint32(2), twin.Mem[int32](b, 3)
	offsets, columns, weights := twin.Mem[uint64](b, 4), twin.Mem[uint32](b, 5), twin.Mem[int32](b, 6)
	degree, weighted, exciting := uint64(b.Uint32(7)), b.Uint32(8) != 0, b.Uint32(9)
	if b.Index == 0 {
		counts[1-which] = 0
	}
	first, end := b.Part(uint64(counts[which]))
	for _, id := range active[first:end] {
		from, to := uint64(id)*degree, (uint64(id)+1)*degree
		if degree == 0 {
			from, to = offsets[id], offsets[id+1]
		}
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
	key := [2]uint32{b.Uint32(17), b.Uint32(18)}
	var spikes, seen uint64
	draws := [4]uint32{1 << 31, 1 << 31, 1 << 31, 1 << 31}
	first, end := b.Part((agents + 3) / 4)
	for four := first; four < end; four++ {
		if noise != 0 {
			draws = kernels.Philox(key, [4]uint32{0, uint32(four), b.Uint32(16)})
		}
		for id := uint32(four * 4); uint64(id) < min(four*4+4, agents); id++ {
			sum, spike := sums[id], byte(0)
			sums[id] = 0
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
				active[atomic.AddUint32(&counts[which], 1)-1] = id
			}
		}
	}
	if b.Uint32(19) != 0 {
		tally := twin.Mem[uint64](b, 20)
		atomic.AddUint64(&tally[0], seen-spikes)
		atomic.AddUint64(&tally[1], spikes)
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
