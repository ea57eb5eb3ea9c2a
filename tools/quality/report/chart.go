package main

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/exoswarm/exoswarm/tools/quality/measures"
)

type line struct {
	name   string
	points []measures.Point
}

const (
	width, height            = 860.0, 560.0
	left, right, top, bottom = 70.0, 30.0, 50.0, 150.0
	// least and most are the alarms outside in 1,000 rows at the ends of the axis.
	least, most = 0.01, 30.0
)

// colours of the lines, told apart by the colour-blind too (M. Okabe, K. Ito, Color Universal
// Design, 2008); the lines after them are dashed.
var colours = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"}

// draw returns an SVG: the share of windows found against the alarms outside of them.
func draw(title string, lines []line) string {
	px := func(outside float64) float64 {
		x := math.Log(min(max(outside, least), most)/least) / math.Log(most/least)
		return left + x*(width-left-right)
	}
	py := func(found float64) float64 { return height - bottom - found*(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" `+
		`font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%g" y="28" font-size="16">%s</text>`+"\n", left, html.EscapeString(title))
	for _, v := range []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30} {
		fmt.Fprintf(&b, `<path d="M%.1f %gV%g" stroke="#ddd"/><text x="%.1f" y="%g" text-anchor="middle">%g</text>`+
			"\n", px(v), top, height-bottom, px(v), height-bottom+18, v)
	}
	for v := 0.0; v <= 1; v += 0.25 {
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%g %%</text>`+
			"\n", left, py(v), width-right, left-6, py(v)+4, 100*v)
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">alarms outside of incidents in 1,000 rows</text>`+"\n",
		(left+width-right)/2, height-bottom+36)
	for i, l := range lines {
		colour, dash := colours[i%len(colours)], ""
		if i >= len(colours) {
			dash = ` stroke-dasharray="5 4"`
		}
		path, drawn := "M", false
		for _, p := range l.points {
			if p.Outside < least || p.Outside > most {
				continue
			}
			if drawn {
				path += "L"
			}
			path += fmt.Sprintf("%.1f %.1f", px(p.Outside), py(p.Found))
			drawn = true
		}
		if drawn {
			fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", path, colour, dash)
		}
		x, y := left+float64(i%2)*(width-left-right)/2, height-bottom+62+20*float64(i/2)
		fmt.Fprintf(&b, `<path d="M%g %gh24" stroke="%s" stroke-width="3"%s/><text x="%g" y="%g">%s</text>`+"\n", x,
			y-4, colour, dash, x+32, y, html.EscapeString(l.name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
