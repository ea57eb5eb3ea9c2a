package explain

import (
	"cmp"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// common collects the incidents of a move of the fleet, which have one record.
type common struct {
	Move    uint64
	First   Incident // record of the member that began first
	Begin   int64    // its start; Incident keeps it to itself
	Count   int      // members whose incident has ended
	Going   int      // members whose incident lasts
	Others  []member // members that began first, at most maxRelated+1
	End     int64
	EndText string
	Score   float32
	Peak    string
	Rows    uint64
	Causes  []cause
	Kinds   [batch.FeatureSurprises]uint32 // members by their first kind
	Absent  []string
	Behind  bool // rows of later times have come
	Written bool // and the record, while the incidents of few members last
	Open    bool // the input has ended before the incident of a member
}

type member struct {
	At   int64
	Name string
}

// cause is a feature at fault of some members of a move, with the values of the one with the
// highest score.
type cause struct {
	Feature         string
	Count           uint32
	Score           float32
	Value, Expected float64
}

const (
	// mostAbsent is the largest part of the entities that is named as absent from a move.
	mostAbsent = 0.1
	// mostGoing is the largest part of the members whose incident may last when a move is over.
	mostGoing = 0.1
)

// common returns the move with a number; a new one if there is none.
func (x *Explainer) common(number uint64) *common {
	for _, c := range x.commons {
		if c.Move == number {
			return c
		}
	}
	c := &common{Move: number}
	x.commons = append(x.commons, c)
	return c
}

// moved makes the open incidents of other entities that began with a new move part of it.
func (x *Explainer) moved(m *Move) {
	for _, e := range x.groups {
		if e != nil && x.fleet.Claim(&e.Fleet, m) {
			x.joined(e, m.Number)
		}
	}
}

// joined notes that the open incident of an entity belongs to a move.
func (x *Explainer) joined(e *entity, number uint64) {
	in := e.Open
	if in == nil {
		in = e.Hidden
	}
	if in != nil && in.Move == 0 {
		in.Move = number
		x.common(number).Going++
	}
}

func (x *Explainer) fold(r *Incident, number uint64) {
	c := x.common(number)
	c.Going--
	c.add(r, NameOf(r.Names, len(x.layout.Keys) > 0))
}

func (c *common) add(r *Incident, name string) {
	if c.Count == 0 || cmp.Or(cmp.Compare(r.begin, c.Begin), slices.Compare(r.Names, c.First.Names)) < 0 {
		c.First, c.Begin = *r, r.begin
	}
	c.Count++
	c.Rows += r.Rows
	if c.Count == 1 || r.end > c.End || r.end == c.End && r.End > c.EndText {
		c.End, c.EndText = r.end, r.End
	}
	if c.Count == 1 || r.Score > c.Score || r.Score == c.Score && r.Peak < c.Peak {
		c.Score, c.Peak = r.Score, r.Peak
	}
	c.Others = append(c.Others, member{r.begin, name})
	slices.SortFunc(c.Others, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name))
	})
	c.Others = c.Others[:min(len(c.Others), maxRelated+1)]
	if len(r.Features) == 0 {
		return
	}
	c.Kinds[r.Kinds[0]]++
	i := slices.IndexFunc(c.Causes, func(k cause) bool { return k.Feature == r.Features[0] })
	if i < 0 {
		i = len(c.Causes)
		c.Causes = append(c.Causes, cause{Feature: r.Features[0]})
	}
	k := &c.Causes[i]
	if k.Count++; k.Count == 1 || r.Score > k.Score {
		k.Score, k.Value, k.Expected = r.Score, r.Value, r.Expected
	}
}

// past writes the records of moves that are over, at a time behind them: the incidents of nearly
// all members have ended.
func (x *Explainer) past(ns int64) {
	kept := x.commons[:0]
	for _, c := range x.commons {
		if x.Late && c.Behind {
			kept = append(kept, c)
			continue
		}
		m := x.fleet.Find(c.Move)
		behind := m == nil || x.fleet.Past(m, ns)
		over := behind && float64(c.Going) <= mostGoing*float64(c.Going+c.Count)
		if over && m != nil && !c.Behind {
			c.Absent, c.Behind = x.absent(m), true
		}
		if over && !x.Late && !c.Written {
			x.ready = append(x.ready, x.together(c))
			c.Written = true
		}
		if x.Late || !over || c.Going > 0 {
			kept = append(kept, c)
		}
	}
	x.commons = kept
}

// absent returns the names of the entities that took no part in a move, if they are few.
func (x *Explainer) absent(m *Move) (names []string) {
	missed, took := 0, 0
	for g, e := range x.groups {
		switch {
		case e == nil:
		case e.Fleet.Member == m.Number:
			took++
		case x.fleet.Missed(&e.Fleet, m):
			missed++
			if len(names) < maxRelated {
				names = append(names, x.name(uint32(g)))
			}
		}
	}
	if float64(missed) > mostAbsent*float64(missed+took) {
		return nil
	}
	slices.Sort(names)
	return names
}

func (x *Explainer) together(c *common) Incident {
	r := c.First
	r.begin, r.end, r.End, r.Score, r.Peak, r.Rows = c.Begin, c.End, c.EndText, c.Score, c.Peak, c.Rows
	r.Entities, r.Absent, r.Open, r.Before = c.Count+c.Going, c.Absent, c.Open, 0
	if m := x.fleet.Find(c.Move); m != nil {
		r.from, r.to = x.fleet.Span(m)
	}
	r.Value, r.Expected, r.Features, r.Kinds, r.Related = math.NaN(), math.NaN(), nil, nil, nil
	slices.SortStableFunc(c.Causes, func(a, b cause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Feature, b.Feature))
	})
	for _, k := range c.Causes {
		if 2*k.Count >= c.Causes[0].Count {
			r.Features = append(r.Features, k.Feature)
		}
	}
	if len(c.Causes) > 0 {
		r.Value, r.Expected = c.Causes[0].Value, c.Causes[0].Expected
		r.Kinds = append(r.Kinds, batch.TogetherSurprise)
	}
	most := slices.Max(c.Kinds[:])
	for k, n := range c.Kinds {
		if n > 0 && 2*n >= most {
			r.Kinds = append(r.Kinds, batch.Surprise(k))
		}
	}
	own := NameOf(r.Names, len(x.layout.Keys) > 0)
	for _, m := range c.Others {
		if m.Name != own && len(r.Related) < maxRelated {
			r.Related = append(r.Related, m.Name)
		}
	}
	return r
}

// foldEarly moves the records of incidents that had ended before their move was found into the
// record of the move.
func foldEarly(all []Incident, keyed bool) []Incident {
	var moves []*Incident
	for i := range all {
		if all[i].Entities > 1 {
			one := all[i]
			moves = append(moves, &one)
		}
	}
	if len(moves) == 0 {
		return all
	}
	kept := all[:0]
	for i := range all {
		if all[i].Entities > 1 {
			continue
		}
		of := slices.IndexFunc(moves, func(m *Incident) bool { return m.from <= all[i].begin && all[i].begin < m.to })
		if of < 0 {
			kept = append(kept, all[i])
			continue
		}
		moves[of].take(&all[i], keyed)
	}
	for _, m := range moves {
		kept = append(kept, *m)
	}
	return kept
}

func (in *Incident) take(r *Incident, keyed bool) {
	other := NameOf(r.Names, keyed)
	if cmp.Or(cmp.Compare(r.begin, in.begin), slices.Compare(r.Names, in.Names)) < 0 {
		other = NameOf(in.Names, keyed)
		in.Names, in.Begin, in.Row, in.begin = r.Names, r.Begin, r.Row, r.begin
	}
	in.Entities++
	in.Rows += r.Rows
	if r.end > in.end {
		in.End, in.end = r.End, r.end
	}
	if r.Score > in.Score {
		in.Score, in.Peak = r.Score, r.Peak
	}
	if len(in.Related) < maxRelated && !slices.Contains(in.Related, other) {
		in.Related = append(in.Related, other)
	}
}
