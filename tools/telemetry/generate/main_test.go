package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/internal/base/telemetry"
)

// TestGenerated: the generator makes the files of the example, its labels are valid, and no
// incident reaches into another of its series.
func TestGenerated(t *testing.T) {
	dir := t.TempDir()
	if err := generate(dir, 1); err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(telemetry.Files, "data/*.csv")
	if err != nil || len(names) != len(all) {
		t.Fatalf("%d series of %d: %v", len(names), len(all), err)
	}
	size := 0
	for _, name := range append(names, "incidents.json") {
		want, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := fs.ReadFile(telemetry.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not as generated: go run -C tools ./telemetry/generate", name)
		}
		size += len(got)
	}
	if size > 1_500_000 {
		t.Errorf("the example has %d bytes", size)
	}
	text, err := fs.ReadFile(telemetry.Files, "incidents.json")
	if err != nil {
		t.Fatal(err)
	}
	if labels, err := report.ParseLabels(text); err != nil || len(labels) < 5 {
		t.Errorf("%d labels: %v", len(labels), err)
	}
	for _, s := range all {
		for i, e := range s.incidents {
			if e.first() < 3*24*12 || e.last() >= rows || i > 0 && e.first() <= s.incidents[i-1].last() {
				t.Errorf("%s: %s: rows %d to %d", s.name, e.what, e.first(), e.last())
			}
		}
	}
}
