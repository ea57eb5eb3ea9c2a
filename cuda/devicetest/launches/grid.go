package launches

import (
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
)

// GridKernels returns the kernels that RandomGrid knows, in a fixed order.
func GridKernels() []string {
	return []string{gridset.LifeRows, gridset.LifeCells, gridset.Set, gridset.Get}
}

// RandomGrid returns a random launch of a kernel of package gridset over a grid of about n cells,
// at least one, whose pages are in frames in random order. Rows of grids for LifeCells, Set and Get
// may span pages, and grids may be narrower than the neighbourhood of a cell.
func RandomGrid(r *rand.Rand, kernel string, n int) *Arrays {
	a, width := &Arrays{}, 1+r.IntN(70)
	if r.IntN(4) == 0 {
		width = 1 + r.IntN(3)
	}
	per := 1 + r.IntN(600)
	if kernel == gridset.LifeRows {
		width = gridset.Chunk * (1 + r.IntN(9))
		per = width * (1 + r.IntN(40))
	}
	height := max(1, n/width)
	cells, pageBytes := width*height, (per+255)/256*256
	pages := (cells + per - 1) / per
	frames := func() []byte {
		of := make([]uint32, pages)
		for i, frame := range r.Perm(pages) {
			of[i] = uint32(frame)
		}
		return own(of)
	}
	// State is dense where most cells die, and sparse where most are not born.
	alive := make([]byte, pages*pageBytes)
	for i, in := 0, 1+r.IntN(5); i < len(alive); i++ {
		if r.IntN(in) == 0 {
			alive[i] = 1
		}
	}
	switch kernel {
	case gridset.LifeRows, gridset.LifeCells:
		a.in(alive).in(frames()).out(Poisoned(len(alive))).in(frames())
		a.scalar(device.Uint64(uint64(pageBytes))).word(per).word(width).word(height).word(r.IntN(2)).word(r.IntN(2))
		return a.out(words(r.Uint64N(1 << 40)))
	}
	ids := make([]uint32, min(cells, 1+r.IntN(300)))
	values := make([]byte, len(ids))
	for i, id := range r.Perm(cells)[:len(ids)] {
		ids[i], values[i] = uint32(id), byte(r.IntN(2))
	}
	list := func() *Arrays {
		return a.in(frames()).scalar(device.Uint64(uint64(pageBytes))).word(per).in(own(ids)).word(len(ids))
	}
	if a.memory(alive, kernel == gridset.Set); kernel == gridset.Set {
		return list().in(values)
	}
	return list().out(Poisoned(len(ids)))
}
