package spacetwin

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

func init() {
	twin.Raw(spaceset.Flags, flags)
	twin.Raw(spaceset.Gather, gather)
	twin.Raw(spaceset.Colony, colony)
	twin.Raw(spaceset.Slots, slots)
	twin.Raw(spaceset.Born, born)
}

// state returns the place of the state of an agent.
func (p *pages) state(id uint32) *byte { return &p.bytes[p.page(id)+uint64(id%p.per)] }

// flags is the twin of flags.cu.
func flags(b *twin.Block) {
	all, state, to := pagesOf(b), b.Uint32(8), twin.Mem[uint32](b, 9)
	first, end := b.Part(uint64(b.Uint32(7)))
	for i := first; i < end; i++ {
		if to[i] = 0; uint32(*all.state(uint32(i))) == state {
			to[i] = 1
		}
	}
}

// gather is the twin of gather.cu.
func gather(b *twin.Block) {
	all, places, positions := pagesOf(b), twin.Mem[uint32](b, 8), twin.Mem[uint32](b, 9)
	first, end := b.Part(uint64(b.Uint32(7)))
	for i := first; i < end; i++ {
		if places[i+1] == places[i] {
			continue
		}
		p := positions[4*uint64(places[i]):][:4]
		p[2], p[3] = 0, uint32(i)
		for k := range all.dims {
			p[k] = *all.word(uint32(i), k)
		}
	}
}

// below reports whether a draw is a success of a chance.
func below(draw uint32, chance uint64) bool { return uint64(draw) < chance || chance >= math.MaxUint32 }

// colony is the twin of colony.cu.
func colony(b *twin.Block) {
	pages := pagesOf(b)
	all := &near{
		positions: twin.Mem[uint32](b, 7), bins: binsOf(b, 9), reach: int(b.Uint32(12)),
		periodic: b.Uint32(13) != 0, starts: twin.Mem[uint32](b, 14), scale: axes(b, 15),
	}
	birth, death, hunger, room := uint64(b.Uint32(18)), uint64(b.Uint32(19)), uint64(b.Uint32(20)), b.Uint32(21)
	most, tick, key := [3]int64{int64(b.Uint32(22)), int64(b.Uint32(23)), int64(b.Uint32(24))}, b.Uint32(25),
		[2]uint32{b.Uint32(26), b.Uint32(27)}
	births, children := twin.Mem[uint32](b, 28), twin.Mem[uint32](b, 29)
	first, end := b.Part(uint64(b.Uint32(8)))
	for i := first; i < end; i++ {
		p, id, others := [3]uint32(all.positions[4*i:]), all.positions[4*i+3], uint32(0)
		all.each(&p, uint32(i), func(j uint32) {
			if uint64(j) != i {
				others++
			}
		})
		fate := kernels.Philox([2]uint32{key[0], ^key[1]}, [4]uint32{tick, id})
		if below(fate[0], death+hunger*uint64(others)) {
			*pages.state(id) = 0
			continue
		}
		if others >= room || !below(fate[1], birth) {
			continue
		}
		way := kernels.Philox([2]uint32{^key[0], ^key[1]}, [4]uint32{tick, id})
		for k := range p {
			p[k], _ = all.moved(p[k], int32(int64(int32(way[k]))*most[k]>>31), true)
		}
		births[id] = 1
		copy(children[4*uint64(id):], append(p[:], id))
	}
}

// slots is the twin of slots.cu.
func slots(b *twin.Block) {
	places, to := twin.Mem[uint32](b, 1), twin.Mem[uint32](b, 2)
	first, end := b.Part(uint64(b.Uint32(0)))
	for i := first; i < end; i++ {
		if places[i+1] != places[i] {
			to[places[i]] = uint32(i)
		}
	}
}

// born is the twin of born.cu.
func born(b *twin.Block) {
	all, agents, births, empty := pagesOf(b), uint64(b.Uint32(7)), twin.Mem[uint32](b, 8), twin.Mem[uint32](b, 9)
	slots, children, lost, group := twin.Mem[uint32](b, 10), twin.Mem[uint32](b, 11), uint64(b.Uint32(12)), b.Uint32(13)
	first, end := b.Part(agents)
	for i := first; i < end; i++ {
		id, number := uint32(i), births[i]
		if births[i+1] == number {
			continue
		}
		if number >= empty[agents] {
			atomic.AddUint32(&all.words[(all.page(id)+lost)/4+uint64(id%all.per/group)], 1)
			continue
		}
		slot := slots[number]
		*all.state(slot) = spaceset.Alive
		for k := range all.dims {
			*all.word(slot, k) = children[4*i+uint64(k)]
		}
	}
}
