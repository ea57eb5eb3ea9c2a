package picture

import (
	"bytes"
	"errors"
	"image"
	"image/gif"
	"image/png"
	"math"
	"math/rand/v2"
	"testing"
)

// TestFrames: a pixel of a decoded file has the colour of its cell, in each frame.
func TestFrames(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 30 {
		s := GridSize{Width: 1 + r.Int64N(40), Height: 1 + r.Int64N(30), Scale: 1 + r.IntN(5)}
		var all [][]byte
		var frames []*image.Paletted
		for range 1 + r.IntN(5) {
			states := make([]byte, s.Width*s.Height)
			for i := range states {
				states[i] = byte(r.IntN(2))
			}
			m, err := s.Frame(states)
			if err != nil {
				t.Fatalf("Frame: %v, want no error", err)
			}
			all, frames = append(all, states), append(frames, m)
		}
		same := func(m image.Image, states []byte) {
			t.Helper()
			if m.Bounds().Dx() != int(s.Width)*s.Scale || m.Bounds().Dy() != int(s.Height)*s.Scale {
				t.Fatalf("%+v: %v", s, m.Bounds())
			}
			for y := range m.Bounds().Dy() {
				for x := range m.Bounds().Dx() {
					want := gridColours[states[y/s.Scale*int(s.Width)+x/s.Scale]]
					if got := m.At(x, y); got != want {
						t.Fatalf("%+v: pixel %d, %d is %v, want %v", s, x, y, got, want)
					}
				}
			}
		}
		var file bytes.Buffer
		if err := PNG(&file, frames[0]); err != nil {
			t.Fatal(err)
		}
		m, err := png.Decode(&file)
		if err != nil {
			t.Fatal(err)
		}
		same(m, all[0])
		file.Reset()
		if err := GIF(&file, frames, 10); err != nil {
			t.Fatal(err)
		}
		film, err := gif.DecodeAll(&file)
		if err != nil || len(film.Image) != len(frames) || film.Delay[0] != 10 {
			t.Fatalf("%+v: %v", film, err)
		}
		for i, m := range film.Image {
			same(m, all[i])
		}
	}
}

// TestInvalid: what is out of the limits is refused.
func TestInvalid(t *testing.T) {
	for s, frames := range map[GridSize]int{
		{}: 1, {Width: 1, Height: 1}: 1, {Width: 1, Height: 1, Scale: 65}: 1, {Width: 0, Height: 1, Scale: 1}: 1,
		{Width: math.MaxInt64, Height: math.MaxInt64, Scale: 1}: 1, {Width: 1 << 13, Height: 1<<13 + 1, Scale: 1}: 1,
		{Width: 1 << 13, Height: 1 << 13, Scale: 1}: 5, {Width: 1 << 13, Height: 1 << 12, Scale: 2}: 1,
		{Width: 1, Height: 1, Scale: 1}: 0,
	} {
		if err := s.Check(frames); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v, %d frames: %v, want an ErrInvalid", s, frames, err)
		}
	}
	if err := (GridSize{Width: 1 << 13, Height: 1 << 13, Scale: 1}).Check(4); err != nil {
		t.Errorf("the largest film: %v, want no error", err)
	}
	s := GridSize{Width: 2, Height: 1, Scale: 1}
	for _, states := range [][]byte{nil, {1}, {0, 3}} {
		if _, err := s.Frame(states); !errors.Is(err, ErrInvalid) {
			t.Errorf("states %v: %v, want an ErrInvalid", states, err)
		}
	}
	for _, rate := range []int{0, 51} {
		if err := GIF(nil, []*image.Paletted{nil}, rate); !errors.Is(err, ErrInvalid) {
			t.Errorf("rate %d: %v, want an ErrInvalid", rate, err)
		}
	}
}

// TestStates: up to three states have the colours of cells, and more are shades that differ, from
// light to dark.
func TestStates(t *testing.T) {
	for n := range MaxStates + 1 {
		states := []byte{0, 1, 2}
		for i := 3; i < n; i++ {
			states = append(states, byte(i))
		}
		m, err := GridSize{Width: int64(len(states)), Height: 1, Scale: 1, States: n}.Frame(states)
		if err != nil {
			t.Fatalf("%d states: %v, want no error", n, err)
		}
		light := uint32(1 << 20)
		for i := range states {
			r, g, b, _ := m.At(i, 0).RGBA()
			if n > 3 && r+g+b >= light {
				t.Errorf("%d states: state %d is not darker than the one before", n, i)
			}
			light = r + g + b
		}
		size := GridSize{Width: 1, Height: 1, Scale: 1, States: n}
		if _, err := size.Frame([]byte{byte(max(n, 3))}); !errors.Is(err,
			ErrInvalid) {
			t.Errorf("state %d of %d: %v, want an ErrInvalid", max(n, 3), n, err)
		}
	}
	if err := (GridSize{Width: 1, Height: 1, Scale: 1, States: 17}).Check(1); !errors.Is(err, ErrInvalid) {
		t.Errorf("17 states: %v, want an ErrInvalid", err)
	}
}
