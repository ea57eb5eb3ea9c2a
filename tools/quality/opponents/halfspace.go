package opponents

import (
	"math"
	"math/rand/v2"
	"sync"
)

// HalfSpace is streaming half-space trees (Tan, Ting and Liu, IJCAI 2011): the mass of the part of
// the space that a row falls into, as it was in the window before.
type HalfSpace struct {
	Trees, Depth, Window int
	Seed                 uint64
}

// Name implements Detector.
func (HalfSpace) Name() string { return "half-space trees" }

// Score implements Detector. Features are scaled to [0, 1] by the range of the first window, which
// has scores of 0. The paper's size limit is a tenth of the window.
func (h HalfSpace) Score(rows []float32, features int) []float32 {
	n := len(rows) / features
	scores := make([]float32, n)
	low, high := make([]float64, features), make([]float64, features)
	for f := range low {
		low[f], high[f] = math.Inf(1), math.Inf(-1)
		for row := range min(h.Window, n) {
			v := float64(rows[row*features+f])
			low[f], high[f] = min(low[f], v), max(high[f], v)
		}
	}
	trees := make([]*massTree, h.Trees)
	for t := range trees {
		trees[t] = newMassTree(drawSpace(features, h.Depth, h.Seed, uint64(t)))
	}
	most := math.Log2(1 + float64(h.Trees*h.Window)*math.Pow(2, float64(h.Depth)))
	point, limit := make([]float64, features), h.Window/10
	for row := range n {
		for f := range point {
			point[f] = (float64(rows[row*features+f]) - low[f]) / max(high[f]-low[f], 1e-12)
		}
		mass := 0.0
		for _, t := range trees {
			mass += t.score(point, limit)
			t.add(point)
		}
		if row >= h.Window {
			scores[row] = float32(min(max(1-math.Log2(1+mass)/most, 0), 1))
		}
		if (row+1)%h.Window == 0 {
			for _, t := range trees {
				t.turn()
			}
		}
	}
	return scores
}

// space is how one tree divides the space: by node, the feature and the value of its cut. The nodes
// below node i are 2i+1 and 2i+2.
type space struct {
	depth int
	dim   []uint8
	cut   []float32
}

// drawn has the spaces that were drawn before, which do not depend on the series.
var drawn sync.Map // from spaceKey to *space

type spaceKey struct {
	features, depth int
	seed, tree      uint64
}

// drawSpace draws a space, which reaches beyond [0, 1] on both sides, and in each node a feature
// whose range it halves.
func drawSpace(features, depth int, seed, tree uint64) *space {
	key := spaceKey{features, depth, seed, tree}
	if s, ok := drawn.Load(key); ok {
		return s.(*space)
	}
	rng, nodes := rand.New(rand.NewPCG(seed, tree)), 1<<(depth+1)-1
	s := &space{depth: depth, dim: make([]uint8, nodes), cut: make([]float32, nodes)}
	low, high := make([]float64, features), make([]float64, features)
	for f := range low {
		at := rng.Float64()
		reach := 2 * max(at, 1-at)
		low[f], high[f] = at-reach, at+reach
	}
	var halve func(node, level int)
	halve = func(node, level int) {
		if level == depth {
			return
		}
		f := rng.IntN(features)
		middle := (low[f] + high[f]) / 2
		s.dim[node], s.cut[node] = uint8(f), float32(middle)
		keep := high[f]
		high[f] = middle
		halve(2*node+1, level+1)
		high[f] = keep
		keep, low[f] = low[f], middle
		halve(2*node+2, level+1)
		low[f] = keep
	}
	halve(0, 0)
	drawn.Store(key, s)
	return s
}

// massTree is one tree with the masses of its nodes.
type massTree struct {
	*space
	before, after []int32 // mass of the last window, and of this one
	touched       []int   // nodes with a mass in before
	touches       []int   // and in after
}

func newMassTree(s *space) *massTree {
	return &massTree{space: s, before: make([]int32, len(s.dim)), after: make([]int32, len(s.dim))}
}

func (t *massTree) next(node int, point []float64) int {
	if float32(point[t.dim[node]]) < t.cut[node] {
		return 2*node + 1
	}
	return 2*node + 2
}

// score is the mass of the last window in the first node with at most limit points, or in the leaf,
// times 2 to its depth.
func (t *massTree) score(point []float64, limit int) float64 {
	node := 0
	for level := 0; ; level++ {
		if level == t.depth || int(t.before[node]) <= limit {
			return float64(t.before[node]) * math.Pow(2, float64(level))
		}
		node = t.next(node, point)
	}
}

func (t *massTree) add(point []float64) {
	node := 0
	for level := 0; ; level++ {
		if t.after[node]++; t.after[node] == 1 {
			t.touches = append(t.touches, node)
		}
		if level == t.depth {
			return
		}
		node = t.next(node, point)
	}
}

func (t *massTree) turn() {
	for _, node := range t.touched {
		t.before[node] = 0
	}
	t.before, t.after = t.after, t.before
	t.touched, t.touches = t.touches, t.touched[:0]
}
