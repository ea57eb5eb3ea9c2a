package picture

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestFrame: dots are where their places say, also at edges, and in their colours. This is the
// picture.
func TestFrame(t *testing.T) {
	m, err := DotSize{8, 4, 2}.Frame([]Dot{
		{0.5, 0.5, Plain}, {0, 0, 0}, {1, 1, Pale}, {0.26, 0.99, 3}, {math.NaN(), 0, 1}, {0, 1.5, 1}, {-0.1, 0, 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for y := range 4 {
		for x := range 8 {
			b.WriteByte(".0123456789abPp"[m.ColorIndexAt(x, y)])
		}
		b.WriteByte('\n')
	}
	if got, want := b.String(), ".33....p\n...PP...\n...PP...\n0.......\n"; got != want {
		t.Errorf("the picture is\n%swant\n%s", got, want)
	}
	if len(m.Palette) != Directions+3 {
		t.Errorf("%d colours", len(m.Palette))
	}
	if _, err := (DotSize{1 << 20, 1 << 20, 1}).Frame(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("a picture of 2^40 pixels: %v, want an ErrInvalid", err)
	}
	if err := (DotSize{1000, 1000, 1}).Check(300); !errors.Is(err, ErrInvalid) {
		t.Errorf("a film of 300 million pixels: %v, want an ErrInvalid", err)
	}
}

// TestDirection: ways to the right, upwards, to the left and downwards have a quarter of the
// colours between them, and all colours differ.
func TestDirection(t *testing.T) {
	for i, way := range [][2]float64{{1, 0}, {0, 2}, {-3, 0}, {0, -1e-9}} {
		if got := Direction(way[0], way[1]); int(got) != i*Directions/4 {
			t.Errorf("%v has colour %d, want %d", way, got, i*Directions/4)
		}
	}
	for i := range 10_000 {
		angle := float64(i-5000) / 500
		if c := Direction(math.Cos(angle), math.Sin(angle)); c >= Directions {
			t.Fatalf("the angle %v has colour %d", angle, c)
		}
	}
	for i, c := range palette {
		if slices.Contains(palette[:i], c) {
			t.Errorf("colour %d is there twice", i)
		}
	}
}
