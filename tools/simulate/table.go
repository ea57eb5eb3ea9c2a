package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/picture"
	"github.com/exoswarm/exoswarm/tools/simulate/cluster"
	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

func simulate(w io.Writer, name, charts string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	c, err := cluster.Parse(filepath.Base(name), text)
	if err != nil {
		return err
	}
	var files []*times.File
	for _, of := range c.Times {
		f, err := open(filepath.Join(filepath.Dir(name), of))
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	points, err := cluster.Run(c, files)
	if err != nil {
		return err
	}
	table(w, c, points)
	if charts == "" || len(c.Sweep.Values) < 2 {
		return nil
	}
	svg, err := chart(c, points)
	if err != nil {
		return err
	}
	base := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	return os.WriteFile(filepath.Join(charts, "scale-"+base+".svg"), []byte(svg), 0o644)
}

func table(w io.Writer, c *cluster.Config, points []cluster.Point) {
	fmt.Fprintf(w, "### %s\n\n", c.Name)
	var names []string
	if c.Sweep.Lines.Key != "" {
		names = append(names, c.Sweep.Lines.Key)
	}
	if c.Sweep.Key != "" {
		names = append(names, axis(c))
	}
	priced := c.Prices != (cluster.Prices{})
	names = append(names, "million rows/s", "Gb/s", "p50 ms", "p99 ms", "longest ms", "busiest")
	if priced {
		names = append(names, "cost/h", "cost/h for a Gb/s")
	}
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, p := range points {
		var row []string
		if c.Sweep.Lines.Key != "" {
			row = append(row, number(p.Line))
		}
		if c.Sweep.Key != "" {
			row = append(row, number(p.Value))
		}
		r := p.Report
		row = append(row, number(r.Rows/1e6), number(r.Bits/1e9), number(r.Latency.Quantile(0.5)/1e6),
			number(r.Latency.Quantile(0.99)/1e6), number(float64(r.Longest)/float64(time.Millisecond)), busiest(r, 3))
		if priced {
			row = append(row, number(r.Cost), number(r.Cost/max(r.Bits/1e9, 1e-9)))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
	fmt.Fprintln(w)
}

// number prints three digits of a small number, and a large one without decimal places.
func number(v float64) string {
	switch {
	case v >= 1e9:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func axis(c *cluster.Config) string {
	if c.Sweep.Axis != "" {
		return c.Sweep.Axis
	}
	return c.Sweep.Key
}

func chart(c *cluster.Config, points []cluster.Point) (string, error) {
	of, unit := func(r *cluster.Report) float64 { return r.Rows / 1e3 }, "thousand rows/s"
	if c.Sweep.Chart == "bits" {
		of, unit = func(r *cluster.Report) float64 { return r.Bits / 1e6 }, "Mb/s"
	}
	t := &picture.Chart{Title: fmt.Sprintf("%s: %s", c.Name, unit), Axis: axis(c)}
	for _, p := range points {
		at := slices.Index(t.Ticks, int(p.Value))
		if at < 0 {
			at = len(t.Ticks)
			t.Ticks, t.Count = append(t.Ticks, int(p.Value)), append(t.Count, nil)
		}
		if at == 0 {
			name := "model"
			if c.Sweep.Lines.Key != "" {
				name = number(p.Line) + " " + strings.TrimPrefix(c.Sweep.Lines.Key, "load.")
			}
			t.Names = append(t.Names, name)
		}
		t.Count[at] = append(t.Count[at], uint64(math.Round(of(p.Report))))
	}
	return t.SVG()
}
