package main

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/quality"
	"github.com/exoswarm/exoswarm/tools/labelled"
	"github.com/exoswarm/exoswarm/tools/quality/measures"
)

const (
	// slack is the number of rows behind a window in which an alarm still counts for it.
	slack = 30
	// asked is the rate of alarms outside of windows at which detection is compared, in 1,000 rows.
	asked = 1.0
)

// generated measures generated series with incidents: the families to choose on and, separately,
// the families that are held back. The tables by family and by incident and the chart cover both.
func (m *measurement) generated() ([]block, error) {
	usual, err := labelled.Of(m.o.seed, false, m.o.each)
	if err != nil {
		return nil, err
	}
	sets := [][]labelled.Series{usual}
	if !m.o.choose {
		held, err := labelled.Of(m.o.seed, true, m.o.each)
		if err != nil {
			return nil, err
		}
		sets = append(sets, held)
	}
	detectors := append([]*detector{m.own, m.off, m.half}, m.others...)
	detectors = append(detectors, guess())
	t := newTable("detector", "VUS-PR: families to choose on; held back", "range F1",
		fmt.Sprintf("found at %g outside in 1,000 rows", asked), "found by its own alarms", "outside, in 1,000 rows")
	var all [][]result // by detector, of all sets
	curves := []line{}
	for _, d := range detectors {
		var of []result
		cells := make([][]string, 5)
		for _, set := range sets {
			results, err := m.run(d, set)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", d.name, err)
			}
			of = append(of, results...)
			s := summarise(results)
			for i, cell := range []string{f3(s.vus), f3(s.f1), percent(s.at, s.windows), s.own(), s.outside()} {
				cells[i] = append(cells[i], cell)
			}
		}
		row := []string{d.name}
		for _, cell := range cells {
			row = append(row, strings.Join(cell, "; "))
		}
		t.row(row...)
		all = append(all, of)
		curves = append(curves, line{d.name, curve(of)})
	}
	if err := m.chart("detection.svg", "Detection against false alarms, generated series", curves); err != nil {
		return nil, err
	}
	settings, err := m.settings()
	if err != nil {
		return nil, err
	}
	return []block{
		{"generated", t.String()},
		{"settings", settings},
		{"families", m.breakdown("family", detectors, all, func(s *labelled.Series) string { return s.Family })},
		{"incidents", m.breakdown("incident", detectors, all, func(s *labelled.Series) string { return s.Incident })},
	}, nil
}

// settings measures the predictor with other parameters, on the families to choose on and with a
// seed to choose with: the table invites to choose.
func (m *measurement) settings() (string, error) {
	series, err := labelled.Of(1, false, m.o.each)
	if err != nil {
		return "", err
	}
	t := newTable("setting", "VUS-PR", "range F1", fmt.Sprintf("found at %g outside in 1,000 rows", asked),
		"found by its own alarms", "outside, in 1,000 rows")
	for _, values := range []map[string]float64{
		{},
		{"alarm": 0.3, "suspect": 0.25},
		{"alarm": 0.45},
		{"hold_off": 50},
		{"hold_off": 1500},
		{"margin": 0},
		{"unrest_max": 240},
		{"slow_max": 4000},
		{"memory": 2000},
		{"warmup": 1000},
	} {
		d, err := m.predictor("", values, 64, 1)
		if err != nil {
			return "", err
		}
		results, err := m.run(d, series)
		if err != nil {
			return "", err
		}
		var names []string
		for _, name := range slices.Sorted(maps.Keys(values)) {
			names = append(names, fmt.Sprintf("`%s: %g`", name, values[name]))
		}
		if names == nil {
			names = []string{"defaults"}
		}
		s := summarise(results)
		t.row(strings.Join(names, ", "), f3(s.vus), f3(s.f1), percent(s.at, s.windows), s.own(), s.outside())
	}
	return t.String(), nil
}

// guess is the detector that draws its scores. It shows what a measure gives to a detector that
// knows nothing.
func guess() *detector {
	return &detector{"random scores", func(s *labelled.Series) (outcome, error) {
		rng, scores := rand.New(rand.NewPCG(1, uint64(len(s.Name)))), make([]float32, len(s.Times))
		for i := range scores {
			scores[i] = rng.Float32()
		}
		return outcome{scores: scores}, nil
	}}
}

type summary struct {
	vus, f1    float64 // means
	windows    int
	at         int // windows found at the asked rate
	hasOwn     bool
	ownFound   int // by alarms of the detector itself
	ownOutside int
	rows       int
}

// summarise measures results together: means over series, and counts over windows. The threshold of
// at is the best one for these results.
func summarise(results []result) summary {
	var s summary
	p, ok := measures.At(curve(results), asked)
	for _, r := range results {
		s.vus += r.vus / float64(len(results))
		s.f1 += r.f1 / float64(len(results))
		s.windows += len(r.series.Windows)
		s.rows += len(r.scores)
		if ok {
			s.at += measures.Find(r.scores, behind(&r), p.Threshold, slack).Windows
		}
		if r.alarms != nil {
			s.hasOwn = true
		}
		found, outside := byAlarms(&r)
		s.ownFound += found
		s.ownOutside += outside
	}
	return s
}

// own is the share of windows found by alarms of the detector itself, "-" if it raises none.
func (s *summary) own() string {
	if !s.hasOwn {
		return "-"
	}
	return percent(s.ownFound, s.windows)
}

// outside is the number of these alarms outside of windows in 1,000 rows.
func (s *summary) outside() string {
	if !s.hasOwn {
		return "-"
	}
	return f2(1000 * float64(s.ownOutside) / float64(s.rows))
}

// behind returns the windows of a result behind the probation.
func behind(r *result) []quality.Window {
	rows := len(r.series.Times)
	_, windows := measures.Behind(make([]float32, rows), r.series.Windows, quality.Probation(rows))
	return windows
}

// byAlarms counts the windows that hold an alarm of the detector itself, and the alarms behind the
// probation outside of all windows.
func byAlarms(r *result) (found, outside int) {
	inside := func(w quality.Window, row int) bool { return w.First <= row && row <= w.Last+slack }
	for _, w := range r.series.Windows {
		if slices.ContainsFunc(r.alarms, func(row int) bool { return inside(w, row) }) {
			found++
		}
	}
	for _, row := range r.alarms {
		if row >= quality.Probation(len(r.series.Times)) &&
			!slices.ContainsFunc(r.series.Windows, func(w quality.Window) bool { return inside(w, row) }) {
			outside++
		}
	}
	return found, outside
}

func curve(results []result) []measures.Point {
	var scores [][]float32
	var windows [][]quality.Window
	for _, r := range results {
		scores, windows = append(scores, r.scores), append(windows, behind(&r))
	}
	return measures.Curve(scores, windows, slack, measures.Thresholds(scores, 40))
}

// breakdown is a table by family or incident. The first detector is the predictor; of the last ones
// the best is shown. Detection is at the threshold of all series.
func (m *measurement) breakdown(by string, detectors []*detector, all [][]result, key func(*labelled.Series) string,
) string {
	t := newTable(by, "windows", "predictor: VUS-PR", "range F1", fmt.Sprintf("found at %g in 1,000", asked),
		"own alarms", "outside, in 1,000 rows", "learning off: VUS-PR", "best other: VUS-PR", "range F1")
	names := map[string]bool{}
	for _, r := range all[0] {
		names[key(r.series)] = true
	}
	p, _ := measures.At(curve(all[0]), asked)
	for _, name := range slices.SortedFunc(maps.Keys(names), cmp.Compare) {
		of := func(d int) (some []result) {
			for _, r := range all[d] {
				if key(r.series) == name {
					some = append(some, r)
				}
			}
			return some
		}
		own := of(0)
		s, found := summarise(own), 0
		for _, r := range own {
			found += measures.Find(r.scores, behind(&r), p.Threshold, slack).Windows
		}
		best, bestF1, bestName := 0.0, 0.0, "-"
		for d := 3; d < len(detectors)-1; d++ {
			other := summarise(of(d))
			if other.vus > best {
				best, bestName = other.vus, detectors[d].name
			}
			bestF1 = max(bestF1, other.f1)
		}
		off := summarise(of(1))
		t.row(heldBack(by, name), fmt.Sprint(s.windows), f3(s.vus), f3(s.f1), percent(found, s.windows), s.own(),
			s.outside(), f3(off.vus), f3(best)+" "+bestName, f3(bestF1))
	}
	return t.String()
}

// heldBack marks the names of families that are held back.
func heldBack(by, name string) string {
	for _, f := range labelled.Families() {
		if by == "family" && f.Name == name && f.HeldBack {
			return name + " (held back)"
		}
	}
	return name
}

// chart writes a chart, unless the command has no folder for it.
func (m *measurement) chart(name, title string, lines []line) error {
	if m.o.charts == "" || m.o.choose {
		return nil
	}
	return os.WriteFile(filepath.Join(m.o.charts, name), []byte(draw(title, lines)), 0o644)
}
