package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChart(t *testing.T) {
	dir := t.TempDir()
	ours, others, out := filepath.Join(dir, "ours"), filepath.Join(dir, "others"), filepath.Join(dir, "chart.svg")
	for path, text := range map[string]string{
		ours: `{"name": "a <b>", "n": 1000, "us": 99}` + "\n\n" +
			`{"name": "a <b>", "n": 100000000, "us": 30, "p99": 40}` + "\n" + `{"name": "a <b>", "n": 1000, "us": 9.5}`,
		others: `{"name": "c", "n": 1000, "us": 5}` + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(out, chart{title: "t & t", of: "<agents>"}, "", []string{ours, others}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	circles := 0
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := token.(xml.StartElement); ok && s.Name.Local == "circle" {
			circles++
		}
	}
	for _, want := range []string{"a &lt;b&gt;", "t &amp; t", "&lt;agents&gt;", "9.5 µs", ">1e8<"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the chart has no %q", want)
		}
	}
	if circles != 3 || strings.Contains(string(text), "99 µs") {
		t.Errorf("%d points, want 3: a later measurement replaces an earlier one", circles)
	}
	if err := run(out, chart{}, "", nil); err == nil {
		t.Error("a chart of no files")
	}
	for _, bad := range []string{"{", `{"name": "x", "n": 0, "us": 1}`, `{"name": "x", "n": 1}`, `{"n": 1, "us": 1}`} {
		if _, err := read(nil, "file", strings.NewReader("\n"+bad)); err == nil ||
			!strings.Contains(err.Error(), "file, line 2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := (chart{}).draw(nil); err == nil {
		t.Error("a chart of nothing")
	}
}
