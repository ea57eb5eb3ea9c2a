package twins

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

// drawn is the delays of links that are drawn, Least to Least+Span-1.
type drawn struct {
	*graphset.DrawnBound
	// block is the draws of number and id, unless none is set.
	block      [4]uint32
	number, id uint32
	some       bool
}

func (d *drawn) of(id uint32, k uint64) uint32 {
	if d.Span <= 1 {
		return d.Least
	}
	if number := uint32(k/128*32 + k%32); !d.some || d.number != number || d.id != id {
		d.block = kernels.Philox([2]uint32{d.Key0, d.Key1}, [4]uint32{number, id, 1})
		d.number, d.id, d.some = number, id, true
	}
	return d.Least + uint32(uint64(d.block[k/32%4])*uint64(d.Span)>>32)
}

func send(b *Block, a *graphset.SendBound) {
	all, draws := rowsOf(a.Offsets, a.Degree, &a.CarriedBound), &drawn{DrawnBound: &a.DrawnBound}
	for _, id := range spiked(b, &a.ActiveBound) {
		from, to := all.of(id)
		weight := weightOf(id, &a.CarriedBound)
		// Links in the order of the blocks of their draws: 32 links apart.
		for k := range 32 * ((to - from + 127) / 128) {
			for at := from + k/32*128 + k%32; at < min(to, from+k/32*128+128); at += 32 {
				delay := uint32(0)
				if a.Listed != 0 {
					delay = uint32(a.Delays[at])
				} else {
					delay = draws.of(id, at-from)
				}
				if delay <= a.Age {
					continue
				}
				if a.Weighted != 0 {
					weight = a.Weights[at]
				}
				tick := uint64((a.Slot + delay - 1 - a.Age) % a.Slots)
				atomic.AddInt32(&a.Sums[tick*a.Stride+uint64(a.Columns[at])], weight)
			}
		}
	}
}

func recall(b *Block, a *graphset.RecallBound) {
	all, words := graphPagesOf(&a.PagesBound), device.Of[uint32](a.Pages)
	first, end := b.Part(uint64(a.Agents))
	for id := first; id < end; id++ {
		if *word(all, words, a.History, uint32(id))>>a.Age&1 == 1 {
			a.Active[atomic.AddUint32(&a.Counts[a.Which], 1)-1] = uint32(id)
		}
	}
}

func remember(b *Block, a *graphset.RememberBound) {
	all, words := graphPagesOf(&a.PagesBound), device.Of[uint32](a.Pages)
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		id := uint64(a.FirstID) + i
		past, spike := word(all, words, a.History, uint32(id)), uint32(0)
		if *all.state(uint32(id)) == graphset.Spike {
			spike = 1
		}
		*past = (*past<<1 | spike) & a.Keep
	}
}
