package opponents

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Forest is the robust random cut forest (Guha, Mishra, Roy and Schrijvers, ICML 2016): the mean
// collusive displacement of a row in trees that hold the last Size rows. Rows are shingled: a point
// has the features of the last Shingle rows.
type Forest struct {
	Trees, Size, Shingle int
	Seed                 uint64
}

// Name implements Detector.
func (f Forest) Name() string { return fmt.Sprintf("random cut forest, shingle %d", f.Shingle) }

// Score implements Detector. Features are in units of their deviation over the first Size rows, so
// that one with large numbers does not decide alone; with one feature this changes nothing.
func (f Forest) Score(rows []float32, features int) []float32 {
	n := len(rows) / features
	scores, scale := make([]float32, n), make([]float64, features)
	for i := range scale {
		var first []float64
		for row := range min(f.Size, n) {
			first = append(first, float64(rows[row*features+i]))
		}
		_, scale[i] = moments(first)
	}
	dims := f.Shingle * features
	points := make([]float64, f.Size*dims) // a ring
	displaced := make([]float64, n)
	trees := make([]*cutTree, f.Trees)
	for t := range trees {
		trees[t] = newCutTree(dims, f.Size, rand.New(rand.NewPCG(f.Seed, uint64(t))))
	}
	for row := f.Shingle - 1; row < n; row++ {
		slot := row % f.Size
		for _, tree := range trees {
			tree.remove(slot)
		}
		point := points[slot*dims:][:dims]
		for i := range point {
			point[i] = float64(rows[(row-f.Shingle+1)*features+i]) / scale[i%features]
		}
		for _, tree := range trees {
			leaf := tree.insert(slot, point)
			if row >= f.Size {
				displaced[row] += tree.displacement(leaf)
			}
		}
		scores[row] = bounded(displaced[row]/float64(f.Trees), 20)
	}
	return scores
}

// cutTree is one tree. Nodes are numbers; a leaf has no left. Each node knows the number of points
// below it and the box around them.
type cutTree struct {
	dims        int
	rng         *rand.Rand
	root        int
	left, right []int
	parent      []int
	count       []int
	cutDim      []int
	cut         []float64
	low, high   []float64 // of the box of node i: [i*dims, (i+1)*dims)
	free        []int
	leafOf      []int // by slot of a point, -1 for none
}

const none = -1

func newCutTree(dims, size int, rng *rand.Rand) *cutTree {
	nodes := 2 * size
	t := &cutTree{
		dims: dims, rng: rng, root: none, left: make([]int, nodes), right: make([]int, nodes),
		parent: make([]int, nodes), count: make([]int, nodes), cutDim: make([]int, nodes), cut: make([]float64, nodes),
		low: make([]float64, nodes*dims), high: make([]float64, nodes*dims), leafOf: make([]int, size),
	}
	for i := nodes - 1; i >= 0; i-- {
		t.free = append(t.free, i)
	}
	for i := range t.leafOf {
		t.leafOf[i] = none
	}
	return t
}

// lows and highs are the corners of the box of a node. They belong to the tree.
func (t *cutTree) lows(node int) []float64  { return t.low[node*t.dims:][:t.dims] }
func (t *cutTree) highs(node int) []float64 { return t.high[node*t.dims:][:t.dims] }

func (t *cutTree) take() int {
	node := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.left[node], t.right[node], t.parent[node], t.count[node] = none, none, none, 0
	return node
}

func (t *cutTree) insert(slot int, point []float64) int {
	leaf := t.place(point)
	t.leafOf[slot] = leaf
	for node := leaf; node != none; node = t.parent[node] {
		t.count[node]++
	}
	return leaf
}

// place finds the leaf of an equal point, or adds one. Boxes of its ancestors grow.
func (t *cutTree) place(point []float64) int {
	if t.root == none {
		t.root = t.newLeaf(point)
		return t.root
	}
	node := t.root
	for t.left[node] != none {
		node = t.child(node, point)
	}
	if slices.Equal(t.lows(node), point) {
		return node
	}
	leaf := t.newLeaf(point)
	for node = t.root; ; node = t.child(node, point) {
		dim, cut := t.drawCut(node, point)
		below, above := cut <= t.lows(node)[dim], cut >= t.highs(node)[dim]
		if !below && !above {
			continue // the cut would divide the box of the node: it is none of this point alone
		}
		branch := t.take()
		t.cutDim[branch], t.cut[branch] = dim, cut
		if t.left[branch], t.right[branch] = leaf, node; point[dim] > cut {
			t.left[branch], t.right[branch] = node, leaf
		}
		t.replace(node, branch)
		t.parent[leaf], t.parent[node], t.count[branch] = branch, branch, t.count[node]
		t.box(branch)
		for n := t.parent[branch]; n != none && t.box(n); n = t.parent[n] {
			continue // a box that stays as it is leaves those above it
		}
		return leaf
	}
}

func (t *cutTree) child(node int, point []float64) int {
	if point[t.cutDim[node]] <= t.cut[node] {
		return t.left[node]
	}
	return t.right[node]
}

// drawCut draws a cut of the box of a node and a point: a place on the sum of its edges.
func (t *cutTree) drawCut(node int, point []float64) (dim int, cut float64) {
	low, high, sum := t.lows(node), t.highs(node), 0.0
	for d, v := range point {
		sum += max(high[d], v) - min(low[d], v)
	}
	at := t.rng.Float64() * sum
	for d, v := range point {
		edge := max(high[d], v) - min(low[d], v)
		if at < edge || d == len(point)-1 {
			// A cut at the upper end would leave nothing above it.
			return d, min(min(low[d], v)+at, math.Nextafter(max(high[d], v), math.Inf(-1)))
		}
		at -= edge
	}
	panic("a point without dimensions")
}

func (t *cutTree) newLeaf(point []float64) int {
	leaf := t.take()
	copy(t.lows(leaf), point)
	copy(t.highs(leaf), point)
	return leaf
}

func (t *cutTree) replace(old, by int) {
	up := t.parent[old]
	t.parent[by] = up
	switch {
	case up == none:
		t.root = by
	case t.left[up] == old:
		t.left[up] = by
	default:
		t.right[up] = by
	}
}

// box computes the box of a node that is not a leaf, and reports whether it changed.
func (t *cutTree) box(node int) (changed bool) {
	low, high := t.lows(node), t.highs(node)
	leftLow, rightLow := t.lows(t.left[node]), t.lows(t.right[node])
	leftHigh, rightHigh := t.highs(t.left[node]), t.highs(t.right[node])
	for d := range low {
		l, h := leftLow[d], leftHigh[d]
		if rightLow[d] < l {
			l = rightLow[d]
		}
		if rightHigh[d] > h {
			h = rightHigh[d]
		}
		if l != low[d] || h != high[d] {
			low[d], high[d], changed = l, h, true
		}
	}
	return changed
}

func (t *cutTree) remove(slot int) {
	leaf := t.leafOf[slot]
	if leaf == none {
		return
	}
	t.leafOf[slot] = none
	for node := leaf; node != none; node = t.parent[node] {
		t.count[node]--
	}
	if t.count[leaf] > 0 {
		return
	}
	up := t.parent[leaf]
	t.free = append(t.free, leaf)
	if up == none {
		t.root = none
		return
	}
	t.replace(up, t.sibling(leaf))
	t.free = append(t.free, up)
	for node := t.parent[up]; node != none && t.box(node); node = t.parent[node] {
		continue
	}
}

func (t *cutTree) sibling(node int) int {
	up := t.parent[node]
	if t.left[up] == node {
		return t.right[up]
	}
	return t.left[up]
}

// displacement is the collusive displacement of a leaf: the largest ratio of the points beside one
// of its ancestors to those below it.
func (t *cutTree) displacement(leaf int) float64 {
	most := 0.0
	for node := leaf; t.parent[node] != none; node = t.parent[node] {
		most = max(most, float64(t.count[t.sibling(node)])/float64(t.count[node]))
	}
	return most
}
