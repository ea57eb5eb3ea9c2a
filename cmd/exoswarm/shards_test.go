package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestShardsOfProcesses: two agent processes share the shards of a swarm, which answers as one of
// one shard, also after one of them was killed.
func TestShardsOfProcesses(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	const agents, group = 1400, 14
	bin := binaries(t)
	_, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	gpu := func() *process {
		p, _ := startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"), "--nats", url, "--data-dir",
			t.TempDir(), "--device", "host", "--lease-ttl", "1s")
		return p
	}
	first := gpu()
	gpu()
	run := func(args ...string) string {
		t.Helper()
		args = append([]string{"swarm"}, append(args, "--nats", url)...)
		if args[1] != "list" {
			args = append(args, "--timeout", "5m")
		}
		code, out, errs := exec(t.Context(), t, args...)
		if code != 0 {
			t.Fatalf("exoswarm %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
		return out
	}
	dir := t.TempDir()
	for name, shards := range map[string]int{"one": 1, "seven": 7} {
		run("create", "-f", write(t, filepath.Join(dir, name+".yaml"), fmt.Sprintf("name: %s\naddressed: agent\n"+
			"agents: %d\nagents_per_group: %d\nshards: %d\npage_size: 64KiB\nfeatures: [a, b]\n"+
			"vote: {candidates: [north, east, south], rule: majority}\nseed: 5\ncheckpoint: {interval: 100ms, "+
			"entries: 2}\n", name, agents, group, shards)))
	}
	both := func(args ...string) {
		t.Helper()
		one := append([]string{}, args...)
		args[1], one[1] = "seven", "one"
		if got, want := run(args...), run(one...); got != want {
			t.Fatalf("%s: seven shards say\n%s\none says\n%s", strings.Join(args, " "), got, want)
		}
	}
	observe := func(from int) {
		t.Helper()
		rows := &strings.Builder{}
		rows.WriteString("agent,a,b\n")
		for i := range agents / 2 { // of all shards, in no order, some twice
			fmt.Fprintf(rows, "%d,%d,%d.5\n", (from+i*37)%(agents-3), i%5-2, i%3-1)
		}
		both("observe", "", "--input", write(t, filepath.Join(dir, "rows.csv"), rows.String()), "-o", "jsonl")
	}
	ask := func(round int) {
		t.Helper()
		both("vote", "", "--rule", "quorum", "--quorum", "1/4", "--of", "all", "--round", fmt.Sprint(round),
			"-o", "jsonl")
		both("query", "", "--agents", fmt.Sprintf("%d-%d,0-%d", agents/2, agents-1, agents/2-1), "-o", "jsonl")
		both("fuse", "", "--by", "group", "-o", "jsonl")
		both("compute", "", "mean(abs(hidden)) by group where vote == 1", "-o", "jsonl")
		both("compute", "", "n = count(hidden > 0); m = max(hidden); g = sum(group) where vote != 255", "-o", "json")
	}
	observe(0)
	ask(1)
	first.end(t, syscall.SIGKILL)
	observe(11)
	both("tick", "", "--count", "3", "-o", "json")
	ask(2)
	both("vote", "", "--priority", "seeded", "-o", "jsonl") // the third
	var list []struct {
		ID      string
		Holders []string
	}
	if err := json.Unmarshal([]byte(run("list", "-o", "json")), &list); err != nil {
		t.Fatalf("json.Unmarshal: %v", err)
	}
	for _, s := range list {
		if want := map[string]int{"one": 1, "seven": 7}[s.ID]; len(s.Holders) != want ||
			len(slices.Compact(append([]string{}, s.Holders...))) != 1 {
			t.Errorf("swarm %s is held by %q", s.ID, s.Holders)
		}
	}
}
