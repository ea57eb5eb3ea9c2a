package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExplanations: a run with explain has expected values and causes, the same for other cuts into
// batches. --anomalies writes one record for each anomalous decision, also without an output, and
// the decisions of a run without explain are as before.
func TestExplanations(t *testing.T) {
	dir := t.TempDir()
	plain := write(t, filepath.Join(dir, "plain.yaml"), smallSpec)
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec+"explain: true\n")
	in := filepath.Join(dir, "in")
	write(t, filepath.Join(in, "a.csv"), series(1, 2000))
	write(t, filepath.Join(in, "b.csv"), series(2, 2000))
	run := func(args ...string) string {
		t.Helper()
		code, out, messages := exec(t.Context(), t, append([]string{"run", "--input", in, "--progress", "none"},
			args...)...)
		if code != 0 {
			t.Fatalf("run %v: code %d: %s", args, code, messages)
		}
		return out
	}
	text := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	run("-f", plain, "--output", filepath.Join(dir, "plain.ndjson"))
	run("-f", spec, "--output", filepath.Join(dir, "d.ndjson"), "--anomalies", filepath.Join(dir, "i.ndjson"))
	run("-f", spec, "--output", filepath.Join(dir, "cut.ndjson"), "--batch-rows", "37")
	streamed := run("-f", plain, "--anomalies", "-")
	run("-f", plain, "--anomalies", filepath.Join(dir, "i.csv"))

	if text("d.ndjson") != text("cut.ndjson") {
		t.Error("other batches give other explanations")
	}
	if streamed != text("i.ndjson") {
		t.Errorf("--anomalies - writes\n%s, and with an output it is\n%s", streamed, text("i.ndjson"))
	}
	type decision struct {
		Series, Timestamp, Decision, Feature, Direction, Kind string
		Value                                                 float64
		Expected, Low, High                                   map[string]*float64
	}
	begins, plainLines := []string{}, strings.Split(text("plain.ndjson"), "\n")
	for n, line := range strings.Split(strings.TrimSpace(text("d.ndjson")), "\n") {
		if before, _, _ := strings.Cut(line, `,"expected":`); before+"}" != plainLines[n] {
			t.Fatalf("line %d without its explanation is\n%s\nwant\n%s", n, before, plainLines[n])
		}
		var d decision
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("line %d: %v: %s", n, err, line)
		}
		if d.Decision != "anomalous" {
			continue
		}
		begins = append(begins, d.Series+d.Timestamp)
		if d.Value > 30 && (d.Feature != "value" || d.Direction != "above" || d.Kind != "point" ||
			*d.Expected["value"] < -3 || *d.High["value"] > 15) {
			t.Errorf("a spike is explained as %s", line)
		}
	}
	found := map[string]bool{}
	for line := range strings.Lines(text("i.ndjson")) {
		var in struct{ Series, Begin string }
		if err := json.Unmarshal([]byte(line), &in); err != nil {
			t.Fatal(err)
		}
		found[in.Series+in.Begin] = true
	}
	for _, at := range begins {
		if !found[at] {
			t.Errorf("no incident begins at %s", at)
		}
	}
	if len(begins) == 0 || len(found) != len(begins) || strings.Count(text("i.csv"), "\n") != len(found)+1 {
		t.Errorf("%d incidents, want one for each of %d anomalous decisions, and as many in CSV", len(found),
			len(begins))
	}

	one := filepath.Join(dir, "x.ndjson")
	for want, args := range map[string][]string{
		"name a file that ends with .ndjson or .csv": {"--anomalies", filepath.Join(dir, "x.parquet")},
		"name another file":                          {"--anomalies", one, "--output", one},
		"--report: it is made":                       {"--anomalies", one, "--report", filepath.Join(dir, "x.html")},
		"--output is missing":                        {},
	} {
		code, _, messages := exec(t.Context(), t, append([]string{"run", "-f", spec, "--input", in}, args...)...)
		if code != 2 || !strings.Contains(messages, want) {
			t.Errorf("run %v: code %d, %s, want 2 and %q", args, code, messages, want)
		}
	}
}
