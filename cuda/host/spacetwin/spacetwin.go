// Package spacetwin has the Go twins of the kernels of package spaceset. Importing it registers them.
package spacetwin

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

func init() {
	twin.Raw(spaceset.Place, place)
	twin.Raw(spaceset.Load, load)
	twin.Raw(spaceset.Store, store)
	twin.Raw(spaceset.Count, count)
	twin.Raw(spaceset.Sum, sum)
	twin.Raw(spaceset.Start, start)
	twin.Raw(spaceset.Sort, sorted)
	twin.Raw(spaceset.Dots, dots)
}

// pages are the pages of a launch, which are its first arguments; see spaceset.
type pages struct {
	bytes           []byte
	words, frames   []uint32
	pageBytes       uint64
	per, at, stride uint32
	dims            uint32
}

func pagesOf(b *twin.Block) *pages {
	return &pages{
		bytes: twin.Mem[byte](b, 0), words: twin.Mem[uint32](b, 0), frames: twin.Mem[uint32](b, 1),
		pageBytes: b.Uint64(2), per: b.Uint32(3), at: b.Uint32(4), stride: b.Uint32(5), dims: b.Uint32(6),
	}
}

// page returns the place of the page of an agent.
func (p *pages) page(id uint32) uint64 { return uint64(p.frames[id/p.per]) * p.pageBytes }

// word returns variable k of the agent.
func (p *pages) word(id, k uint32) *uint32 {
	return &p.words[(p.page(id)+uint64(p.at)+uint64(k)*uint64(p.stride))/4+uint64(id%p.per)]
}

// place is the twin of place.cu.
func place(b *twin.Block) {
	all, from, most := pagesOf(b), uint64(b.Uint32(7)), b.Uint32(9)
	seed := uint64(b.Uint32(10)) | uint64(b.Uint32(11))<<32
	first, end := b.Part(uint64(b.Uint32(8)) - from)
	for i := from + first; i < from+end; i++ {
		id := uint32(i)
		position, velocity := spaceset.First(seed, id, most)
		for k := range all.dims {
			*all.word(id, k) = position[k]
			if most > 0 {
				*all.word(id, all.dims+k) = math.Float32bits(float32(velocity[k]) / spaceset.Units)
			}
		}
	}
}

// load is the twin of load.cu.
func load(b *twin.Block) {
	all, moving := pagesOf(b), b.Uint32(8) != 0
	positions, velocities := twin.Mem[uint32](b, 9), twin.Mem[int32](b, 10)
	first, end := b.Part(uint64(b.Uint32(7)))
	for i := first; i < end; i++ {
		id := uint32(i)
		p := positions[4*i : 4*i+4]
		p[2], p[3] = 0, id
		for k := range all.dims {
			p[k] = *all.word(id, k)
		}
		if !moving {
			continue
		}
		v := velocities[4*i : 4*i+4]
		clear(v)
		for k := range all.dims {
			v[k] = rounded(math.Float32frombits(*all.word(id, all.dims+k)) * spaceset.Units)
		}
	}
}

// store is the twin of store.cu.
func store(b *twin.Block) {
	all, moving := pagesOf(b), b.Uint32(8) != 0
	positions, velocities, states := twin.Mem[uint32](b, 9), twin.Mem[int32](b, 10), twin.Mem[byte](b, 11)
	first, end := b.Part(uint64(b.Uint32(7)))
	for i := first; i < end; i++ {
		id := positions[4*i+3]
		all.bytes[all.page(id)+uint64(id%all.per)] = states[i]
		for k := range all.dims {
			*all.word(id, k) = positions[4*i+uint64(k)]
			if moving {
				*all.word(id, all.dims+k) = math.Float32bits(float32(velocities[4*i+uint64(k)]) / spaceset.Units)
			}
		}
	}
}

// dots is the twin of dots.cu.
func dots(b *twin.Block) {
	all, living := pagesOf(b), b.Uint32(8) != 0
	columns, rows, counts := uint64(b.Uint32(9)), uint64(b.Uint32(10)), twin.Mem[uint32](b, 11)
	first, end := b.Part(uint64(b.Uint32(7)))
	for i := first; i < end; i++ {
		if living && *all.state(uint32(i)) == 0 {
			continue
		}
		x, y := uint64(*all.word(uint32(i), 0)), uint64(*all.word(uint32(i), 1))
		atomic.AddUint32(&counts[(rows-1-y*rows>>32)*columns+x*columns>>32], 1)
	}
}

// bins are those of a box on each axis.
type bins [3]uint32

// binsOf returns the bins of a launch, which begin at an argument.
func binsOf(b *twin.Block, first int) bins {
	return bins{b.Uint32(first), b.Uint32(first + 1), b.Uint32(first + 2)}
}

// of returns the bin of a position on each axis.
func (n bins) of(position []uint32) (at bins) {
	for k := range at {
		at[k] = uint32(uint64(position[k]) * uint64(n[k]) >> 32)
	}
	return at
}

// number returns the number of a bin.
func (n bins) number(at bins) uint32 { return (at[2]*n[1]+at[1])*n[0] + at[0] }

// count is the twin of count.cu.
func count(b *twin.Block) {
	positions, n, counts, ranks := twin.Mem[uint32](b, 0), binsOf(b, 2), twin.Mem[uint32](b, 5), twin.Mem[uint32](b, 6)
	first, end := b.Part(uint64(b.Uint32(1)))
	for i := first; i < end; i++ {
		ranks[i] = atomic.AddUint32(&counts[n.number(n.of(positions[4*i:]))], 1) - 1
	}
}

// parts calls f for the parts of the bins of this block, with the bins of each.
func parts(b *twin.Block, f func(part int, first, end uint64)) {
	all, size := uint64(b.Uint32(1)), uint64(b.Uint32(2))
	from, to := b.Part((all + size - 1) / size)
	for part := from; part < to; part++ {
		f(int(part), part*size, min((part+1)*size, all))
	}
}

// sum is the twin of sum.cu.
func sum(b *twin.Block) {
	counts, sums := twin.Mem[uint32](b, 0), twin.Mem[uint32](b, 3)
	parts(b, func(part int, first, end uint64) {
		sums[part] = 0
		for _, n := range counts[first:end] {
			sums[part] += n
		}
	})
}

// start is the twin of start.cu.
func start(b *twin.Block) {
	counts, all, sums, starts := twin.Mem[uint32](b, 0), uint64(b.Uint32(1)), twin.Mem[uint32](b, 3),
		twin.Mem[uint32](b, 4)
	parts(b, func(part int, first, end uint64) {
		before := uint32(0)
		for _, n := range sums[:part] {
			before += n
		}
		for i := first; i < end; i++ {
			starts[i], before = before, before+counts[i]
			counts[i] = 0
		}
		if end == all {
			starts[end] = before
		}
	})
}

// sorted is the twin of sort.cu.
func sorted(b *twin.Block) {
	positions, velocities, moving, n := twin.Mem[uint32](b, 0), twin.Mem[uint32](b, 1), b.Uint32(3) != 0, binsOf(b, 4)
	starts, ranks := twin.Mem[uint32](b, 7), twin.Mem[uint32](b, 8)
	to, toVelocities := twin.Mem[uint32](b, 9), twin.Mem[uint32](b, 10)
	first, end := b.Part(uint64(b.Uint32(2)))
	for i := first; i < end; i++ {
		p := positions[4*i : 4*i+4]
		at := 4 * uint64(starts[n.number(n.of(p))]+ranks[i])
		copy(to[at:], p)
		if moving {
			copy(toVelocities[at:at+4], velocities[4*i:4*i+4])
		}
	}
}

// rounded returns the nearest integer, an even one of two.
func rounded(v float32) int32 { return int32(math.RoundToEven(float64(v))) }
