// Package report makes a run's report: one HTML file that opens offline, with a chart a series of its values, scores and
// anomalies.
package report

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"sort"

	"github.com/exoswarm/exoswarm/cpuagents"
)

// The chart library is uPlot 1.6.32 (MIT, see assets/uPlot.LICENSE), as its package ships it.
//
//go:embed assets/uPlot.iife.min.js
var plotJS string

//go:embed assets/uPlot.min.css
var plotCSS string

//go:embed page.html
var page string

//go:embed page.js
var pageJS string

//go:embed page.css
var pageCSS string

var tmpl = template.Must(template.New("page").Parse(page))

// Limits that keep the page small enough for a browser, whatever the run: the series with the most anomalies are drawn, each
// with at most two points for every pixel of a wide chart.
const (
	maxSeries    = 200
	maxBuckets   = 750
	maxAnomalies = 400
)

// Header is what stands above the charts.
type Header struct {
	Title   string
	Anomaly string // the decision that is drawn as an anomaly
	Result  cpuagents.StreamResult
}

// line is what the report reads of a line of decisions.
type line struct {
	Series    string  `json:"series"`
	Row       uint64  `json:"row"`
	Timestamp string  `json:"timestamp"`
	Value     float64 `json:"value"`
	Score     float64 `json:"score"`
	Decision  string  `json:"decision"`
	Dropped   string  `json:"dropped"`
}

// chart is one series as the page's script reads it: columns of equal length, x in unix seconds.
type chart struct {
	Name      string    `json:"name"`
	Rows      uint64    `json:"rows"`
	Count     uint64    `json:"count"` // anomalies, all of them
	X         []float64 `json:"x"`
	Value     []float64 `json:"value"`
	Score     []float64 `json:"score"` // the highest of the rows that a point stands for
	Anomalies []mark    `json:"anomalies"`
}

// Len, Less and Swap implement sort.Interface: observations that came late, and were applied, are drawn where they belong.
func (c *chart) Len() int { return len(c.X) }

// Less implements sort.Interface.
func (c *chart) Less(i, k int) bool { return c.X[i] < c.X[k] }

// Swap implements sort.Interface.
func (c *chart) Swap(i, k int) {
	c.X[i], c.X[k] = c.X[k], c.X[i]
	c.Value[i], c.Value[k] = c.Value[k], c.Value[i]
	c.Score[i], c.Score[k] = c.Score[k], c.Score[i]
}

type mark struct {
	X         float64 `json:"x"`
	Value     float64 `json:"value"`
	Score     float64 `json:"score"`
	Timestamp string  `json:"timestamp"`
	Row       uint64  `json:"row"`
}

// Write reads decisions, NDJSON with the series one after the other as a stream job writes them, and writes the page. It
// holds the points that are drawn, not the rows.
func Write(w io.Writer, h Header, decisions io.Reader, series []cpuagents.SeriesSummary) error {
	drawn := choose(series)
	charts := map[string]*chart{}
	order := make([]*chart, 0, len(drawn))
	for _, s := range drawn {
		c := &chart{Name: s.Name, Rows: s.Decisions, Count: s.Anomalies}
		charts[s.Name] = c
		order = append(order, c)
	}
	in := bufio.NewReaderSize(decisions, 1<<20)
	var b *bucket
	for n := 1; ; n++ {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("report: decisions: %w", err)
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("report: decisions: line %d: %w", n, err)
		}
		c := charts[l.Series]
		if c == nil || l.Dropped != "" {
			continue
		}
		if b == nil || b.c != c {
			b.flush()
			b = &bucket{c: c, size: max((c.Rows+maxBuckets-1)/maxBuckets, 1)}
		}
		if err := b.add(l, l.Decision == h.Anomaly); err != nil {
			return fmt.Errorf("report: decisions: line %d: %w", n, err)
		}
	}
	b.flush()
	for _, c := range order {
		sort.Stable(c)
	}
	data, err := json.Marshal(order)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return tmpl.Execute(w, map[string]any{
		"Title": h.Title, "Anomaly": h.Anomaly, "Result": h.Result, "Series": len(series), "Drawn": len(drawn),
		"Rate":    float64(h.Result.Observations) / max(h.Result.Seconds, 1e-9),
		"PlotJS":  template.JS(plotJS), //nolint:gosec // ours, embedded
		"PlotCSS": template.CSS(plotCSS), "PageCSS": template.CSS(pageCSS),
		"PageJS": template.JS(pageJS), "Data": template.JS(data), //nolint:gosec // json.Marshal escapes <, > and &
	})
}

// choose returns the series to draw, in the order of the output.
func choose(series []cpuagents.SeriesSummary) []cpuagents.SeriesSummary {
	if len(series) <= maxSeries {
		return series
	}
	place := make([]int, len(series))
	for i := range place {
		place[i] = i
	}
	sort.SliceStable(place, func(a, b int) bool { return series[place[a]].Anomalies > series[place[b]].Anomalies })
	place = place[:maxSeries]
	sort.Ints(place)
	drawn := make([]cpuagents.SeriesSummary, len(place))
	for i, p := range place {
		drawn[i] = series[p]
	}
	return drawn
}

// bucket gathers size rows into two points, the lowest and the highest value in the order of their time, so that no spike is
// lost.
type bucket struct {
	c     *chart
	size  uint64
	n     uint64
	clock cpuagents.Clock
	low   point
	high  point
	score float64
}

type point struct {
	x, value float64
	row      uint64
}

func (b *bucket) add(l line, anomaly bool) error {
	ns, err := b.clock.Parse(l.Timestamp)
	if err != nil {
		return err
	}
	p := point{float64(ns/1e6) / 1e3, l.Value, l.Row}
	if b.n == 0 || p.value < b.low.value {
		b.low = p
	}
	if b.n == 0 || p.value > b.high.value {
		b.high = p
	}
	b.score = max(b.score, l.Score)
	if anomaly && len(b.c.Anomalies) < maxAnomalies {
		b.c.Anomalies = append(b.c.Anomalies, mark{p.x, l.Value, l.Score, l.Timestamp, l.Row})
	}
	if b.n++; b.n == b.size {
		b.flush()
	}
	return nil
}

func (b *bucket) flush() {
	if b == nil || b.n == 0 {
		return
	}
	first, second := b.low, b.high
	if second.row < first.row {
		first, second = second, first
	}
	points := []point{first}
	if second.row != first.row {
		points = append(points, second)
	}
	for _, p := range points {
		b.c.X = append(b.c.X, p.x)
		b.c.Value = append(b.c.Value, p.value)
		b.c.Score = append(b.c.Score, b.score)
	}
	b.n, b.score = 0, 0
}
