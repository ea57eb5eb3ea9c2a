package picture

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"math"
)

// Axes are what a raster has around its cells: a title, the numbers of rows and columns, and the
// names of states.
type Axes struct {
	Title string
	// Rows and Columns say what a row and a column are. FirstRow and FirstColumn are their first
	// numbers.
	Rows, Columns         string
	FirstRow, FirstColumn int64
	// States are the names of the states; more names than colours are left out.
	States []string
}

// The margins of a raster in pixels. A glyph is 7 pixels wide, and a line 13 high.
const (
	glyph, line  = 7, 13
	aside, above = 12*glyph + 8, 2*line + 12
	tickLength   = 4
	below        = 3*line + 12
	betweenMarks = 60 // pixels between two marks of an axis, at least
	mostNamed    = 24 // glyphs of the name of a state
)

// Raster draws states with axes and a legend.
func (s GridSize) Raster(states []byte, a Axes) (*image.Paletted, error) {
	cells, err := s.Frame(states)
	if err != nil {
		return nil, err
	}
	// Text and background are colours of their own behind the colours of the states.
	paper, ink := uint8(len(cells.Palette)), uint8(len(cells.Palette)+1)
	p := append(append(color.Palette{}, cells.Palette...), color.White, color.Black)
	names := a.States[:min(len(a.States), len(cells.Palette))]
	legend := 0
	for _, n := range names {
		legend = max(legend, min(len(n), mostNamed)*glyph+3*line)
	}
	size := cells.Bounds().Size()
	inner := max(size.X, len(a.Title)*glyph, len(a.Columns)*glyph)
	tall := max(size.Y, (len(names)+1)*line)
	m := image.NewPaletted(image.Rect(0, 0, aside+inner+legend+line, above+tall+below), p)
	draw.Draw(m, m.Bounds(), image.NewUniform(p[paper]), image.Point{}, draw.Src)
	place := image.Rectangle{image.Pt(aside, above), image.Pt(aside, above).Add(size)}
	for y := range size.Y { // the colours have the same numbers
		copy(m.Pix[m.PixOffset(aside, above+y):][:size.X], cells.Pix[cells.PixOffset(0, y):])
	}
	bar := func(x0, y0, x1, y1 int, c uint8) {
		draw.Draw(m, image.Rect(x0, y0, x1, y1), image.NewUniform(p[c]), image.Point{}, draw.Src)
	}
	text := func(x, y int, s string) { drawText(m, x, y, s, ink) }
	text(aside, line, a.Title)
	text(4, above-6, a.Rows)
	bar(place.Min.X-1, place.Min.Y, place.Min.X, place.Max.Y, ink)
	bar(place.Min.X-1, place.Max.Y, place.Max.X, place.Max.Y+1, ink)
	for _, v := range rasterMarks(s.Height, s.Scale, line*2) {
		at := place.Min.Y + int(v)*s.Scale + s.Scale/2
		bar(place.Min.X-1-tickLength, at, place.Min.X-1, at+1, ink)
		number := fmt.Sprint(a.FirstRow + v)
		text(place.Min.X-tickLength-4-len(number)*glyph, at+line/3, number)
	}
	for _, v := range rasterMarks(s.Width, s.Scale, betweenMarks) {
		at := place.Min.X + int(v)*s.Scale + s.Scale/2
		bar(at, place.Max.Y+1, at+1, place.Max.Y+1+tickLength, ink)
		number := fmt.Sprint(a.FirstColumn + v)
		text(at-len(number)*glyph/2, place.Max.Y+tickLength+line, number)
	}
	text(place.Min.X, place.Max.Y+tickLength+2*line+4, a.Columns)
	for i, n := range names {
		x, y := aside+inner+line, above+i*line
		bar(x-1, y, x+line-3, y+line-2, ink)
		bar(x, y+1, x+line-4, y+line-3, uint8(i))
		text(x+line+2, y+line-3, n[:min(len(n), mostNamed)])
	}
	return m, nil
}

// rasterMarks returns round numbers of cells with at least apart pixels between them, from 0 on.
func rasterMarks(cells int64, scale, apart int) (all []int64) {
	step := int64(1)
	for i := 0; step*int64(scale) < int64(apart); i++ {
		step = []int64{1, 2, 5}[i%3] * int64(math.Pow10(i/3))
	}
	for v := int64(0); v < cells; v += step {
		all = append(all, v)
	}
	return all
}
