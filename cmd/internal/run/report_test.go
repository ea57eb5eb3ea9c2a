package run

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runReport runs the command. The code of an error is 2, and its text is behind the output.
func runReport(t *testing.T, stdin string, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	cmd := Report()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		return 2, b.String() + err.Error()
	}
	return 0, b.String()
}

// TestReport: the page of decisions has the entities, the features, the incidents and the labels of
// a file, also from standard input; what is no output of a run is an error with the line.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	for i := range 300 {
		decision := "normal"
		switch i {
		case 100:
			decision = "anomalous"
		case 102:
			decision = "suspicious"
		}
		fmt.Fprintf(&text, `{"site":"a","id":"%d","row":%d,"timestamp":"%d","load":%d,"temp":null,"score":0.5,`+
			`"decision":%q,"round":1,"counts":{"normal":1},"leader":0,"expected":{"load":1},"low":{"load":0},`+
			`"high":{"load":%d}}`+"\n", i%2, i, 1_700_000_000+60*i, i%5, decision, 2+i%2)
	}
	file := filepath.Join(dir, "decisions.ndjson")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	labels := filepath.Join(dir, "labels.json")
	if err := os.WriteFile(labels, []byte(`[{"begin":"1700006000","end":"1700006000"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out := runReport(t, "", file, "--labels", labels)
	page, err := os.ReadFile(filepath.Join(dir, "decisions.html"))
	if code != 0 || err != nil || !strings.Contains(out, "300 decisions, 1 anomaly") {
		t.Fatalf("code %d, %v: %s", code, err, out)
	}
	for _, want := range []string{
		`FEATURES = ["load","temp"]`, `"n":"a, 0"`, `"i":[[1700006000,1700006120]]`, "1 of 1 labelled incidents found",
		`"low":[[`, "<title>decisions - Exoswarm report</title>",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	code, out = runReport(t, text.String(), "-", "--output", "-", "--labels", labels, "--title", "decisions")
	if code != 0 || out != string(page) {
		t.Errorf("from standard input: code %d, %d bytes, want %d", code, len(out), len(page))
	}
	for input, want := range map[string]string{
		"":                             "the input is empty",
		"timestamp,value\n":            "line 1: it is no object of JSON",
		`{"a":1}` + "\n":               "line 1: its members are not the members of a decision",
		text.String() + "{\"site\":\n": "line 301",
	} {
		if code, out := runReport(t, input, "-", "--output", "-"); code != 2 || !strings.Contains(out, want) {
			t.Errorf("%.20q: code %d, %s, want 2 and %q", input, code, out, want)
		}
	}
	if code, out := runReport(t, "", "d.parquet"); code != 2 || !strings.Contains(out, "read as NDJSON") {
		t.Errorf("Parquet: code %d, %s", code, out)
	}
}
