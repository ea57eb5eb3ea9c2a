package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestGroupSwarmShards: commands print the same for a swarm of three shards whose groups are
// addressed as for one with one shard, and a snapshot of it makes a swarm of two shards.
func TestGroupSwarmShards(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := jobstest.Start(t, server.Options{})
	kept := t.TempDir()
	defer hostAgent(t, s.URL(), kept)()
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		return expect(t, want, append(args, "--nats", s.URL(), "--timeout=5m")...)
	}
	const groups = 8
	create := func(name string, shards int, more ...string) {
		t.Helper()
		spec := write(t, filepath.Join(dir, name+".yaml"), fmt.Sprintf("name: %s\ngroups: %d\nshards: %d\n"+
			"agents_per_group: 8\ncell: {kind: predictor}\n", name, groups, shards))
		run(0, append([]string{"swarm", "create", "-f", spec}, more...)...)
	}
	both := func(a, b string, args ...string) {
		t.Helper()
		one, other := append([]string{}, args...), append([]string{}, args...)
		one[1], other[1] = a, b
		want, _ := run(0, append([]string{"swarm"}, one...)...)
		got, _ := run(0, append([]string{"swarm"}, other...)...)
		if got != want || got == "" {
			t.Fatalf("%s: %s prints\n%s\n%s prints\n%s", args[0], b, got, a, want)
		}
	}
	observe := func(a, b string, from int) {
		t.Helper()
		rows := &strings.Builder{}
		rows.WriteString("group,timestamp,value\n")
		r := rand.New(rand.NewPCG(uint64(from), 1))
		for i := range 200 {
			fmt.Fprintf(rows, "%d,%d,%d.5\n", r.IntN(groups), from+i, r.IntN(9))
		}
		both(a, b, "observe", "", "--input", write(t, filepath.Join(dir, "rows.csv"), rows.String()), "-o", "jsonl")
	}
	ask := func(a, b string) {
		t.Helper()
		both(a, b, "query", "", "--groups", "5,0-4,6-7", "-o", "jsonl")
		both(a, b, "query", "", "--agents", "60-63,0-20", "-o", "jsonl")
		both(a, b, "fuse", "", "--by", "group", "-o", "jsonl")
		both(a, b, "compute", "", "count(group > 2) by group", "-o", "jsonl")
	}
	create("one", 1)
	create("three", 3)
	observe("one", "three", 1000)
	ask("one", "three")
	run(0, "swarm", "snapshot", "three", "--name", "kept")
	create("two", 2, "--from", "kept", "--snapshots", kept)
	ask("three", "two")
	observe("one", "two", 2000)
	ask("one", "two")
	code, list, _ := exec(t.Context(), t, "swarm", "list", "-o", "json", "--nats", s.URL())
	if code != 0 || strings.Count(list, `"agent"`) < 6 {
		t.Errorf("the list does not have a holder for each of 6 shards:\n%s", list)
	}
	_, refusal := run(2, "swarm", "query", "three", "--groups", "8")
	if !strings.Contains(refusal, "group 8 of 8") {
		t.Errorf("a group that does not exist: %s", refusal)
	}
}

// TestRunShards: a run over several shards writes the bytes of one with one shard, and says how
// many shards there may be.
func TestRunShards(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rows := &strings.Builder{}
	rows.WriteString("id,timestamp,value\n")
	r := rand.New(rand.NewPCG(4, 1))
	for i := range 600 {
		fmt.Fprintf(rows, "d%d,%d,%d.5\n", r.IntN(20), 1000+i, r.IntN(9))
	}
	input := write(t, filepath.Join(dir, "in", "rows.csv"), rows.String())
	run := func(name, spec string) (code int, output, errs string) {
		t.Helper()
		out := filepath.Join(dir, name+".ndjson")
		code, _, errs = exec(t.Context(), t, "run", "-f", write(t, filepath.Join(dir, name+".yaml"), "name: x\n"+
			"agents_per_group: 8\n"+spec), "--input", input, "--output", out, "--report", "", "--progress", "none")
		if code == 0 {
			data, err := os.ReadFile(out)
			if err != nil {
				t.Fatalf("os.ReadFile: %v", err)
			}
			output = string(data)
		}
		return code, output, errs
	}
	code, want, errs := run("one", "key: id\nmax_entities: 50\n")
	if code != 0 || strings.Count(want, "\n") != 600 {
		t.Fatalf("one shard: exit %d, %d lines\n%s", code, strings.Count(want, "\n"), errs)
	}
	if code, got, errs := run("three", "key: id\nmax_entities: 50\nshards: 3\n"); code != 0 || got != want {
		t.Errorf("three shards: exit %d, %d lines that differ from one shard\n%s", code, strings.Count(got, "\n"),
			errs)
	}
	evicts := "key: id\nmax_entities: 18\nevict_after: 24h\n"
	if code, got, errs := run("evicts", evicts); code != 0 || got != want {
		t.Errorf("18 groups for 20 entities: exit %d, %d lines that are not those with a group for each\n%s", code,
			strings.Count(got, "\n"), errs)
	}
	if code, _, errs := run("many", "shards: 2\n"); code == 0 || !strings.Contains(errs, "use at most as many shards") {
		t.Errorf("two shards for one series: exit %d\n%s", code, errs)
	}
}
