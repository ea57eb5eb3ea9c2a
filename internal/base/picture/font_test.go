package picture

import (
	"image"
	"image/color"
	"slices"
	"strings"
	"testing"
)

// TestDrawText: glyphs stand on their line, a rune without a glyph has the one for all others, and
// what is outside of the picture is left out.
func TestDrawText(t *testing.T) {
	draw := func(x, y int, text string) (lines []string) {
		m := image.NewPaletted(image.Rect(0, 0, 2*glyph, line), color.Palette{color.White, color.Black})
		drawText(m, x, y, text, 1)
		for row := range slices.Chunk(m.Pix, m.Stride) {
			text := ""
			for _, p := range row {
				text += string(" #"[p])
			}
			lines = append(lines, strings.TrimRight(text, " "))
		}
		return lines
	}
	want := []string{
		"", "", "  ##", " #  #", "#    #", "#    #", "#    #", "######", "#    #", "#    #", "#    #", "", "",
	}
	if got := draw(0, ascent, "A"); !slices.Equal(got, want) {
		t.Errorf("an A is\n%s", strings.Join(got, "\n"))
	}
	if got := draw(0, ascent, "é"); slices.Equal(got, draw(0, ascent, " ")) ||
		!slices.Equal(got, draw(0, ascent, "\u6f22")) || !slices.Equal(got, draw(0, ascent, "\x7f")) {
		t.Errorf("a rune without a glyph is\n%s", strings.Join(got, "\n"))
	}
	cut := draw(-2, ascent-3, "A")
	for i := range want[:line-3] {
		if got, want := cut[i], strings.TrimRight((want[i+3] + "     ")[2:], " "); got != want {
			t.Errorf("line %d of an A that is cut is %q, want %q", i, got, want)
		}
	}
}
