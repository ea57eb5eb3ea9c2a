package expr

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// The order of a fold is a part of the meaning of a program. A tile is 1,024 elements in a row.
// Lane l of 32 folds the elements 128 r + 4 l + k by r, then its four results as (0 1) (2 3), and the
// lanes fold l with l + 16, then 8, 4, 2 and 1. A super tile is 16 tiles, folded j with j + 8, 4, 2
// and 1. The results of the super tiles are folded in the same way until there is one. A missing
// element is the identity of the fold.
const (
	tileSize   = 1024
	superTiles = 16
	superSize  = tileSize * superTiles
)

// Scans have tiles of their own: 256 threads with 16 elements each, added one by one; then the sums
// of the 32 threads of a warp by d = 1, 2, 4, 8 and 16, and those of the warps one by one.
const (
	scanThread = 16
	scanWarps  = 8
	scanTile   = 32 * scanThread * scanWarps
)

// identity returns the bits of the element that changes nothing: for sums of floats -0.
func identity(t Type, f Fold) uint32 {
	switch {
	case f == FoldSum && t.float():
		return 1 << 31
	case f == FoldSum:
		return 0
	case t.float():
		return math.Float32bits(float32(math.Inf(map[Fold]int{FoldMin: 1, FoldMax: -1}[f])))
	case t == I32 && f == FoldMin:
		return math.MaxInt32
	case t == I32:
		return 1 << 31
	case f == FoldMin:
		return math.MaxUint32
	}
	return 0
}

// folder returns the function of a fold.
func folder(t Type, f Fold) func(a, b uint32) uint32 {
	bits, of := math.Float32bits, math.Float32frombits
	switch {
	case f == FoldSum && t.float():
		return func(a, b uint32) uint32 { return bits(of(a) + of(b)) }
	case f == FoldSum:
		return func(a, b uint32) uint32 { return a + b }
	case t.float() && f == FoldMin:
		return func(a, b uint32) uint32 { return bits(min32(of(a), of(b))) }
	case t.float():
		return func(a, b uint32) uint32 { return bits(max32(of(a), of(b))) }
	case t == I32 && f == FoldMin:
		return func(a, b uint32) uint32 { return uint32(min(int32(a), int32(b))) }
	case t == I32:
		return func(a, b uint32) uint32 { return uint32(max(int32(a), int32(b))) }
	case f == FoldMin:
		return func(a, b uint32) uint32 { return min(a, b) }
	}
	return func(a, b uint32) uint32 { return max(a, b) }
}

// foldTile folds at most tileSize elements.
func foldTile(t Type, f Fold, v []uint32) uint32 {
	var p [128]uint32
	none := identity(t, f)
	for j := range p {
		p[j] = none
	}
	fn := folder(t, f)
	if f == FoldSum && t.float() {
		sums, of := device.Of[float32](device.Bytes(p[:])), device.Of[float32](device.Bytes(v))
		for len(of) > 0 {
			row := of[:min(128, len(of))]
			for j, x := range row {
				sums[j] += x
			}
			of = of[len(row):]
		}
	} else {
		for j, x := range v {
			p[j%128] = fn(p[j%128], x)
		}
	}
	var q [32]uint32
	for l := range q {
		q[l] = fn(fn(p[4*l], p[4*l+1]), fn(p[4*l+2], p[4*l+3]))
	}
	for d := 16; d > 0; d /= 2 {
		for l := range d {
			q[l] = fn(q[l], q[l+d])
		}
	}
	return q[0]
}

// foldSuper folds at most superSize elements.
func foldSuper(t Type, f Fold, v []uint32) uint32 {
	var tiles [superTiles]uint32
	for j := range tiles {
		tiles[j] = identity(t, f)
		if len(v) > 0 {
			n := min(len(v), tileSize)
			tiles[j] = foldTile(t, f, v[:n])
			v = v[n:]
		}
	}
	return foldTiles(t, f, tiles)
}

// foldTiles folds the results of the tiles of a super tile.
func foldTiles(t Type, f Fold, tiles [superTiles]uint32) uint32 {
	fn := folder(t, f)
	for d := superTiles / 2; d > 0; d /= 2 {
		for j := range d {
			tiles[j] = fn(tiles[j], tiles[j+d])
		}
	}
	return tiles[0]
}

// foldPartials folds the results of super tiles until there is one.
func foldPartials(t Type, f Fold, v []uint32) uint32 {
	for len(v) > 1 {
		var next []uint32
		for from := 0; from < len(v); from += superSize {
			next = append(next, foldSuper(t, f, v[from:min(from+superSize, len(v))]))
		}
		v = next
	}
	return v[0]
}

// scanSums puts the sums of elements and all before them into out, which may be v.
func scanSums(t Type, v, out []uint32) {
	add := folder(t, FoldSum)
	none := identity(t, FoldSum)
	var totals []uint32
	for from := 0; from < len(v); from += scanTile {
		totals = append(totals, scanOne(t, add, none, v[from:min(from+scanTile, len(v))], nil))
	}
	if len(totals) > 1 {
		scanSums(t, totals, totals)
	}
	for tile := range totals {
		from := tile * scanTile
		part := out[from:min(from+scanTile, len(v))]
		scanOne(t, add, none, v[from:from+len(part)], part)
		if tile > 0 {
			carry := totals[tile-1]
			for i := range part {
				part[i] = add(carry, part[i])
			}
		}
	}
}

// scanOne scans one tile into out, unless that is nil, and returns its sum.
func scanOne(t Type, add func(a, b uint32) uint32, none uint32, v, out []uint32) uint32 {
	var local [scanTile]uint32
	var warps [scanWarps]uint32
	for w := range scanWarps {
		var sums [32]uint32
		for l := range sums {
			sum := none
			for k := range scanThread {
				i := (w*32+l)*scanThread + k
				if i < len(v) {
					sum = add(sum, v[i])
				}
				local[i] = sum
			}
			sums[l] = sum
		}
		for d := 1; d < 32; d *= 2 {
			before := sums
			for l := d; l < 32; l++ {
				sums[l] = add(before[l-d], before[l])
			}
		}
		for l := 31; l > 0; l-- {
			for k := range scanThread {
				local[(w*32+l)*scanThread+k] = add(sums[l-1], local[(w*32+l)*scanThread+k])
			}
		}
		warps[w] = sums[31]
	}
	sum := none
	for w := range scanWarps {
		for i := range 32 * scanThread {
			if at := w*32*scanThread + i; at < len(out) {
				out[at] = local[at]
				if w > 0 {
					out[at] = add(sum, local[at])
				}
			}
		}
		sum = add(sum, warps[w])
	}
	return sum
}
