// Package gridpicture draws states of agents as PNG and animated GIF files.
package gridpicture

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

// colours are those of the states: dead and alive cells, or susceptible, infected and recovered agents.
var colours = color.Palette{
	color.RGBA{0xf6, 0xf4, 0xee, 0xff}, color.RGBA{0x1d, 0x4e, 0x89, 0xff}, color.RGBA{0xd9, 0x9a, 0x5b, 0xff},
}

// Size is the cells of a picture, each of which is a square of Scale times Scale pixels.
type Size struct {
	Width, Height int64 // cells
	Scale         int   // 1 to MaxScale
}

// Check returns an ErrInvalid unless a film of so many frames is within the limits.
func (s Size) Check(frames int) error {
	switch {
	case s.Scale < 1 || s.Scale > MaxScale:
		return fmt.Errorf("%w: scale %d: use 1 to %d", ErrInvalid, s.Scale, MaxScale)
	case s.Width < 1 || s.Height < 1 || frames < 1:
		return fmt.Errorf(
			"%w: %d frames of %d x %d cells: use 1 or more of each",
			ErrInvalid,
			frames,
			s.Width,
			s.Height,
		)
	}
	most := int64(MaxPixels / (s.Scale * s.Scale))
	if s.Width > most/s.Height {
		return fmt.Errorf("%w: %d x %d cells at scale %d: use at most %d cells at this scale", ErrInvalid, s.Width,
			s.Height, s.Scale, most)
	}
	if each := s.Width * s.Height * int64(s.Scale*s.Scale); frames > 1 && int64(frames) > MaxFilm/each {
		return fmt.Errorf(
			"%w: %d frames of %d pixels: use at most %d frames, fewer cells, or a smaller scale",
			ErrInvalid,
			frames,
			each,
			MaxFilm/each,
		)
	}
	return nil
}

// Frame draws states, 0 to 2, row by row. It does not keep the slice.
func (s Size) Frame(states []byte) (*image.Paletted, error) {
	if err := s.Check(1); err != nil {
		return nil, err
	}
	if int64(len(states)) != s.Width*s.Height {
		return nil, fmt.Errorf("%w: %d states for %d x %d cells", ErrInvalid, len(states), s.Width, s.Height)
	}
	if most := slices.Max(states); int(most) >= len(colours) {
		return nil, fmt.Errorf("%w: state %d: use 0 to %d", ErrInvalid, most, len(colours)-1)
	}
	width := int(s.Width) * s.Scale
	m := image.NewPaletted(image.Rect(0, 0, width, int(s.Height)*s.Scale), colours)
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

// GIF writes frames as an animation without an end, at a rate in frames a second, 1 to MaxRate. The
// delays of a GIF are hundredths of a second, and the rate is rounded to these.
func GIF(w io.Writer, frames []*image.Paletted, rate int) error {
	if rate < 1 || rate > MaxRate || len(frames) == 0 {
		return fmt.Errorf(
			"%w: %d frames at %d a second: use 1 or more at 1 to %d",
			ErrInvalid,
			len(frames),
			rate,
			MaxRate,
		)
	}
	return gif.EncodeAll(w, &gif.GIF{Image: frames, Delay: slices.Repeat([]int{(100 + rate/2) / rate}, len(frames))})
}
