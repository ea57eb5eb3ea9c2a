package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// TestLive: with --output - rows come while the run continues, and a reader that ends ends the run.
func TestLive(t *testing.T) {
	t.Parallel()
	for _, cluster := range []bool{false, true} {
		name := "one process"
		if cluster {
			name = "cluster"
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
			write(t, filepath.Join(dir, "in", "a.csv"), series(1, 50))
			// The source continues for a quarter of an hour: rows that come only at the end never
			// come.
			sources := write(t, filepath.Join(dir, "sources.json"),
				`[{"name":"s","uri":"watch:data/in","watch":{"polls":9000,"every_s":0.1,"renamed":true}}]`)
			args := []string{"run", "-f", spec, "--sources", sources, "--output", "-", "--progress", "none"}
			if cluster {
				args = append(args, "--nats", served(t, dir))
			} else {
				args = append(args, "--root", "data="+dir)
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatalf("os.Pipe: %v", err)
			}
			defer r.Close()
			defer w.Close()
			var log bytes.Buffer
			cmd := root()
			cmd.SetArgs(args)
			cmd.SetOut(w)
			cmd.SetErr(&log)
			done := make(chan int, 1)
			go func() { done <- command.Run(t.Context(), cmd, &log) }()
			lines := bufio.NewReader(r)
			for i := range 50 {
				line, err := lines.ReadString('\n')
				if err != nil || !strings.HasPrefix(line, `{"series":"s","row":`) {
					t.Fatalf("row %d: %q, %v", i+1, line, err)
				}
			}
			select {
			case code := <-done:
				t.Fatalf("the run is over with code %d before its source: %s", code, log.String())
			default:
			}
			_ = r.Close() // as head does
			later := strings.ReplaceAll(series(2, 50), "2026", "2027")
			if err := os.WriteFile(filepath.Join(dir, ".b"), []byte(later), 0o600); err != nil {
				t.Fatalf("os.WriteFile: %v", err)
			}
			if err := os.Rename(filepath.Join(dir, ".b"), filepath.Join(dir, "in", "b.csv")); err != nil {
				t.Fatalf("os.Rename: %v", err)
			}
			if code := <-done; code != 0 || !strings.Contains(log.String(), "standard output was closed by its "+
				"reader: the run ended early") {
				t.Errorf("exit %d: %s", code, log.String())
			}
		})
	}
}

// TestLiveRows: rows that come as they are decided are the rows of the output, each once.
func TestLiveRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	in := []string{
		write(t, filepath.Join(dir, "in", "a.csv"), series(1, 900)),
		write(t, filepath.Join(dir, "in", "b.csv"), series(2, 700)),
	}
	file := filepath.Join(dir, "out.ndjson")
	args := []string{
		"run", "-f", spec, "--input", in[0], "--input", in[1], "--batch-rows", "64", "--progress", "none",
		"--output",
	}
	if code, _, stderr := exec(t.Context(), t, append(args, file)...); code != 0 {
		t.Fatalf("a run into a file: exit %d, want 0: %s", code, stderr)
	}
	code, out, stderr := exec(t.Context(), t, append(args, "-")...)
	want, err := os.ReadFile(file)
	if code != 0 || err != nil {
		t.Fatalf("exit %d, %v: %s", code, err, stderr)
	}
	sorted := func(text string) []string {
		lines := strings.Split(text, "\n")
		slices.Sort(lines)
		return lines
	}
	if out == string(want) || !slices.Equal(sorted(out), sorted(string(want))) {
		t.Errorf("%d lines came live, %d are in the output; in one order: %v", strings.Count(out, "\n"),
			bytes.Count(want, []byte("\n")), out == string(want))
	}
}
