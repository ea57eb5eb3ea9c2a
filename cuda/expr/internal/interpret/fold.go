package interpret

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// folder returns the function of a fold on the bits of two elements.
func folder(t ir.Type, f ir.Fold) func(a, b uint32) uint32 {
	bits, of := math.Float32bits, math.Float32frombits
	switch {
	case f == ir.FoldSum && t.Float():
		return func(a, b uint32) uint32 { return bits(of(a) + of(b)) }
	case f == ir.FoldSum:
		return func(a, b uint32) uint32 { return a + b }
	case t.Float() && f == ir.FoldMin:
		return func(a, b uint32) uint32 { return bits(min32(of(a), of(b))) }
	case t.Float():
		return func(a, b uint32) uint32 { return bits(max32(of(a), of(b))) }
	case t == ir.I32 && f == ir.FoldMin:
		return func(a, b uint32) uint32 { return uint32(min(int32(a), int32(b))) }
	case t == ir.I32:
		return func(a, b uint32) uint32 { return uint32(max(int32(a), int32(b))) }
	case f == ir.FoldMin:
		return func(a, b uint32) uint32 { return min(a, b) }
	}
	return func(a, b uint32) uint32 { return max(a, b) }
}

// foldTile folds at most ir.TileSize elements in the order of a warp (ir.TileSize says which). p
// has the four results of each lane. Missing elements are the identity, which the sums of floats
// leave out: adding -0 changes no bit.
func foldTile(t ir.Type, f ir.Fold, v []uint32) uint32 {
	var p [128]uint32
	none := ir.Identity(t, f)
	for j := range p {
		p[j] = none
	}
	fn := folder(t, f)
	// The sum of floats is by far the most frequent fold; its loop has no calls.
	if f == ir.FoldSum && t.Float() {
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

// foldSuper folds at most ir.SuperSize elements. Tiles without elements are the identity.
func foldSuper(t ir.Type, f ir.Fold, v []uint32) uint32 {
	var tiles [ir.SuperTiles]uint32
	for j := range tiles {
		tiles[j] = ir.Identity(t, f)
		if len(v) > 0 {
			n := min(len(v), ir.TileSize)
			tiles[j] = foldTile(t, f, v[:n])
			v = v[n:]
		}
	}
	return foldTiles(t, f, tiles)
}

// foldTiles folds the results of the tiles of a super tile: j with j + 8, then 4, 2 and 1.
func foldTiles(t ir.Type, f ir.Fold, tiles [ir.SuperTiles]uint32) uint32 {
	fn := folder(t, f)
	for d := ir.SuperTiles / 2; d > 0; d /= 2 {
		for j := range d {
			tiles[j] = fn(tiles[j], tiles[j+d])
		}
	}
	return tiles[0]
}

// foldPartials folds the results of super tiles until there is one. v has at least one element.
func foldPartials(t ir.Type, f ir.Fold, v []uint32) uint32 {
	for len(v) > 1 {
		var next []uint32
		for from := 0; from < len(v); from += ir.SuperSize {
			next = append(next, foldSuper(t, f, v[from:min(from+ir.SuperSize, len(v))]))
		}
		v = next
	}
	return v[0]
}

// scanSums puts the sums of elements and all before them into out, which may be v. The sums of
// tiles are scanned in the same way, and the sum of all tiles before is added to each element from
// the left.
func scanSums(t ir.Type, v, out []uint32) {
	add := folder(t, ir.FoldSum)
	none := ir.Identity(t, ir.FoldSum)
	var totals []uint32
	for from := 0; from < len(v); from += ir.ScanTile {
		totals = append(totals, scanOne(t, add, none, v[from:min(from+ir.ScanTile, len(v))], nil))
	}
	// Afterwards totals has the sum of each tile and all before it.
	if len(totals) > 1 {
		scanSums(t, totals, totals)
	}
	for tile := range totals {
		from := tile * ir.ScanTile
		part := out[from:min(from+ir.ScanTile, len(v))]
		scanOne(t, add, none, v[from:from+len(part)], part)
		if tile > 0 {
			carry := totals[tile-1]
			for i := range part {
				part[i] = add(carry, part[i])
			}
		}
	}
}

// scanOne scans one tile into out, unless that is nil, and returns its sum. The order is that of
// ir.ScanTile: the elements of a thread one by one, those of a warp by doubling distances, and the
// warps one by one.
func scanOne(t ir.Type, add func(a, b uint32) uint32, none uint32, v, out []uint32) uint32 {
	var local [ir.ScanTile]uint32
	var warps [ir.ScanWarps]uint32
	for w := range ir.ScanWarps {
		var sums [32]uint32
		for l := range sums {
			sum := none
			for k := range ir.ScanThread {
				i := (w*32+l)*ir.ScanThread + k
				if i < len(v) {
					sum = add(sum, v[i])
				}
				local[i] = sum
			}
			sums[l] = sum
		}
		// Each lane adds the sum of the lane at the distance before it, all at once.
		for d := 1; d < 32; d *= 2 {
			before := sums
			for l := d; l < 32; l++ {
				sums[l] = add(before[l-d], before[l])
			}
		}
		// The sums of the lanes before a thread are added to each of its elements.
		for l := 31; l > 0; l-- {
			for k := range ir.ScanThread {
				local[(w*32+l)*ir.ScanThread+k] = add(sums[l-1], local[(w*32+l)*ir.ScanThread+k])
			}
		}
		warps[w] = sums[31]
	}
	sum := none
	for w := range ir.ScanWarps {
		for i := range 32 * ir.ScanThread {
			if at := w*32*ir.ScanThread + i; at < len(out) {
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
