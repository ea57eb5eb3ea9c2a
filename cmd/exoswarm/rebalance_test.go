package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// TestRebalanceProcesses: an operator gives a GPU agent that has joined its share, and kill -9 of
// either agent in the middle of hand-overs loses and doubles nothing: a swarm of seven shards goes
// on answering as one of one shard.
func TestRebalanceProcesses(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	const agents, group = 1400, 14
	bin := binaries(t)
	_, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	gpu := func(name string) *process {
		p, _ := startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"), "--nats", url, "--name", name,
			"--data-dir", t.TempDir(), "--device", "host", "--lease-ttl", "1s", "--rebalance", "0")
		return p
	}
	run := func(args ...string) string {
		t.Helper()
		code, out, errs := exec(t.Context(), t, append(args, "--nats", url)...)
		if code != 0 {
			t.Fatalf("exoswarm %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
		return out
	}
	procs := map[string]*process{"a0": gpu("a0")}
	dir := t.TempDir()
	for name, shards := range map[string]int{"one": 1, "seven": 7} {
		run("swarm", "create", "--timeout", "5m", "-f",
			write(t, filepath.Join(dir, name+".yaml"),
				fmt.Sprintf("name: %s\naddressed: agent\nagents: %d\nagents_per_group: %d\nshards: %d\npage_size: "+
					"64KiB\nfeatures: [a, b]\n"+
					"vote: {candidates: [north, east, south], rule: majority}\nseed: 5\ncheckpoint: {interval: 100ms, "+
					"entries: 2}\n", name, agents, group, shards)))
	}
	rows := &strings.Builder{}
	rows.WriteString("agent,a,b\n")
	for i := range agents / 2 {
		fmt.Fprintf(rows, "%d,%d,%d.5\n", i*37%(agents-3), i%5-2, i%3-1)
	}
	input := write(t, filepath.Join(dir, "rows.csv"), rows.String())
	step := func() {
		t.Helper()
		for _, args := range [][]string{
			{"swarm", "observe", "NAME", "--input", input, "-o", "jsonl"},
			{"swarm", "tick", "NAME", "--count", "2", "-o", "json"},
			{"swarm", "vote", "NAME", "--priority", "seeded", "-o", "jsonl"},
			{"swarm", "query", "NAME", "--agents", fmt.Sprintf("0-%d", agents-1), "-o", "jsonl"},
		} {
			args = append(args, "--timeout", "5m")
			one, seven := slices.Clone(args), slices.Clone(args)
			one[2], seven[2] = "one", "seven"
			if got, want := run(seven...), run(one...); got != want {
				t.Fatalf("%s: seven shards say\n%.2000s\none says\n%.2000s", strings.Join(args, " "), got, want)
			}
		}
	}
	held := func() map[string]int {
		t.Helper()
		var list []struct{ Holders []string }
		if err := json.Unmarshal([]byte(run("swarm", "list", "-o", "json")), &list); err != nil {
			t.Fatalf("json.Unmarshal: %v", err)
		}
		count := map[string]int{}
		for _, s := range list {
			for _, h := range s.Holders {
				count[h]++
			}
		}
		return count
	}
	step()
	procs["a1"] = gpu("a1")
	if out := run("agent", "rebalance", "--dry-run", "-o", "jsonl"); strings.Count(out,
		`"from":"a0","to":"a1","state":"planned"`) != 4 || held()["a1"] != 0 {
		t.Errorf("planned:\n%s", out)
	}
	if out := run("agent", "rebalance", "-o", "jsonl"); strings.Count(out,
		`"from":"a0","to":"a1","state":"moved"`) != 4 {
		t.Errorf("moved:\n%s", out)
	}
	if h := held(); h["a0"] != 4 || h["a1"] != 4 {
		t.Errorf("held: %v", h)
	}
	step()
	// of a hand-over, or behind it
	for i, after := range []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond} {
		joined := fmt.Sprintf("a%d", i+2)
		procs[joined] = gpu(joined)
		over := make(chan string, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, out, errs := exec(ctx, t, "agent", "rebalance", "--nats", url, "--timeout", "20s")
			over <- out + errs
		}()
		letPass(ctx, after)
		killed := []string{"a0", joined, "a1"}[i]
		procs[killed].end(t, syscall.SIGKILL)
		step()
		t.Logf("%s was killed after %v: %s", killed, after, <-over)
		cancel()
	}
	if h := held(); h["a0"]+h["a1"]+h["a3"] != 0 || h["a2"]+h["a4"] != 8 {
		t.Errorf("held: %v", h)
	}
}

// TestIdleAsksProcesses: a GPU agent with the settings that it has by itself, which starts beside a
// loaded one, has work long before --rebalance.
func TestIdleAsksProcesses(t *testing.T) {
	testkit.OnlyLong(t)
	bin := binaries(t)
	_, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	gpu := func(name string) {
		startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"), "--nats", url, "--name", name,
			"--data-dir", t.TempDir(), "--device", "host", "--rebalance", "1h")
	}
	gpu("a")
	if code, out, errs := exec(t.Context(), t, "swarm", "create", "--timeout", "5m", "--nats", url, "-f",
		write(t, filepath.Join(t.TempDir(), "s.yaml"), "name: s\naddressed: agent\nagents: 600\nagents_per_group: 10\n"+
			"shards: 6\npage_size: 64KiB\nfeatures: [a, b]\nvote: {candidates: [north, east]}\nseed: 5\n")); code != 0 {
		t.Fatalf("swarm create: exit %d\n%s%s", code, out, errs)
	}
	c, err := natsq.Connect(t.Context(), natsconn.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	held := func(of string) (n int) {
		all, err := c.Swarms.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, holder := range all {
			if holder == of {
				n++
			}
		}
		return n
	}
	testkit.Until(t, "the first agent has all shards", func() bool { return held("a") == 6 })
	gpu("b")
	ready := time.Now()
	testkit.Until(t, "the second agent has work", func() bool { return held("b") > 0 })
	first := time.Since(ready)
	testkit.Until(t, "the second agent is not idle any more", func() bool { return held("b") == 2 })
	t.Logf("after the second agent was ready it had work in %v, and two shards in %v", first, time.Since(ready))
}
