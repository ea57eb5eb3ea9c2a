package cluster

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// EntityView is what the group of an entity has decided last, with what was expected.
type EntityView struct {
	Swarm      string   `json:"swarm"` // id
	Title      string   `json:"title"` // of the swarm
	Entity     string   `json:"entity"`
	Group      int      `json:"group"`
	Shard      int      `json:"shard"`
	Features   []string `json:"features"`
	Candidates []string `json:"candidates"`
	// Rows are the last ones, oldest first. Their expected values follow from these rows alone, so the
	// first ones have none.
	Rows []EntityRow `json:"rows"`
}

// EntityRow is a row of an entity with its decision. A value that is no finite number is null.
type EntityRow struct {
	Answer    uint64     `json:"answer"` // its number in the log of answers
	Timestamp string     `json:"timestamp"`
	Values    []*float64 `json:"values"`
	Expected  []*float64 `json:"expected"`
	Low       []*float64 `json:"low"`
	High      []*float64 `json:"high"`
	Score     float32    `json:"score"`
	Decision  int64      `json:"decision"` // number of the candidate; -1 for none
	Counts    []uint32   `json:"counts"`   // votes by candidate
	Leader    uint64     `json:"leader"`
	// Feature, Kind and Side say why the row is not normal; Feature is -1 for a normal row.
	Feature int    `json:"feature"`
	Kind    string `json:"kind,omitempty"`
	Side    string `json:"side,omitempty"`
}

// mostEntityRows bounds the rows of an EntityView, and mostEntityFeatures its features.
const (
	mostEntityRows     = 600
	mostEntityFeatures = 32
)

// Entity returns the last rows of a group of a swarm, by its name or id. It reads at most 300
// answers. It fails with jobs.ErrNotFound if the newest State has no such swarm or group.
func (w *Watcher) Entity(ctx context.Context, name string, group int) (v EntityView, err error) {
	s := w.State()
	sw, err := s.Swarm(name)
	if err != nil {
		return v, err
	}
	v = EntityView{
		Swarm: sw.ID, Title: sw.Title, Group: group, Shard: shardOf(s, sw.ID, uint32(group)), Features: sw.features(),
		Candidates: sw.Candidates, Rows: []EntityRow{},
	}
	v.Features = v.Features[:min(len(v.Features), mostEntityFeatures)]
	type answer struct {
		seq  uint64
		rows *batch.Decisions
	}
	var all []answer // the newest first
	read, bytes, found := 0, 0, 0
	ctx, cancel := context.WithTimeout(ctx, entityPatience)
	defer cancel()
	err = w.answers(ctx, sw.ID, v.Shard, 0, func(_ Swarm, e swarms.Entry, _ time.Time) bool {
		if e.Kind == swarms.EntryDecide {
			if d, err := batch.DecodeDecisions(e.Data); err == nil {
				if own := pick(d, uint32(group)); own.Len() > 0 {
					all = append(all, answer{e.Seq, own})
					found += own.Len()
				}
			}
		}
		read++
		bytes += len(e.Data)
		return found < 2*mostEntityRows && read < mostSearched && bytes < mostSearchedBytes
	})
	if err != nil && (ctx.Err() == nil || len(all) == 0) { // what was read in time is shown
		return v, err
	}
	x := explain.New(rows.Layout{
		Series: make([]string, group+1), Candidates: sw.Candidates, Features: v.Features, Explain: true,
	}, nil)
	for _, a := range slices.Backward(all) {
		if len(v.Features) > 0 {
			x.Explain(a.rows)
		}
		for i := range a.rows.Len() {
			v.Rows = append(v.Rows, entityRow(a.seq, a.rows, i, len(v.Features)))
		}
	}
	v.Rows = v.Rows[max(0, len(v.Rows)-mostEntityRows):]
	return v, nil
}

// entityPatience bounds the reading of answers for an EntityView.
const entityPatience = 5 * time.Second

// pick returns the rows of a group that were not dropped.
func pick(d *batch.Decisions, group uint32) *batch.Decisions {
	out := &batch.Decisions{Candidates: d.Candidates}
	for i, g := range d.Group {
		if g != group || d.Dropped != nil && d.Dropped[i] != batch.Applied {
			continue
		}
		out.Group, out.Row = append(out.Group, g), append(out.Row, d.Row[i])
		out.Read, out.Timestamp = append(out.Read, d.Read[i]), append(out.Timestamp, d.Timestamp[i])
		for f := 0; ; f++ {
			v, ok := d.Feature(i, f)
			if !ok {
				break
			}
			out.Value = append(out.Value, v)
		}
		out.Score, out.Decision = append(out.Score, d.Score[i]), append(out.Decision, d.Decision[i])
		out.Counts = append(out.Counts, d.Counts[i*d.Candidates:(i+1)*d.Candidates]...)
		out.Leader, out.Round = append(out.Leader, d.Leader[i]), append(out.Round, d.Round[i])
	}
	return out
}

func entityRow(seq uint64, d *batch.Decisions, i, features int) EntityRow {
	r := EntityRow{
		Answer: seq, Timestamp: d.Timestamp[i], Score: d.Score[i], Decision: -1, Leader: d.Leader[i], Feature: -1,
		Counts: d.Counts[i*d.Candidates : (i+1)*d.Candidates],
	}
	if d.Decision[i] != batch.NoDecision {
		r.Decision = int64(d.Decision[i])
	}
	for f := range features {
		v, ok := d.Feature(i, f)
		if !ok {
			v = math.NaN()
		}
		band := rows.Band(d, i, f)
		r.Values, r.Expected = append(r.Values, known(v)), append(r.Expected, known(band[0]))
		r.Low, r.High = append(r.Low, known(band[1])), append(r.High, known(band[2]))
	}
	if why := d.Explained; why != nil && why.Fault[i] >= 0 {
		r.Feature, r.Kind, r.Side = int(why.Fault[i]), why.Kind[i].String(), batch.Sides[why.Side[i]]
	}
	return r
}

func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
