package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents"
)

// TestRunLate runs shuffled and repeated rows through a swarm under each policy, beside a plain
// walk over them that says which are dropped, and beside a run over the others alone.
func TestRunLate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(3, 3))
	const series, rows = 3, 400
	files := make([][][2]string, series) // time and value of each row
	for s := range files {
		at := 1_700_000_000
		for range rows {
			row := [2]string{fmt.Sprint(at - r.IntN(40)*r.IntN(2)), fmt.Sprintf("%.3f", r.NormFloat64())}
			if n := len(files[s]); n > 0 && r.IntN(5) == 0 {
				row[0] = files[s][n-1][0]
			}
			files[s] = append(files[s], row)
			at += 10
		}
	}
	for name, policy := range map[string]struct{ late, duplicate bool }{
		"both": {true, true}, "late": {true, false},
		"duplicate": {false, true}, "none": {false, false},
	} {
		own := filepath.Join(dir, name)
		word := map[bool]string{false: "apply", true: "drop"}
		spec := write(t, filepath.Join(own, "swarm.yaml"),
			smallSpec+"cell: {kind: leaky}\nobservations: {late: "+word[policy.late]+", duplicate: "+
				word[policy.duplicate]+"}\n")
		plain := write(t, filepath.Join(own, "plain.yaml"), smallSpec+"cell: {kind: leaky}\nobservations: {late: "+
			"apply}\n")
		var want [][]string // by series and row: why it is dropped
		wantSum := cpuagents.Dropped{}
		for s, file := range files {
			all, kept := strings.Builder{}, strings.Builder{}
			all.WriteString("timestamp,value\n")
			kept.WriteString("timestamp,value\n")
			latest, why := "", make([]string, rows)
			for i, row := range file {
				fmt.Fprintf(&all, "%s,%s\n", row[0], row[1])
				switch {
				case i > 0 && row[0] < latest && policy.late:
					why[i] = "late"
					wantSum.Late++
				case i > 0 && row[0] == latest && policy.duplicate:
					why[i] = "duplicate"
					wantSum.Duplicates++
				default:
					latest = max(latest, row[0])
					fmt.Fprintf(&kept, "%s,%s\n", row[0], row[1])
				}
			}
			want = append(want, why)
			write(t, filepath.Join(own, "all", fmt.Sprintf("%d.csv", s)), all.String())
			write(t, filepath.Join(own, "kept", fmt.Sprintf("%d.csv", s)), kept.String())
		}
		run := func(spec, in string) (out, stdout, stderr string) {
			out = filepath.Join(own, in+".ndjson")
			code, stdout, stderr := exec(t.Context(), t, "run", "-f", spec, "--input", filepath.Join(own, in),
				"--output", out, "--batch-rows", "37", "--progress", "json")
			if code != 0 {
				t.Fatalf("%s: exit %d: %s", name, code, stderr)
			}
			data, err := os.ReadFile(out)
			if err != nil {
				t.Fatalf("os.ReadFile: %v", err)
			}
			return string(data), stdout, stderr
		}
		got, stdout, stderr := run(spec, "all")
		alone, _, _ := run(plain, "kept")
		left := strings.Split(alone, "\n")
		lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		if len(lines) != series*rows {
			t.Fatalf("%s: %d lines", name, len(lines))
		}
		for i, line := range lines {
			s, row := i/rows, i%rows
			if why := want[s][row]; why != "" {
				if expect := fmt.Sprintf(`{"series":"%d.csv","row":%d,"timestamp":"%s","value":%s,"dropped":"%s"}`, s,
					row+1, files[s][row][0], number(t, files[s][row][1]), why); line != expect {
					t.Fatalf("%s: line %d is %s, want %s", name, i, line, expect)
				}
				continue
			}
			// The same but for the row's number.
			_, a, _ := strings.Cut(line, `,"timestamp"`)
			_, b, _ := strings.Cut(left[0], `,"timestamp"`)
			if left = left[1:]; a != b {
				t.Fatalf("%s: line %d is %s, without what is dropped %s", name, i, a, b)
			}
		}
		if note := wantSum.Note(); !strings.Contains(stdout, "rejected rows"+note+"\n") {
			t.Errorf("%s: no %q in %s", name, note, stdout)
		}
		var last cpuagents.StreamProgress
		for line := range bytes.Lines([]byte(stderr)) {
			if err := json.Unmarshal(line, &last); err != nil {
				t.Fatal(err, string(line))
			}
		}
		if last.Dropped != wantSum || last.Decisions+last.Sum() != series*rows {
			t.Errorf("%s: progress ends with %+v, want %+v", name, last, wantSum)
		}
	}
}

// number is text as JSON has it.
func number(t *testing.T, text string) string {
	t.Helper()
	var v float64
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("json.Unmarshal: %v", err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	return string(data)
}
