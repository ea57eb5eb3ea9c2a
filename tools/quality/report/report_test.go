package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/labelled"
	"github.com/exoswarm/exoswarm/tools/quality/measures"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func small() *options {
	return &options{
		agents: 8, each: 1, opponents: true, quiet: 1, seeds: 2, draws: 2, seed: 1000, values: map[string]float64{},
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"--choose", "--set", "alarm=0.3", "--set", "margin=0"})
	if err != nil || o.seed != 1 || o.values["alarm"] != 0.3 || len(o.values) != 2 {
		t.Errorf("%+v: %v", o, err)
	}
	if _, err := parse([]string{"--set", "alarm"}); err == nil {
		t.Error("a parameter without a value: no error")
	}
}

// TestRun: every detector scores some series, and its measures are better than the measures of
// random scores on a plain incident.
func TestRun(t *testing.T) {
	m, err := newMeasurement(t.Context(), small())
	if err != nil {
		t.Fatal(err)
	}
	var series []labelled.Series
	for _, p := range []labelled.Pair{
		{Family: "white", Incident: "leak"}, {Family: "cycle-sine", Incident: "oscillation"},
	} {
		s, err := labelled.Make(1, p, 0)
		if err != nil {
			t.Fatal(err)
		}
		series = append(series, s)
	}
	random, err := m.run(guess(), series)
	if err != nil {
		t.Fatal(err)
	}
	detectors := append([]*detector{m.own, m.off, m.half}, m.others...)
	var all [][]result
	for _, d := range detectors {
		results, err := m.run(d, series)
		if err != nil {
			t.Fatal(err)
		}
		if got, chance := summarise(results), summarise(random); got.vus <= chance.vus && got.f1 <= chance.f1 {
			t.Errorf("%s: %+v, random scores %+v", d.name, got, chance)
		}
		all = append(all, results)
	}
	all = append(all, random)
	text := m.breakdown("family", append(detectors, guess()), all, func(s *labelled.Series) string { return s.Family })
	if strings.Count(text, "\n") != 4 || !strings.Contains(text, "| cycle-sine |") {
		t.Errorf("breakdown:\n%s", text)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	m.ctx = ctx
	if _, err := m.run(m.own, series); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}

// TestByAlarms: an alarm counts for a window up to slack rows behind it, and probation rows count
// for nothing.
func TestByAlarms(t *testing.T) {
	s, err := labelled.Make(1, labelled.Pair{Family: "white", Incident: "level"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	last := s.Windows[0].Last
	r := result{series: &s, alarms: []int{10, s.Windows[0].First, last + slack, last + slack + 1}}
	if found, outside := byAlarms(&r); found != 1 || outside != 1 {
		t.Errorf("%d found, %d outside", found, outside)
	}
}

func TestFill(t *testing.T) {
	doc := "a\n<!-- one -->\nold\n<!-- end of one -->\nb\n"
	got, rest, err := fill(doc, []block{{"one", "new\n"}, {"two", "other\n"}})
	if want := "a\n<!-- one -->\nnew\n<!-- end of one -->\nb\n"; err != nil || got != want {
		t.Errorf("%q, want %q: %v", got, want, err)
	}
	if len(rest) != 1 || rest[0].text != "other\n" {
		t.Errorf("blocks without a place: %v, want two", rest)
	}
	if _, _, err := fill("<!-- one -->\n", []block{{"one", ""}}); !errors.Is(err, errPlace) {
		t.Error(err)
	}
}

func TestDraw(t *testing.T) {
	text := draw("a & b", []line{
		{"x <1>", []measures.Point{{Found: 0.1, Outside: 0.001}, {Found: 0.5, Outside: 1}, {Found: 1, Outside: 10}}},
		{name: "empty"},
	})
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Count(text, "L") != 1 {
		t.Errorf("the line has another number of points than 2:\n%s", text)
	}
}

func TestSpread(t *testing.T) {
	for want, values := range map[string][]float64{"3.0": {3}, "2.0 ± 1.4": {1, 3}} {
		if got := spread(values, false); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got, want := spread([]float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, true), "5.0 (1.0 to 9.0)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestReport fills the document of the repository with small measurements.
func TestReport(t *testing.T) {
	testkit.OnlyLong(t)
	text, err := os.ReadFile("../../../docs/quality.md")
	if err != nil {
		t.Fatal(err)
	}
	o := small()
	o.opponents, o.doc, o.charts = false, filepath.Join(t.TempDir(), "quality.md"), t.TempDir()
	if err := os.WriteFile(o.doc, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report(t.Context(), o, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	filled, err := os.ReadFile(o.doc)
	if err != nil || string(filled) == string(text) {
		t.Errorf("the document is as before: %v", err)
	}
}
