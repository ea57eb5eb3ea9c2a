package plan_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
)

// TestChainOrder: the order of a chain takes no more time than any other one.
func TestChainOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	m := plan.Default
	for range 50 {
		dims := make([]int64, 4+r.IntN(4))
		for i := range dims {
			dims[i] = 1 + r.Int64N(5000)
		}
		split := plan.Order(m, dims)
		var chosen, best func(i, j int) float64
		chosen = func(i, j int) float64 {
			if i == j {
				return 0
			}
			k := split[i][j]
			return chosen(i, k) + chosen(k+1, j) + m.Product(dims[i], dims[k+1], dims[j+1])
		}
		best = func(i, j int) float64 {
			if i == j {
				return 0
			}
			least := math.Inf(1)
			for k := i; k < j; k++ {
				least = min(least, best(i, k)+best(k+1, j)+m.Product(dims[i], dims[k+1], dims[j+1]))
			}
			return least
		}
		if n := len(dims) - 2; math.Abs(chosen(0, n)/best(0, n)-1) > 1e-12 {
			t.Errorf("%v: %v s, want %v s", dims, chosen(0, n), best(0, n))
		}
	}
}

// TestProduct: the prediction has no time below a launch, and grows with each size.
func TestProduct(t *testing.T) {
	m := plan.Default
	base := m.Product(4096, 4096, 4096)
	if small := m.Product(1, 1, 1); small < m.Launch || small >= base {
		t.Errorf("the smallest product takes %v s, a large one %v s", small, base)
	}
	for _, larger := range []float64{
		m.Product(8192, 4096, 4096), m.Product(4096, 8192, 4096), m.Product(4096, 4096, 8192),
	} {
		if larger <= base {
			t.Errorf("twice the product takes %v s, the product %v s", larger, base)
		}
	}
}
