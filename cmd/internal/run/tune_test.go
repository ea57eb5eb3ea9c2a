package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/evaluation"
)

// execute runs the command, and returns its exit code and its outputs.
func execute(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	cmd := Tune()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = command.Run(context.Background(), cmd, &errs)
	return code, out.String(), errs.String()
}

// data writes two generated series with a key, their labels and a specification.
func data(t *testing.T) (spec, input, labels string) {
	t.Helper()
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("timestamp,device,value\n")
	var marks []map[string]string
	const rows, first, last = 2000, 1500, 1530 // of ten minutes; the incident is a higher level
	at := func(row int) string {
		return time.Unix(0, 0).UTC().Add(time.Duration(row) * 10 * time.Minute).Format(time.RFC3339)
	}
	for i := range 2 {
		r := rand.New(rand.NewPCG(500, uint64(i)))
		for row := range rows {
			value := 20 + r.NormFloat64()
			if row >= first && row <= last {
				value += 8
			}
			fmt.Fprintf(&text, "%s,d%d,%v\n", at(row), i, value)
		}
		marks = append(marks, map[string]string{"series": fmt.Sprint("d", i), "begin": at(first), "end": at(last)})
	}
	list, err := json.Marshal(marks)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("spec.yaml", "# Devices.\nname: devices\nkey: device\nagents_per_group: 16\n"),
		write("rows.csv", text.String()), write("labels.json", string(list))
}

// TestTune: the command writes a valid proposal with the comments of the specification, and prints
// the split and what was measured.
func TestTune(t *testing.T) {
	if testing.Short() {
		t.Skip("cells are slow under the race detector")
	}
	spec, input, labels := data(t)
	output := filepath.Join(t.TempDir(), "tuned.yaml")
	code, stdout, stderr := execute("-f", spec, "--input", input, "--labels", labels, "--split", "entity",
		"-o", output)
	if code != 0 || stdout != "" {
		t.Fatalf("%d %s %s", code, stdout, stderr)
	}
	for _, want := range []string{
		"by entity: chosen on 1 entities, judged on 1 others: d", "tried ", "before ", "proposed ", "F1",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in\n%s", want, stderr)
		}
	}
	text, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	got, err := swarm.Parse(output, text)
	if err != nil || !strings.HasPrefix(string(text), "# Devices.\n") || got.Cell.Params["alarm"] == 0 {
		t.Errorf("the proposal is %s: %v", text, err)
	}
	if code, _, stderr = execute("-f", spec, "--input", input, "--labels", labels, "-o", output); code != 2 ||
		!strings.Contains(stderr, "exists") {
		t.Errorf("over an existing file: %d %s", code, stderr)
	}
	code, stdout, stderr = execute("-f", spec, "--input", input, "--alarms-per-day", "1", "--format", "json")
	var r evaluation.TuneResult
	if err := json.Unmarshal([]byte(stderr), &r); code != 0 || err != nil || r.Chosen.Agents != 16 ||
		!strings.HasPrefix(r.Split, "by time") || !strings.Contains(stdout, fmt.Sprint("alarm: ", r.Chosen.Alarm)) {
		t.Errorf("%d %s %s: %v", code, stdout, stderr, err)
	}
}

// TestMistakes: a wrong command line is exit code 2, with a cure.
func TestMistakes(t *testing.T) {
	spec, input, labels := data(t)
	gru := filepath.Join(t.TempDir(), "gru.yaml")
	if err := os.WriteFile(gru, []byte("name: x\ncell: {kind: gru}\nvote: {candidates: [a, b]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--input", input}, "-f is missing"},
		{[]string{"-f", spec}, "--input is missing"},
		{[]string{"-f", spec, "--input", input}, "--labels or --alarms-per-day"},
		{[]string{"-f", spec, "--input", input, "--labels", labels, "--alarms-per-day", "1"}, "one of the two"},
		{[]string{"-f", spec, "--input", input, "--alarms-per-day", "-1"}, "more than 0"},
		{[]string{"-f", spec, "--input", input, "--labels", labels, "--share", "2"}, "share 2"},
		{[]string{"-f", spec, "--input", input, "--labels", input}, "labels"},
		{[]string{"-f", gru, "--input", input, "--labels", labels}, "gru"},
		{[]string{"-f", spec, "--input", input + ".gone", "--labels", labels}, "gone"},
	} {
		code, _, stderr := execute(c.args...)
		if code != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: %d %s, want %q", c.args, code, stderr, c.want)
		}
	}
}
