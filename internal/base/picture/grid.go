// Package picture draws agents on a grid and in a box as PNG and GIF (GridSize, DotSize), with axes
// (Axes), counts over ticks as SVG (Chart), and has the library of charts for pages (UPlotJS).
package picture

import (
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"io"
	"slices"
)

// Limits of pictures.
const (
	MaxScale  = 64
	MaxPixels = 64 << 20  // of a frame
	MaxFilm   = 256 << 20 // of all frames of a GIF together, which are in memory until it is written
	MaxRate   = 50        // frames a second
)

// gridColours are the colours of states: dead and alive cells, or susceptible, infected and
// recovered agents.
var gridColours = color.Palette{
	color.RGBA{0xf6, 0xf4, 0xee, 0xff}, color.RGBA{0x1d, 0x4e, 0x89, 0xff}, color.RGBA{0xd9, 0x9a, 0x5b, 0xff},
}

// MaxStates is the largest number of states that a picture distinguishes.
const MaxStates = 16

// shades are the colours of more states than those: from light to dark, in even steps.
var shades = func() (all color.Palette) {
	stops := []color.RGBA{
		{0xf6, 0xf4, 0xee, 0xff}, {0x9f, 0xc6, 0xdc, 0xff}, {0x1d, 0x4e, 0x89, 0xff}, {0x10, 0x1c, 0x33, 0xff},
	}
	for i := range MaxStates {
		const steps = MaxStates - 1
		at := i * (len(stops) - 1)
		from, to := stops[at/steps], stops[min(at/steps+1, len(stops)-1)]
		mix := func(a, b uint8) uint8 { return uint8((int(a)*(steps-at%steps) + int(b)*(at%steps)) / steps) }
		all = append(all, color.RGBA{mix(from.R, to.R), mix(from.G, to.G), mix(from.B, to.B), 0xff})
	}
	return all
}()

// GridSize is the size of a picture in cells. Each cell is a square of Scale times Scale pixels.
type GridSize struct {
	Width, Height int64 // cells
	Scale         int   // 1 to MaxScale
	// States is how many there are, up to MaxStates; 0 is 3. More than 3 are shades from light to
	// dark.
	States int
}

func (s GridSize) palette() color.Palette {
	if s.States <= len(gridColours) {
		return gridColours
	}
	all := make(color.Palette, s.States)
	for i := range all {
		all[i] = shades[i*(MaxStates-1)/(s.States-1)]
	}
	return all
}

// Check returns an ErrInvalid unless a film of a number of frames is within the limits.
func (s GridSize) Check(frames int) error {
	switch {
	case s.Scale < 1 || s.Scale > MaxScale:
		return fmt.Errorf("%w: scale %d: use 1 to %d", ErrInvalid, s.Scale, MaxScale)
	case s.States < 0 || s.States > MaxStates:
		return fmt.Errorf("%w: %d states: use up to %d", ErrInvalid, s.States, MaxStates)
	case s.Width < 1 || s.Height < 1 || frames < 1:
		return fmt.Errorf("%w: %d frames of %d x %d cells: use 1 or more of each", ErrInvalid, frames, s.Width,
			s.Height)
	}
	most := int64(MaxPixels / (s.Scale * s.Scale))
	if s.Width > most/s.Height {
		return fmt.Errorf("%w: %d x %d cells at scale %d: use at most %d cells at this scale", ErrInvalid, s.Width,
			s.Height, s.Scale, most)
	}
	if each := s.Width * s.Height * int64(s.Scale*s.Scale); frames > 1 && int64(frames) > MaxFilm/each {
		return fmt.Errorf("%w: %d frames of %d pixels: use at most %d frames, fewer cells, or a smaller scale",
			ErrInvalid, frames, each, MaxFilm/each)
	}
	return nil
}

// Frame draws states, row by row. It does not keep the slice.
func (s GridSize) Frame(states []byte) (*image.Paletted, error) {
	if err := s.Check(1); err != nil {
		return nil, err
	}
	if int64(len(states)) != s.Width*s.Height {
		return nil, fmt.Errorf("%w: %d states for %d x %d cells", ErrInvalid, len(states), s.Width, s.Height)
	}
	palette := s.palette()
	if most := slices.Max(states); int(most) >= len(palette) {
		return nil, fmt.Errorf("%w: state %d: use 0 to %d", ErrInvalid, most, len(palette)-1)
	}
	width := int(s.Width) * s.Scale
	m := image.NewPaletted(image.Rect(0, 0, width, int(s.Height)*s.Scale), palette)
	for y := range int(s.Height) {
		first := m.Pix[y*s.Scale*m.Stride:][:width]
		for x, state := range states[y*int(s.Width):][:s.Width] {
			for k := range s.Scale {
				first[x*s.Scale+k] = state
			}
		}
		for k := 1; k < s.Scale; k++ {
			copy(m.Pix[(y*s.Scale+k)*m.Stride:], first)
		}
	}
	return m, nil
}

// PNG writes one frame.
func PNG(w io.Writer, frame *image.Paletted) error { return png.Encode(w, frame) }

// GIF writes frames as an endless animation, at a rate in frames a second, 1 to MaxRate. The delays
// of a GIF are hundredths of a second, so the rate is rounded.
func GIF(w io.Writer, frames []*image.Paletted, rate int) error {
	if rate < 1 || rate > MaxRate || len(frames) == 0 {
		return fmt.Errorf("%w: %d frames at %d a second: use 1 or more at 1 to %d", ErrInvalid, len(frames), rate,
			MaxRate)
	}
	return gif.EncodeAll(w, &gif.GIF{Image: frames, Delay: slices.Repeat([]int{(100 + rate/2) / rate}, len(frames))})
}
