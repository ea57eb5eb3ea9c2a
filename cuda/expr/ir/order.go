package ir

import "math"

// The order of a fold is a part of the meaning of a program. A tile is 1,024 elements in a row.
// Lane l of 32 folds the elements 128 r + 4 l + k by r, then its four results as (0 1) (2 3), and
// the lanes fold l with l + 16, then 8, 4, 2 and 1. A super tile is 16 tiles, folded j with j + 8,
// 4, 2 and 1. The results of the super tiles are folded in the same way until there is one. A
// missing element is the identity of the fold.
const (
	TileSize   = 1024
	SuperTiles = 16
	SuperSize  = TileSize * SuperTiles
)

// Scans have tiles of their own: 256 threads with 16 elements each, added one by one; then the sums
// of the 32 threads of a warp by d = 1, 2, 4, 8 and 16, and those of the warps one by one.
const (
	ScanThread = 16
	ScanWarps  = 8
	ScanTile   = 32 * ScanThread * ScanWarps
)

// Identity returns the bits of the element that changes nothing when it is folded: for sums of
// floats -0, because 0 would change a sum of -0. The sum of no element is 0 all the same.
func Identity(t Type, f Fold) uint32 {
	switch {
	case f == FoldSum && t.Float():
		return 1 << 31
	case f == FoldSum:
		return 0
	case t.Float():
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
