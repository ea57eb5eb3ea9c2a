package expr

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// folder returns the function of a fold.
func folder(t Type, f Fold) func(a, b uint32) uint32 {
	bits, of := math.Float32bits, math.Float32frombits
	switch {
	case f == FoldSum && t.Float():
		return func(a, b uint32) uint32 { return bits(of(a) + of(b)) }
	case f == FoldSum:
		return func(a, b uint32) uint32 { return a + b }
	case t.Float() && f == FoldMin:
		return func(a, b uint32) uint32 { return bits(min32(of(a), of(b))) }
	case t.Float():
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
	none := Identity(t, f)
	for j := range p {
		p[j] = none
	}
	fn := folder(t, f)
	if f == FoldSum && t.Float() {
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
	var tiles [SuperTiles]uint32
	for j := range tiles {
		tiles[j] = Identity(t, f)
		if len(v) > 0 {
			n := min(len(v), TileSize)
			tiles[j] = foldTile(t, f, v[:n])
			v = v[n:]
		}
	}
	return foldTiles(t, f, tiles)
}

// foldTiles folds the results of the tiles of a super tile.
func foldTiles(t Type, f Fold, tiles [SuperTiles]uint32) uint32 {
	fn := folder(t, f)
	for d := SuperTiles / 2; d > 0; d /= 2 {
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
		for from := 0; from < len(v); from += SuperSize {
			next = append(next, foldSuper(t, f, v[from:min(from+SuperSize, len(v))]))
		}
		v = next
	}
	return v[0]
}

// scanSums puts the sums of elements and all before them into out, which may be v.
func scanSums(t Type, v, out []uint32) {
	add := folder(t, FoldSum)
	none := Identity(t, FoldSum)
	var totals []uint32
	for from := 0; from < len(v); from += ScanTile {
		totals = append(totals, scanOne(t, add, none, v[from:min(from+ScanTile, len(v))], nil))
	}
	if len(totals) > 1 {
		scanSums(t, totals, totals)
	}
	for tile := range totals {
		from := tile * ScanTile
		part := out[from:min(from+ScanTile, len(v))]
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
	var local [ScanTile]uint32
	var warps [ScanWarps]uint32
	for w := range ScanWarps {
		var sums [32]uint32
		for l := range sums {
			sum := none
			for k := range ScanThread {
				i := (w*32+l)*ScanThread + k
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
			for k := range ScanThread {
				local[(w*32+l)*ScanThread+k] = add(sums[l-1], local[(w*32+l)*ScanThread+k])
			}
		}
		warps[w] = sums[31]
	}
	sum := none
	for w := range ScanWarps {
		for i := range 32 * ScanThread {
			if at := w*32*ScanThread + i; at < len(out) {
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
