package swarm

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
)

// call executes a command of exoswarm spec.
func call(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := Specs()
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetIn(strings.NewReader(""))
	err = c.ExecuteContext(context.WithoutCancel(t.Context()))
	return stdout.String(), stderr.String(), err
}

func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCommands: a proposal for a sample is a valid specification, which explain fills in.
func TestCommands(t *testing.T) {
	rows := written(t, "room.csv", "time;host;load\n2026-01-01;a;1,5\n2026-01-02;a;2,5\n2026-01-02;b;3,5\n")
	out, errs, err := call(t, "init", "--sample", rows)
	if err != nil || !strings.Contains(out, "name: room ") || !strings.Contains(errs, "3 rows read, 0 rejected") {
		t.Errorf("init: %v\n%s%s", err, out, errs)
	}
	file := filepath.Join(t.TempDir(), "swarm.yaml")
	if _, _, err := call(t, "init", "--sample", rows, "--name", "other", "--no-key", "-o", file); err != nil {
		t.Fatal(err)
	}
	out, _, err = call(t, "validate", file)
	if err != nil || !strings.Contains(out, "valid: swarm other, 256 agents of the cell predictor a group") {
		t.Errorf("validate: %v, %s", err, out)
	}
	out, _, err = call(t, "explain", file)
	if err != nil || !strings.Contains(out, "page_size: 2MiB                    # default\n") ||
		!strings.Contains(out, "timestamp: time\n") || !strings.Contains(out, "# A page of 2MiB holds") {
		t.Errorf("explain: %v, %s", err, out)
	}
	if out, _, err = call(t, "schema"); err != nil || !strings.HasPrefix(out, "{\n  \"$schema\"") {
		t.Errorf("schema: %v, %s", err, out)
	}
	if out, _, err = call(t, "keys", "vote"); err != nil || !strings.Contains(out, "\nvote.rule: `plurality`, ") {
		t.Errorf("keys: %v, %s", err, out)
	}
	_, _, err = call(t, "keys", "vot")
	if err == nil || !strings.Contains(err.Error(), "exoswarm spec keys lists all") {
		t.Errorf("keys of none: %v", err)
	}
}

// TestBad: each wrong use has a sentence with a cure, and replaces no file.
func TestBad(t *testing.T) {
	rows := written(t, "a.csv", "time,value\n2026-01-01,1\n")
	there := written(t, "there.yaml", "name: there\n")
	wrong := written(t, "wrong.yaml", "name: x\nfeature: [a]\n")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"give a file of rows with --sample", []string{"init"}},
		{"contradict each other", []string{"init", "--sample", rows, "--key", "a", "--no-key"}},
		{"exists: give another --output", []string{"init", "--sample", rows, "-o", there}},
		{"no such file or directory", []string{"init", "--sample", rows, "-o", filepath.Join(there+"x", "y")}},
		{"no such file", []string{"init", "--sample", rows + "x"}},
		{`wrong.yaml:2: unknown key "feature": did you mean "features"?`, []string{"validate", there, wrong}},
		{"there.yamlx: no such file or directory: check the path", []string{"validate", there + "x"}},
		{"wrong.yaml:2", []string{"explain", wrong}},
	} {
		if _, _, err := call(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want one with %q", c.args, err, c.want)
		}
	}
	if text, err := os.ReadFile(there); err != nil || string(text) != "name: there\n" {
		t.Errorf("a file that exists is changed to %q, %v", text, err)
	}
}

// TestAsk: answers make a specification, and empty answers take what is proposed.
func TestAsk(t *testing.T) {
	var c userfile.SpecChoice
	if err := ask(strings.NewReader("plant\n\na, b\ndevice_id\n"), &bytes.Buffer{}, &c); err != nil {
		t.Fatal(err)
	}
	s, err := swarm.Parse("answers", []byte(userfile.SpecText(c)))
	if err != nil || s.Name != "plant" || s.Timestamp != "timestamp" || len(s.Features) != 2 ||
		s.Key[0] != "device_id" {
		t.Errorf("the answers make %+v, %v", s, err)
	}
	if err := ask(strings.NewReader("plant\n"), &bytes.Buffer{}, &userfile.SpecChoice{}); err == nil {
		t.Error("no answer is taken")
	}
}
