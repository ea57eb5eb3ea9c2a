// Package report makes a run's report: one HTML file that opens offline, with a chart a series of
// its values, scores and anomalies.
package report

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

//go:embed page.html
var page string

//go:embed page.js
var pageJS string

//go:embed page.css
var pageCSS string

// Limits that keep the page small enough for a browser, whatever the run: the series with the most
// anomalies are drawn, each with at most two points for every pixel of a wide chart.
const (
	maxSeries    = 200
	maxBuckets   = 750
	maxAnomalies = 400
)

// maxFeatures is how many features of a series are drawn, each on a scale of its own.
const maxFeatures = 8

// Header is what stands above the charts.
type Header struct {
	Title    string
	Anomaly  string   // the decision that is drawn as an anomaly
	Features []string // members of a line of decisions that hold the features
	// Keys are the members of a line of decisions that name its entity; empty for series.
	Keys   []string
	Result cpuagents.StreamResult
	Labels *Outcome // nil: the run has no labels
}

// line is what the report reads of a line of decisions.
type line struct {
	Series    string  `json:"series"`
	Row       uint64  `json:"row"`
	Timestamp string  `json:"timestamp"`
	Score     float64 `json:"score"`
	Decision  string  `json:"decision"`
	Dropped   string  `json:"dropped"`

	members map[string]json.RawMessage // of a line with a key; nil until read has them
	values  []float64                  // of the features; NaN where there is none
}

// parse reads a line of decisions whose entity is in the members keys; without keys its series.
func (l *line) parse(text []byte, keys []string) error {
	if err := json.Unmarshal(text, l); err != nil || len(keys) == 0 {
		return err
	}
	if err := json.Unmarshal(text, &l.members); err != nil {
		return err
	}
	values := make([]string, len(keys))
	for i, k := range keys {
		if err := json.Unmarshal(l.members[k], &values[i]); err != nil {
			return fmt.Errorf("member %q: %w", k, err)
		}
	}
	l.Series = rows.EntityName(rows.JoinKey(values))
	return nil
}

// chart is one series as the page's script reads it: columns of equal length, x in unix seconds. No
// column is nil: the script reads their lengths.
type chart struct {
	Name      string       `json:"name"`
	Rows      uint64       `json:"rows"`
	Count     uint64       `json:"count"` // anomalies, all of them
	X         []float64    `json:"x"`
	Values    [][]*float64 `json:"values"` // by feature
	Score     []float64    `json:"score"`  // the highest of the rows that a point stands for
	Anomalies []mark       `json:"anomalies"`
	Labels    []band       `json:"labels"`
}

func newChart(s cpuagents.SeriesSummary, features int) *chart {
	c := &chart{
		Name: s.Name, Rows: s.Decisions, Count: s.Anomalies, X: []float64{}, Score: []float64{},
		Anomalies: []mark{}, Values: make([][]*float64, features),
	}
	for f := range c.Values {
		c.Values[f] = []*float64{}
	}
	return c
}

// Len, Less and Swap implement sort.Interface: observations that came late, and were applied, are
// drawn where they belong.
func (c *chart) Len() int { return len(c.X) }

// Less implements sort.Interface.
func (c *chart) Less(i, k int) bool { return c.X[i] < c.X[k] }

// Swap implements sort.Interface.
func (c *chart) Swap(i, k int) {
	c.X[i], c.X[k] = c.X[k], c.X[i]
	c.Score[i], c.Score[k] = c.Score[k], c.Score[i]
	for _, v := range c.Values {
		v[i], v[k] = v[k], v[i]
	}
}

type mark struct {
	X         float64    `json:"x"`
	Values    []*float64 `json:"values"`
	Score     float64    `json:"score"`
	Timestamp string     `json:"timestamp"`
	Row       uint64     `json:"row"`
}

// Write reads decisions, NDJSON as a stream job writes them, and writes the page. It holds the
// points that are drawn, not the rows. The rows of a series are in their order, and may have rows
// of others between them.
func Write(w io.Writer, h Header, decisions io.Reader, series []cpuagents.SeriesSummary) error {
	drawn := choose(series, h.Labels)
	features := h.Features[:min(len(h.Features), maxFeatures)]
	charts := map[string]*chart{}
	order := make([]*chart, 0, len(drawn))
	for _, s := range drawn {
		c := newChart(s, len(features))
		c.Labels = h.Labels.bands(s.Name)
		charts[s.Name] = c
		order = append(order, c)
	}
	in := bufio.NewReaderSize(decisions, 1<<20)
	buckets := map[*chart]*bucket{}
	for n := 1; ; n++ {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("report: decisions: %w", err)
		}
		var l line
		if err := l.parse(text, h.Keys); err != nil {
			return fmt.Errorf("report: decisions: line %d: %w", n, err)
		}
		c := charts[l.Series]
		if c == nil || l.Dropped != "" {
			continue
		}
		if err := l.read(text, features); err != nil {
			return fmt.Errorf("report: decisions: line %d: %w", n, err)
		}
		b := buckets[c]
		if b == nil {
			b = &bucket{c: c, size: max((c.Rows+maxBuckets-1)/maxBuckets, 1)}
			buckets[c] = b
		}
		if err := b.add(l, l.Decision == h.Anomaly); err != nil {
			return fmt.Errorf("report: decisions: line %d: %w", n, err)
		}
	}
	for _, c := range order {
		buckets[c].flush()
		sort.Stable(c)
	}
	return fill(w, h, features, len(series), order)
}

// choose returns the series to draw, in the order of the output: those with labels of their own
// before the others.
func choose(series []cpuagents.SeriesSummary, labels *Outcome) []cpuagents.SeriesSummary {
	if len(series) <= maxSeries {
		return series
	}
	place := make([]int, len(series))
	for i := range place {
		place[i] = i
	}
	labelled := make([]bool, len(series))
	for i, s := range series {
		labelled[i] = labels.names(s.Name)
	}
	sort.SliceStable(place, func(a, b int) bool {
		if a, b := labelled[place[a]], labelled[place[b]]; a != b {
			return a
		}
		return series[place[a]].Anomalies > series[place[b]].Anomalies
	})
	place = place[:maxSeries]
	sort.Ints(place)
	drawn := make([]cpuagents.SeriesSummary, len(place))
	for i, p := range place {
		drawn[i] = series[p]
	}
	return drawn
}

// read takes the features out of a line.
func (l *line) read(text []byte, features []string) error {
	members := l.members
	if members == nil {
		if err := json.Unmarshal(text, &members); err != nil {
			return err
		}
	}
	l.values = make([]float64, len(features))
	for f, name := range features {
		l.values[f] = math.NaN()
		if raw := members[name]; raw != nil && string(raw) != "null" {
			if err := json.Unmarshal(raw, &l.values[f]); err != nil {
				return fmt.Errorf("member %q: %w", name, err)
			}
		}
	}
	return nil
}

// number is v as the page reads it: nothing for NaN, which JSON does not have.
func number(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

// bucket gathers size rows into two points, at the times of its first and last row: of each feature
// the lowest and the highest value in the order of their rows, so that no spike is lost.
type bucket struct {
	c           *chart
	size        uint64
	n           uint64
	clock       rows.Clock
	first, last float64 // times
	low, high   []point // by feature
	score       float64
}

type point struct {
	value float64
	row   uint64
}

func (b *bucket) add(l line, anomaly bool) error {
	ns, err := b.clock.Parse(l.Timestamp)
	if err != nil {
		return err
	}
	x := seconds(ns)
	if b.n == 0 {
		b.first = x
		b.low, b.high = make([]point, len(l.values)), make([]point, len(l.values))
	}
	b.last = x
	for f, v := range l.values {
		if b.n == 0 || v < b.low[f].value || math.IsNaN(b.low[f].value) {
			b.low[f] = point{v, l.Row}
		}
		if b.n == 0 || v > b.high[f].value || math.IsNaN(b.high[f].value) {
			b.high[f] = point{v, l.Row}
		}
	}
	b.score = max(b.score, l.Score)
	if anomaly && len(b.c.Anomalies) < maxAnomalies {
		m := mark{X: x, Score: l.Score, Timestamp: l.Timestamp, Row: l.Row, Values: []*float64{}}
		for _, v := range l.values {
			m.Values = append(m.Values, number(v))
		}
		b.c.Anomalies = append(b.c.Anomalies, m)
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
	times := []float64{b.first, b.last}[:min(b.n, 2)]
	for i, x := range times {
		b.c.X, b.c.Score = append(b.c.X, x), append(b.c.Score, b.score)
		for f := range b.low {
			p := [2]point{b.low[f], b.high[f]}
			if p[1].row < p[0].row {
				p[0], p[1] = p[1], p[0]
			}
			b.c.Values[f] = append(b.c.Values[f], number(p[i].value))
		}
	}
	b.n, b.score = 0, 0
}
