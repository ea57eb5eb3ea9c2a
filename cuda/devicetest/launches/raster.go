package launches

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Raster is a launch of raster over the units of random pages.
type Raster struct {
	elem                                 kernels.Elem
	n, units, width, first, count        int
	per, begin, cells, offset, pageBytes int
	together, votes                      bool
	pages                                []byte
	frames                               []uint32 // by page
	sums, leasts, mosts                  []float32
	counts                               []uint32
}

// RandomRaster returns a launch over n units, with values of all kinds, also NaN and infinities,
// and pages that are absent.
func RandomRaster(r *rand.Rand, n int) *Raster {
	elems := []kernels.Elem{kernels.F32, kernels.U32, kernels.U64, kernels.U8, kernels.BF16, kernels.I64}
	c := &Raster{
		elem: elems[r.IntN(len(elems))], n: n, units: 1 + r.IntN(300), width: 1 + r.IntN(9),
		together: r.IntN(2) == 0, per: []int{1, 2, 31, 32, 33, 100, 381, 5000}[r.IntN(8)], offset: 256 * r.IntN(3),
	}
	c.count = 1 + r.IntN(c.width)
	c.first = r.IntN(c.width - c.count + 1)
	if c.votes = r.IntN(4) == 0; c.votes {
		c.elem, c.count = kernels.U8, 1
	}
	c.cells = (n + c.per - 1) / c.per
	if c.cells > 0 {
		c.begin = r.IntN(c.cells)
		c.cells = 1 + r.IntN(c.cells-c.begin)
	}
	c.pageBytes = (c.offset + c.units*c.width*c.elem.Bytes() + 255) / 256 * 256
	pages := (n + c.units - 1) / c.units
	c.frames = make([]uint32, pages)
	for i, frame := range r.Perm(pages) {
		if c.frames[i] = uint32(frame); r.IntN(5) == 0 {
			c.frames[i] = kernels.RasterAbsent
		}
	}
	c.pages = make([]byte, pages*c.pageBytes)
	for i := range c.pages { // bytes of a float32 are a NaN or an infinity now and then
		c.pages[i] = byte(r.Uint32())
	}
	if c.elem == kernels.F32 {
		for i, v := 0, device.Of[float32](c.pages); i < len(v); i++ {
			if r.IntN(50) > 0 {
				v[i] = float32(r.NormFloat64())
			}
		}
	}
	if c.votes {
		for i := range c.pages {
			c.pages[i] %= 4
		}
	}
	for cell := range c.cells {
		c.reduce(c.begin + cell)
	}
	return c
}

// reduce computes a cell: the values of 32 lanes, added one by one, and then as a tree.
func (c *Raster) reduce(cell int) {
	var lanes [32][]float32
	counted := uint32(0)
	for i := range min(c.per, c.n-cell*c.per) {
		if v, ok := c.value(cell*c.per + i); ok {
			lanes[i%32] = append(lanes[i%32], v)
			counted++
		}
	}
	inf := float32(math.Inf(1))
	var tree func(lane, step int) (sum, least, most float32)
	tree = func(lane, step int) (sum, least, most float32) {
		if step == 32 {
			least, most = inf, -inf
			for _, v := range lanes[lane] {
				sum += v
				if v < least {
					least = v
				}
				if v > most {
					most = v
				}
			}
			return sum, least, most
		}
		// The tree adds lanes at a distance of 16 first, and neighbours last.
		sum, least, most = tree(lane, 2*step)
		s, l, m := tree(lane+step, 2*step)
		if sum += s; l < least {
			least = l
		}
		if m > most {
			most = m
		}
		return sum, least, most
	}
	mean, least, most := tree(0, 1)
	switch mean /= float32(counted); {
	case counted == 0:
		mean, least, most = 0, 0, 0
	case mean != mean: // the sum is beyond the largest float on both sides; a NaN has these bits alone
		mean = math.Float32frombits(0x7fc00000)
	}
	c.sums, c.leasts, c.mosts = append(c.sums, mean), append(c.leasts, least), append(c.mosts, most)
	c.counts = append(c.counts, counted)
}

// value returns the value of a unit; false: it does not count.
func (c *Raster) value(unit int) (float32, bool) {
	finite := func(v float32) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }
	frame, place := c.frames[unit/c.units], unit%c.units
	if frame == kernels.RasterAbsent {
		return 0, false
	}
	of := c.pages[int(frame)*c.pageBytes+c.offset:]
	var sum float32
	for k := c.first; k < c.first+c.count; k++ {
		i := k*c.units + place
		if c.together {
			i = place*c.width + k
		}
		var v float32
		switch c.elem {
		case kernels.F32:
			v = device.Of[float32](of)[i]
		case kernels.U32:
			v = float32(device.Of[uint32](of)[i])
		case kernels.U64:
			v = float32(device.Of[uint64](of)[i])
		case kernels.I64:
			v = float32(int64(device.Of[uint64](of)[i]))
		case kernels.U8:
			v = float32(of[i])
		case kernels.BF16:
			v = device.FromBF16(device.Of[uint16](of)[i])
		}
		if !finite(v) {
			return 0, false
		}
		sum += v
	}
	if c.votes {
		return sum - 1, sum > 0
	}
	if c.count > 1 {
		sum /= float32(c.count)
	}
	return sum, finite(sum)
}

// Name implements Launch.
func (c *Raster) Name() string { return rasterKernel }

// String implements fmt.Stringer.
func (c *Raster) String() string {
	return fmt.Sprintf("raster of %d units, %d a page, %d a cell, elements %d to %d of %d of type %d, together %v, "+
		"votes %v", c.n, c.units, c.per, c.first, c.first+c.count-1, c.width, c.elem, c.together, c.votes)
}

// Params implements Launch.
func (c *Raster) Params() []Param {
	word := func(v int) Param { return Param{Arg: device.Uint32(uint32(v))} }
	flag := func(on bool) Param {
		if on {
			return word(1)
		}
		return word(0)
	}
	memory := func(b []byte) Param { return Param{Mem: append([]byte{}, b...), Want: append([]byte{}, b...)} }
	values := append(append(append([]float32{}, c.sums...), c.leasts...), c.mosts...)
	return []Param{
		memory(c.pages),
		{Arg: device.Uint64(uint64(c.pageBytes))},
		memory(device.Bytes(c.frames)), word(c.offset),
		word(c.units), word(c.width), flag(c.together), word(int(c.elem)), word(c.first), word(c.count),
		flag(c.votes), word(c.n), word(c.per), word(c.begin), word(c.cells),
		fresh(append([]byte{}, device.Bytes(values)...)), fresh(append([]byte{}, device.Bytes(c.counts)...)),
	}
}
