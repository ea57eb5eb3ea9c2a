package picture

import (
	_ "embed"
	"image"
)

// fontBits are the glyphs of the runes ' ' to '~' and one for all others: 13 rows each, the
// leftmost of six pixels in the highest bit. They are 7x13 of the misc-fixed fonts of X11, which
// are in the public domain.
//
//go:embed assets/font7x13.bin
var fontBits string

// ascent is the height of a glyph above the line that it stands on.
const ascent = 11

// drawText draws a text from x on, on the line y, in a colour of the palette. What is outside of m
// is left out.
func drawText(m *image.Paletted, x, y int, text string, ink uint8) {
	for _, r := range text {
		if r < ' ' || r > '~' {
			r = '~' + 1
		}
		for row, bits := range []byte(fontBits[int(r-' ')*line:][:line]) {
			for column := range glyph {
				at := image.Pt(x+column, y-ascent+row)
				if bits&(0x80>>column) != 0 && at.In(m.Rect) {
					m.SetColorIndex(at.X, at.Y, ink)
				}
			}
		}
		x += glyph
	}
}
