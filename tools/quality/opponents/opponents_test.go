package opponents

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/quality"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// noise is rows of features: a sine of 50 rows with a little normal noise.
func noise(rng *rand.Rand, n, features int) []float32 {
	rows := make([]float32, n*features)
	for i := range rows {
		rows[i] = 5 + float32(math.Sin(2*math.Pi*float64(i/features)/50)+0.1*rng.NormFloat64())
	}
	return rows
}

// TestAll: scores are in [0, 1], the same twice, and do not depend on later rows; a value far away
// gets one of the highest of all.
func TestAll(t *testing.T) {
	for _, d := range append(All(), Taught(300)...) {
		for features := 1; features <= 2; features++ {
			rows := noise(rand.New(rand.NewPCG(1, 2)), 1500, features)
			for f := range features {
				for k := range 3 {
					rows[(1000+k)*features+f] = 40
				}
			}
			scores := d.Score(rows, features)
			if len(scores) != 1500 || !slices.Equal(scores, d.Score(rows, features)) {
				t.Fatalf("%s: %d scores, or not the same twice", d.Name(), len(scores))
			}
			if early := d.Score(rows[:1200*features], features); !slices.Equal(early, scores[:1200]) {
				t.Errorf("%s looks ahead", d.Name())
			}
			higher, incident, most := 0, slices.Max(scores[1000:1010]), 12
			if _, ok := d.(Isolation); ok {
				most = 30 // all rows beyond the warm-up are in the outermost leaves, however far
			}
			for row, x := range scores {
				if !(x >= 0 && x <= 1) {
					t.Fatalf("%s: score %v", d.Name(), x)
				}
				if row >= 300 && (row < 1000 || row > 1100) && x >= incident {
					higher++
				}
			}
			if higher > most {
				t.Errorf("%s, %d features: %d rows are at least as high as the incident", d.Name(), features, higher)
			}
			for _, x := range d.Score(make([]float32, 600), 1) { // constant
				if x-x != 0 {
					t.Fatalf("%s: a constant series has a score %v", d.Name(), x)
				}
			}
		}
	}
}

// TestGaussianByHand: the second value is 2 deviations of 0.000001 off, and so on.
func TestGaussianByHand(t *testing.T) {
	scores := Gaussian{Window: 100, Step: 10}.Score([]float32{0, 2, 1, 3}, 1)
	// Row 3: mean of 0, 2, 1 is 1, deviation sqrt(2/3).
	want := bounded(-math.Log(math.Erfc(2/math.Sqrt(2.0/3)/math.Sqrt2)), 10)
	if scores[0] != 0 || scores[2] != 0 || scores[3] != want || scores[1] < 0.99 {
		t.Errorf("%v, want 0, near 1, 0, %v", scores, want)
	}
	if below, above := tail(29.999), tail(30.001); !(below < above && above-below < 0.1) {
		t.Errorf("the tail jumps from %v to %v", below, above)
	}
}

// TestForestBoxes: after insertions and removals every tree has the points of its window, each on
// the side of every cut where it belongs, in boxes that fit.
func TestForestBoxes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	tree := newCutTree(2, 16, rng)
	points := make([][]float64, 16)
	for row := range testkit.Of(20000, 3000) {
		slot := row % 16
		tree.remove(slot)
		points[slot] = []float64{float64(rng.IntN(6)), float64(rng.IntN(6))} // equal ones are frequent
		leaf := tree.insert(slot, points[slot])
		if d := tree.displacement(leaf); d < 0 || d > 16 {
			t.Fatalf("displacement %v", d)
		}
		var walk func(node int) [][]float64
		walk = func(node int) (below [][]float64) {
			if tree.left[node] == none {
				for s, l := range tree.leafOf {
					if l == node {
						below = append(below, points[s])
					}
				}
			} else {
				for side, child := range []int{tree.left[node], tree.right[node]} {
					for _, p := range walk(child) {
						if (p[tree.cutDim[node]] <= tree.cut[node]) != (side == 0) {
							t.Fatalf("row %d: point %v is on the wrong side of %v", row, p, tree.cut[node])
						}
						below = append(below, p)
					}
				}
			}
			low, high := slices.Clone(below[0]), slices.Clone(below[0])
			for _, p := range below {
				for i, v := range p {
					low[i], high[i] = min(low[i], v), max(high[i], v)
				}
			}
			fits := slices.Equal(low, tree.lows(node)) && slices.Equal(high, tree.highs(node))
			if len(below) != tree.count[node] || !fits {
				t.Fatalf("row %d: a node of %d points in %v %v says %d in %v %v", row, len(below), low, high,
					tree.count[node], tree.lows(node), tree.highs(node))
			}
			return below
		}
		if all := walk(tree.root); len(all) != min(row+1, 16) {
			t.Fatalf("row %d: %d points", row, len(all))
		}
	}
}

// TestDisplacementByHand: one point far from three in one place has 3/1.
func TestDisplacementByHand(t *testing.T) {
	tree := newCutTree(1, 4, rand.New(rand.NewPCG(1, 1)))
	for slot := range 3 {
		tree.insert(slot, []float64{1})
	}
	leaf := tree.insert(3, []float64{100})
	if got := tree.displacement(leaf); got != 3 {
		t.Errorf("displacement %v, want 3", got)
	}
	if got := tree.displacement(tree.leafOf[0]); got != 1.0/3 {
		t.Errorf("displacement %v of the others, want 1/3", got)
	}
}

// TestDiscordEqualsTwin: the same distances as from the definition.
func TestDiscordEqualsTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	d := Discord{Length: 12}
	rows := noise(rng, 200, 2)
	for i := 80; i < 120; i++ {
		rows[i] = 4 // a flat part
	}
	got := d.Score(rows, 2)
	for row := range got {
		if row < 2*d.Length {
			continue
		}
		nearest := math.Inf(1)
		for end := d.Length - 1; end <= row-d.Length/2; end++ {
			sum := 0.0
			for f := range 2 {
				sum += distance(stretch(rows, f, row, d.Length), stretch(rows, f, end, d.Length))
			}
			nearest = min(nearest, sum/2)
		}
		if want := nearest / (2 * math.Sqrt(float64(d.Length))); math.Abs(float64(got[row])-want) > 1e-4 {
			t.Fatalf("row %d: %v, want %v", row, got[row], want)
		}
	}
}

func stretch(rows []float32, f, end, length int) (values []float64) {
	for row := end - length + 1; row <= end; row++ {
		values = append(values, float64(rows[row*2+f]))
	}
	return values
}

func distance(a, b []float64) float64 {
	meanA, deviationA := moments(a)
	meanB, deviationB := moments(b)
	switch flatA, flatB := deviationA <= 0.000001, deviationB <= 0.000001; {
	case flatA && flatB:
		return 0
	case flatA || flatB:
		return math.Sqrt(float64(len(a)))
	}
	sum := 0.0
	for i := range a {
		x := (a[i]-meanA)/deviationA - (b[i]-meanB)/deviationB
		sum += x * x
	}
	return math.Sqrt(sum)
}

// TestEigen: the vectors are orthonormal, each is a multiple of itself behind the matrix, and values
// fall.
func TestEigen(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range testkit.Of(200, 30) {
		n := 1 + rng.IntN(10)
		a, b := make([][]float64, n), make([][]float64, n)
		for i := range a {
			a[i], b[i] = make([]float64, n), make([]float64, n)
		}
		for i := range a {
			for j := range i + 1 {
				a[i][j] = rng.NormFloat64()
				a[j][i], b[i][j], b[j][i] = a[i][j], a[i][j], a[i][j]
			}
		}
		values, vectors := eigen(a)
		for k, v := range vectors {
			if k > 0 && values[k] > values[k-1] {
				t.Fatalf("values %v", values)
			}
			for l, w := range vectors {
				dot, want := 0.0, 0.0
				if k == l {
					want = 1
				}
				for i := range v {
					dot += v[i] * w[i]
				}
				if math.Abs(dot-want) > 1e-9 {
					t.Fatalf("vectors %d and %d: product %v", k, l, dot)
				}
			}
			for i := range v {
				sum := 0.0
				for j := range v {
					sum += b[i][j] * v[j]
				}
				if math.Abs(sum-values[k]*v[i]) > 1e-9 {
					t.Fatalf("vector %d, element %d: %v, want %v", k, i, sum, values[k]*v[i])
				}
			}
		}
	}
}

// TestTSquaredLimits: of normal rows like the warm-up about 1 % are beyond each limit. A row off the
// plane of two features that move together is beyond, though each feature is usual.
func TestTSquaredLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	rows := make([]float32, 0, 3*6001)
	for range 6000 {
		x := rng.NormFloat64()
		for _, v := range []float64{x + 0.1*rng.NormFloat64(), x + 0.1*rng.NormFloat64(), rng.NormFloat64()} {
			rows = append(rows, float32(v))
		}
	}
	scores := TSquared{Warmup: 1000, Explained: 0.95}.Score(append(rows, 1.5, -1.5, 0), 3)
	beyond := 0
	for _, x := range scores[1000:6000] {
		if x > 0.5 {
			beyond++
		}
	}
	if beyond < 50 || beyond > 200 || scores[6000] < 0.9 {
		t.Errorf("%d of 5,000 usual rows are beyond a limit; the row off the plane has %v", beyond, scores[6000])
	}
	if got := limitQ([]float64{2, 0, 0}); math.Abs(got/2-6.63) > 0.2 { // chi-squared of one degree
		t.Errorf("limit of one variance of 2: %v", got)
	}
	if got := limitT(3, 1e6); math.Abs(got-11.345) > 0.1 {
		t.Errorf("limit of three components: %v", got)
	}
}

// TestIsolationByHand: one cut isolates the point that is far from three in one place.
func TestIsolationByHand(t *testing.T) {
	points := [][]float32{{1}, {1}, {1}, {100}}
	tree := isolate(points, 2, rand.New(rand.NewPCG(1, 1)))
	if got := tree.path([]float32{100}); got != 1 {
		t.Errorf("path %v, want 1", got)
	}
	if got, want := tree.path([]float32{1}), 1+expectedPath(3); got != want {
		t.Errorf("path %v of the others, want %v", got, want)
	}
}

// TestHalfSpaceMass: the masses of the children of a node add up to its mass.
func TestHalfSpaceMass(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	tree := newMassTree(drawSpace(2, 6, 1, 1))
	for window := range 3 {
		for range 50 {
			tree.add([]float64{rng.Float64(), rng.Float64()})
		}
		tree.turn()
		for node := range 1<<6 - 1 {
			if tree.before[node] != tree.before[2*node+1]+tree.before[2*node+2] {
				t.Fatalf("window %d: node %d has %d of %d and %d", window, node, tree.before[node],
					tree.before[2*node+1], tree.before[2*node+2])
			}
		}
		if tree.before[0] != 50 {
			t.Fatalf("mass %d", tree.before[0])
		}
		// A point where no other is has a mass of 0.
		if got := tree.score([]float64{-0.4, 1.4}, 0); got != 0 {
			t.Errorf("mass %v far from all points", got)
		}
		if got := tree.score([]float64{0.5, 0.5}, 50); got != 50 {
			t.Errorf("mass %v at the root, want 50", got)
		}
	}
}

// TestGaussianScore: the windowed Gaussian reaches the score of the benchmark's own, 36.7 on the
// streams beside the repository.
func TestGaussianScore(t *testing.T) {
	dir, err := quality.NABDir()
	if errors.Is(err, quality.ErrNoData) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	streams, err := quality.LoadNAB(dir)
	if err != nil {
		t.Fatal(err)
	}
	var scores [][]float32
	for _, s := range streams {
		rows := make([]float32, len(s.Values))
		for i, v := range s.Values {
			rows[i] = float32(v)
		}
		scores = append(scores, Gaussian{Window: 6400, Step: 100}.Score(rows, 1))
	}
	r, err := quality.NABScore(quality.Standard, streams, scores)
	if err != nil || math.Abs(r.Score-36.7) > 0.5 {
		t.Errorf("score %.2f, want 36.7: %v", r.Score, err)
	}
	t.Logf("%+v", r)
}
