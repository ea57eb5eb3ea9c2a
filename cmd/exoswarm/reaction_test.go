package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestReactionsKilled: the process that serves a swarm with rules is killed while the swarm votes,
// again and again, and so is the CPU agent that takes its jobs. Each round is emitted once and has
// one job, and the agents, which tick and reset by the rules, are the same as in a swarm whose
// processes live.
func TestReactionsKilled(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	const kills, agents = 20, 3000
	bin := binaries(t)
	url, start := twoAgents(t)
	startCPU := func() *process {
		p, _ := startProcess(t, "cpuagent is ready", filepath.Join(bin, "cpuagent"), "--nats", url, "--data-dir",
			t.TempDir())
		return p
	}
	gpus, cpu := []*process{start(0), start(1)}, startCPU()
	run := func(args ...string) string {
		code, out, errs := exec(t.Context(), t,
			append([]string{"swarm"}, append(args, "--nats", url)...)...)
		if code != 0 {
			t.Errorf("exoswarm swarm %v: exit %d\n%s%s", args, code, out, errs)
		}
		return out
	}
	// live runs a swarm for a number of rounds, and returns its votes, its emissions and its agents.
	// disturb runs beside each round.
	live := func(name string, disturb func(step int)) (votes []string, sent, states string) {
		t.Helper()
		run("create", "-f", write(t, filepath.Join(t.TempDir(), "swarm.yaml"), fmt.Sprintf("name: %s\naddressed: "+
			"agent\nagents: %d\nagents_per_group: 30\npage_size: 64KiB\nfeatures: [a]\nseed: 11\n"+
			"hear: [decision]\nvote: {candidates: [north, east, south]}\n"+
			"on_decision:\n- any -> tick 3, emit each, submit each\n- changed -> emit news\n"+
			"- south -> reset, tick 1\n"+
			"jobs: {each: {pool: cpu, kind: of-%[1]s, spec: {round: $(round)}}}\n"+ // nobody takes it
			"checkpoint: {interval: 100ms, entries: 3}\n", name, agents)), "--timeout", "5m")
		for step := range kills {
			done := make(chan string)
			go func() {
				run("tick", name, "--timeout", "5m")
				done <- run("vote", name, "-o", "jsonl", "--timeout", "5m")
			}()
			disturb(step)
			votes = append(votes, <-done)
		}
		return votes, run("emitted", name, "-o", "jsonl"),
			run("query", name, "--agents", fmt.Sprintf("0-%d", agents-1), "-o", "jsonl", "--timeout", "5m")
	}
	r := rand.New(rand.NewPCG(25, 6))
	votes, sent, states := live("killed", func(step int) {
		letPass(t.Context(), time.Duration(r.IntN(80))*time.Millisecond) // the moment of the kill
		of := step % 2
		gpus[of].end(t, syscall.SIGKILL)
		if step%4 == 3 {
			cpu.end(t, syscall.SIGKILL)
			cpu = startCPU()
		}
		gpus[of] = start(of)
	})
	want, _, twin := live("undisturbed", func(int) {})
	ids := regexp.MustCompile(`"job":"each-[0-9a-f]*"`) // no two swarms have the same
	if ids.ReplaceAllString(fmt.Sprint(votes), "") != ids.ReplaceAllString(fmt.Sprint(want), "") {
		t.Errorf("votes after kills:\n%v\nwant\n%v", votes, want)
	}
	if states != twin {
		t.Error("agents differ from the agents of a swarm whose processes live")
	}
	var each []int
	for line := range strings.Lines(sent) {
		var e struct {
			Name  string
			Round int
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("json.Unmarshal: %v of %q", err, line)
		}
		if e.Name == "each" {
			each = append(each, e.Round)
		}
	}
	if len(each) != kills {
		t.Errorf("%d emissions of %d rounds: %v", len(each), kills, each)
	}
	for i, round := range each {
		if round != i+1 {
			t.Errorf("emission %d is of round %d", i, round)
		}
	}
	code, list, errs := exec(t.Context(), t, "job", "list", "--pool", "cpu", "-o", "jsonl", "--nats", url)
	if code != 0 {
		t.Errorf("exoswarm job list: exit %d\n%s", code, errs)
	}
	got := map[string]int{} // jobs by kind and round
	for line := range strings.Lines(list) {
		var j struct {
			ID, Kind string
			Spec     struct{ Round string }
		}
		if err := json.Unmarshal([]byte(line), &j); err != nil {
			t.Fatalf("json.Unmarshal: %v of %q", err, line)
		}
		got[j.Kind+" "+j.Spec.Round]++
		if j.Kind == "of-killed" && !strings.Contains(fmt.Sprint(votes), j.ID) {
			t.Errorf("no vote shows job %s", j.ID)
		}
	}
	for _, swarm := range []string{"killed", "undisturbed"} {
		for round := 1; round <= kills; round++ {
			if n := got[fmt.Sprintf("of-%s %d", swarm, round)]; n != 1 {
				t.Errorf("swarm %s, round %d: %d jobs, want 1", swarm, round, n)
			}
		}
	}
	if len(got) != 2*kills {
		t.Errorf("jobs of %d rounds, want %d: %v", len(got), 2*kills, got)
	}
	t.Logf("%d kills, %d emissions, %d jobs", kills, strings.Count(sent, "\n"), len(got))
}

// TestReactionsOfCPUAgent: through three processes, a CPU agent does the job that a rule submits,
// with the decision in its specification. swarm vote shows its id, and the next vote without a
// change submits none.
func TestReactionsOfCPUAgent(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	bin, dir := binaries(t), t.TempDir()
	_, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"), "--nats", url, "--data-dir", t.TempDir(),
		"--device", "host")
	startProcess(t, "cpuagent is ready", filepath.Join(bin, "cpuagent"), "--nats", url, "--data-dir", t.TempDir(),
		"--root", "data="+dir)
	write(t, filepath.Join(dir, "shop.csv"), "timestamp,value\n1,5\n2,6\n")
	write(t, filepath.Join(dir, "manifest.json"), `[{"name":"shop","uri":"file:data/shop.csv"}]`)
	run := func(args ...string) string {
		t.Helper()
		code, out, errs := exec(t.Context(), t, append(args, "--nats", url)...)
		if code != 0 {
			t.Fatalf("exoswarm %v: exit %d\n%s%s", args, code, out, errs)
		}
		return out
	}
	run("swarm", "create", "-f", write(t, filepath.Join(t.TempDir(), "swarm.yaml"), `name: signal
addressed: agent
agents: 300
agents_per_group: 30
page_size: 64KiB
vote: {candidates: [north, east]}
on_decision: [changed -> submit detect]
jobs:
  detect:
    pool: cpu
    kind: stream
    spec:
      name: shops
      spec: {name: shops, agents_per_group: 16}
      candidates: [normal, suspicious, anomalous]
      columns: {timestamp: timestamp, features: [value]}
      manifest: file:data/manifest.json
      output: file:data/$(winner)-$(round).ndjson
      rejects: file:data/rejects.ndjson
      summary: file:data/summary.json
`), "--timeout", "1m")
	run("swarm", "tick", "signal")
	var said struct {
		Winner    string
		Reactions []struct{ Action, Name, Job string }
	}
	vote := run("swarm", "vote", "signal", "-o", "jsonl")
	if err := json.Unmarshal([]byte(vote), &said); err != nil || len(said.Reactions) != 1 ||
		said.Reactions[0].Action != "submit" || said.Reactions[0].Name != "detect" {
		t.Fatalf("vote %s: error %v, want one job", vote, err)
	}
	id := said.Reactions[0].Job
	if table := run("swarm", "query", "signal", "--outcome"); !strings.Contains(table, "submit "+id) {
		t.Errorf("swarm query --outcome does not show job %s:\n%s", id, table)
	}
	if result := run("job", "watch", id); !strings.Contains(result, "done") {
		t.Errorf("job watch: %s", result)
	}
	out, err := os.ReadFile(filepath.Join(dir, said.Winner+"-1.ndjson"))
	if err != nil || strings.Count(string(out), "\n") != 2 {
		t.Errorf("the output of the job has %d lines, error %v, want 2", strings.Count(string(out), "\n"), err)
	}
	if again := run("swarm", "vote", "signal", "-o", "jsonl"); strings.Contains(again, "reactions") {
		t.Errorf("a vote without a change: %s", again)
	}
}
