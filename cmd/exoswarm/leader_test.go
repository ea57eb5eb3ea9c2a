package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var leaderKills = flag.Int("leader.kills", 25, "kills of TestLeaderKilled")

// twoAgents starts a NATS server, and returns its URL and what starts one of two GPU agents, also
// again in its data folder.
func twoAgents(t *testing.T) (url string, start func(i int) *process) {
	t.Helper()
	bin := binaries(t)
	_, url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	data := []string{t.TempDir(), t.TempDir()}
	return url, func(i int) *process {
		p, _ := startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"), "--nats", url, "--data-dir",
			data[i], "--device", "host", "--lease-ttl", "1s")
		return p
	}
}

// TestLeaderKilled: the process that serves the leader of a swarm is killed while it votes, ticks
// or hears, again and again. Rounds and terms only grow, no term has two leaders, an elected leader
// votes for the winner, and the outcome is the outcome of the last vote. The agents, which hear
// both, their group, and the node of their candidate, which both shards merge in each step, are the
// same as in a swarm whose processes live.
func TestLeaderKilled(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	const agents = 3000
	kills := *leaderKills
	url, start := twoAgents(t)
	gpus := []*process{start(0), start(1)}
	run := func(args ...string) string {
		code, out, errs := exec(t.Context(), t,
			append([]string{"swarm"}, append(args, "--nats", url, "--timeout", "5m")...)...)
		if code != 0 {
			t.Errorf("exoswarm swarm %v: exit %d\n%s%s", args, code, out, errs)
		}
		return out
	}
	type outcome struct {
		Round, Term uint64
		Winner      string
		Votes       map[string]int
		Leader      struct{ Agent, Vote int }
	}
	read := func(text string) (v outcome) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("json.Unmarshal: %v of %q", err, text)
		}
		return v
	}
	// live runs a swarm for a number of steps, and returns its outcomes and its agents. disturb runs
	// beside each step.
	live := func(name string, disturb func(step int)) (all []outcome, states string) {
		t.Helper()
		run("create", "-f", write(t, filepath.Join(t.TempDir(), "swarm.yaml"), fmt.Sprintf("name: %s\naddressed: "+
			"agent\nagents: %d\nagents_per_group: 30\nshards: 2\npage_size: 64KiB\nfeatures: [a]\nseed: 11\n"+
			"hear: [decision, leader, group, knowledge]\n"+
			"knowledge: {by: vote, units: 2, merge: ema}\nvote: {candidates: [north, east, south], rule: majority}\n"+
			"checkpoint: {interval: 100ms, entries: 2}\n", name, agents)))
		leaders, last := map[uint64]int{}, outcome{}
		for step := range kills {
			done, priority := make(chan string), "elected"
			if step%3 == 1 { // another leader, and so another incumbent
				priority = "seeded"
			}
			go func() {
				run("tick", name, "--count", "2")
				out := run("vote", name, "--priority", priority, "-o", "jsonl")
				run("tick", name)
				done <- out
			}()
			disturb(step)
			v := read(<-done)
			if of := read(run("query", name, "--outcome", "-o", "jsonl")); !reflect.DeepEqual(of, v) {
				t.Errorf("step %d: the outcome is %+v, the vote was %+v", step, of, v)
			}
			if names := []string{"north", "east", "south"}; priority == "elected" && v.Winner != names[v.Leader.Vote] {
				t.Errorf("step %d: the leader votes for %s: %+v", step, names[v.Leader.Vote], v)
			}
			if v.Round <= last.Round || v.Term < last.Term || v.Term > v.Round {
				t.Errorf("step %d: %+v after %+v", step, v, last)
			}
			if of, ok := leaders[v.Term]; ok && of != v.Leader.Agent {
				t.Errorf("step %d: agents %d and %d lead in term %d", step, of, v.Leader.Agent, v.Term)
			}
			leaders[v.Term], last = v.Leader.Agent, v
			all = append(all, v)
		}
		return all, run("query", name, "--agents", fmt.Sprintf("0-%d", agents-1), "-o", "jsonl")
	}
	r := rand.New(rand.NewPCG(25, 5))
	var longest time.Duration
	got, states := live("killed", func(step int) {
		letPass(t.Context(), time.Duration(r.IntN(60))*time.Millisecond) // the moment of the kill
		began, of := time.Now(), step%2
		gpus[of].end(t, syscall.SIGKILL)
		gpus[of] = start(of)
		longest = max(longest, time.Since(began))
	})
	want, twin := live("undisturbed", func(int) {})
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("outcomes after kills:\n%v\nwant\n%v", got, want)
	}
	if states != twin {
		t.Error("agents differ from the agents of a swarm whose processes live")
	}
	terms := map[uint64]bool{}
	for _, v := range got {
		terms[v.Term] = true
	}
	t.Logf("%d kills, %d terms; the longest until a process was ready again: %v", kills, len(terms), longest)
}
