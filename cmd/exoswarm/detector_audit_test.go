package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestDetectorAudit: the audit has who created, paused, resumed and deleted a detector, and a
// failure.
func TestDetectorAudit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := served(t, dir)
	spec := write(t, filepath.Join(dir, "swarm.yaml"), "name: plant\nagents_per_group: 16\n")
	sources := write(t, filepath.Join(dir, "sources.json"), `[{"name":"p","uri":"push:plant"}]`)
	sinks := write(t, filepath.Join(dir, "sinks.json"), `[{"uri":"file:data/out"}]`)
	create := []string{"detector", "create", "-f", spec, "--sources", sources, "--sinks", sinks}
	for i, args := range [][]string{
		create, create,
		{"detector", "pause", "plant"},
		{"detector", "resume", "plant"},
		{"detector", "delete", "plant", "--yes"},
	} {
		code, _, stderr := exec(t.Context(), t, append(args, "--nats", url)...)
		if (code == 0) != (i != 1) {
			t.Fatalf("%v: exit %d: %s", args, code, stderr)
		}
	}
	code, out, stderr := exec(t.Context(), t, "audit", "--nats", url)
	if code != 0 {
		t.Fatalf("audit: exit %d: %s", code, stderr)
	}
	var got []string
	for line := range strings.Lines(out) {
		for _, action := range []string{"create", "pause", "resume", "delete"} {
			if strings.Contains(line, "detector."+action) && strings.Contains(line, "plant") {
				what := action
				if strings.Contains(line, "failed") {
					what += " failed"
				}
				got = append(got, what)
			}
		}
	}
	if want := "delete, resume, pause, create failed, create"; strings.Join(got, ", ") != want {
		t.Errorf("the audit has %v, want %s:\n%s", got, want, out)
	}
}
