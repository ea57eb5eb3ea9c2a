// Package celldetector_test measures the predictor on generated series and fleets.
package celldetector_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/base/quality"
	"github.com/exoswarm/exoswarm/tools/labelled"
	"github.com/exoswarm/exoswarm/tools/quality/measures"
)

// TestRun: the predictor finds a flood in a series, the same twice, and seeds differ.
func TestRun(t *testing.T) {
	s, err := labelled.Make(1, labelled.Pair{Family: "daily-sine", Incident: "spike"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var before evaluation.CellOutcome
	for seed := range uint64(2) {
		d, err := evaluation.NewCellDetector(evaluation.CellOptions{Agents: 32, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		out, err := d.Run(s.Times, s.Flat(), s.Features())
		if err != nil {
			t.Fatal(err)
		}
		again, _ := d.Run(s.Times, s.Flat(), s.Features())
		if !slices.Equal(out.Scores, again.Scores) || slices.Equal(out.Scores, before.Scores) {
			t.Errorf("seed %d: not the same twice, or as with the seed before", seed)
		}
		w := s.Windows[0]
		if slices.Max(out.Scores[w.First:w.Last+1]) < 0.3 || len(out.Anomalous()) == 0 {
			t.Errorf("seed %d: the spike has a score of %v", seed, slices.Max(out.Scores[w.First:w.Last+1]))
		}
		before = out
	}
}

// TestLearningFindsIncidents is the proof that the neural part decides: the predictor finds more
// incidents of seasonal and wandering series by its own alarms than it finds with learning switched
// off, by a fifth of all at least, and it ranks their rows higher.
func TestLearningFindsIncidents(t *testing.T) {
	measure := func(values map[string]float64) (found, of int, vus float64) {
		d, err := evaluation.NewCellDetector(evaluation.CellOptions{Values: values, Agents: 16, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		series := 0
		for _, p := range labelled.Pairs() {
			switch p.Family {
			case "daily-percent", "daily-sine", "walk", "weekly-growth", "workers":
			default:
				continue
			}
			s, err := labelled.Make(1, p, 0)
			if err != nil {
				t.Fatal(err)
			}
			out, err := d.Run(s.Times, s.Flat(), s.Features())
			if err != nil {
				t.Fatal(err)
			}
			alarms := out.Anomalous()
			for _, w := range s.Windows {
				of++
				if slices.ContainsFunc(alarms, func(row int) bool { return w.First <= row && row <= w.Last }) {
					found++
				}
			}
			behind, windows := measures.Behind(out.Scores, s.Windows, quality.Probation(len(out.Scores)))
			vus += quality.VUSPR(behind, windows, 0)
			series++
		}
		return found, of, vus / float64(series)
	}
	on, of, vus := measure(nil)
	off, _, vusOff := measure(map[string]float64{"learn": 0})
	t.Logf("found %d of %d with learning and %d without; area %.3f and %.3f", on, of, off, vus, vusOff)
	if 5*(on-off) < of || vus < vusOff+0.05 {
		t.Errorf("found %d of %d with learning and %d without; area %.3f and %.3f: learning is worth too little",
			on, of, off, vus, vusOff)
	}
}

func TestErrors(t *testing.T) {
	_, err := evaluation.NewCellDetector(evaluation.CellOptions{Cell: "no-cell"})
	if !errors.Is(err, evaluation.ErrCell) {
		t.Error(err)
	}
	_, err = evaluation.NewCellDetector(evaluation.CellOptions{Values: map[string]float64{"no-parameter": 1}})
	if !errors.Is(err, cells.ErrParameter) {
		t.Error(err)
	}
	d, err := evaluation.NewCellDetector(evaluation.CellOptions{Agents: 4})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Run(make([]int64, 3), make([]float32, 5), 2); !errors.Is(err, evaluation.ErrCell) {
		t.Error(err)
	}
	if out, err := d.Run(nil, nil, 1); err != nil || len(out.Scores) != 0 {
		t.Error(err)
	}
}
