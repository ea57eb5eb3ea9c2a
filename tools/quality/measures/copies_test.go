package measures

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/quality"
)

// TestCopies: in each copy a row lies in a window if its row of the stream does, and twice reversed
// is the stream.
func TestCopies(t *testing.T) {
	for trial := range 200 {
		rng := rand.New(rand.NewPCG(uint64(trial), 50))
		s := quality.Stream{Name: "kind/name"}
		at, inside := int64(1000), map[float64]bool{}
		for i := range 20 + rng.IntN(60) {
			at += 1 + rng.Int64N(9)
			s.Times, s.Values = append(s.Times, at), append(s.Values, float64(i)) // the row by its number
		}
		for first := rng.IntN(9); first < len(s.Times); {
			w := quality.Window{First: first, Last: min(first+rng.IntN(7), len(s.Times)-1)}
			s.Windows = append(s.Windows, w)
			for row := w.First; row <= w.Last; row++ {
				inside[float64(row)] = true
			}
			first = w.Last + 2 + rng.IntN(9)
		}
		for _, c := range Copies(s) {
			got := map[float64]bool{}
			for _, w := range c.Windows {
				for row := w.First; row <= w.Last; row++ {
					got[c.Values[row]] = true
				}
			}
			for i, v := range c.Values {
				if got[v] != inside[v] {
					t.Errorf("trial %d, %s: row %g of the stream: in a window %t, want %t", trial, c.Name, v, got[v],
						inside[v])
				}
				if i > 0 && c.Times[i] <= c.Times[i-1] {
					t.Errorf("trial %d, %s: times fall", trial, c.Name)
				}
			}
			if Kind(c) != Kind(s) {
				t.Errorf("%s has the kind %s", c.Name, Kind(c))
			}
		}
		again := reversed(reversed(s))
		if !slices.Equal(again.Times, s.Times) || !slices.Equal(again.Values, s.Values) ||
			!slices.Equal(again.Windows, s.Windows) {
			t.Errorf("trial %d: twice reversed is another stream", trial)
		}
	}
}
