package launches

import (
	"math"
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

// send makes a launch of Send: rows of all lengths or of one, some longer than the links that have
// draws in common, with delays of a list or of draws.
func (a *Arrays) send(r *rand.Rand, agents int) *Arrays {
	count := r.IntN(min(agents, 300) + 1)
	degree, offsets := rowsOf(r, agents, 300)
	slots := 1 + r.IntN(32)
	least := 1 + r.IntN(slots)
	span := 1 + r.IntN(slots-least+1)
	columns, weights := make([]uint32, offsets[agents]), make([]uint32, offsets[agents])
	delays := make([]byte, len(columns))
	for i := range columns {
		columns[i], weights[i], delays[i] = r.Uint32N(uint32(agents)), r.Uint32(), byte(1+r.IntN(slots))
	}
	stride := (agents + 3) / 4 * 4
	sums, active := make([]uint32, slots*stride), make([]uint32, agents)
	for i := range sums {
		sums[i] = r.Uint32()
	}
	for i, id := range r.Perm(agents) {
		active[i] = uint32(id)
	}
	which, counts := r.IntN(2), []uint32{7, 7}
	counts[which] = uint32(count)
	a.in(own(active)).out(own(counts)).word(which).out(own(sums)).scalar(device.Uint64(uint64(stride))).word(slots).
		word(r.IntN(slots)).word(r.IntN(slots)).in(own(offsets)).in(own(columns)).in(own(weights)).in(delays).
		word(degree).word(r.IntN(2)).word(r.IntN(2)).word(least).word(span)
	a.scalar(device.Uint32(r.Uint32())).scalar(device.Uint32(r.Uint32())).word(r.IntN(agents + 1)).
		scalar(device.Uint32(r.Uint32())).scalar(device.Uint32(r.Uint32()))
	return a.partial(r, offsets)
}

// history makes a launch of Recall, which finds one neuron at most, since a list is in any order,
// or of Remember.
func (a *Arrays) history(r *rand.Rand, kernel string, agents, per int, frames []uint32) *Arrays {
	first := 0
	if kernel == graphset.Remember {
		_, first = ofDevice(r, agents)
	}
	at := (per + 255) / 256 * 256
	pageBytes := at + (4*per+255)/256*256
	content, age, who := make([]byte, len(frames)*pageBytes), r.IntN(32), r.IntN(2*agents)
	for id := range agents {
		page, past := content[int(frames[id/per])*pageBytes:], r.Uint32()
		if page[id%per] = byte(r.IntN(2)); kernel == graphset.Recall {
			if past &^= 1 << age; id == who {
				past |= 1 << age
			}
		}
		copy(page[at+4*(id%per):], own([]uint32{past}))
	}
	a.memory(content, kernel == graphset.Remember).in(own(frames)).scalar(device.Uint64(uint64(pageBytes))).word(per).
		word(agents - first).word(at)
	if kernel == graphset.Remember {
		return a.scalar(device.Uint32(math.MaxUint32 >> age)).word(first)
	}
	return a.word(age).out(Poisoned(4 * agents)).out(own([]uint32{0, 0})).word(r.IntN(2))
}
