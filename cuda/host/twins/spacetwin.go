package twins

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

func init() {
	twin.Register(spaceset.Place, place)
	twin.Register(spaceset.Load, load)
	twin.Register(spaceset.Store, store)
	twin.Register(spaceset.Count, countBins)
	twin.Register(spaceset.Sum, sumBins)
	twin.Register(spaceset.Start, start)
	twin.Register(spaceset.Sort, sorted)
	twin.Register(spaceset.Dots, dots)
}

// spacePages are the pages of a launch; see spaceset.
type spacePages struct {
	*spaceset.PagesBound
	words []uint32
}

func spacePagesOf(a *spaceset.PagesBound) spacePages {
	return spacePages{a, device.Of[uint32](a.Pages)}
}

// page returns the place of the page of an agent.
func (p spacePages) page(id uint32) uint64 { return uint64(p.Frames[id/p.Per]) * p.PageBytes }

// word returns variable k of the agent.
func (p spacePages) word(id, k uint32) *uint32 {
	return &p.words[(p.page(id)+uint64(p.At)+uint64(k)*uint64(p.Stride))/4+uint64(id%p.Per)]
}

// place is the twin of place.cu.
func place(b *twin.Block, a *spaceset.PlaceBound) {
	all, from, seed := spacePagesOf(&a.PagesBound), uint64(a.First), uint64(a.Key0)|uint64(a.Key1)<<32
	first, end := b.Part(uint64(a.End) - from)
	for i := from + first; i < from+end; i++ {
		id := uint32(i)
		position, velocity := spaceset.First(seed, id, a.Most)
		for k := range all.Dims {
			*all.word(id, k) = position[k]
			if a.Most > 0 {
				*all.word(id, all.Dims+k) = math.Float32bits(float32(velocity[k]) / spaceset.Units)
			}
		}
	}
}

// load is the twin of load.cu.
func load(b *twin.Block, a *spaceset.LoadBound) {
	all, velocities := spacePagesOf(&a.PagesBound), signed(a.Velocities)
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		id := uint32(i)
		p := a.Positions[4*i : 4*i+4]
		p[2], p[3] = 0, id
		for k := range all.Dims {
			p[k] = *all.word(id, k)
		}
		if a.Moving == 0 {
			continue
		}
		v := velocities[4*i : 4*i+4]
		clear(v)
		for k := range all.Dims {
			v[k] = rounded(math.Float32frombits(*all.word(id, all.Dims+k)) * spaceset.Units)
		}
	}
}

// store is the twin of store.cu.
func store(b *twin.Block, a *spaceset.StoreBound) {
	all, velocities := spacePagesOf(&a.PagesBound), signed(a.Velocities)
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		id := a.Positions[4*i+3]
		*all.state(id) = a.States[i]
		for k := range all.Dims {
			*all.word(id, k) = a.Positions[4*i+uint64(k)]
			if a.Moving != 0 {
				*all.word(id, all.Dims+k) = math.Float32bits(float32(velocities[4*i+uint64(k)]) / spaceset.Units)
			}
		}
	}
}

// dots is the twin of dots.cu.
func dots(b *twin.Block, a *spaceset.DotsBound) {
	all, columns, rows := spacePagesOf(&a.PagesBound), uint64(a.Columns), uint64(a.Rows)
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		if a.Living != 0 && *all.state(uint32(i)) == 0 {
			continue
		}
		x, y := uint64(*all.word(uint32(i), 0)), uint64(*all.word(uint32(i), 1))
		atomic.AddUint32(&a.Counts[(rows-1-y*rows>>32)*columns+x*columns>>32], 1)
	}
}

// bins are those of a box on each axis.
type bins [3]uint32

// of returns the bin of a position on each axis.
func (n bins) of(position []uint32) (at bins) {
	for k := range at {
		at[k] = uint32(uint64(position[k]) * uint64(n[k]) >> 32)
	}
	return at
}

// number returns the number of a bin.
func (n bins) number(at bins) uint32 { return (at[2]*n[1]+at[1])*n[0] + at[0] }

// countBins is the twin of count.cu.
func countBins(b *twin.Block, a *spaceset.CountBound) {
	n := bins{a.Nx, a.Ny, a.Nz}
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		a.Ranks[i] = atomic.AddUint32(&a.Counts[n.number(n.of(a.Positions[4*i:]))], 1) - 1
	}
}

// parts calls f for the parts of the bins of this block, each of so many bins, with the bins of each.
func parts(b *twin.Block, bins, each uint32, f func(part int, first, end uint64)) {
	all, size := uint64(bins), uint64(each)
	from, to := b.Part((all + size - 1) / size)
	for part := from; part < to; part++ {
		f(int(part), part*size, min((part+1)*size, all))
	}
}

// sumBins is the twin of sum.cu.
func sumBins(b *twin.Block, a *spaceset.SumBound) {
	parts(b, a.Bins, a.Part, func(part int, first, end uint64) {
		a.Sums[part] = 0
		for _, n := range a.Counts[first:end] {
			a.Sums[part] += n
		}
	})
}

// start is the twin of start.cu.
func start(b *twin.Block, a *spaceset.StartBound) {
	parts(b, a.Bins, a.Part, func(part int, first, end uint64) {
		before := uint32(0)
		for _, n := range a.Sums[:part] {
			before += n
		}
		for i := first; i < end; i++ {
			a.Starts[i], before = before, before+a.Counts[i]
			a.Counts[i] = 0
		}
		if end == uint64(a.Bins) {
			a.Starts[end] = before
		}
	})
}

// sorted is the twin of sort.cu.
func sorted(b *twin.Block, a *spaceset.SortBound) {
	n := bins{a.Nx, a.Ny, a.Nz}
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		p := a.Positions[4*i : 4*i+4]
		at := 4 * uint64(a.Starts[n.number(n.of(p))]+a.Ranks[i])
		copy(a.Sorted[at:], p)
		if a.Moving != 0 {
			copy(a.SortedVelocities[at:at+4], a.Velocities[4*i:4*i+4])
		}
	}
}

// signed returns velocities as signed words.
func signed(words []uint32) []int32 { return device.Of[int32](device.Bytes(words)) }

// rounded returns the nearest integer, an even one of two.
func rounded(v float32) int32 { return int32(math.RoundToEven(float64(v))) }
