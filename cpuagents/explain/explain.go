// Package explain names the causes of decisions: the expected values of an entity, the feature at
// fault, the kind of its surprise, and the incident that its rows belong to. Before that it applies
// the limits of a fleet (Control).
package explain

import (
	"math"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// leastAway is the number of entities without a group whose summaries are kept at least.
const leastAway = 10_000

// Explainer explains the decisions of a swarm. It keeps a summary of each entity that has a group,
// and of the entities that lost theirs last: as many as have one, and at least leastAway. What it
// says of a row depends on the decisions of the entity up to that row alone, in their order: the
// same decisions give the same explanations, however they are cut into batches. One goroutine uses
// it.
type Explainer struct {
	layout  rows.Layout
	names   []string           // of the features in outputs
	clock   rows.Clock         // timestamps of decisions have a default form, see rows.Clock.Text
	groups  []*entity          // by group; nil without rows
	byKey   map[string]*entity // all entities with a key
	away    map[string]*entity // entities without a group
	left    []leaving          // the same in the order in which they left, with some that came back
	turns   uint64             // groups that changed their entity
	moves   []move             // incidents that began lately
	anomaly uint32
	fleet   *Control   // nil for no limit
	commons []*common  // without a record
	ready   []Incident // records of commons that are written next
	// Late keeps the records of moves of the fleet until Finish, because the rows of some entities
	// come long after the rows of others.
	Late bool
}

type entity struct {
	Key      string // empty for a series
	Rows     uint64
	Slots    [slots]uint16 // rows by the time of day
	Features []feature
	Before   []uint32  // incidents by feature and kind
	Open     *incident // nil for none
	Group    int       // its group; -1 for none
	Left     uint64    // turn in which it lost its group
	Fleet    FleetEntity
	Related  *relations // nil for one feature, or too many
	Hidden   *incident  // that the swarm opened and the fleet does not show; nil for none
}

// leaving says that an entity lost its group in a turn.
type leaving struct {
	*entity
	turn uint64
}

// New returns an explainer of decisions with a layout. limits are the limits of the fleet, which
// change decisions before they are explained; nil for none.
func New(l rows.Layout, limits *FleetLimits) *Explainer {
	x := &Explainer{
		layout: l, names: l.FeatureColumns(), byKey: map[string]*entity{}, away: map[string]*entity{},
		anomaly: uint32(len(l.Candidates) - 1),
	}
	if limits != nil {
		x.fleet = NewControl(*limits)
	}
	return x
}

func (x *Explainer) of(group uint32, features int) *entity {
	for int(group) >= len(x.groups) {
		x.groups = append(x.groups, nil)
	}
	e, key := x.groups[group], ""
	if len(x.layout.Keys) > 0 {
		key, _ = x.layout.Entities.Key(int(group))
	}
	if e != nil && e.Key == key && len(e.Features) == features {
		return e
	}
	next := x.byKey[key]
	if next != nil {
		// It has left, or its former group was free since then.
		delete(x.away, key)
		if next.Group >= 0 {
			x.groups[next.Group] = nil
		}
	}
	if e != nil {
		x.leave(e)
	}
	if next == nil {
		next = &entity{
			Key: key, Features: make([]feature, features), Before: make([]uint32, features*int(batch.FeatureSurprises)),
		}
		if key != "" {
			x.byKey[key] = next
		}
	}
	if next.Related == nil {
		next.Related = newRelations(features)
	}
	next.Group = int(group)
	x.groups[group] = next
	return next
}

// leave keeps the summary of an entity that lost its group. The entity that left first makes room.
func (x *Explainer) leave(e *entity) {
	x.turns++
	e.Left, e.Group = x.turns, -1
	x.away[e.Key] = e
	x.left = append(x.left, leaving{e, e.Left})
	for len(x.left) > 0 {
		first := x.left[0]
		there := x.away[first.Key] == first.entity && first.Left == first.turn
		if there && len(x.away) <= max(len(x.groups), leastAway) {
			return
		}
		if x.left = x.left[1:]; there {
			delete(x.away, first.Key)
			delete(x.byKey, first.Key)
		}
	}
}

// Explain sets d.Explained, and d.Decision where the fleet is limited. It returns the incidents
// that ended in the batch, in the order of their ends. Batches come in the order of the log.
func (x *Explainer) Explain(d *batch.Decisions) []Incident {
	n, features := d.Len(), len(x.names)
	all := make([]float64, 3*n*features)
	why := &batch.Explained{
		Features: features, Expected: all[: n*features : n*features], Low: all[n*features:][: n*features : n*features],
		High: all[2*n*features:], Fault: make([]int8, n), Side: make([]int8, n), Kind: make([]batch.Surprise, n),
		Before: make([]uint32, n),
	}
	d.Explained = why
	if x.fleet != nil {
		d.Decision = slices.Clone(d.Decision) // which shares memory with a message
	}
	var ended []Incident
	for i := range n {
		done := x.row(d, i, why)
		ended = append(ended, x.ready...)
		x.ready = x.ready[:0]
		if done != nil {
			ended = append(ended, *done)
		}
	}
	return ended
}

func (x *Explainer) row(d *batch.Decisions, i int, why *batch.Explained) *Incident {
	at := i * why.Features
	why.Fault[i] = -1
	if d.Dropped != nil && d.Dropped[i] != batch.Applied {
		for f := range why.Features {
			why.Expected[at+f], why.Low[at+f], why.High[at+f] = math.NaN(), math.NaN(), math.NaN()
		}
		return nil
	}
	e := x.of(d.Group[i], why.Features)
	ns, err := x.clock.Parse(d.Timestamp[i])
	if err != nil { // a row that was pushed may have any text
		ns = d.Read[i]
	}
	if x.fleet != nil {
		x.limit(e, d, i, ns)
	}
	odd := d.Decision[i] != 0 && d.Decision[i] != batch.NoDecision
	begins := d.Decision[i] == x.anomaly && e.Open == nil
	slot := int(uint64(ns) / uint64(24*time.Hour/slots) % slots)
	var surprises [64]surprise
	var distances [mostRelated]float64
	for f := range e.Features {
		s := &e.Features[f]
		v, ok := d.Feature(i, f)
		if !ok {
			v = math.NaN()
		}
		if f < mostRelated {
			distances[f] = v - s.Level
		}
		expected, half := s.expected(slot)
		if e.Rows < warm || math.IsNaN(v) {
			expected, half = math.NaN(), 0
		}
		why.Expected[at+f], why.Low[at+f], why.High[at+f] = expected, expected-half, expected+half
		if !math.IsNaN(v) {
			surprises[f] = s.observe(v, e.Rows, slot, uint32(e.Slots[slot]), begins || odd)
		}
	}
	if e.Related != nil {
		e.Related.observe(distances[:why.Features], e.Rows, begins || odd, surprises[:why.Features])
	}
	e.Rows++
	if e.Slots[slot] < math.MaxUint16 {
		e.Slots[slot]++
	}
	var done *Incident
	if e.Open != nil && d.Decision[i] == 0 {
		done = x.ended(e, e.Open, d.Group[i])
		e.Open = nil
	}
	if begins {
		if e.Open = e.Hidden; e.Open == nil {
			e.Open = newIncident(d, i, ns, why.Features)
		}
		e.Hidden = nil
		x.begun(d.Group[i], e.Open)
	}
	in := e.Open
	if in == nil {
		in = e.Hidden
	}
	if in != nil {
		in.Seen++
	}
	if !odd {
		return done
	}
	if in == nil {
		in = &incident{}
		in.init(why.Features)
	}
	in.add(d, i, ns, surprises[:why.Features], why)
	f, kind := in.cause()
	if f < 0 {
		return done
	}
	why.Fault[i], why.Kind[i] = int8(f), kind
	why.Before[i] = e.Before[f*int(batch.FeatureSurprises)+int(kind)]
	switch v, _ := d.Feature(i, f); {
	case kind == batch.MissingSurprise, kind == batch.LevelSurprise && surprises[f].dev < 0:
		why.Side[i] = -1
	case kind == batch.LevelSurprise:
		why.Side[i] = 1
	case v > why.Expected[at+f]:
		why.Side[i] = 1
	case v < why.Expected[at+f]:
		why.Side[i] = -1
	}
	if in.Move != 0 {
		why.Kind[i] = batch.TogetherSurprise
	}
	return done
}

// limit sets the decision of row i to what the fleet shows. An incident that is shown later has the
// rows since its start.
func (x *Explainer) limit(e *entity, d *batch.Decisions, i int, ns int64) {
	switch of := d.Decision[i]; {
	case of == 0:
		if e.Hidden != nil {
			x.ended(e, e.Hidden, d.Group[i])
		}
		e.Hidden = nil
	case of == x.anomaly && e.Open == nil:
		e.Hidden = newIncident(d, i, ns, len(x.names))
	}
	opens := d.Decision[i] == x.anomaly
	d.Decision[i] = x.fleet.Decide(&e.Fleet, ns, d.Score[i], d.Decision[i])
	if m := x.fleet.Moved(); m != nil {
		x.moved(m)
	}
	if opens && e.Fleet.Move != 0 {
		x.joined(e, e.Fleet.Move)
	}
	x.past(ns)
}
