package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestFormats: decisions go out in every format, come back as a source, and the swarm decides the
// same, byte for byte.
func TestFormats(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	first := write(t, filepath.Join(dir, "first.csv"), series(1, 900))
	run := func(in, out string) []byte {
		t.Helper()
		if code, _, stderr := exec(t.Context(), t, "run", "-f", spec, "--input", in, "--output", out,
			"--strict"); code != 0 {
			t.Fatalf("%s to %s: exit %d: %s", in, out, code, stderr)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatalf("os.ReadFile: %v", err)
		}
		return data
	}
	// Every series is called the same, as every folder has one file of it.
	name := func(format string) string { return filepath.Join(dir, format, "s."+format) }
	strip := func(data []byte, format string) string {
		return strings.ReplaceAll(string(data), `"series":"s.`+format+`"`, `"series":"s"`)
	}
	var want string
	formats := []string{"csv", "parquet", "jsonl.gz", "ndjson", "csv.zst", "arrow", "feather.gz"}
	for _, format := range formats[:testkit.Of(7, 3)] {
		if err := os.Mkdir(filepath.Join(dir, format), 0o755); err != nil {
			t.Fatalf("os.Mkdir: %v", err)
		}
		data := run(first, name(format))
		if again := run(first, name(format)); !bytes.Equal(data, again) {
			t.Errorf("%s: a second run writes other bytes", format)
		}
		// The folder as input: the list of rejects in the folder is no series.
		got := strip(run(filepath.Join(dir, format), filepath.Join(dir, "d.ndjson")), format)
		if want == "" {
			want = got
		}
		if got != want || strings.Count(got, "\n") != 900 {
			t.Errorf("%s: other decisions (%d lines)", format, strings.Count(got, "\n"))
		}
	}
}

// TestOutputInInput: a run may write into the folder that it reads, and does not read its own
// output the next time.
func TestOutputInInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	write(t, filepath.Join(dir, "in", "a.csv"), series(1, 50))
	out := filepath.Join(dir, "in", "d.ndjson")
	for range 2 {
		if code, stdout, stderr := exec(t.Context(), t, "run", "-f", spec, "--input", filepath.Join(dir, "in"),
			"--output", out); code != 0 || !strings.Contains(stdout, "1 series, 50 observations") {
			t.Fatalf("exit %d: %s%s", code, stdout, stderr)
		}
	}
	if code, _, stderr := exec(t.Context(), t, "run", "-f", spec, "--input", out, "--output", out); code != 2 ||
		!strings.Contains(stderr, "name another --output") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// TestSources: a run in this process polls a source, reads a file, and tells a webhook.
func TestSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	file := write(t, filepath.Join(dir, "b.csv"), series(1, 2000))
	var mu sync.Mutex
	var told bytes.Buffer
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, series(1, 2000))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&told, r.Body)
	}))
	defer srv.Close()
	sources := write(t, filepath.Join(dir, "sources.json"),
		`[{"name":"c","uri":"`+srv.URL+`/x.csv"},{"name":"a","uri":"`+srv.URL+
			`/x.csv","http":{"polls":2,"every_s":0.1}}]`)
	out := filepath.Join(dir, "d.ndjson")
	sinks := write(t, filepath.Join(dir, "sinks.json"), `[{"uri":"file:res/parts","anomalies":true}]`)
	args := []string{
		"run", "-f", spec, "--input", file, "--sources", sources, "--output", out, "--webhook", srv.URL,
		"--sinks", sinks, "--root", "res=" + dir,
	}
	if code, _, stderr := exec(t.Context(), t, args...); code != 2 || !strings.Contains(stderr, "--egress") {
		t.Fatalf("without an allow list: exit %d: %s", code, stderr)
	}
	if code, stdout, stderr := exec(t.Context(), t,
		append(args, "--egress", srv.Listener.Addr().String())...); code != 0 ||
		!strings.Contains(stdout, "3 series, 6000 observations") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	by := map[string]string{}
	anomalies := 0
	for _, d := range readDecisions(t, out) {
		if d.Decision == "anomalous" {
			anomalies++
		}
		name := d.Series
		d.Series, d.Leader = "", nil
		by[name] += fmt.Sprint(d)
	}
	if len(by) != 3 || by["a"] != by["c"] || by["a"] != by["b.csv"] {
		t.Error("the same rows are decided in other ways")
	}
	if n := bytes.Count(told.Bytes(), []byte("\n")); n != anomalies || n == 0 {
		t.Errorf("the webhook was told of %d anomalies of %d", n, anomalies)
	}
	if parts, err := filepath.Glob(filepath.Join(dir, "parts", "*.ndjson")); err != nil || len(parts) != 1 ||
		len(readDecisions(t, parts[0])) != anomalies {
		t.Errorf("%v %v, want %d anomalies in one", parts, err, anomalies)
	}
	if code, _, stderr := exec(t.Context(), t, "run", "-f", spec, "--input", file, "--sinks", spec, "--output",
		out); code != 2 || !strings.Contains(stderr, "--sinks") {
		t.Errorf("sinks that are none: exit %d: %s", code, stderr)
	}
	for name, text := range map[string]string{
		"no list": "{}", "no name": `[{"uri":"http://x"}]`,
		"a name twice": `[{"name":"b.csv","uri":"http://x"}]`, "unknown": `[{"name":"x","uri":"http://x","htpp":{}}]`,
	} {
		bad := write(t, filepath.Join(dir, "bad.json"), text)
		if code, _, stderr := exec(t.Context(), t, "run", "-f", spec, "--input", file, "--sources", bad, "--output",
			out); code != 2 || !strings.Contains(stderr, "--sources") {
			t.Errorf("%s: exit %d: %s", name, code, stderr)
		}
	}
}
