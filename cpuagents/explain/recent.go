package explain

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// mostRecent bounds the incidents in the progress of a job. One takes about 250 bytes there.
const mostRecent = 32

// Found is what a job has found so far, for people who watch it: its place in the time of the data,
// and the incidents that began last, the newest first.
type Found struct {
	Swarm string `json:"swarm"` // id
	// Name is the name of the swarm, and Sources are the first names of what the job reads.
	Name    string   `json:"name"`
	Sources []string `json:"sources,omitempty"`
	// Clock is the timestamp of the last decided row.
	Clock     string    `json:"clock,omitempty"`
	Incidents []Current `json:"incidents,omitempty"`
}

// Current is an incident that goes on or has ended a while ago. Unlike an Incident it is known from
// its first row on.
type Current struct {
	Entity string `json:"entity"`
	Group  uint32 `json:"group"` // in the swarm
	// Begin and Last are the timestamps of the first row and of the last row that was not normal.
	// Began and Ended are the times of the decisions; Ended is zero while the incident goes on.
	Begin string    `json:"begin"`
	Last  string    `json:"last"`
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	Rows  uint64    `json:"rows"` // that were not normal
	Score float32   `json:"score"`
	// Feature, Kind and Side say why, as the explanation of a row; empty where decisions are not
	// explained. A single feature is known without one. Value and Expected are of the row with the
	// highest score.
	Feature  string   `json:"feature,omitempty"`
	Kind     string   `json:"kind,omitempty"`
	Side     string   `json:"side,omitempty"`
	Value    *float64 `json:"value,omitempty"`
	Expected *float64 `json:"expected,omitempty"`
	Before   uint32   `json:"before,omitempty"` // earlier incidents with the same feature and kind
}

// Why says in a few words which value differs from what was expected; empty where nothing says so.
func (c Current) Why() string {
	if c.Feature == "" {
		return ""
	}
	text := c.Feature
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	if c.Value != nil {
		text += " " + number(*c.Value)
	}
	if c.Expected != nil {
		text += fmt.Sprintf(", expected %s", number(*c.Expected))
	}
	return text
}

// Recent keeps the incidents of a job that began last. One goroutine uses it at a time. A nil
// Recent keeps none.
type Recent struct {
	record swarms.Swarm
	layout rows.Layout
	found  Found
	all    []*Current          // the newest first
	open   map[uint32]*Current // by group
}

// NewRecent returns the incidents of a job over a swarm. layout is the layout of its decisions.
func NewRecent(record swarms.Swarm, layout rows.Layout) *Recent {
	sources := layout.Series
	return &Recent{
		record: record, layout: layout, open: map[uint32]*Current{},
		found: Found{Swarm: record.ID, Name: record.Name, Sources: slices.Clone(sources[:min(len(sources), 3)])},
	}
}

// Add adds decisions, in the order of the log. They are explained before, if the job explains.
func (r *Recent) Add(d *batch.Decisions, at time.Time) {
	if r == nil {
		return
	}
	for i, of := range d.Decision {
		if of == batch.NoDecision || of == 0 && len(r.open) == 0 {
			continue
		}
		in := r.open[d.Group[i]]
		switch {
		case of == 0:
			if in != nil {
				in.Ended = at
				delete(r.open, d.Group[i])
			}
			continue
		case in == nil && int(of) != d.Candidates-1: // it never began, or began before this attempt
			continue
		case in == nil:
			in = &Current{
				Entity: r.name(d.Group[i]), Group: r.group(d.Group[i]), Begin: d.Timestamp[i], Began: at,
			}
			r.open[d.Group[i]] = in
			r.all = slices.Insert(r.all, 0, in)
			r.all = r.all[:min(len(r.all), mostRecent)]
		}
		r.extend(in, d, i)
	}
	if n := d.Len(); n > 0 {
		r.found.Clock = d.Timestamp[n-1]
	}
}

func (r *Recent) extend(in *Current, d *batch.Decisions, i int) {
	in.Rows++
	in.Last = d.Timestamp[i]
	f, before := 0, in.Feature
	if why := d.Explained; why != nil && why.Fault[i] >= 0 {
		f = int(why.Fault[i])
		in.Kind, in.Side, in.Before = why.Kind[i].String(), batch.Sides[why.Side[i]], why.Before[i]
	} else if len(r.layout.Features) > 1 {
		in.Score = max(in.Score, d.Score[i])
		return
	}
	if f < len(r.layout.Features) {
		in.Feature = r.layout.Features[f]
	}
	if in.Rows > 1 && d.Score[i] <= in.Score && before == in.Feature {
		return
	}
	in.Score, in.Value, in.Expected = max(in.Score, d.Score[i]), nil, nil
	if v, ok := d.Feature(i, f); ok {
		in.Value = finite(v)
	}
	if why := d.Explained; why != nil {
		in.Expected = finite(why.Expected[i*why.Features+f])
	}
}

func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// group returns the group in the swarm of what outputs call a group: the number of an entity.
func (r *Recent) group(number uint32) uint32 {
	if len(r.layout.Keys) == 0 || int(number) >= r.record.Groups {
		return number
	}
	return uint32(r.record.EntityGroup(int(number)))
}

func (r *Recent) name(group uint32) string {
	if !r.layout.Has(int(group)) {
		return ""
	}
	return NameOf(r.layout.Names(int(group)), len(r.layout.Keys) > 0)
}

// Found returns what was found. The caller owns it.
func (r *Recent) Found() *Found {
	if r == nil {
		return nil
	}
	f := r.found
	f.Incidents = make([]Current, len(r.all))
	for i, in := range r.all {
		f.Incidents[i] = *in
	}
	return &f
}

// keptIncident is an incident of a Recent in a SummaryLog. Number is what decisions call the group
// of an incident that goes on.
type keptIncident struct {
	Current
	Number *uint32 `json:"number,omitempty"`
}

func (r *Recent) kept() (all []keptIncident) {
	if r == nil {
		return nil
	}
	for _, in := range r.all {
		one := keptIncident{Current: *in}
		for number, open := range r.open {
			if open == in {
				one.Number = &number
			}
		}
		all = append(all, one)
	}
	return all
}

// restore takes over the incidents of kept, which an earlier attempt had.
func (r *Recent) restore(all []keptIncident) {
	if r == nil {
		return
	}
	r.all, r.open = nil, map[uint32]*Current{}
	for _, one := range all[:min(len(all), mostRecent)] {
		r.all = append(r.all, &one.Current)
		if one.Number != nil {
			r.open[*one.Number] = &one.Current
		}
	}
}
