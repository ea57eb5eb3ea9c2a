package twins

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

func init() {
	Register(spaceset.Place, place)
	Register(spaceset.Load, load)
	Register(spaceset.Store, store)
	Register(spaceset.Count, countBins)
	Register(spaceset.Sum, sumBins)
	Register(spaceset.Start, start)
	Register(spaceset.Sort, sorted)
	Register(spaceset.Dots, dots)
}

// spacePages are the pages of a launch; see spaceset.
type spacePages struct {
	*spaceset.PagesBound
	words []uint32
}

func spacePagesOf(a *spaceset.PagesBound) spacePages {
	return spacePages{a, device.Of[uint32](a.Pages)}
}

func (p spacePages) page(id uint32) uint64 { return uint64(p.Frames[id/p.Per]) * p.PageBytes }

func (p spacePages) word(id, k uint32) *uint32 {
	return &p.words[(p.page(id)+uint64(p.At)+uint64(k)*uint64(p.Stride))/4+uint64(id%p.Per)]
}

func place(b *Block, a *spaceset.PlaceBound) {
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

func load(b *Block, a *spaceset.LoadBound) {
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

func store(b *Block, a *spaceset.StoreBound) {
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

func dots(b *Block, a *spaceset.DotsBound) {
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

type bins [3]uint32

func (n bins) of(position []uint32) (at bins) {
	for k := range at {
		at[k] = uint32(uint64(position[k]) * uint64(n[k]) >> 32)
	}
	return at
}

func (n bins) number(at bins) uint32 { return (at[2]*n[1]+at[1])*n[0] + at[0] }

func countBins(b *Block, a *spaceset.CountBound) {
	n := bins{a.Nx, a.Ny, a.Nz}
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		a.Ranks[i] = atomic.AddUint32(&a.Counts[n.number(n.of(a.Positions[4*i:]))], 1) - 1
	}
}

// parts calls f for the parts of the bins of this block, with the bins of each part.
func parts(b *Block, bins, each uint32, f func(part int, first, end uint64)) {
	all, size := uint64(bins), uint64(each)
	from, to := b.Part((all + size - 1) / size)
	for part := from; part < to; part++ {
		f(int(part), part*size, min((part+1)*size, all))
	}
}

func sumBins(b *Block, a *spaceset.SumBound) {
	parts(b, a.Bins, a.Part, func(part int, first, end uint64) {
		a.Sums[part] = 0
		for _, n := range a.Counts[first:end] {
			a.Sums[part] += n
		}
	})
}

func start(b *Block, a *spaceset.StartBound) {
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

func sorted(b *Block, a *spaceset.SortBound) {
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

func signed(words []uint32) []int32 { return device.Of[int32](device.Bytes(words)) }

// rounded returns the nearest integer, an even one of two.
func rounded(v float32) int32 { return int32(math.RoundToEven(float64(v))) }
