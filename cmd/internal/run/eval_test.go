package run

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/evaluation"
)

const (
	decisions = `{"series":"a","timestamp":"2026-01-01","score":0.1,"decision":"normal"}` + "\n" +
		`{"series":"a","timestamp":"2026-01-02","score":0.9,"decision":"anomalous"}` + "\n"
	labels = `[{"series":"a","begin":"2026-01-02","end":"2026-01-03"}]`
)

// TestCommand: files, packed files and standard input are measured alike, and wrong uses are
// refused with a sentence.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	call := func(stdin string, args ...string) (string, error) {
		var out bytes.Buffer
		c := Evaluate()
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetArgs(args)
		c.SetOut(&out)
		c.SetErr(&out)
		c.SetIn(strings.NewReader(stdin))
		err := c.ExecuteContext(context.WithoutCancel(t.Context()))
		return out.String(), err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(decisions)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	of, plain := write("labels.json", labels), write("d.ndjson", decisions)
	for _, file := range []string{plain, write("d.ndjson.gz", packed.String()), "-"} {
		out, err := call(decisions, "--labels", of, file)
		if err != nil || !strings.Contains(out, "precision 1.00, recall 1.00, F1 1.00") {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
	out, err := call("", "--labels", of, "--format", "json", plain)
	var r evaluation.Result
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || r.All.Found != 1 || len(r.Labels) != 1 {
		t.Errorf("as JSON: %v, %s", err, out)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"with --labels", []string{plain}},
		{"check --labels", []string{"--labels", plain + "x", plain}},
		{"line 1", []string{"--labels", plain, plain}},
		{"use table or json", []string{"--labels", of, "--format", "yaml", plain}},
		{"no such file", []string{"--labels", of, plain + "x.ndjson"}},
		{"decisions are read as NDJSON", []string{"--labels", of, "d.parquet"}},
		{`no member "id"`, []string{"--labels", of, "--key", "id", plain}},
	} {
		if _, err := call("", c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want one with %q", c.args, err, c.want)
		}
	}
}
