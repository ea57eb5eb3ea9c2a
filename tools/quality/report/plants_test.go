package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/tools/labelled"
	"github.com/exoswarm/exoswarm/tools/quality/measures"
)

// TestWatchers: the example's parameters set a rate; every detector scores a plant, and the best of
// them finds a plain fault.
func TestWatchers(t *testing.T) {
	values, err := shipped()
	if err != nil || values["alarms_per_day"] == 0 {
		t.Fatalf("parameters of the example: %v, %v", values, err)
	}
	o := small()
	m, err := newMeasurement(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	detectors, err := m.watchers()
	if err != nil {
		t.Fatal(err)
	}
	s, err := labelled.MakePlant(1, labelled.Pair{Family: "fan", Incident: "blockage"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]result
	for _, d := range detectors {
		results, err := m.run(d, []labelled.Series{s})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, results)
	}
	best := slices.MaxFunc(all, func(a, b []result) int {
		if a[0].vus < b[0].vus {
			return -1
		}
		return 1
	})
	if best[0].vus < 0.7 || detectors[3].name != "T-squared with Q" || len(all[3][0].alarms) == 0 {
		t.Errorf("the best of all has %v; %s has alarms %v", best[0].vus, detectors[3].name, all[3][0].alarms)
	}
	text := byKey("plant", detectors, all, func(s *labelled.Series) string { return s.Family })
	if strings.Count(text, "\n") != 3 || !strings.Contains(text, "| fan | 1 |") {
		t.Errorf("table:\n%s", text)
	}
}

// TestPoints: rows away from normal count behind the probation alone.
func TestPoints(t *testing.T) {
	s, err := labelled.MakePlant(1, labelled.Pair{Family: "pump", Incident: "sensor-offset"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := s.Windows[0]
	scores := make([]float32, labelled.PlantRows-labelled.PlantWarmup)
	scores[w.First-labelled.PlantWarmup] = 1
	r := result{series: &s, scores: scores, away: []int{3, w.First, w.Last, w.Last + 1}}
	best, own := points([]result{r})
	rows := 0
	for _, w := range s.Windows {
		rows += w.Last - w.First + 1
	}
	if want := (measures.Rows{True: 2, False: 1, Missed: rows - 2}); own != want || best.True < 1 {
		t.Errorf("own %+v, want %+v; best %+v", own, want, best)
	}
}
