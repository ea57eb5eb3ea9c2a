package main

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/base/quality"
	"github.com/exoswarm/exoswarm/internal/base/telemetry"
	"github.com/exoswarm/exoswarm/tools/labelled"
	"github.com/exoswarm/exoswarm/tools/quality/measures"
	"github.com/exoswarm/exoswarm/tools/quality/opponents"
)

// plants measures series of plants: the plants to choose on and, separately, the plants that are
// held back. The predictor has the parameters of the example's specification, and then its
// defaults. The cell region learns as many rows as the others that learn at the begin.
func (m *measurement) plants() ([]block, error) {
	usual, err := labelled.OfPlants(m.o.seed, false, m.o.each)
	if err != nil {
		return nil, err
	}
	sets := [][]labelled.Series{usual}
	if !m.o.choose {
		held, err := labelled.OfPlants(m.o.seed, true, m.o.each)
		if err != nil {
			return nil, err
		}
		sets = append(sets, held)
	}
	detectors, err := m.watchers()
	if err != nil {
		return nil, err
	}
	t := newTable("detector", "VUS-PR: plants to choose on; held back", "range F1", "point F1 at one threshold",
		"point F1 of its decisions", "incidents with an alarm", "alarms outside, in 1,000 rows")
	all := make([][]result, len(detectors))
	for i, d := range detectors {
		columns := make([][]string, 6)
		for _, set := range sets {
			results, err := m.run(d, set)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", d.name, err)
			}
			all[i] = append(all[i], results...)
			s := summarise(results)
			best, own := points(results)
			row := []string{f3(s.vus), f3(s.f1), f3(best.F1()), "-", s.own(), s.outside()}
			if s.hasOwn {
				row[3] = f3(own.F1())
			}
			for k, cell := range row {
				columns[k] = append(columns[k], cell)
			}
		}
		row := []string{d.name}
		for _, column := range columns {
			row = append(row, strings.Join(column, "; "))
		}
		t.row(row...)
	}
	return []block{
		{"plants", t.String()},
		{"plants by plant", byKey("plant", detectors, all, func(s *labelled.Series) string { return s.Family })},
		{"plants by fault", byKey("fault", detectors, all, func(s *labelled.Series) string { return s.Incident })},
	}, nil
}

// watchers are the detectors that plants are measured with.
func (m *measurement) watchers() ([]*detector, error) {
	values, err := shipped()
	if err != nil {
		return nil, err
	}
	own, err := m.predictor("predictor, as shipped", values, m.o.agents, 1)
	if err != nil {
		return nil, err
	}
	region, err := observed("region", evaluation.CellOptions{
		Cell: "region", Values: map[string]float64{"learn_for": labelled.PlantWarmup}, Seed: 1,
	})
	if err != nil {
		return nil, err
	}
	detectors := []*detector{begins(region), own, m.own}
	if m.o.opponents {
		for _, d := range opponents.Taught(labelled.PlantWarmup) {
			if _, ok := d.(opponents.TSquared); ok {
				detectors = append(detectors, limited(d, 0.5))
				continue
			}
			detectors = append(detectors, other(d))
		}
	}
	return append(append(detectors, m.others...), guess()), nil
}

// shipped returns the parameters of the cell in the example's specification.
func shipped() (map[string]float64, error) {
	text, err := fs.ReadFile(telemetry.Files, "swarm.yaml")
	if err != nil {
		return nil, err
	}
	spec, err := swarm.Parse("swarm.yaml", text)
	if err != nil {
		return nil, err
	}
	return spec.Cell.Params, nil
}

// limited returns a detector whose own limit is a score: rows above it are away from normal, and an
// alarm begins with the first.
func limited(d opponents.Detector, limit float32) *detector {
	return &detector{d.Name(), func(s *labelled.Series) (outcome, error) {
		o := outcome{scores: d.Score(s.Flat(), s.Features())}
		for row, x := range o.scores {
			if x > limit {
				o.away = append(o.away, row)
			}
		}
		o.alarms = measures.Alarms(o.scores, limit, measures.Quiet)
		return o, nil
	}}
}

// begins returns a detector whose alarms are the first of each run of alarms: a detector without a
// hold-off decides each row alone.
func begins(d *detector) *detector {
	return &detector{d.name, func(s *labelled.Series) (outcome, error) {
		o, err := d.score(s)
		last := -measures.Quiet
		o.alarms = slices.DeleteFunc(o.alarms, func(row int) bool {
			again := row-last < measures.Quiet
			if !again {
				last = row
			}
			return again
		})
		return o, err
	}}
}

// points counts rows of results together: at the best threshold for all, and by the detector's own
// decisions.
func points(results []result) (best, own measures.Rows) {
	var scores [][]float32
	var windows [][]quality.Window
	for _, r := range results {
		w, from := behind(&r), quality.Probation(len(r.series.Times))
		scores, windows = append(scores, r.scores), append(windows, w)
		first, _ := slices.BinarySearch(r.away, from)
		var away []int
		for _, row := range r.away[first:] {
			away = append(away, row-from)
		}
		own.Add(measures.Count(away, w))
	}
	return measures.BestPoints(scores, windows), own
}

// byKey is a table of VUS-PR and range F1 by plant or fault: of region, of the predictor, and of the
// best of the others but the last, which guesses.
func byKey(by string, detectors []*detector, all [][]result, key func(*labelled.Series) string) string {
	t := newTable(by, "windows", "region: VUS-PR", "range F1", "incidents with an alarm",
		"predictor, as shipped: VUS-PR", "range F1", "best other: VUS-PR", "best other: range F1")
	var names []string
	for _, r := range all[0] {
		if name := key(r.series); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		of := func(d int) summary {
			var some []result
			for _, r := range all[d] {
				if key(r.series) == name {
					some = append(some, r)
				}
			}
			return summarise(some)
		}
		own, predictor := of(0), of(1)
		vus, f1, vusName, f1Name := 0.0, 0.0, "-", "-"
		for d := 3; d < len(detectors)-1; d++ {
			o := of(d)
			if o.vus > vus {
				vus, vusName = o.vus, detectors[d].name
			}
			if o.f1 > f1 {
				f1, f1Name = o.f1, detectors[d].name
			}
		}
		for _, p := range labelled.Plants() {
			if by == "plant" && p.Name == name && p.HeldBack {
				name += " (held back)"
			}
		}
		t.row(name, fmt.Sprint(own.windows), f3(own.vus), f3(own.f1), own.own(), f3(predictor.vus), f3(predictor.f1),
			f3(vus)+" "+vusName, f3(f1)+" "+f1Name)
	}
	return t.String()
}
