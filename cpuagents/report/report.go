// Package report makes the report of a run: one HTML file that opens offline, with an overview of
// the incidents of all entities, and a chart of each entity.
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
	"strconv"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

//go:embed page.html
var page string

//go:embed page.js
var pageJS string

//go:embed page.css
var pageCSS string

// Limits that keep the page small enough for a browser, whatever the run.
const (
	// maxBuckets is the most pairs of points of a chart: two points for each pixel of a wide one.
	maxBuckets = 750
	minBuckets = 5
	// maxBytes bounds the points of all charts, approximately.
	maxBytes = 14 << 20
	// loudWeight is the weight of a chart with anomalies or labels; a chart without has 1.
	loudWeight   = 8
	maxAnomalies = 400 // marks of a chart
	maxSpans     = 400
	maxFeatures  = 64 // each has its own scale
)

// Header is what stands above the charts.
type Header struct {
	Title    string
	Anomaly  string   // the decision that is drawn as an anomaly
	Normal   string   // the decision outside of incidents; empty: no spans are drawn
	Features []string // members of a line of decisions that hold the features
	// Keys are the members of a line of decisions that name its entity; empty for series.
	Keys   []string
	Result cpuagents.StreamResult
	Labels *Outcome // nil: the run has no labels
}

type line struct {
	Series    string  `json:"series"`
	Row       uint64  `json:"row"`
	Timestamp string  `json:"timestamp"`
	Score     float64 `json:"score"`
	Decision  string  `json:"decision"`
	Dropped   string  `json:"dropped"`
	// Of an explanation; nil without one.
	Low     map[string]*float64 `json:"low"`
	High    map[string]*float64 `json:"high"`
	Feature string              `json:"feature"`
	Kind    string              `json:"kind"`

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
	Low       [][]*float64 `json:"low"`    // of the expected bands, by feature; empty without any
	High      [][]*float64 `json:"high"`
	Score     []float64    `json:"score"` // the highest of the rows that a point stands for
	Spans     []span       `json:"spans"`
	Anomalies []mark       `json:"anomalies"`
	Labels    []band       `json:"labels"`
}

func newChart(s cpuagents.SeriesSummary, features int) *chart {
	c := &chart{
		Name: s.Name, Rows: s.Decisions, Count: s.Anomalies, X: []float64{}, Score: []float64{},
		Anomalies: []mark{}, Values: make([][]*float64, features), Spans: []span{}, Labels: []band{},
		Low: [][]*float64{}, High: [][]*float64{},
	}
	for f := range c.Values {
		c.Values[f] = []*float64{}
	}
	return c
}

// Len, Less and Swap implement sort.Interface: observations that came late, and were applied, are
// drawn where they belong.
func (c *chart) Len() int { return len(c.X) }

func (c *chart) Less(i, k int) bool { return c.X[i] < c.X[k] }

func (c *chart) Swap(i, k int) {
	c.X[i], c.X[k] = c.X[k], c.X[i]
	c.Score[i], c.Score[k] = c.Score[k], c.Score[i]
	for _, all := range [][][]*float64{c.Values, c.Low, c.High} {
		for _, v := range all {
			v[i], v[k] = v[k], v[i]
		}
	}
}

// span is a run of rows that are not normal: an incident, if it begins with an anomaly.
type span struct {
	Begin    float64 `json:"begin"`
	End      float64 `json:"end"`
	Incident bool    `json:"incident"`
	Score    float64 `json:"score"` // the highest one
	Cause    string  `json:"cause"` // feature and kind of the last row; empty without explanations
	Rows     int     `json:"rows"`
}

type mark struct {
	X         float64    `json:"x"`
	Values    []*float64 `json:"values"`
	Score     float64    `json:"score"`
	Timestamp string     `json:"timestamp"`
	Row       uint64     `json:"row"`
	Cause     string     `json:"cause"`
}

func (l *line) cause() string {
	if l.Kind == "" {
		return ""
	}
	return l.Kind + " of " + l.Feature
}

// Write reads decisions, NDJSON as a stream job writes them, and writes the page. It holds the
// points that are drawn, not the rows. The rows of a series are in their order, and may have rows
// of others between them.
func Write(w io.Writer, h Header, decisions io.Reader, series []cpuagents.SeriesSummary) error {
	features := h.Features[:min(len(h.Features), maxFeatures)]
	charts, sizes := map[string]*chart{}, map[*chart]int{}
	order := make([]*chart, 0, len(series))
	// The points are shared: charts with anomalies or labels have more of them.
	weights := 0
	for _, s := range series {
		weights += weight(s, h.Labels)
	}
	points := maxBytes / (20 + 27*max(1, len(features)))
	for _, s := range series {
		c := newChart(s, len(features))
		c.Labels = append(c.Labels, h.Labels.bands(s.Name)...)
		sizes[c] = max(minBuckets, min(maxBuckets, points/2*weight(s, h.Labels)/max(1, weights)))
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
			b = &bucket{c: c, size: max((c.Rows+uint64(sizes[c])-1)/uint64(sizes[c]), 1), names: features}
			buckets[c] = b
		}
		if err := b.add(&l, l.Decision == h.Anomaly, h.Normal != "" && l.Decision != h.Normal); err != nil {
			return fmt.Errorf("report: decisions: line %d: %w", n, err)
		}
	}
	for _, c := range order {
		buckets[c].flush()
		sort.Stable(c)
	}
	return fill(w, h, features, order)
}

func weight(s cpuagents.SeriesSummary, labels *Outcome) int {
	if s.Anomalies > 0 || labels.names(s.Name) {
		return loudWeight
	}
	return 1
}

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

// short returns v with six digits, which a chart cannot tell from v.
func short(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil {
		return v
	}
	return r
}

// bucket gathers size rows into two points, at the times of its first and last row: the lowest and
// the highest value of each feature in the order of their rows, so that no spike is lost.
type bucket struct {
	c           *chart
	size        uint64
	n           uint64
	clock       rows.Clock
	first, last float64 // times
	low, high   []point // by feature
	score       float64
	names       []string
	bandLow     []float64 // of the last row, by feature; NaN for none
	bandHigh    []float64
	open        *span // nil for none
}

type point struct {
	value float64
	row   uint64
}

func (b *bucket) add(l *line, anomaly, odd bool) error {
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
	b.span(l, x, anomaly, odd)
	if l.Low != nil {
		b.band(l)
	}
	if anomaly && len(b.c.Anomalies) < maxAnomalies {
		m := mark{X: x, Score: l.Score, Timestamp: l.Timestamp, Row: l.Row, Values: []*float64{}, Cause: l.cause()}
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

func (b *bucket) span(l *line, x float64, anomaly, odd bool) {
	switch {
	case !odd:
		b.open = nil
		return
	case b.open == nil && len(b.c.Spans) < maxSpans, b.open != nil && anomaly && !b.open.Incident &&
		len(b.c.Spans) < maxSpans:
		b.c.Spans = append(b.c.Spans, span{Begin: x, Incident: anomaly})
		b.open = &b.c.Spans[len(b.c.Spans)-1]
	case b.open == nil:
		return
	}
	b.open.End, b.open.Rows = max(x, b.open.Begin), b.open.Rows+1
	b.open.Score = max(b.open.Score, l.Score)
	if cause := l.cause(); cause != "" {
		b.open.Cause = cause
	}
}

func (b *bucket) band(l *line) {
	if b.bandLow == nil {
		b.bandLow, b.bandHigh = make([]float64, len(b.names)), make([]float64, len(b.names))
	}
	for f, name := range b.names {
		b.bandLow[f], b.bandHigh[f] = math.NaN(), math.NaN()
		if low, high := l.Low[name], l.High[name]; low != nil && high != nil {
			b.bandLow[f], b.bandHigh[f] = *low, *high
		}
	}
	if len(b.c.Low) == 0 { // the points before it have none
		b.c.Low, b.c.High = make([][]*float64, len(b.names)), make([][]*float64, len(b.names))
		for f := range b.names {
			b.c.Low[f], b.c.High[f] = make([]*float64, len(b.c.X)), make([]*float64, len(b.c.X))
		}
	}
}

func (b *bucket) flush() {
	if b == nil || b.n == 0 {
		return
	}
	times := []float64{b.first, b.last}[:min(b.n, 2)]
	for i, x := range times {
		b.c.X, b.c.Score = append(b.c.X, x), append(b.c.Score, math.Round(b.score*1000)/1000)
		for f := range b.low {
			p := [2]point{b.low[f], b.high[f]}
			if p[1].row < p[0].row {
				p[0], p[1] = p[1], p[0]
			}
			b.c.Values[f] = append(b.c.Values[f], number(short(p[i].value)))
		}
		for f := range b.c.Low {
			b.c.Low[f] = append(b.c.Low[f], number(short(b.bandLow[f])))
			b.c.High[f] = append(b.c.High[f], number(short(b.bandHigh[f])))
		}
	}
	b.n, b.score = 0, 0
}
