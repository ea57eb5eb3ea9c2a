package main

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/simulate/cluster"
	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// TestPredictions: the measured runs are predicted about as well as docs/scale.md says. All 18 runs
// are predicted by test-long, two of them by every test.
func TestPredictions(t *testing.T) {
	stages, err := open("measured/stages.times")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := open("measured/runs.times")
	if err != nil {
		t.Fatal(err)
	}
	if !testkit.Long() {
		kept := runs.Series[:0]
		for _, s := range runs.Series {
			if s.Name == "run" && s.Keys["rows"] == 60_000 && s.Keys["shards"] < 4 && s.Keys["offered"] > 0 {
				kept = append(kept, s)
			}
		}
		runs.Series = kept
	}
	all, err := predict(stages, runs)
	if err != nil {
		t.Fatal(err)
	}
	rates, tails := 0, 0
	for _, p := range all {
		rate, _, p99 := p.off()
		if math.Abs(rate) > 0.30 || math.Abs(p99) > 1.25 {
			t.Errorf("%d shards of entries of %d rows, %v offered: off by %+.0f %% and %+.0f %%", p.shards, p.rows,
				p.offered, 100*rate, 100*p99)
		}
		okRate, okTail := p.within()
		rates, tails = rates+btoi(okRate), tails+btoi(okTail)
	}
	wantRates, wantTails := len(all), len(all)
	if testkit.Long() {
		wantRates, wantTails = 14, 12
	}
	if len(all) < 2 || rates < wantRates || tails < wantTails {
		t.Errorf("of %d predictions %d rates and %d tails are within their bounds, want %d and %d", len(all), rates,
			tails, wantRates, wantTails)
	}
}

// TestScenarios: all configurations are valid, and the configurations of a test are simulated and
// drawn.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("scenarios/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.Parse(name, text); err != nil {
			t.Error(err)
		}
	}
	var out strings.Builder
	dir := t.TempDir()
	small := filepath.Join(dir, "small.yaml")
	stages, err := filepath.Abs("measured/stages.times")
	if err != nil {
		t.Fatal(err)
	}
	if stages, err = filepath.Rel(dir, stages); err != nil {
		t.Fatal(err)
	}
	config := "name: small\ntimes: [" + stages + "]\nlength: 200ms\nshards: 1\nload: {rows: 1000, window: 4}\n" +
		"brokers: {count: 1, cores: 16}\nprices: {core: 1}\n" +
		"sweep: {key: shards, values: [1, 2], lines: {key: load.rows, values: [1000, 60000]}}\n"
	if err := os.WriteFile(small, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", "-charts", dir, small}
	if err := run(&out, args); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "### small\n\n| load.rows | shards | million rows/s | Gb/s |") ||
		strings.Count(out.String(), "\n| 60000 | ") != 2 || !strings.Contains(out.String(), "cost/h for a Gb/s |") {
		t.Errorf("the tables are\n%s", out.String())
	}
	svg, err := os.ReadFile(filepath.Join(dir, "scale-small.svg"))
	if err != nil || !strings.Contains(string(svg), "60000 rows") {
		t.Errorf("the chart: %v, %.200s", err, svg)
	}
}

// TestRunErrors: wrong commands and files are refused with what is wrong.
func TestRunErrors(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.times")
	if err := os.WriteFile(bad, []byte("nothing\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"run"}, {"validate", "a"}, {"other", "a"}} {
		if err := run(io.Discard, args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want errUsage", args, err)
		}
	}
	if err := run(io.Discard, []string{"validate", bad, bad}); !errors.Is(err, times.ErrInvalid) {
		t.Errorf("a wrong file: %v, want an ErrInvalid", err)
	}
	if err := run(io.Discard, []string{"run", "scenarios/none.yaml"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v, want os.ErrNotExist", err)
	}
}
