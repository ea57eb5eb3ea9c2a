package picture

import (
	"errors"
	"image/color"
	"slices"
	"strings"
	"testing"
)

// TestRaster: a raster has the cells of a frame, right of and below numbers, marks and a
// title, and each state has its colour in the legend.
func TestRaster(t *testing.T) {
	s := GridSize{Width: 100, Height: 40, Scale: 2, States: 2}
	states := make([]byte, s.Width*s.Height)
	for i := range states {
		states[i] = byte(i * 7 % 3 % 2)
	}
	m, err := s.Raster(states, Axes{
		Title: "ring", Rows: "agent", Columns: "steps", FirstRow: 500, States: []string{"rest", "spike"},
	})
	if err != nil {
		t.Fatal(err)
	}
	cells, err := s.Frame(states)
	if err != nil {
		t.Fatal(err)
	}
	for y := range int(s.Height) * s.Scale {
		for x := range int(s.Width) * s.Scale {
			if got, want := m.At(aside+x, above+y), cells.At(x, y); got != want {
				t.Fatalf("pixel %d, %d is %v, want %v", x, y, got, want)
			}
		}
	}
	black := func(x0, y0, x1, y1 int) (n int) {
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				if m.At(x, y) == color.Black || m.At(x, y) == (color.Gray16{}) {
					n++
				}
			}
		}
		return n
	}
	right, foot := aside+int(s.Width)*s.Scale, above+int(s.Height)*s.Scale
	for name, n := range map[string]int{
		"the title": black(aside, 0, right, line+3), "the rows": black(0, above-line-6, aside, above-2),
		"numbers of rows":    black(0, above, aside-tickLength-2, foot),
		"numbers of columns": black(aside, foot+tickLength+2, right, foot+tickLength+line+2),
		"the columns":        black(aside, foot+line+tickLength+6, right, m.Bounds().Dy()),
		"the legend":         black(right+line, above, m.Bounds().Dx(), above+2*line),
	} {
		if n < 8 {
			t.Errorf("%s: %d black pixels", name, n)
		}
	}
	for i := range s.States {
		if got := m.At(right+line+4, above+i*line+line/2); got != cells.Palette[i] {
			t.Errorf("state %d has %v in the legend, want %v", i, got, cells.Palette[i])
		}
	}
	if got := rasterMarks(100, 2, betweenMarks); !slices.Equal(got, []int64{0, 50}) {
		t.Errorf("marks %v", got)
	}
	// Long names and no names fit too.
	for _, names := range [][]string{nil, slices.Repeat([]string{strings.Repeat("n", 500)}, 20)} {
		if _, err := s.Raster(states, Axes{Title: "long", States: names}); err != nil {
			t.Errorf("%d names: %v", len(names), err)
		}
	}
	if _, err := s.Raster(nil, Axes{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no states: %v", err)
	}
}
