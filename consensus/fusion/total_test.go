package fusion_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
)

// TestTotal: the means of a total round the quotient once, and a node without weight has zeros.
func TestTotal(t *testing.T) {
	third := math.Nextafter(1, 2)
	total := fusion.Total{
		Dim: 8, Sums: append(slices.Repeat([]float64{third}, 8), slices.Repeat([]float64{5}, 8)...),
		Weights: []uint64{3 * consensus.One, 0}, Counts: []uint64{3, 1},
	}
	got := slices.Repeat([]float32{7}, 16)
	ok(t, total.Means(got))
	for i, v := range got {
		want := float32(0)
		if i < 8 {
			want = float32(third / 3)
		}
		if v != want {
			t.Errorf("mean %d is %v, want %v", i, v, want)
		}
	}
	if err := total.Means(nil); !errors.Is(err, fusion.ErrLength) {
		t.Errorf("means into nothing: %v, want %v", err, fusion.ErrLength)
	}
}
