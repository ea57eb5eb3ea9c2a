package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/testlong"
)

// TestReactionsKilled: the process that serves a swarm with rules is killed while the swarm votes,
// again and again. Each round is emitted once, and the agents, which tick and
// reset by the rules, are those of a swarm whose processes live.
func TestReactionsKilled(t *testing.T) {
	testlong.Only(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	const kills, agents = 20, 3000
	bin := binaries(t)
	_, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	data := []string{t.TempDir(), t.TempDir()}
	start := func(i int) *process {
		p, _ := startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"), "--nats", url, "--data-dir",
			data[i], "--device", "host", "--lease-ttl", "1s")
		return p
	}
	gpus := []*process{start(0), start(1)}
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
			"on_decision:\n- any -> tick 3, emit each\n- changed -> emit news\n- south -> reset, tick 1\n"+
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
		time.Sleep(time.Duration(r.IntN(80)) * time.Millisecond)
		of := step % 2
		gpus[of].end(t, syscall.SIGKILL)
		gpus[of] = start(of)
	})
	want, _, twin := live("undisturbed", func(int) {})
	if fmt.Sprint(votes) != fmt.Sprint(want) {
		t.Errorf("votes after kills:\n%v\nwant\n%v", votes, want)
	}
	if states != twin {
		t.Error("agents differ from those of a swarm whose processes live")
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
	t.Logf("%d kills, %d emissions", kills, strings.Count(sent, "\n"))
}
