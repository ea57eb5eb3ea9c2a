package picture

import (
	"image"
	"image/color"
	"math"
)

// Directions is how many colours there are for directions.
const Directions = 12

// palette is the background, a colour for each direction, and the colours of Plain and Pale.
var palette = append(append(color.Palette{color.RGBA{0xf6, 0xf4, 0xee, 0xff}}, hues()...),
	color.RGBA{0x1d, 0x4e, 0x89, 0xff}, color.RGBA{0xd9, 0x9a, 0x5b, 0xff})

// Colour is the colour of a dot: a direction from 0 on, Plain or Pale.
type Colour byte

// The colours of dots without a direction.
const (
	Plain Colour = Directions + iota
	Pale
)

// hues returns the colours of a circle, from red over green and blue to red, of about the same
// brightness.
func hues() (all color.Palette) {
	for i := range Directions {
		wave := func(shift float64) uint8 {
			return uint8(95 + 90*math.Cos(2*math.Pi*(float64(i)/Directions-shift)))
		}
		all = append(all, color.RGBA{wave(0), wave(1.0 / 3), wave(2.0 / 3), 0xff})
	}
	return all
}

// Direction returns the colour of a direction that is not 0. Colour 0 means to the right; further
// colours follow counter-clockwise.
func Direction(x, y float64) Colour {
	turn := math.Atan2(y, x)/(2*math.Pi)*Directions + Directions + 0.5
	return Colour(int(turn) % Directions)
}

// Dot is an agent: its place from 0 to 1 on both axes. The second axis goes upwards.
type Dot struct {
	X, Y   float64
	Colour Colour
}

// DotSize is the size of a picture in pixels, with dots that are squares of Side pixels.
type DotSize struct {
	Width, Height int64
	Side          int
}

// Check returns an ErrInvalid unless a film of a number of frames is within the limits of a
// GridSize.
func (s DotSize) Check(frames int) error {
	return GridSize{Width: s.Width, Height: s.Height, Scale: 1}.Check(frames)
}

// Frame draws dots, later ones over earlier ones. Those beyond an edge are cut off, and those
// without a place, which are NaN, are not drawn.
func (s DotSize) Frame(dots []Dot) (*image.Paletted, error) {
	if err := s.Check(1); err != nil {
		return nil, err
	}
	m := image.NewPaletted(image.Rect(0, 0, int(s.Width), int(s.Height)), palette)
	for _, d := range dots {
		if !(d.X >= 0 && d.X <= 1 && d.Y >= 0 && d.Y <= 1) {
			continue
		}
		left, top := int(d.X*float64(s.Width))-s.Side/2, int((1-d.Y)*float64(s.Height))-s.Side/2
		for y := max(top, 0); y < min(top+s.Side, int(s.Height)); y++ {
			for x := max(left, 0); x < min(left+s.Side, int(s.Width)); x++ {
				m.Pix[y*m.Stride+x] = byte(min(d.Colour, Pale)) + 1
			}
		}
	}
	return m, nil
}
