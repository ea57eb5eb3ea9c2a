package celldetector

import (
	"errors"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/labelled"
)

// TestRun: the predictor finds a flood in a series, the same twice, and seeds differ.
func TestRun(t *testing.T) {
	s, err := labelled.Make(1, labelled.Pair{Family: "daily-sine", Incident: "spike"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var before Outcome
	for seed := range uint64(2) {
		d, err := New(Options{Agents: 32, Seed: seed})
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

func TestErrors(t *testing.T) {
	if _, err := New(Options{Cell: "no-cell"}); !errors.Is(err, ErrCell) {
		t.Error(err)
	}
	if _, err := New(Options{Values: map[string]float64{"no-parameter": 1}}); !errors.Is(err, cells.ErrParameter) {
		t.Error(err)
	}
	d, err := New(Options{Agents: 4})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Run(make([]int64, 3), make([]float32, 5), 2); !errors.Is(err, ErrCell) {
		t.Error(err)
	}
	if out, err := d.Run(nil, nil, 1); err != nil || len(out.Scores) != 0 {
		t.Error(err)
	}
}
