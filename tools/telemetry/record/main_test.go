//go:build linux

package main

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestMain is the program of a role where start runs this binary.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		work(role, os.Stdin, os.TempDir())
		return
	}
	goleak.VerifyTestMain(m)
}

// TestRecord records for six seconds: every incident of the plan has its label, the rows are there,
// and the service uses next to nothing while it hangs.
func TestRecord(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	const length, period = 24 * time.Second, 100 * time.Millisecond
	if err := record(t.Context(), self, out, length/4, period); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(out, "recorded.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 30 || len(rows[0]) != 1+len(columns) {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	for column, name := range rows[0][1:] {
		sum := 0.0
		for _, row := range rows[1:] {
			v, err := strconv.ParseFloat(row[column+1], 64)
			if err != nil || v < 0 {
				t.Fatalf("%s: %v: %v", name, v, err)
			}
			sum += v
		}
		if sum == 0 {
			t.Errorf("%s is always 0", name)
		}
	}
	text, err := os.ReadFile(filepath.Join(out, "incidents.json"))
	if err != nil {
		t.Fatal(err)
	}
	var labels []label
	if err := json.Unmarshal(text, &labels); err != nil {
		t.Fatal(err)
	}
	if _, err := report.ParseLabels(text); err != nil {
		t.Error(err)
	}
	found := map[string]bool{}
	for _, l := range labels {
		found[l.What] = true
	}
	for _, e := range plan(length) {
		if !found[e.what] {
			t.Errorf("no label of %q in %d rows", e.what, len(rows))
		}
	}
}

// TestHang: a program that is stopped uses no CPU time, and goes on afterwards.
func TestHang(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := start(self, "service")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}()
	used := func(command string) time.Duration {
		t.Helper()
		if err := p.do(command); err != nil {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond) // until the signal has arrived
		before, err := p.usage()
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(500 * time.Millisecond) // the time that is measured
		after, err := p.usage()
		if err != nil {
			t.Fatal(err)
		}
		return after.cpu - before.cpu
	}
	runs := func(command string) { // until it has used 10 ms
		t.Helper()
		var sum time.Duration
		for end := time.Now().Add(2 * time.Minute); sum < 10*time.Millisecond; {
			if sum += used(command); time.Now().After(end) {
				t.Fatalf("%s: used %v in two minutes", command, sum)
			}
		}
	}
	runs("loop 30")
	if hanging := used("STOP"); hanging > time.Millisecond {
		t.Errorf("used %v while it hung", hanging)
	}
	runs("CONT")
}

// TestPlan: incidents come after a quarter of the recording, and incidents of a series do not
// overlap.
func TestPlan(t *testing.T) {
	ends := map[string]time.Duration{}
	for _, e := range plan(fullPlan) {
		if e.begin < fullPlan/4 || e.end <= e.begin || e.end > fullPlan {
			t.Errorf("%s: %v to %v", e.what, e.begin, e.end)
		}
		for _, series := range e.series {
			if e.begin <= ends[series] {
				t.Errorf("%s begins at %v, and the one before in %s ends at %v", e.what, e.begin, series, ends[series])
			}
			ends[series] = e.end
		}
	}
}
