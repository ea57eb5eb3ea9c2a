package picture

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// ErrChart is a chart that cannot be made. Nothing was written.
var ErrChart = errors.New("invalid chart")

// Limits of a chart.
const (
	MaxPoints = 10_000 // of a line
	MaxLines  = 16
)

// Chart is the counts of agents. Each has a count for each of Names.
type Chart struct {
	Title string
	Axis  string   // what Ticks counts; empty: ticks
	Names []string // of the lines, up to MaxLines
	Ticks []int    // of the counts, ascending, up to MaxPoints
	Count [][]uint64
}

const (
	width, height            = 860.0, 420.0
	left, right, top, bottom = 90.0, 150.0, 50.0, 50.0
)

// chartColours of the lines, told apart by the colour-blind too (M. Okabe, K. Ito, Color Universal
// Design, 2008). Later lines have them again, dashed.
var chartColours = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"}

// SVG returns the chart. The error is an ErrInvalid.
func (c *Chart) SVG() (string, error) {
	switch {
	case len(c.Names) < 1 || len(c.Names) > MaxLines || len(c.Ticks) < 1 || len(c.Ticks) > MaxPoints ||
		len(c.Count) != len(c.Ticks):
		return "", fmt.Errorf("%w: %d lines of %d points for %d ticks: use 1 to %d lines of 1 to %d points", ErrChart,
			len(c.Names), len(c.Count), len(c.Ticks), MaxLines, MaxPoints)
	case slices.ContainsFunc(c.Count, func(of []uint64) bool { return len(of) != len(c.Names) }):
		return "", fmt.Errorf("%w: a tick has not %d counts", ErrChart, len(c.Names))
	}
	most := uint64(1)
	for _, of := range c.Count {
		most = max(most, slices.Max(of))
	}
	first, last := float64(c.Ticks[0]), float64(c.Ticks[len(c.Ticks)-1])
	if last == first {
		last++
	}
	x := func(tick float64) float64 { return left + (tick-first)/(last-first)*(width-left-right) }
	y := func(count float64) float64 { return height - bottom - count/float64(most)*(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" `+
		`font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%g" y="28" font-size="16">%s</text>`+"\n", left, html.EscapeString(c.Title))
	for _, v := range marks(0, float64(most)) {
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%.0f</text>`+"\n",
			left, y(v), width-right, left-8, y(v)+4, v)
	}
	for _, v := range marks(first, last) {
		fmt.Fprintf(&b, `<path d="M%.1f %gV%g" stroke="#ddd"/><text x="%.1f" y="%g" `+
			`text-anchor="middle">%.0f</text>`+"\n",
			x(v), top, height-bottom, x(v), height-bottom+18, v)
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", x((first+last)/2), height-12,
		html.EscapeString(cmp.Or(c.Axis, "tick")))
	for i, name := range c.Names {
		colour, dash := chartColours[i%len(chartColours)], ""
		if i >= len(chartColours) {
			dash = ` stroke-dasharray="5 3"`
		}
		var line strings.Builder
		for k, tick := range c.Ticks {
			fmt.Fprintf(&line, "%c%.1f %.1f", "ML"[min(k, 1)], x(float64(tick)), y(float64(c.Count[k][i])))
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", line.String(), colour, dash)
		fmt.Fprintf(&b, `<path d="M%g %gh18" stroke="%s" stroke-width="2"%s/><text x="%g" y="%g">%s</text>`+"\n",
			width-right+12, top+8+20*float64(i), colour, dash, width-right+36, top+12+20*float64(i),
			html.EscapeString(name))
	}
	b.WriteString("</svg>\n")
	return b.String(), nil
}

// marks returns up to eight round whole numbers from one to another.
func marks(from, to float64) (all []float64) {
	step := 1.0
	for i := 0; (to-from)/step > 7; i++ {
		step = []float64{1, 2, 5}[i%3] * math.Pow(10, float64(i/3))
	}
	for v := math.Ceil(from/step) * step; v <= to; v += step {
		all = append(all, v)
	}
	return all
}
