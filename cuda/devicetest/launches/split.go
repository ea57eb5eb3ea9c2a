package launches

import (
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

// ofDevice returns whether the neurons of a launch belong to one of several devices, which mark
// spikes, and the first neuron, which is below agents. Other devices have the neurons before it.
func ofDevice(r *rand.Rand, agents int) (marked bool, first int) {
	if r.IntN(2) == 0 {
		return false, 0
	}
	return true, r.IntN((agents-1)/128+1) * 128
}

func (a *Arrays) marks(marked bool, agents, first int) *Arrays {
	if !marked {
		return a.word(0).in(own([]uint32{0})).word(first)
	}
	return a.word(1).out(Poisoned((agents + 31) / 32 * 4)).word(first)
}

// partial adds the last parameters of a launch that carries spikes: rows have all links or the
// first ones.
func (a *Arrays) partial(r *rand.Rand, offsets []uint64) *Arrays {
	lengths := make([]uint32, len(offsets)-1)
	for i := range lengths {
		lengths[i] = r.Uint32N(uint32(offsets[i+1]-offsets[i]) + 1)
	}
	return a.word(r.IntN(2)).in(own(lengths))
}

// split makes a launch of Count or of Split, whose places are consecutive links, with and without
// the rest of each row.
func (a *Arrays) split(r *rand.Rand, kernel string, agents int) *Arrays {
	degree, offsets := rowsOf(r, agents, 300)
	columns, weights := make([]uint32, offsets[agents]), make([]uint32, offsets[agents])
	delays := make([]byte, len(columns))
	for i := range columns {
		columns[i], weights[i], delays[i] = r.Uint32N(uint32(agents)), r.Uint32(), byte(1+r.IntN(32))
	}
	low := r.IntN(agents)
	size := 1 + r.IntN(agents-low)
	if kernel == graphset.Count {
		return a.in(own(columns)).in(own(offsets)).word(degree).word(agents).word(low).word(size).
			out(Poisoned(4 * agents))
	}
	first, rest := r.IntN(agents), r.IntN(2)
	rows := 1 + r.IntN(agents-first)
	if rest == 1 {
		low = 0 // so that columns of the rest belong to other agents too
	}
	places, links := make([]uint32, rows), 0
	for i := range places {
		places[i] = uint32(links)
		for _, c := range columns[offsets[first+i]:offsets[first+i+1]] {
			if rest == 1 || int(c) >= low && int(c) < low+size {
				links++
			}
		}
	}
	least := 1 + r.IntN(32)
	a.in(own(columns)).in(own(weights)).in(delays).in(own(offsets)).word(degree).word(r.IntN(2)).word(r.IntN(2)).
		word(r.IntN(2)).word(least).word(1 + r.IntN(33-least)).scalar(device.Uint32(r.Uint32())).
		scalar(device.Uint32(r.Uint32())).word(first).word(rows).word(low).word(size).word(rest).in(own(places))
	return a.out(Poisoned(4 * links)).out(Poisoned(4 * links)).out(Poisoned(links))
}
