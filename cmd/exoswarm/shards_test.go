package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/bucket"
	"github.com/exoswarm/exoswarm/internal/testlong"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestShardsOfProcesses: two agent processes share the shards of a swarm, which answers as one of
// one shard, also after one of them was killed.
func TestShardsOfProcesses(t *testing.T) {
	testlong.Only(t)
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
			"--priority", "seeded", "-o", "jsonl")
		both("query", "", "--agents", fmt.Sprintf("%d-%d,0-%d", agents/2, agents-1, agents/2-1), "-o", "jsonl")
		both("fuse", "", "--by", "group", "-o", "jsonl")
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
		t.Fatal(err)
	}
	for _, s := range list {
		if want := map[string]int{"one": 1, "seven": 7}[s.ID]; len(s.Holders) != want ||
			len(slices.Compact(append([]string{}, s.Holders...))) != 1 {
			t.Errorf("swarm %s is held by %q", s.ID, s.Holders)
		}
	}
}

// TestShardsCommands: the life of a swarm of three shards as a user sees it, on a real server with
// a real agent.
func TestShardsCommands(t *testing.T) {
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		if args[0] == "swarm" {
			args = append(args, "--nats", s.URL())
			if args[1] != "delete" && args[1] != "list" && !slices.Contains(args, "--timeout") {
				args = append(args, "--timeout", "5m")
			}
		}
		code, stdout, stderr := exec(t.Context(), t, args...)
		if code != want {
			t.Fatalf("exoswarm %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, stdout, stderr)
		}
		return stdout, stderr
	}
	has := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
	}
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL(), Name: "agent"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	place := filepath.Join(t.TempDir(), "snapshots")
	kept, err := bucket.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	serve := func() *gpuagents.Agent {
		agent, err := gpuagents.Start(gpuagents.Options{
			Name: "agent", Device: dev, Queue: conn.Swarms, Snapshots: kept,
			Logger: slog.New(slog.DiscardHandler), LeaseTTL: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		return agent
	}
	agent := serve()
	defer func() { agent.Stop() }()
	text := "name: few\naddressed: agent\nagents: 1000\nagents_per_group: 10\nshards: 3\npage_size: 64KiB\n" +
		"features: [current, gain]\ncell: {kind: leaky}\n"
	spec := write(t, filepath.Join(t.TempDir(), "spec.yaml"), text) // agents 0 to 329, 330 to 659 and 660 to 999
	_, errs := run(2, "swarm", "create", "-f", spec, "--shards", "65")
	has(errs, "swarm create: --shards: swarm spec: shards 65: use 1 to 64, and no more than groups, of which there "+
		"are 100")
	_, errs = run(0, "swarm", "create", "-f", spec)
	has(errs, "swarm few is served: 1000 agents in 100 groups, 3 shards")
	out, _ := run(0, "swarm", "list")
	has(out, "SHARDS", "3/3")
	out, _ = run(0, "swarm", "list", "-o", "json")
	has(out, `"shards":3`, `"holders":["agent","agent","agent"]`)
	in := write(t, filepath.Join(t.TempDir(), "in.csv"), "agent,current,gain\n999,0.3,0\n0,0.7,0.5\n330,1.5,0\n329,"+
		"0.2,0\n330,1.5,0\n659,1.25,0\n660,0.25,0\n")
	out, errs = run(0, "swarm", "observe", "few", "--input", in, "-o", "jsonl")
	has(errs, "7 observations in 1 entries")
	if got := strings.Split(strings.TrimSpace(out), "\n"); len(got) != 7 ||
		!strings.HasPrefix(got[0], `{"agent":999,`) || !strings.HasPrefix(got[6], `{"agent":660,`) {
		t.Errorf("decisions are not in the order of the input:\n%s", out)
	}
	_, errs = run(0, "swarm", "tick", "few", "--count", "10001")
	has(errs, "10001 ticks, 10001000 steps of agents")
	_, errs = run(2, "swarm", "query", "few", "--agents", "999-1000")
	has(errs, "query: agent 1000 of 1000")
	_, errs = run(2, "swarm", "fuse", "few", "--by", "group", "--nodes", "101")
	has(errs, "fuse: nodes 101: the swarm has 100 groups")
	whole := func(name string) string {
		t.Helper()
		all, _ := run(0, "swarm", "query", name, "--agents", "0-999", "-o", "json")
		return all
	}
	before := whole("few")

	out, _ = run(0, "swarm", "snapshot", "few", "--name", "kept", "-o", "jsonl")
	var done struct {
		Name    string
		Agents  int64
		Entries []uint64
		SHA256  string
	}
	if err := json.Unmarshal([]byte(out), &done); err != nil || done.Name != "kept" || done.Agents != 1000 ||
		len(done.Entries) != 3 {
		t.Fatalf("%s: %v", out, err)
	}
	out, _ = run(0, "snapshot", "list", place)
	has(out, "kept-shard0", "kept-shard2", "2 of 3")
	out, _ = run(0, "snapshot", "verify", place, "kept")
	has(out, "kept ")
	_, errs = run(2, "swarm", "snapshot", "few", "--name", "kept")
	has(errs, "snapshot kept-shard0: snapshot exists already", "; shards 1, 2 failed too; no shard has answered")
	_, errs = run(2, "swarm", "snapshot", "few", "--name", strings.Repeat("k", 58))
	has(errs, "--name: the part of a shard")
	run(0, "swarm", "reset", "few")
	out, _ = run(0, "swarm", "query", "few", "--agents", "330,999", "-o", "jsonl")
	has(out, `{"agent":330,"state":[0,0],"vote":"none"}`, `{"agent":999,"state":[0,0],"vote":"none"}`)
	run(0, "swarm", "create", "again", "--from", "kept", "--snapshots", place)
	run(0, "swarm", "create", "single", "--from", "kept", "--snapshots", place, "--shards", "1", "--agents", "1500")
	for _, name := range []string{"again", "single"} {
		if got := whole(name); got != before {
			t.Errorf("%s:\n%s\nwas:\n%s", name, got, before)
		}
	}
	run(0, "swarm", "snapshot", "single", "--name", "whole")
	run(0, "swarm", "create", "five", "--from", "whole", "--snapshots", place, "--shards", "5")
	if got := whole("five"); got != before {
		t.Errorf("of one shard in five:\n%s\nwas:\n%s", got, before)
	}
	_, errs = run(2, "swarm", "create", "part", "--from", "kept-shard1", "--snapshots", place)
	has(errs, "it has shard 1 of 3 of a swarm alone: name what all of them are parts of")

	// Agents without a checkpoint begin trimmed logs with the snapshot.
	run(0, "swarm", "snapshot", "again", "--name", "base")
	run(0, "swarm", "tick", "again")
	before = whole("again")
	_, errs = run(2, "swarm", "trim", "again", "--to", "kept", "--snapshots", place)
	has(errs, "snapshot kept-shard0 is of another swarm, few of")
	for range 2 {
		_, errs = run(0, "swarm", "trim", "again", "--to", "base", "--snapshots", place)
		has(errs, "swarm again: the logs of its shards begin with entries 3,3,3, behind snapshot base")
	}
	for k := range 3 {
		begins(t, conn.Swarms.Log(swarmKey(t, conn, "again"), k, swarms.In), 3)
		begins(t, conn.Swarms.Log(swarmKey(t, conn, "again"), k, swarms.Out), 3)
	}
	agent.Stop()
	// A shard that nobody serves: its entries wait in its log, and the others go on.
	other, err := conn.Swarms.OpenSession(t.Context(), "other", time.Hour, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Acquire(t.Context(), swarms.LeaseKey(swarmKey(t, conn, "again"), 1)); err != nil {
		t.Fatal(err)
	}
	agent = serve()
	ends, _ := run(0, "swarm", "query", "again", "--agents", "0-329,660-999", "-o", "jsonl")
	_, errs = run(1, "swarm", "query", "again", "--agents", "400", "--timeout", "300ms")
	has(errs, "swarm again, shard 1 of 3 (agents 330 to 659): ", "no shard has answered")
	out, _ = run(0, "swarm", "list", "-o", "json")
	has(out, `"holders":["agent","other","agent"]`)
	log := conn.Swarms.Log(swarmKey(t, conn, "again"), 1, swarms.In)
	last, err := log.Last(t.Context())
	if err != nil {
		t.Fatalf("the last entry of shard 1: %v", err)
	}
	if err := log.Append(t.Context(), last.Seq, swarms.Entry{
		Kind: swarms.EntryTick, Ref: last.Ref + 1, Data: []byte(`{"v":1,"count":1}`),
	}); err != nil {
		t.Fatalf("append a tick to shard 1 alone: %v", err)
	}
	agent.Stop() // which waits for the other's lease
	if err := other.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	agent = serve()
	middle, _ := run(0, "swarm", "query", "again", "--agents", "330-659", "-o", "jsonl")
	run(0, "swarm", "create", "copy", "--from", "base", "--snapshots", place, "--shards", "7")
	run(0, "swarm", "tick", "copy")
	if got := whole("copy"); got != before {
		t.Errorf("behind their bases:\n%s\nwere:\n%s", got, before)
	}
	if got, _ := run(0, "swarm", "query", "copy", "--agents", "0-329,660-999", "-o", "jsonl"); got != ends {
		t.Errorf("two shards without the third:\n%s\nwere:\n%s", got, ends)
	}
	run(0, "swarm", "tick", "copy")
	if got, _ := run(0, "swarm", "query", "copy", "--agents", "330-659", "-o", "jsonl"); got != middle {
		t.Errorf("a tick that waited gave\n%s\nwant\n%s", middle, got)
	}

	if err := os.Remove(filepath.Join(place, "kept-shard1", "manifest.json")); err != nil {
		t.Fatal(err)
	}
	out, _ = run(1, "snapshot", "verify", place, "kept")
	has(out, "kept ", "snapshot kept-shard1: snapshot not found")
	_, errs = run(1, "swarm", "create", "none", "--from", "kept", "--snapshots", place)
	has(errs, "snapshot kept-shard1: snapshot not found")
	for _, n := range []string{"2", "3", "1"} { // another one of the name, at once
		run(0, "swarm", "delete", "few", "--yes")
		run(0, "swarm", "create", "-f", spec, "--shards", n)
		out, _ = run(0, "swarm", "vote", "few")
		has(out, "none    quiet 0, spike 0  1000 ")
	}
	for _, name := range []string{"again", "copy"} {
		key := swarmKey(t, conn, name)
		run(0, "swarm", "delete", name, "--yes")
		for k := range 7 {
			for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
				if _, err := conn.Swarms.Log(key, k, d).Last(t.Context()); !errors.Is(err, jobs.ErrNotFound) {
					t.Errorf("log %d of %s is there: %v", k, name, err)
				}
			}
		}
	}
}

// swarmKey is the key of a swarm.
func swarmKey(t *testing.T, conn *natsq.Conn, id string) string {
	t.Helper()
	s, err := conn.Swarms.Swarm(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s.Key()
}
