package lanes

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAddProduct: the sums have the bits of the twin, and nothing beside them changes.
func TestAddProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	random := func(n int) []float32 {
		all := make([]float32, n)
		for i := range all {
			all[i] = float32(r.NormFloat64())
		}
		return all
	}
	for _, terms := range []int{0, 1, 2, 3, 17, 256} {
		for _, step := range []int{ProductColumns, ProductColumns + 5} {
			a, b := random(terms*ProductRows), random(terms*ProductColumns)
			got := random(ProductRows * step)
			want := slices.Clone(got)
			AddProduct(a, b, got, step)
			addProductPlain(a, b, want, step)
			for i := range got {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%d terms, step %d: sum %d is %v, want %v", terms, step, i, got[i], want[i])
				}
			}
		}
	}
}
