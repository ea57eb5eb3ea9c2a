package report

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// Label is an incident that a person has marked: an interval of one series, or of every series.
// Both ends belong to it.
type Label struct {
	Series string `json:"series,omitempty"` // empty: every series
	What   string `json:"what,omitempty"`
	Begin  string `json:"begin"`
	End    string `json:"end"`

	begin, end int64 // unix nanoseconds
}

func (l *Label) holds(series string, at int64) bool {
	return (l.Series == "" || l.Series == series) && l.begin <= at && at <= l.end
}

// Interval returns the start and the end of the label in unix nanoseconds; both belong to it.
func (l *Label) Interval() (begin, end int64) { return l.begin, l.end }

// ParseLabels reads a JSON list of labels. Times have the forms of the timestamps of rows; UTC
// where they name no zone. An error says the line and the number of the label.
func ParseLabels(data []byte) ([]Label, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	line := func(offset int64) int { return 1 + bytes.Count(data[:min(int(offset), len(data))], []byte("\n")) }
	broken := func(err error) error {
		at := dec.InputOffset()
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at = syntax.Offset
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err, at = errors.New("the list ends too early"), int64(len(data))
		}
		return fmt.Errorf("line %d: %w", line(at), err)
	}
	if t, err := dec.Token(); err != nil {
		return nil, broken(err)
	} else if t != json.Delim('[') {
		return nil, fmt.Errorf("line %d: a list of labels begins with [", line(dec.InputOffset()))
	}
	var labels []Label
	for dec.More() {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, broken(err)
		}
		l, err := parseLabel(raw)
		if err != nil {
			return nil, fmt.Errorf("line %d: label %d: %w", line(dec.InputOffset()-int64(len(raw))), len(labels)+1, err)
		}
		labels = append(labels, l)
	}
	if _, err := dec.Token(); err != nil {
		return nil, broken(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: text behind the end of the list", line(dec.InputOffset()))
	}
	if len(labels) == 0 {
		return nil, errors.New("the list has no label")
	}
	return labels, nil
}

func parseLabel(raw []byte) (l Label, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var kind *json.UnmarshalTypeError
	switch err := dec.Decode(&l); {
	case errors.As(err, &kind) && kind.Field != "":
		return l, fmt.Errorf("%s is a %s, not a text", kind.Field, kind.Value)
	case errors.As(err, &kind):
		return l, fmt.Errorf("it is a %s, not an object", kind.Value)
	case err != nil:
		return l, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	var clock rows.Clock
	for _, end := range []struct {
		member, text string
		to           *int64
	}{{"begin", l.Begin, &l.begin}, {"end", l.End, &l.end}} {
		if end.text == "" {
			return l, fmt.Errorf("%s is missing", end.member)
		}
		if *end.to, err = clock.Parse(end.text); err != nil {
			return l, fmt.Errorf("%s: %w", end.member, err)
		}
	}
	if l.end < l.begin {
		return l, fmt.Errorf("end %s is before begin %s", l.End, l.Begin)
	}
	return l, nil
}

// Outcome compares the alarms of a run with labels.
type Outcome struct {
	Labels  int        `json:"labels"`
	Found   int        `json:"found"`
	Outside uint64     `json:"alarms_outside"` // alarms outside all labels of their series
	Each    []Incident `json:"incidents"`      // in the order of the labels
}

// Incident is a label with the alarms that lie within it.
type Incident struct {
	Label
	Found  bool   `json:"found"`
	Alarms uint64 `json:"alarms"`
}

// String returns the line of a run's summary.
func (o *Outcome) String() string {
	s := "s"
	if o.Outside == 1 {
		s = ""
	}
	return fmt.Sprintf("%d of %d labelled incidents found, %d alarm%s outside", o.Found, o.Labels, o.Outside, s)
}

// Compare reads decisions, NDJSON as a stream job writes it, and returns what they have found. An
// alarm is a row whose decision is anomaly. keys are the members of a line that name its entity, as
// in Header.Keys. A label is found when an alarm of its series lies
// within it.
func Compare(labels []Label, anomaly string, keys []string, decisions io.Reader) (*Outcome, error) {
	o := &Outcome{Labels: len(labels)}
	for _, l := range labels {
		o.Each = append(o.Each, Incident{Label: l})
	}
	quoted, err := json.Marshal(anomaly)
	if err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	mark := quoted[1 : len(quoted)-1] // most rows are no alarms, and need not be decoded
	if bytes.ContainsRune(mark, '\\') {
		mark = nil // another writer may have escaped it in another way
	}
	in := bufio.NewReaderSize(decisions, 1<<20)
	var clock rows.Clock
	for n := 1; ; n++ {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("labels: decisions: %w", err)
		}
		if !bytes.Contains(text, mark) {
			continue
		}
		var l line
		if err := l.parse(text, keys); err != nil {
			return nil, fmt.Errorf("labels: decisions: line %d: %w", n, err)
		}
		if l.Decision != anomaly || l.Dropped != "" {
			continue
		}
		at, err := clock.Parse(l.Timestamp)
		if err != nil {
			return nil, fmt.Errorf("labels: decisions: line %d: %w", n, err)
		}
		o.alarm(l.Series, at)
	}
	for _, i := range o.Each {
		if i.Found {
			o.Found++
		}
	}
	return o, nil
}

func (o *Outcome) alarm(series string, at int64) {
	outside := true
	for i := range o.Each {
		if c := &o.Each[i]; c.holds(series, at) {
			outside, c.Found = false, true
			c.Alarms++
		}
	}
	if outside {
		o.Outside++
	}
}

// band is a label as the page's script reads it.
type band struct {
	Begin float64 `json:"begin"` // unix seconds
	End   float64 `json:"end"`
	What  string  `json:"what"`
	From  string  `json:"from"` // as the label says it
	To    string  `json:"to"`
	Found bool    `json:"found"`
}

// bands returns the labels of a series, in the order of their times.
func (o *Outcome) bands(series string) []band {
	all := []band{}
	if o == nil {
		return all
	}
	for _, i := range o.Each {
		if i.Series == "" || i.Series == series {
			all = append(all, band{
				Begin: seconds(i.begin), End: seconds(i.end), What: i.What, From: i.Begin, To: i.End,
				Found: i.Found,
			})
		}
	}
	slices.SortStableFunc(all, func(a, b band) int { return cmp.Compare(a.Begin, b.Begin) })
	return all
}

func (o *Outcome) names(series string) bool {
	return o != nil && slices.ContainsFunc(o.Each, func(i Incident) bool { return i.Series == series && series != "" })
}

func seconds(ns int64) float64 { return float64(ns/1e6) / 1e3 }
