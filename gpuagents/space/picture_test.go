package space

import (
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
)

// TestBoxPicture: each cell has the agents whose places are in it, the first row at the far end of
// the second axis, and a picture changes nothing.
func TestBoxPicture(t *testing.T) {
	d := openDevice(t)
	for dims, sides := range map[int][]float64{2: {40, 10}, 3: {10, 30, 20}} {
		for _, name := range []string{cells.BoidsName, cells.CirclesName} {
			x := open(t, d, cellOf(t, name, dims, 10, nil), Options{
				Agents: 1000, Sides: sides, Radius: 2, Seed: 9, PageBytes: 4096,
			})
			if p, err := x.Picture(t.Context(), 100); err != nil || !slices.Equal(p.States, []uint8{raster.NoValue}) ||
				slices.Contains(x.Memory().Made(), true) {
				t.Fatalf("before the first tick: %v, %v, want no value and no page", p, err)
			}
			tick(t, x, 9)
			_, before := values(t, x)
			places, heights := wordsOf(t, x, 0), wordsOf(t, x, 1)
			for _, most := range []int{1, 7, 1000, raster.MaxCells} {
				p, err := x.Picture(t.Context(), most)
				if err != nil {
					t.Fatal(err)
				}
				rows := len(p.Mean) / p.Columns
				want := make([]float32, len(p.Mean))
				for id := range places {
					column := int(uint64(places[id]) * uint64(p.Columns) >> 32)
					row := rows - 1 - int(uint64(heights[id])*uint64(rows)>>32)
					want[row*p.Columns+column]++
				}
				if !slices.Equal(p.Mean, want) {
					t.Fatalf("%s, %d cells: %v, want %v", name, most, p.Mean, want)
				}
				if len(p.Mean) > most || p.Columns*rows != len(p.Mean) || slices.Max(p.States) != raster.Whole {
					t.Errorf("%d cells in rows of %d, at most %d", len(p.Mean), p.Columns, most)
				}
				if ratio := float64(p.Columns) / float64(rows) / (sides[0] / sides[1]); most > 1000 &&
					(ratio < 0.98 || ratio > 1.02) {
					t.Errorf("%d columns and %d rows of %v", p.Columns, rows, sides)
				}
			}
			if _, after := values(t, x); !slices.Equal(before, after) {
				t.Error("a picture changes agents")
			}
		}
	}
}
