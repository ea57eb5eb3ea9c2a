package graphtwin

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

// drawn is the delays of links that are drawn, least to least+span-1.
type drawn struct {
	key         [2]uint32
	least, span uint32
	// block is the draws of number and id, unless none is set.
	block      [4]uint32
	number, id uint32
	some       bool
}

// of returns the delay of link k of a neuron.
func (d *drawn) of(id uint32, k uint64) uint32 {
	if d.span <= 1 {
		return d.least
	}
	if number := uint32(k/128*32 + k%32); !d.some || d.number != number || d.id != id {
		d.block = kernels.Philox(d.key, [4]uint32{number, id, 1})
		d.number, d.id, d.some = number, id, true
	}
	return d.least + uint32(uint64(d.block[k/32%4])*uint64(d.span)>>32)
}

// send is the twin of send.cu.
func send(b *twin.Block) {
	active, counts, which, sums := twin.Mem[uint32](b, 0), twin.Mem[uint32](b, 1), b.Uint32(2), twin.Mem[int32](b, 3)
	stride, slots, slot, age := b.Uint64(4), b.Uint32(5), b.Uint32(6), b.Uint32(7)
	all, columns, weights, delays := rowsOf(b, 8, 12, 22), twin.Mem[uint32](b, 9), twin.Mem[int32](b, 10),
		twin.Mem[byte](b, 11)
	weighted, listed, exciting := b.Uint32(13) != 0, b.Uint32(14) != 0, b.Uint32(19)
	draws := &drawn{least: b.Uint32(15), span: b.Uint32(16), key: [2]uint32{b.Uint32(17), b.Uint32(18)}}
	if b.Index == 0 {
		counts[1-which] = 0
	}
	first, end := b.Part(uint64(counts[which]))
	for _, id := range active[first:end] {
		from, to := all.of(id)
		weight := b.Int32(21)
		if id < exciting {
			weight = b.Int32(20)
		}
		// Links in the order of the blocks of their draws: 32 links apart.
		for k := range 32 * ((to - from + 127) / 128) {
			for at := from + k/32*128 + k%32; at < min(to, from+k/32*128+128); at += 32 {
				delay := uint32(0)
				if listed {
					delay = uint32(delays[at])
				} else {
					delay = draws.of(id, at-from)
				}
				if delay <= age {
					continue
				}
				if weighted {
					weight = weights[at]
				}
				tick := uint64((slot + delay - 1 - age) % slots)
				atomic.AddInt32(&sums[tick*stride+uint64(columns[at])], weight)
			}
		}
	}
}

// recall is the twin of recall.cu.
func recall(b *twin.Block) {
	all, agents, words := pagesOf(b), uint64(b.Uint32(4)), twin.Mem[uint32](b, 0)
	history, age, active, counts, which := b.Uint32(5), b.Uint32(6), twin.Mem[uint32](b, 7), twin.Mem[uint32](b, 8),
		b.Uint32(9)
	first, end := b.Part(agents)
	for id := first; id < end; id++ {
		if *word(all, words, history, uint32(id))>>age&1 == 1 {
			active[atomic.AddUint32(&counts[which], 1)-1] = uint32(id)
		}
	}
}

// remember is the twin of remember.cu.
func remember(b *twin.Block) {
	all, agents, words := pagesOf(b), uint64(b.Uint32(4)), twin.Mem[uint32](b, 0)
	history, keep, base := b.Uint32(5), b.Uint32(6), uint64(b.Uint32(7))
	first, end := b.Part(agents)
	for id := base + first; id < base+end; id++ {
		past, spike := word(all, words, history, uint32(id)), uint32(0)
		if *all.state(uint32(id)) == graphset.Spike {
			spike = 1
		}
		*past = (*past<<1 | spike) & keep
	}
}
