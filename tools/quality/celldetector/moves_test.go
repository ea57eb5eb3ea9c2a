package celldetector_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/app/evaluation"
)

// stormAt is the time at which entities move together: behind 12 days of the first entity.
var stormAt = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC).Add(17*24*time.Hour + 100*time.Minute).UnixNano()

const stormFor = int64(2 * time.Hour)

type moves struct {
	found, members, shown  int // moves in the storm, entities that belong to them, and rows shown before they are found
	outside, outsideOf     int // moves outside of the storm, and their members
	opened, single, stormy int // incidents, those shown outside of the storm, and entities that opened one in it
}

// watchMoves runs a fleet through a control that detects moves.
func watchMoves(all []*member, o explain.FleetLimits) (r moves) {
	type place struct{ entity, row int }
	var rows []place
	for e, m := range all {
		for row := range m.Times {
			rows = append(rows, place{e, row})
		}
	}
	slices.SortStableFunc(rows, func(a, b place) int {
		return cmp.Compare(all[a.entity].Times[a.row], all[b.entity].Times[b.row])
	})
	c, entities := explain.NewControl(o), make([]explain.FleetEntity, len(all))
	opened := map[int]bool{}
	for _, p := range rows {
		m := all[p.entity]
		e, ns := &entities[p.entity], m.Times[p.row]
		storm := ns >= stormAt && ns < stormAt+stormFor
		got := c.Decide(e, ns, m.Scores[p.row], m.Decisions[p.row])
		if mv := c.Moved(); mv != nil {
			n := 0
			for i := range entities {
				if c.Claim(&entities[i], mv) {
					n++
				}
			}
			if storm {
				r.found++
				r.members += n
			} else {
				r.outside++
				r.outsideOf += n
			}
		}
		if m.Decisions[p.row] != kernels.VoteAnomalous {
			continue
		}
		r.opened++
		if storm && !opened[p.entity] {
			opened[p.entity] = true
			r.stormy++
		}
		switch {
		case storm && got == kernels.VoteAnomalous:
			r.shown++
		case got == kernels.VoteAnomalous:
			r.single++
		}
		if e.Move != 0 {
			if storm {
				r.members++
			} else {
				r.outsideOf++
			}
		}
	}
	return r
}

// TestFleetMoves: of a storm over a part of a fleet, a few rows are shown and one move is found.
// The fleet has few moves elsewhere.
func TestFleetMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("fleets are slow under the race detector")
	}
	n := entities()
	all := members(t, n, true)
	d, err := evaluation.NewCellDetector(evaluation.CellOptions{Agents: 16, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	stormy := make([]*member, len(all))
	for i, m := range all {
		stormy[i] = moved(t, d, m)
	}
	for _, share := range []float64{0, 0.02, 0.1, 0.5, 1} {
		with := int(share * float64(len(all)))
		mix := append(slices.Clone(stormy[:with]), all[with:]...)
		o := limits(t, 0, 0)
		o.Together = 5 * time.Minute
		r := watchMoves(mix, o)
		t.Logf("%d entities, %d in a storm: %d of them opened an incident in it, %d moves with %d members were found, "+
			"%d rows shown; elsewhere %d moves with %d members, %d of %d incidents shown", len(mix), with, r.stormy,
			r.found, r.members, r.shown, r.outside, r.outsideOf, r.single, r.opened)
		if share >= 0.5 && (r.found < 1 || r.found > 3 || 4*r.shown > r.stormy+40) {
			t.Errorf("%d entities in a storm: %d moves, %d of %d incidents shown", with, r.found, r.shown, r.stormy)
		}
		if share == 0 && r.found > 1 {
			t.Errorf("%d moves where nothing moves", r.found)
		}
	}
}

// moved returns a member with a higher level in the storm, by half of the span of its values.
func moved(t *testing.T, d *evaluation.CellDetector, of *member) *member {
	t.Helper()
	m := &member{Series: of.Series, rows: of.rows}
	m.Values = slices.Clone(of.Values)
	m.More = make([][]float64, len(of.More))
	for f := range of.More {
		m.More[f] = slices.Clone(of.More[f])
	}
	for _, column := range append([][]float64{m.Values}, m.More...) {
		by := (slices.Max(column) - slices.Min(column)) / 2
		for row, ns := range m.Times {
			if ns >= stormAt && ns < stormAt+stormFor {
				column[row] += by
			}
		}
	}
	var err error
	if m.CellOutcome, err = d.Run(m.Times, m.Flat(), m.Features()); err != nil {
		t.Fatal(err)
	}
	return m
}
