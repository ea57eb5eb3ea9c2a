package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// TestCSVDialects: files of another dialect are read as a user would name them, and a row that
// cannot be used is said with its file, its place and the reason.
func TestCSVDialects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), `name: meters
key: meter
agents_per_group: 16
max_entities: 50
csv: {delimiter: ";", decimal: ",", time: "02.01.2006 15:04", zone: Europe/Berlin}
`)
	header := "timestamp;value;meter\n"
	write(t, filepath.Join(dir, "in", "a.csv"), header+"01.03.2026 10:00;1,5;m1\n01.03.2026 10:00;2,5;m2\n")
	write(t, filepath.Join(dir, "in", "b.csv"), header+"01.03.2026 11:00;1,5;m1\n01.03.2026 11:01;1.5;m1\n"+
		"x;1,5;m2\n01.03.2026 11:02;1,5;\n29.03.2026 02:30;1,5;m3\n")
	write(t, filepath.Join(dir, "in", "notes.txt"), "no rows")
	run := func(stdin string, args ...string) (code int, out string, decisions string) {
		t.Helper()
		var all bytes.Buffer
		path := filepath.Join(t.TempDir(), "out.ndjson")
		cmd := root()
		cmd.SetArgs(append([]string{"run", "--output", path, "--nats", ""}, args...))
		cmd.SetIn(strings.NewReader(stdin))
		cmd.SetOut(&all)
		cmd.SetErr(&all)
		code = command.Run(context.Background(), cmd, &all)
		data, _ := os.ReadFile(path)
		return code, all.String(), string(data)
	}
	code, out, decisions := run("", "-f", spec, "--input", filepath.Join(dir, "in", "*.csv"))
	for _, want := range []string{
		"2 entities, 3 observations, 3 decisions, 0 anomalies, 4 rejected rows (1 without a key",
		`the first rejected row is of b.csv: row 2 (line 3): column "value": "1.5" has a point, and csv.decimal is a ` +
			`comma`,
		"b.csv: 4 of 5 rows are rejected, more than the share of 0.1 that --max-rejects allows; the most frequent " +
			"reason, of 1 rows, is: ",
	} {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("run of a pattern: exit code %d, %s\nwant %s", code, out, want)
		}
	}
	if !strings.Contains(decisions, `"meter":"m1","row":1,"timestamp":"2026-03-01T09:00:00Z","value":1.5`) {
		t.Errorf("the decisions are %s", decisions)
	}
	none := filepath.Join(dir, "none", "*.csv")
	if code, out, _ := run("", "-f", spec, "--input", none); code != 2 ||
		!strings.Contains(out, none+": no file matches it") {
		t.Errorf("run of a pattern without a match: exit code %d, %s", code, out)
	}
	// Without a header, from standard input.
	bare := write(t, filepath.Join(dir, "bare.yaml"), `name: meters
key: meter
agents_per_group: 16
csv: {delimiter: tab, header: false, names: [timestamp, value, meter], time: unix_s}
`)
	code, out, decisions = run("1700000000\t1\tm1\n1700000001\t2\tm1\n", "-f", bare, "--input", "-")
	if code != 0 || strings.Count(decisions, `"meter":"m1"`) != 2 {
		t.Errorf("run of standard input without a header: exit code %d, %s, %s", code, out, decisions)
	}
	// Rows that are newest first.
	falling := "timestamp,value,meter\n"
	for i := range 60 {
		falling += fmt.Sprintf("2026-03-01 10:%02d:00,1,m%d\n", 59-i, i%2)
	}
	newest := write(t, filepath.Join(dir, "newest.csv"), falling)
	nothing := write(t, filepath.Join(dir, "nothing.yaml"), "name: m\nkey: meter\nagents_per_group: 16\n")
	if code, out, decisions = run("", "-f", nothing, "--input", newest); code != 1 ||
		strings.Count(decisions, "\n") != 2 || !strings.Contains(out, "newest.csv: 58 of 60 rows are rejected") ||
		!strings.Contains(out, "its source is in falling order, newest first: sort it by time") {
		t.Errorf("run of falling rows: exit code %d, %s", code, out)
	}
	if code, out, _ = run("", "-f", nothing, "--input", newest, "--max-rejects", "1"); code != 0 {
		t.Errorf("run of falling rows that may be rejected: exit code %d, %s", code, out)
	}
	if code, out, _ = run("", "-f", nothing, "--input", newest, "--max-rejects", "2"); code != command.ExitUsage {
		t.Errorf("--max-rejects 2: exit code %d, %s", code, out)
	}
	// The dialect that is missing is named.
	plain := write(t, filepath.Join(dir, "plain.yaml"), "name: meters\nkey: meter\nagents_per_group: 16\n")
	if code, out, _ := run("", "-f", plain, "--input", filepath.Join(dir, "in", "a.csv")); code == 0 ||
		!strings.Contains(out, `set csv.delimiter: ";" and csv.decimal: ","`) {
		t.Errorf("run in the wrong dialect: exit code %d, %s", code, out)
	}
}
