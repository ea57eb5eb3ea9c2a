package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/report"
)

// TestLabels: a run with labels says what it found of them in its table, in JSON and in the report;
// bad labels end it before any work.
func TestLabels(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	var text strings.Builder
	text.WriteString("timestamp,value\n")
	for i := range 600 {
		v := math.Sin(float64(i) / 10)
		if i == 500 {
			v = 1000
		}
		fmt.Fprintf(&text, "%d,%g\n", 1_700_000_000+60*i, v)
	}
	in := write(t, filepath.Join(dir, "a.csv"), text.String())
	out, page, file := filepath.Join(dir, "out.ndjson"), filepath.Join(dir, "report.html"),
		filepath.Join(dir, "labels.json")
	run := func(labels string, more ...string) (code int, stdout, stderr string) {
		t.Helper()
		write(t, file, labels)
		return exec(t.Context(), t, append([]string{"run", "-f", spec, "--input", in, "--labels", file}, more...)...)
	}
	const whole = `[{"series":"a.csv","what":"all of it","begin":"2000-01-01","end":"2100-01-01"},` +
		`{"begin":"1999-01-01","end":"1999-01-02"}]`
	code, stdout, stderr := run(whole, "--output", out, "--report", page, "--progress", "json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	alarms := uint64(0)
	for _, d := range readDecisions(t, out) {
		if d.Decision == "anomalous" {
			alarms++
		}
	}
	if alarms == 0 {
		t.Fatal("the series has no alarm")
	}
	const want = "1 of 2 labelled incidents found, 0 alarms outside"
	if !strings.Contains(stdout, want) {
		t.Errorf("no %q in\n%s", want, stdout)
	}
	html, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(html), want) || !strings.Contains(string(html), `"what":"all of it"`) {
		t.Errorf("the report does not show the labels: %v", err)
	}
	var last struct{ Labels *report.Outcome }
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Labels == nil {
		t.Fatalf("the last line has no labels, error %v: %s", err, stderr)
	}
	if o := last.Labels; o.Labels != 2 || o.Found != 1 || o.Outside != 0 || o.Each[0].Alarms != alarms ||
		o.Each[1].Found {
		t.Errorf("%d alarms: %+v", alarms, o)
	}

	refused := filepath.Join(dir, "refused.ndjson")
	for labels, want := range map[string]string{
		"[\n{\"begin\":\"soon\"}]": "labels.json: line 2: label 1: begin: its " +
			"timestamp \"soon\" is not a time",
		`[{"series":"b.csv","begin":"2026-01-01","end":"2026-01-02"}]`: "labels.json: label 1: the input has no " +
			"series b.csv",
	} {
		code, _, stderr := run(labels, "--output", refused)
		if _, err := os.Stat(refused); code != 2 || !strings.Contains(stderr, want) || err == nil {
			t.Errorf("%s: exit %d: %s", labels, code, stderr)
		}
	}
	if code, _, stderr := run(whole, "--output", filepath.Join(dir, "out.csv")); code != 2 ||
		!strings.Contains(stderr, "plain NDJSON") {
		t.Errorf("--output out.csv: exit %d: %s", code, stderr)
	}
}
