package measures

import (
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/quality"
)

func TestCount(t *testing.T) {
	windows := []quality.Window{{First: 2, Last: 4}, {First: 8, Last: 9}}
	if got, want := Count([]int{0, 2, 4, 5, 9}, windows), (Rows{True: 3, False: 2, Missed: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := (Rows{True: 3, False: 2, Missed: 2}).F1(); got != 0.6 {
		t.Errorf("F1 %v, want 0.6", got)
	}
	if got := Count(nil, windows).F1(); got != 0 {
		t.Errorf("F1 %v without a row, want 0", got)
	}
}

// TestBestPointsEqualsTwin tries every threshold by Count.
func TestBestPointsEqualsTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		scores, windows := make([][]float32, 3), make([][]quality.Window, 3)
		for i := range scores {
			for range 5 + rng.IntN(40) {
				scores[i] = append(scores[i], float32(rng.IntN(10))/10)
			}
			for at := rng.IntN(6); at < len(scores[i])-3; at += 4 + rng.IntN(9) {
				windows[i] = append(windows[i], quality.Window{First: at, Last: at + rng.IntN(3)})
			}
		}
		best := 0.0
		for k := range 10 {
			var all Rows
			for i, s := range scores {
				var called []int
				for row, x := range s {
					if x >= float32(k)/10 {
						called = append(called, row)
					}
				}
				all.Add(Count(called, windows[i]))
			}
			best = max(best, all.F1())
		}
		if got := BestPoints(scores, windows).F1(); got != best {
			t.Fatalf("F1 %v, want %v", got, best)
		}
	}
}
