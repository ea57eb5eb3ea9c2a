// Package evaluation measures the decisions of a run against incidents that people have marked, and
// chooses better settings by them (Tune). A CellDetector runs a cell in process to do so.
package evaluation

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/internal/base/quality"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
	"github.com/exoswarm/exoswarm/jobs"
)

// Options says how decisions are read.
type Options struct {
	// Keys are the members of a line that name its entity; nil means series.
	Keys []string
	// Anomalous is the decision that is an alarm, and Normal the one that ends an incident. Empty
	// means anomalous and normal.
	Anomalous, Normal string
	// Skip is the share of the rows at the beginning of each entity that count for nothing, in
	// [0, 1): what a detector learns from. Alarms and incidents there are left out.
	Skip float64
}

// Counts are the incidents and alarms of one entity or of all.
type Counts struct {
	Rows      int `json:"rows"`
	Incidents int `json:"incidents"`
	Found     int `json:"found"`
	Alarms    int `json:"alarms"`
	Outside   int `json:"alarms_outside"` // alarms outside of all incidents
}

// Precision is the share of alarms within incidents; NaN without alarms.
func (c Counts) Precision() float64 { return float64(c.Alarms-c.Outside) / float64(c.Alarms) }

// Recall is the share of incidents with an alarm; NaN without incidents.
func (c Counts) Recall() float64 { return float64(c.Found) / float64(c.Incidents) }

// F1 is the harmonic mean of precision and recall, and 0 if one of them is 0 or NaN.
func (c Counts) F1() float64 {
	p, r := c.Precision(), c.Recall()
	if !(p > 0) || !(r > 0) {
		return 0
	}
	return 2 * p * r / (p + r)
}

// Entity has the counts of an entity.
type Entity struct {
	Name string `json:"entity"`
	Counts
}

// Result measures decisions.
type Result struct {
	All      Counts   `json:"all"`
	Entities []Entity `json:"entities"` // in the order of their first rows
	// Precision, Recall and F1 are the measures of All; 0 where there are no alarms or no
	// incidents.
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F1        float64 `json:"f1"`
	// Days is the time that the rows cover, of all entities together, in days.
	Days float64 `json:"entity_days"`
	// Delay is the median time from the start of a found incident to its first alarm, in seconds,
	// and DelayRows the median number of rows.
	Delay     float64 `json:"delay_s"`
	DelayRows float64 `json:"delay_rows"`
	// Ranges compares the rows of predicted incidents, from an alarm to the next normal row, with
	// the rows of labelled incidents (Tatbul et al., NeurIPS 2018): mean over entities with
	// incidents.
	Ranges Ranges `json:"ranges"`
	// VUSPR is the mean over entities with incidents of the volume under the surface of precision
	// and recall of the scores (Paparrizos et al., PVLDB 2022), which depends on no threshold.
	VUSPR float64 `json:"vus_pr"`
	// NAB are the scores of the Numenta Anomaly Benchmark for the alarms, in the profiles standard,
	// few false alarms and few misses. NaN without incidents that count.
	NAB [3]float64 `json:"nab"`
	// Labels has each label with what was found of it, in the order of the list.
	Labels []report.Incident `json:"labels"`
}

// Ranges are precision and recall of ranges of rows.
type Ranges struct {
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F1        float64 `json:"f1"`
}

// Series are the decisions of one entity. The slices have an element for each row, in the order of
// the rows.
type Series struct {
	Name   string
	Times  []int64 // unix nanoseconds
	Scores []float32
	// Alarms marks the rows that are alarms, and Normal the rows that end an incident.
	Alarms, Normal []bool
	// From is the number of rows at the beginning that count for nothing.
	From int
}

// Evaluate reads decisions, NDJSON as a run writes it, and compares them with labels. Labels of an
// entity that has no decision, or that lie outside the times of its decisions, are errors of class
// jobs.CodeInput, and so are lines that are no decisions.
func Evaluate(decisions io.Reader, labels []report.Label, o Options) (*Result, error) {
	o.Anomalous, o.Normal = cmp.Or(o.Anomalous, "anomalous"), cmp.Or(o.Normal, "normal")
	if len(o.Keys) == 0 {
		o.Keys = []string{"series"}
	}
	if !(o.Skip >= 0 && o.Skip < 1) {
		return nil, jobs.Errorf(jobs.CodeInput, "skip %v: use a share from 0 to below 1", o.Skip)
	}
	all, err := read(decisions, o)
	if err != nil {
		return nil, err
	}
	return Measure(all, labels, o.Skip)
}

// Measure compares decisions with labels, as Evaluate does, behind a share of the rows of each
// entity. It does not change or keep the slices of the series.
func Measure(all []*Series, labels []report.Label, skip float64) (*Result, error) {
	if err := check(labels, all); err != nil {
		return nil, err
	}
	m := &measure{labels: make([]report.Incident, len(labels))}
	for i, l := range labels {
		m.labels[i].Label = l
	}
	for _, s := range all {
		m.add(s, skip)
	}
	return m.result()
}

// check returns an error if a label concerns no decision.
func check(labels []report.Label, all []*Series) error {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	var wrong []error
	for i, l := range labels {
		begin, end := l.Interval()
		within := func(s *Series) bool {
			return slices.ContainsFunc(s.Times, func(t int64) bool { return begin <= t && t <= end })
		}
		switch at := slices.Index(names, l.Series); {
		case l.Series == "":
			if !slices.ContainsFunc(all, within) {
				wrong = append(wrong, fmt.Errorf("label %d: no decision is from %s to %s", i+1, l.Begin, l.End))
			}
		case at < 0:
			wrong = append(
				wrong,
				fmt.Errorf("label %d: there is no entity %.200q among the decisions: did you mean %.200q?",
					i+1, l.Series, strictyaml.Nearest(l.Series, names)),
			)
		case !within(all[at]):
			s := all[at]
			wrong = append(
				wrong,
				fmt.Errorf("label %d: %s has no decision from %s to %s, its decisions are from %s to %s",
					i+1, l.Series, l.Begin, l.End, text(slices.Min(s.Times)), text(slices.Max(s.Times))),
			)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	const most = 10
	if n := len(wrong); n > most {
		wrong = append(wrong[:most], fmt.Errorf("and %d more labels", n-most))
	}
	return jobs.Errorf(jobs.CodeInput, "%v", errors.Join(wrong...))
}

func text(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339) }

// measure adds up what entities have.
type measure struct {
	entities  []Entity
	labels    []report.Incident
	delays    []float64 // seconds
	delayRows []float64
	days      float64
	ranges    []quality.Range
	vus       []float64
	streams   []quality.Stream
	scores    [][]float32 // 1 for alarms
}

// add measures an entity, behind a share of its rows.
func (m *measure) add(s *Series, skip float64) {
	from := max(s.From, int(math.Ceil(skip*float64(len(s.Times)))))
	s = &Series{
		Name: s.Name, Times: s.Times[from:], Scores: s.Scores[from:], Alarms: s.Alarms[from:], Normal: s.Normal[from:],
	}
	e := Entity{Name: s.Name, Counts: Counts{Rows: len(s.Times)}}
	inside := make([]bool, len(s.Times)) // rows of incidents
	for i := range m.labels {
		l := &m.labels[i]
		if l.Series != "" && l.Series != s.Name {
			continue
		}
		begin, end := l.Interval()
		first, rows, alarm := -1, 0, -1
		for row, t := range s.Times {
			if t < begin || t > end {
				continue
			}
			if first < 0 {
				first = row
			}
			rows++
			inside[row] = true
			if s.Alarms[row] {
				l.Alarms++
				if alarm < 0 {
					alarm = row
				}
			}
		}
		if rows == 0 {
			continue
		}
		e.Incidents++
		if alarm >= 0 {
			e.Found++
			l.Found = true
			m.delays = append(m.delays, float64(s.Times[alarm]-begin)/1e9)
			m.delayRows = append(m.delayRows, float64(alarm-first))
		}
	}
	marks := make([]float32, len(s.Times))
	for row, alarm := range s.Alarms {
		if alarm {
			e.Alarms++
			marks[row] = 1
			if !inside[row] {
				e.Outside++
			}
		}
	}
	windows := ranges(inside)
	if len(windows) > 0 {
		m.ranges = append(m.ranges, quality.Ranges(s.predicted(), windows))
		m.vus = append(m.vus, quality.VUSPR(s.Scores, windows, quality.Buffer))
	}
	if n := len(s.Times); n > 1 {
		m.days += float64(slices.Max(s.Times)-slices.Min(s.Times)) / (86400 * 1e9)
	}
	m.streams = append(m.streams, quality.Stream{Name: s.Name, Times: s.Times, Windows: windows})
	m.scores = append(m.scores, marks)
	m.entities = append(m.entities, e)
}

// predicted returns the rows from each alarm to the last one before a normal row.
func (s *Series) predicted() []quality.Window {
	in, on := make([]bool, len(s.Alarms)), false
	for row := range in {
		on = s.Alarms[row] || on && !s.Normal[row]
		in[row] = on
	}
	return ranges(in)
}

// ranges returns the ranges of rows that are set.
func ranges(in []bool) (all []quality.Window) {
	for row, on := range in {
		switch n := len(all); {
		case !on:
		case n > 0 && all[n-1].Last == row-1:
			all[n-1].Last = row
		default:
			all = append(all, quality.Window{First: row, Last: row})
		}
	}
	return all
}

func (m *measure) result() (*Result, error) {
	r := &Result{Entities: m.entities, Days: m.days, Labels: m.labels}
	for _, e := range m.entities {
		r.All.Rows += e.Rows
		r.All.Incidents += e.Incidents
		r.All.Found += e.Found
		r.All.Alarms += e.Alarms
		r.All.Outside += e.Outside
	}
	if r.All.Alarms > 0 {
		r.Precision = r.All.Precision()
	}
	if r.All.Incidents > 0 {
		r.Recall = r.All.Recall()
	}
	r.F1 = r.All.F1()
	r.Delay, r.DelayRows = median(m.delays), median(m.delayRows)
	for _, g := range m.ranges {
		r.Ranges.Precision += g.Precision / float64(len(m.ranges))
		r.Ranges.Recall += g.Recall / float64(len(m.ranges))
	}
	r.Ranges.F1 = quality.Range{Precision: r.Ranges.Precision, Recall: r.Ranges.Recall}.F1()
	for _, v := range m.vus {
		r.VUSPR += v / float64(len(m.vus))
	}
	for i, p := range []quality.Profile{quality.Standard, quality.RewardLowFP, quality.RewardLowFN} {
		score, err := quality.NABScoreAt(p, m.streams, m.scores, 0.5)
		if err != nil {
			return nil, fmt.Errorf("benchmark score: %w", err)
		}
		if score.Windows > 0 {
			r.NAB[i] = score.Score
		}
	}
	return r, nil
}

// median returns the middle value, the mean of the two in the middle of an even number, and 0 of
// none. It sorts values.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// Table returns the result for people.
func (r *Result) Table() string {
	var b strings.Builder
	width := len("entity")
	for _, e := range r.Entities {
		width = max(width, min(len(e.Name), 60))
	}
	line := func(name string, values ...any) {
		fmt.Fprintf(&b, "%-*.60s  %9v  %9v  %9v  %9v  %9v\n", append([]any{width, name}, values...)...)
	}
	line("entity", "rows", "incidents", "found", "alarms", "outside")
	const most = 50
	shown := slices.Clone(r.Entities)
	if len(shown) > most { // those with something to see
		slices.SortStableFunc(shown, func(a, b Entity) int {
			return cmp.Compare(b.Incidents+b.Alarms, a.Incidents+a.Alarms)
		})
		shown = shown[:most]
	}
	for _, e := range shown {
		line(e.Name, e.Rows, e.Incidents, e.Found, e.Alarms, e.Outside)
	}
	if n := len(r.Entities) - len(shown); n > 0 {
		fmt.Fprintf(&b, "… and %d more\n", n)
	}
	line("all", r.All.Rows, r.All.Incidents, r.All.Found, r.All.Alarms, r.All.Outside)
	fmt.Fprintf(&b, "\nincidents   precision %.2f, recall %.2f, F1 %.2f\n", r.Precision, r.Recall, r.F1)
	if r.Days > 0 {
		fmt.Fprintf(&b, "false alarms  %.3g a day and entity\n", float64(r.All.Outside)/r.Days)
	}
	if r.All.Found > 0 {
		fmt.Fprintf(
			&b,
			"delay       median %v, %.3g rows\n",
			time.Duration(r.Delay*1e9).Round(time.Second),
			r.DelayRows,
		)
	}
	fmt.Fprintf(
		&b,
		"rows        precision %.2f, recall %.2f, F1 %.2f (ranges)\n",
		r.Ranges.Precision,
		r.Ranges.Recall,
		r.Ranges.F1,
	)
	fmt.Fprintf(&b, "scores      VUS-PR %.2f\n", r.VUSPR)
	fmt.Fprintf(
		&b,
		"NAB         standard %.1f, few false alarms %.1f, few misses %.1f\n",
		r.NAB[0],
		r.NAB[1],
		r.NAB[2],
	)
	for _, l := range r.Labels {
		if !l.Found {
			fmt.Fprintf(&b, "missed      %s, %s to %s %s\n", cmp.Or(l.Series, "any entity"), l.Begin, l.End, l.What)
		}
	}
	return b.String()
}
