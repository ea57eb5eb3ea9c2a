package twins

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

func init() {
	Register(spaceset.Flags, flags)
	Register(spaceset.Gather, gatherSpace)
	Register(spaceset.Colony, colony)
	Register(spaceset.Slots, slots)
	Register(spaceset.Born, born)
}

func (p spacePages) state(id uint32) *byte { return &p.Pages[p.page(id)+uint64(id%p.Per)] }

func flags(b *Block, a *spaceset.FlagsBound) {
	all := spacePagesOf(&a.PagesBound)
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		if a.Flags[i] = 0; uint32(*all.state(uint32(i))) == a.State {
			a.Flags[i] = 1
		}
	}
}

func gatherSpace(b *Block, a *spaceset.GatherBound) {
	all := spacePagesOf(&a.PagesBound)
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		if a.Places[i+1] == a.Places[i] {
			continue
		}
		p := a.Positions[4*uint64(a.Places[i]):][:4]
		p[2], p[3] = 0, uint32(i)
		for k := range all.Dims {
			p[k] = *all.word(uint32(i), k)
		}
	}
}

// spaceBelow reports whether a draw is a success of a chance.
func spaceBelow(draw uint32, chance uint64) bool {
	return uint64(draw) < chance || chance >= math.MaxUint32
}

func colony(b *Block, a *spaceset.ColonyBound) {
	pages, all := spacePagesOf(&a.PagesBound), nearOf(a.Sorted, &a.NearBound)
	most := [3]int64{int64(a.Mx), int64(a.My), int64(a.Mz)}
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		p, id, others := [3]uint32(all.positions[4*i:]), all.positions[4*i+3], uint32(0)
		all.each(&p, uint32(i), func(j uint32) {
			if uint64(j) != i {
				others++
			}
		})
		fate := kernels.Philox([2]uint32{a.Key0, ^a.Key1}, [4]uint32{a.Tick, id})
		if spaceBelow(fate[0], uint64(a.Death)+uint64(a.Hunger)*uint64(others)) {
			*pages.state(id) = 0
			continue
		}
		if others >= a.Room || !spaceBelow(fate[1], uint64(a.Birth)) {
			continue
		}
		way := kernels.Philox([2]uint32{^a.Key0, ^a.Key1}, [4]uint32{a.Tick, id})
		for k := range p {
			p[k], _ = all.moved(p[k], int32(int64(int32(way[k]))*most[k]>>31), true)
		}
		a.Births[id] = 1
		copy(a.Children[4*uint64(id):], append(p[:], id))
	}
}

func slots(b *Block, a *spaceset.SlotsBound) {
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		if a.Places[i+1] != a.Places[i] {
			a.Slots[a.Places[i]] = uint32(i)
		}
	}
}

func born(b *Block, a *spaceset.BornBound) {
	all := spacePagesOf(&a.PagesBound)
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		id, number := uint32(i), a.Births[i]
		if a.Births[i+1] == number {
			continue
		}
		if number >= a.Empty[a.Agents] {
			atomic.AddUint32(&all.words[(all.page(id)+uint64(a.Lost))/4+uint64(id%all.Per/a.Group)], 1)
			continue
		}
		slot := a.Slots[number]
		*all.state(slot) = spaceset.Alive
		for k := range all.Dims {
			*all.word(slot, k) = a.Children[4*i+uint64(k)]
		}
	}
}
