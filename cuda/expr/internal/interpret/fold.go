package interpret

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// foldTile folds at most ir.TileSize elements in the order of a warp (see ir.TileSize). p has the
// four results of each lane. Missing elements are the identity, which the sums of floats leave out:
// adding -0 changes no bit.
func foldTile(t ir.Type, f ir.Fold, v []uint32) uint32 {
	var p [128]uint32
	none := ir.Identity(t, f)
	for j := range p {
		p[j] = none
	}
	fn := f.Function(t)
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
	fn := f.Function(t)
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

// scanSums puts the sums of elements and all before them into out, which may be v, in the order of
// ir.ScanTile.
func scanSums(t ir.Type, v, out []uint32) {
	add := ir.FoldSum.Function(t)
	none := ir.Identity(t, ir.FoldSum)
	// levels has the sums of tiles, then the sums of groups, up to one sum.
	levels := [][]uint32{nil}
	before := make([]uint32, (len(v)+ir.ScanWarp-1)/ir.ScanWarp) // of the warps of the same tile before a warp
	for from := 0; from < len(v); from += ir.ScanTile {
		sum := none
		for at := from; at < min(from+ir.ScanTile, len(v)); at += ir.ScanWarp {
			before[at/ir.ScanWarp] = sum
			end := min(at+ir.ScanWarp, len(v))
			sum = add(sum, scanWarp(add, none, v[at:end], out[at:end]))
		}
		levels[0] = append(levels[0], sum)
	}
	for below := levels[0]; len(below) > 1; below = levels[len(levels)-1] {
		var sums []uint32
		for from := 0; from < len(below); from += ir.ScanFanout {
			sums = append(sums, scanGroup(add, none, below[from:min(from+ir.ScanFanout, len(below))]))
		}
		levels = append(levels, sums)
	}
	for tile := range levels[0] {
		carry := none
		at := tile
		for _, level := range levels {
			if len(level) > 1 {
				carry = add(scanGroup(add, none, level[at-at%ir.ScanFanout:at]), carry)
			}
			at /= ir.ScanFanout
		}
		from := tile * ir.ScanTile
		for i := from; i < min(from+ir.ScanTile, len(v)); i++ {
			out[i] = add(add(carry, before[i/ir.ScanWarp]), out[i])
		}
	}
}

// scanGroup returns the sum of at most 32 values, which are added by doubling distances.
func scanGroup(add func(a, b uint32) uint32, none uint32, v []uint32) uint32 {
	var lanes [ir.ScanFanout]uint32
	for l := range lanes {
		lanes[l] = none
	}
	copy(lanes[:], v)
	return scanLanes(add, lanes)[ir.ScanFanout-1]
}

// scanLanes adds to each lane those before it: the lane at each distance, all at once.
func scanLanes(add func(a, b uint32) uint32, sums [32]uint32) [32]uint32 {
	for d := 1; d < 32; d *= 2 {
		before := sums
		for l := d; l < 32; l++ {
			sums[l] = add(before[l-d], before[l])
		}
	}
	return sums
}

func scanWarp(add func(a, b uint32) uint32, none uint32, v, out []uint32) uint32 {
	rows := none
	for from := 0; from < ir.ScanWarp; from += 128 {
		var local [128]uint32
		var lanes [32]uint32
		for l := range lanes {
			sum := none
			for k := range 4 {
				x := none
				if i := from + 4*l + k; i < len(v) {
					x = v[i]
				}
				if k == 0 {
					sum = x
				} else {
					sum = add(sum, x)
				}
				local[4*l+k] = sum
			}
			lanes[l] = sum
		}
		lanes = scanLanes(add, lanes)
		for l := range lanes {
			left := none
			if l > 0 {
				left = lanes[l-1]
			}
			left = add(rows, left)
			for k := range 4 {
				if i := from + 4*l + k; i < len(out) {
					out[i] = add(left, local[4*l+k])
				}
			}
		}
		rows = add(rows, lanes[31])
	}
	return rows
}
