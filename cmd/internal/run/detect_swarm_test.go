package run

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestHalfMadeSwarm: a process that was killed while it made the logs of the shards leaves a folder
// that the next one uses.
func TestHalfMadeSwarm(t *testing.T) {
	dir := t.TempDir()
	spec, out := filepath.Join(dir, "swarm.yaml"), filepath.Join(dir, "out.ndjson")
	if err := os.WriteFile(spec, []byte("name: d\nkey: id\nagents_per_group: 16\nmax_entities: 9\nshards: 3\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	run := func(text string) {
		t.Helper()
		if err := runDetector(t.Context(), detectOptions{
			In: strings.NewReader(text), Out: io.Discard, Err: io.Discard, Log: slog.New(slog.DiscardHandler),
			All: true, SpecFile: spec, DataDir: filepath.Join(dir, "data"), Output: out, MaxRejects: 1,
		}); err != nil {
			t.Fatalf("Run: %v", err)
		}
	}
	run("timestamp,value,id\n")
	conn, client, end, err := start(t.Context(), filepath.Join(dir, "data"), io.Discard, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	all, err := client.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("the folder has %d swarms: %v", len(all), err)
	}
	if err := conn.Swarms.Log(all[0].Swarm.Key(), 2, swarms.In).Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	run("timestamp,value,id\n1,1,a\n2,1,b\n3,1,c\n")
	if text, err := os.ReadFile(out); err != nil || strings.Count(string(text), "\n") != 3 {
		t.Errorf("the output is %s, %v, want 3 decisions", text, err)
	}
}
