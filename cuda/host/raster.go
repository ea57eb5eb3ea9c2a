package host

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func init() { twins.Register("raster", raster) }

// rasterVar is the variable that raster reads, with the places of its elements; see
// kernels.RasterArgs. It reads the memory of the pages and changes nothing.
type rasterVar struct {
	mem []byte // all frames, one behind the other
	// Both are in bytes: the size of a frame, and where the variable begins in each.
	pageBytes, offset uint64
	frames            []uint32 // the frame of each page, or kernels.RasterAbsent
	// A page has units. A unit has width elements, and its value is count elements from first on.
	units, width, first, count uint32
	elem                       kernels.Elem
	together, votes            bool
	// The same memory as elements of each size, so that a read is one index.
	floats []float32
	words  []uint32
	longs  []uint64
	halves []uint16
}

// raster is the twin of raster.cu: a block makes a share of the cells. The sums of 32 lanes are
// added in the order of the kernel.
func raster(b *twins.Block, a *kernels.RasterBound) {
	v := rasterVar{
		mem: a.Pages, pageBytes: a.PageBytes, frames: a.Frames, offset: uint64(a.Offset), units: a.Units,
		width: a.Width, together: a.Together != 0, elem: kernels.Elem(a.Elem), first: a.First, count: a.Count,
		votes: a.Votes != 0,
	}
	v.floats, v.words = device.Of[float32](v.mem), device.Of[uint32](v.mem)
	v.longs, v.halves = device.Of[uint64](v.mem), device.Of[uint16](v.mem)
	n, per, begin, cells, values := uint64(a.N), uint64(a.Per), uint64(a.Begin), uint64(a.Cells), a.Values
	// Cells are independent of each other, so blocks share them in any way.
	lo, hi := b.Part(cells)
	for cell := lo; cell < hi; cell++ {
		from := (begin + cell) * per
		mean, least, most, counted := v.cell(from, min(from+per, n))
		values[cell], values[cells+cell], values[2*cells+cell], a.Counts[cell] = mean, least, most, counted
	}
}

// cell returns the mean, the least and the greatest value of the units of a range, and how many
// there are; zeros for none.
func (v *rasterVar) cell(from, end uint64) (mean, least, most float32, counted uint32) {
	// Lanes hold what the lanes of a warp hold. A plain sum would round in another order.
	var sums, lows, highs [32]float32
	for i := range lows {
		lows[i], highs[i] = float32(math.Inf(1)), float32(math.Inf(-1))
	}
	for unit := from; unit < end; unit++ {
		x, ok := v.value(uint32(unit))
		if !ok {
			continue
		}
		lane := (unit - from) % 32
		sums[lane] += x
		if x < lows[lane] {
			lows[lane] = x
		}
		if x > highs[lane] {
			highs[lane] = x
		}
		counted++
	}
	if counted == 0 {
		return 0, 0, 0, 0
	}
	// The tree of the kernel's shuffles: only the lower lanes continue.
	for d := 16; d > 0; d /= 2 {
		for lane := range d {
			sums[lane] += sums[lane+d]
			if lows[lane+d] < lows[lane] {
				lows[lane] = lows[lane+d]
			}
			if highs[lane+d] > highs[lane] {
				highs[lane] = highs[lane+d]
			}
		}
	}
	if mean = sums[0] / float32(counted); mean != mean {
		mean = math.Float32frombits(0x7fc00000) // sums beyond the largest float; the bits of a NaN differ by device
	}
	return mean, lows[0], highs[0], counted
}

// value returns the value of a unit; false: it does not count.
func (v *rasterVar) value(unit uint32) (float32, bool) {
	place, frame := unit%v.units, v.frames[unit/v.units]
	if frame == kernels.RasterAbsent {
		return 0, false
	}
	at := uint64(frame)*v.pageBytes + v.offset // of the variable, in bytes
	var sum float32
	for c := v.first; c < v.first+v.count; c++ {
		i := uint64(c)*uint64(v.units) + uint64(place)
		if v.together {
			i = uint64(place)*uint64(v.width) + uint64(c)
		}
		x := v.element(at, i)
		if !finite(x) {
			return 0, false
		}
		sum += x
	}
	// A vote is stored as the candidate plus one, so 0 is a unit that has not voted.
	switch {
	case v.votes && sum == 0:
		return 0, false
	case v.votes:
		sum--
	case v.count > 1:
		sum /= float32(v.count)
	}
	return sum, finite(sum)
}

func (v *rasterVar) element(at, i uint64) float32 {
	switch v.elem {
	case kernels.U32:
		return float32(v.words[at/4+i])
	case kernels.U64:
		return float32(v.longs[at/8+i])
	case kernels.I64:
		return float32(int64(v.longs[at/8+i]))
	case kernels.U8:
		return float32(v.mem[at+i])
	case kernels.BF16:
		return device.FromBF16(v.halves[at/2+i])
	}
	return v.floats[at/4+i]
}

func finite(x float32) bool { return math.Float32bits(x)&0x7f800000 != 0x7f800000 }
