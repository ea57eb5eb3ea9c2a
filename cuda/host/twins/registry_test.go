package twins_test

import (
	"testing"

	"github.com/exoswarm/exoswarm/cuda/host/twins"
)

func TestPartCoversAll(t *testing.T) {
	for _, n := range []uint64{0, 1, 7, 1000, 1 << 40} {
		for _, grid := range []int{1, 3, 8, 1001} {
			var end uint64
			for i := range grid {
				lo, hi := (&twins.Block{Index: i, Grid: grid}).Part(n)
				if lo != end || hi < lo {
					t.Fatalf("n %d grid %d: block %d is [%d, %d) after %d", n, grid, i, lo, hi, end)
				}
				end = hi
			}
			if end != n {
				t.Fatalf("n %d grid %d ends at %d", n, grid, end)
			}
		}
	}
}
