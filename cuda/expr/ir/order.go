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

// The order of a scan is a part of the meaning of a program, too. A warp has 8 rows of 128
// elements, and a lane four elements of each: they are added one by one, then the sums of the lanes
// by the distances d = 1, 2, 4, 8 and 16, and the sums of the rows one by one. To each element are
// added, from the left, the rows before with the lanes before. A tile is 20 warps, whose sums are
// added one by one.
//
// The sum of the tiles before a tile has levels. Level 0 has the sum of each tile, and each level
// above the sums of 32 in a row of the level below. On each level, the sums of the tile's group of
// 32 that are before it are added by distances, as lanes are. The result is added to the left of
// the result of the level below. Then the warps of the tile before, and then the element are added
// to the right.
const (
	ScanRows   = 8
	ScanWarps  = 20
	ScanWarp   = 128 * ScanRows
	ScanTile   = ScanWarp * ScanWarps
	ScanFanout = 32
)

// RunRows is the order of sums of rows, as in package consensus/fusion. Rows are cut into runs of
// 128. The rows of a run are added one by one, from +0; a term of x' g is a fused multiplication
// and addition. The sums of the runs are rows again, which are cut and added in the same way until
// one is left. The sum of no row is +0. A sum by index has the rows of its index alone, in their
// order.
const RunRows = 128

// Identity returns the bits of the element that changes nothing when it is folded: for sums of
// floats -0, because 0 would change a sum of -0. The sum of no element is 0 nevertheless.
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
