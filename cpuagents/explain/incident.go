package explain

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// Incident is the record of an incident. It begins with a row that the swarm decided anomalous, and
// ends before the next row that was decided normal.
type Incident struct {
	// Names are the values of the columns Layout.NameColumns: the name of a series, or the key.
	Names []string
	// Begin, End and Peak are timestamps as the input has them: of the first row, of the last row that
	// was not normal, and of the row with the highest score.
	Begin, End, Peak string
	// Row is the number of the first row in its input.
	Row uint64
	// Rows counts the rows from the first one to the last one.
	Rows uint64
	// Score is the highest one.
	Score float32
	// Features are the names of the features that surprised, and Kinds their kinds, the largest
	// surprise first.
	Features []string
	Kinds    []batch.Surprise
	// Value and Expected are about the first of Features at the peak; NaN where unknown.
	Value, Expected float64
	// Before counts the earlier incidents of the entity with the same first feature and kind.
	Before uint32
	// Related are the names of other entities with an incident that began within RelatedWithin of
	// this one, at most maxRelated.
	Related []string
	// Open reports that the input has ended before the incident.
	Open bool
	// Entities is the number of entities that moved together, whose only record this is: Names is
	// the entity that began first, and Related has others. 1 for an incident of one entity.
	Entities int
	// Absent are the names of entities that took no part in a move of nearly all, at most
	// maxRelated.
	Absent []string

	begin, end int64 // nanoseconds
	from, to   int64 // times in which the incidents of a move begin
}

const (
	// RelatedWithin is the time between the begins of two incidents that are related.
	RelatedWithin = 5 * time.Minute
	maxRelated    = 10
	// maxMoves bounds the begins of incidents that are remembered.
	maxMoves = 1000
	// part is the share of the largest surprise from which another one is named too.
	part = 0.5
)

// move is the start of an incident.
type move struct {
	At    int64
	Group uint32
	Name  string
}

type incident struct {
	Begin, End, Peak string
	At               int64
	Row, Rows        uint64
	Seen             uint64 // rows of the entity since the start
	Odd              uint64 // rows that were not normal
	Score            float32
	Move             uint64    // number of the move of the fleet that it belongs to; 0 for none
	Last             int64     // time of the last row that was not normal
	Sizes            []float64 // sum of the surprises by feature and kind
	Peaks            []float64 // values and expected values at the peak, by feature
}

func (in *incident) init(features int) {
	in.Sizes = make([]float64, features*int(batch.FeatureSurprises))
	in.Peaks = make([]float64, 2*features)
}

func newIncident(d *batch.Decisions, i int, ns int64, features int) *incident {
	in := &incident{Begin: d.Timestamp[i], At: ns, Row: d.Row[i]}
	in.init(features)
	return in
}

// begun notes the start of an incident for others that are related.
func (x *Explainer) begun(group uint32, in *incident) {
	x.moves = append(x.moves, move{in.At, group, x.name(group)})
	if len(x.moves) > maxMoves {
		x.moves = slices.Delete(x.moves, 0, len(x.moves)-maxMoves)
	}
}

func (in *incident) add(d *batch.Decisions, i int, ns int64, all []surprise, why *batch.Explained) {
	in.Rows = in.Seen
	in.Odd++
	in.End, in.Last = d.Timestamp[i], ns
	if d.Score[i] > in.Score || in.Odd == 1 {
		in.Score, in.Peak = d.Score[i], d.Timestamp[i]
		for f := range all {
			in.Peaks[2*f], _ = d.Feature(i, f)
			in.Peaks[2*f+1] = why.Expected[i*why.Features+f]
		}
	}
	for f := range all {
		for k, size := range all[f].size {
			in.Sizes[f*int(batch.FeatureSurprises)+k] += min(size, 4)
		}
	}
}

// cause returns the feature with the largest surprise and its kind; -1 if nothing surprises.
func (in *incident) cause() (feature int, kind batch.Surprise) {
	feature, most := -1, 0.0
	for i, size := range in.Sizes {
		if size > most {
			feature, kind, most = i/int(batch.FeatureSurprises), batch.Surprise(i%int(batch.FeatureSurprises)), size
		}
	}
	return feature, kind
}

// ended returns the record of an incident of an entity, which is over; nil if it has none, because
// it belongs to a move or is not shown.
func (x *Explainer) ended(e *entity, in *incident, group uint32) *Incident {
	if in.Move == 0 && in == e.Hidden {
		return nil
	}
	r := x.record(e, in, group)
	if in.Move != 0 {
		x.fold(r, in.Move)
		return nil
	}
	return r
}

func (x *Explainer) record(e *entity, in *incident, group uint32) *Incident {
	r := &Incident{
		Begin: in.Begin, End: in.End, Peak: in.Peak, Row: in.Row, Rows: in.Rows, Score: in.Score,
		Value: math.NaN(), Expected: math.NaN(), Entities: 1, begin: in.At, end: in.Last,
	}
	r.Names = append(r.Names, x.layout.Names(int(group))...)
	f, kind := in.cause()
	if f >= 0 {
		at := f*int(batch.FeatureSurprises) + int(kind)
		r.Value, r.Expected, r.Before = in.Peaks[2*f], in.Peaks[2*f+1], e.Before[at]
		e.Before[at]++
		r.Features, r.Kinds = in.named(x.names)
	}
	own := x.name(group) // which may have had another group
	for _, m := range x.moves {
		if m.Name != own && abs(m.At-in.At) <= int64(RelatedWithin) && len(r.Related) < maxRelated &&
			!slices.Contains(r.Related, m.Name) {
			r.Related = append(r.Related, m.Name)
		}
	}
	slices.Sort(r.Related)
	return r
}

// named returns the features and kinds with a large surprise, the largest first.
func (in *incident) named(names []string) (features []string, kinds []batch.Surprise) {
	const width = int(batch.FeatureSurprises)
	type sized struct {
		what int
		size float64
	}
	byFeature, byKind := make([]sized, len(in.Sizes)/width), make([]sized, width)
	for f := range byFeature {
		byFeature[f] = sized{f, slices.Max(in.Sizes[f*width:][:width])}
	}
	first, _ := in.cause()
	for k := range byKind {
		byKind[k] = sized{k, in.Sizes[first*width+k]}
	}
	for _, all := range [][]sized{byFeature, byKind} {
		slices.SortStableFunc(all, func(a, b sized) int { return cmp.Compare(b.size, a.size) })
	}
	for _, s := range byFeature {
		if s.size >= part*byFeature[0].size {
			features = append(features, names[s.what])
		}
	}
	for _, s := range byKind {
		if s.size >= part*byKind[0].size {
			kinds = append(kinds, batch.Surprise(s.what))
		}
	}
	return features, kinds
}

// Finish returns the incidents that have not ended when the input ends, in the order of the groups.
func (x *Explainer) Finish() (open []Incident) {
	for g, e := range x.groups {
		if e == nil {
			continue
		}
		if in := e.Hidden; in != nil && in.Move != 0 {
			x.ended(e, in, uint32(g))
			x.common(in.Move).Open = true
		}
		if in := e.Open; in != nil {
			if r := x.ended(e, in, uint32(g)); r != nil {
				r.Open = true
				open = append(open, *r)
			} else {
				x.common(in.Move).Open = true
			}
		}
		e.Open, e.Hidden = nil, nil
	}
	for _, c := range x.commons {
		if c.Count > 0 && !c.Written {
			open = append(open, x.together(c))
		}
	}
	x.commons = nil
	return open
}

func (x *Explainer) name(group uint32) string {
	return NameOf(x.layout.Names(int(group)), len(x.layout.Keys) > 0)
}

func abs(n int64) int64 { return max(n, -n) }
