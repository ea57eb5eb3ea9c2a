package opponents

import (
	"math"
	"math/rand/v2"
)

// Isolation is the isolation forest (Liu, Ting and Zhou, ICDM 2008), which is grown on a warm-up:
// rows that few random cuts isolate have high scores.
type Isolation struct {
	// Trees are grown on Size rows each, without replacement, of the first Warmup rows, which have
	// scores of 0.
	Trees, Size, Warmup int
	Seed                uint64
}

// Name implements Detector.
func (Isolation) Name() string { return "isolation forest" }

// isolationNode is a cut with the nodes of both sides, or a leaf with a number of rows.
type isolationNode struct {
	feature, rows int
	cut           float32
	sides         [2]*isolationNode // nil in a leaf
}

// Score implements Detector.
func (i Isolation) Score(rows []float32, features int) []float32 {
	scores := make([]float32, len(rows)/features)
	n := min(i.Warmup, len(scores))
	size := min(i.Size, n)
	if size < 2 {
		return scores
	}
	rng := rand.New(rand.NewPCG(i.Seed, 0))
	trees := make([]*isolationNode, i.Trees)
	for t := range trees {
		var points [][]float32
		for _, row := range rng.Perm(n)[:size] {
			points = append(points, rows[row*features:][:features])
		}
		trees[t] = isolate(points, int(math.Ceil(math.Log2(float64(size)))), rng)
	}
	for row := n; row < len(scores); row++ {
		sum := 0.0
		for _, t := range trees {
			sum += t.path(rows[row*features:][:features])
		}
		scores[row] = float32(math.Exp2(-sum / float64(len(trees)) / expectedPath(size)))
	}
	return scores
}

// isolate grows a tree of at most a height. Each cut is at random in the range of a random feature
// that varies.
func isolate(points [][]float32, height int, rng *rand.Rand) *isolationNode {
	node := &isolationNode{rows: len(points)}
	if height == 0 || len(points) < 2 {
		return node
	}
	low, high := float32(0), float32(0)
	for _, f := range rng.Perm(len(points[0])) {
		node.feature = f
		low, high = points[0][f], points[0][f]
		for _, p := range points {
			low, high = min(low, p[f]), max(high, p[f])
		}
		if low < high {
			break
		}
	}
	if low == high {
		return node
	}
	node.cut = low + (high-low)*rng.Float32()
	var parts [2][][]float32
	for _, p := range points {
		side := 0
		if p[node.feature] >= node.cut {
			side = 1
		}
		parts[side] = append(parts[side], p)
	}
	for side, part := range parts {
		node.sides[side] = isolate(part, height-1, rng)
	}
	return node
}

// path is the number of cuts to the leaf of a point, and the expected number that a tree without a
// limit has below it.
func (n *isolationNode) path(point []float32) float64 {
	length := 0.0
	for n.sides[0] != nil {
		if point[n.feature] < n.cut {
			n = n.sides[0]
		} else {
			n = n.sides[1]
		}
		length++
	}
	return length + expectedPath(n.rows)
}

// expectedPath is the mean length of an unsuccessful search in a binary search tree of n keys.
func expectedPath(n int) float64 {
	if n < 2 {
		return 0
	}
	if n == 2 {
		return 1
	}
	const euler = 0.5772156649015329
	return 2*(math.Log(float64(n-1))+euler) - 2*float64(n-1)/float64(n)
}
