// Command latencychart draws latency against the number of what is worked on, ballots by default,
// both axes logarithmic, as an SVG that needs nothing beside it. Its input are files with a JSON
// object a line: {"name": ..., "n": ..., "us": ...}; a name is a line of the chart.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// point is one measurement; the last of a name and a number counts, so that files may be appended
// to.
type point struct {
	Name string  `json:"name"`
	N    float64 `json:"n"`
	US   float64 `json:"us"`
}

// line is what one name measured, by rising n.
type line struct {
	name   string
	points []point
}

func main() {
	out := flag.String("o", "", "file to write; empty: standard output")
	title := flag.String("title", "A round of votes: wall time until the decision is in host memory",
		"title of the chart")
	of := flag.String("of", "ballots", "what the numbers count")
	only := flag.String("only", "", "draw the lines whose names begin with this; empty: all")
	flag.Parse()
	if err := run(*out, chart{title: *title, of: *of}, *only, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "latencychart:", err)
		os.Exit(1)
	}
}

// chart is the texts of a chart.
type chart struct {
	title, of string
}

func run(out string, c chart, only string, files []string) error {
	if len(files) == 0 {
		return fmt.Errorf("no input: name files of JSON lines")
	}
	var lines []line
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		lines, err = read(lines, name, f)
		_ = f.Close() // only read
		if err != nil {
			return err
		}
	}
	lines = slices.DeleteFunc(lines, func(l line) bool { return !strings.HasPrefix(l.name, only) })
	svg, err := c.draw(lines)
	if err != nil {
		return err
	}
	if out == "" {
		_, err = io.WriteString(os.Stdout, svg)
		return err
	}
	return os.WriteFile(out, []byte(svg), 0o644)
}

// read appends the measurements of a file.
func read(lines []line, file string, r io.Reader) ([]line, error) {
	scan := bufio.NewScanner(r)
	for at := 1; scan.Scan(); at++ {
		if strings.TrimSpace(scan.Text()) == "" {
			continue
		}
		var p point
		if err := json.Unmarshal(scan.Bytes(), &p); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, at, err)
		}
		if p.Name == "" || !(p.N >= 1) || !(p.US > 0) {
			return nil, fmt.Errorf("%s, line %d: want a name, n >= 1 and us > 0, got %q, %v and %v", file, at, p.Name,
				p.N, p.US)
		}
		i := slices.IndexFunc(lines, func(l line) bool { return l.name == p.Name })
		if i < 0 {
			i = len(lines)
			lines = append(lines, line{name: p.Name})
		}
		k, found := slices.BinarySearchFunc(lines[i].points, p, func(a, b point) int { return cmp.Compare(a.N, b.N) })
		if found {
			lines[i].points[k] = p
		} else {
			lines[i].points = slices.Insert(lines[i].points, k, p)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return lines, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

const (
	width, height            = 860.0, 520.0
	left, right, top, bottom = 70.0, 30.0, 50.0, 150.0
)

// colours of the lines, told apart by the colour-blind too (M. Okabe, K. Ito, Color Universal
// Design, 2008).
var colours = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"}

// draw returns the chart of some lines. No measurement is an error.
func (c chart) draw(lines []line) (string, error) {
	x0, x1, y0, y1 := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1) // decades
	for _, l := range lines {
		for _, p := range l.points {
			x, y := math.Log10(p.N), math.Log10(p.US)
			x0, x1, y0, y1 = min(x0, x), max(x1, x), min(y0, y), max(y1, y)
		}
	}
	if math.IsInf(x0, 1) {
		return "", fmt.Errorf("no measurements to draw")
	}
	x0, x1, y0, y1 = math.Floor(x0), max(math.Ceil(x1), math.Floor(x0)+1), math.Floor(y0),
		max(math.Ceil(y1), math.Floor(y0)+1)
	px := func(n float64) float64 { return left + (math.Log10(n)-x0)/(x1-x0)*(width-left-right) }
	py := func(us float64) float64 { return height - bottom - (math.Log10(us)-y0)/(y1-y0)*(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" `+
		`font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%g" y="28" font-size="16">%s</text>`+"\n", left, html.EscapeString(c.title))
	for d := x0; d <= x1; d++ {
		x := px(math.Pow(10, d))
		fmt.Fprintf(&b, `<path d="M%.1f %gV%g" stroke="#ddd"/><text x="%.1f" y="%g" text-anchor="middle">1e%g</text>`+
			"\n", x, top, height-bottom, x, height-bottom+18, d)
	}
	for d := y0; d <= y1; d++ {
		y := py(math.Pow(10, d))
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%g µs</text>`+
			"\n", left, y, width-right, left-6, y+4, math.Pow(10, d))
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">%s</text>`+"\n", (left+width-right)/2,
		height-bottom+36, html.EscapeString(c.of))
	for i, l := range lines {
		colour := colours[i%len(colours)]
		var path strings.Builder
		for k, p := range l.points {
			path.WriteString([]string{"L", "M"}[btoi(k == 0)])
			fmt.Fprintf(&path, "%.1f %.1f", px(p.N), py(p.US))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s">`+
				`<title>%s: %g %s, %g µs</title></circle>`+
				"\n",
				px(p.N), py(p.US), colour, html.EscapeString(l.name), p.N, html.EscapeString(c.of), p.US)
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), colour)
		x, y := left+float64(i%2)*(width-left-right)/2, height-bottom+62+20*float64(i/2)
		fmt.Fprintf(&b, `<path d="M%g %gh24" stroke="%s" stroke-width="3"/><text x="%g" y="%g">%s</text>`+"\n", x, y-4,
			colour, x+32, y, html.EscapeString(l.name))
	}
	b.WriteString("</svg>\n")
	return b.String(), nil
}
