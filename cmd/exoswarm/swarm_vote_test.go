package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestVotesOfProcesses: on real processes, where two pages fit on the device, votes and nodes
// follow from the agents that a query shows, and are the same after a kill.
func TestVotesOfProcesses(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	const agents, group, seed = 4800, 24, 5
	const pageSize, tables = 64 << 10, 4 << 10 // on the host device the tables of a shard come out of the same memory
	c := &processes{bin: binaries(t)}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(c.bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	data := t.TempDir()
	start := func() {
		c.gpu, _ = startProcess(t, "gpuagent is ready", filepath.Join(c.bin, "gpuagent"), "--nats", c.url, "--data-dir",
			data, "--device", "host",
			"--page-memory", fmt.Sprint(2*pageSize+tables), "--lease-ttl", "1s")
	}
	start()
	run := func(args ...string) []byte { return []byte(c.swarm(t, args...)) }
	dir := t.TempDir()
	run("create", "-f", write(t, filepath.Join(dir, "swarm.yaml"), fmt.Sprintf("name: x\naddressed: agent\nagents: "+
		"%d\nagents_per_group: %d\npage_size: 64KiB\nfeatures: [a, b]\n"+
		"vote: {candidates: [north, east, south], rule: majority}\nseed: %d\ncheckpoint: {interval: 100ms, entries: "+
		"2}\n", agents, group, seed)))
	rows := &strings.Builder{}
	rows.WriteString("agent,a,b\n")
	for i := range agents / 2 { // of all pages some
		fmt.Fprintf(rows, "%d,%d,%d.5\n", i*7%agents, i%5-2, i%3-1)
	}
	run("observe", "x", "--input", write(t, filepath.Join(dir, "rows.csv"), rows.String()), "-o", "jsonl")
	ask := func(round ...string) []string {
		vote := append([]string{"vote", "x", "--rule", "quorum", "--quorum", "1/4", "--of", "all", "-o", "jsonl"},
			round...)
		return []string{
			string(run(vote...)),
			string(run("fuse", "x", "--by", "all", "-o", "json")),
			string(run("fuse", "x", "--by", "vote", "-o", "json")),
			string(run("fuse", "x", "--by", "group", "--nodes", "7", "-o", "json")),
		}
	}
	got := ask("--round", "3")
	var states []struct {
		Agent int       `json:"agent"`
		Vote  string    `json:"vote"`
		State []float32 `json:"state"`
	}
	read := func(text string, to any) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), to); err != nil {
			t.Fatalf("json.Unmarshal: %v", err)
		}
	}
	read(string(run("query", "x", "--agents", fmt.Sprintf("0-%d", agents-1), "-o", "json")), &states)
	names := []string{"north", "east", "south"}
	var ballots []byte
	var embeddings []float32
	var weights []uint32
	for _, s := range states {
		vote := slices.Index(names, s.Vote)
		ballots, weights, embeddings = append(ballots, byte(vote)), append(weights, consensus.One),
			append(embeddings, s.State...)
		if vote < 0 {
			weights[len(weights)-1] = 0
		}
	}
	tally, err := consensus.NewTally(3)
	if err == nil {
		err = tally.Cast(ballots)
	}
	if err != nil || tally.Abstentions == 0 || tally.Abstentions == agents {
		t.Fatal(tally, err)
	}
	decided, err := consensus.Decide(consensus.Rule{
		Kind: consensus.Quorum, Of: consensus.All,
		Quorum: consensus.Fraction{Num: 1, Den: 4},
	}, tally)
	if err != nil {
		t.Fatalf("consensus.Decide: %v", err)
	}
	var voted struct {
		Winner      string
		Votes       map[string]uint64
		Abstentions uint64
		Met         bool `json:"quorum_met"`
	}
	read(got[0], &voted)
	winner := "none"
	if decided.Winner != consensus.None {
		winner = names[decided.Winner]
	}
	if voted.Winner != winner || voted.Met != decided.QuorumMet || voted.Abstentions != decided.Abstentions ||
		voted.Votes["north"] != decided.Counts[0] || voted.Votes["south"] != decided.Counts[2] {
		t.Errorf("voted %s, want %+v", got[0], decided)
	}
	for i, by := range []string{swarms.ByAll, swarms.ByVote, swarms.ByGroup} {
		count := []int{1, 3, 7}[i]
		nodes := fusion.Nodes{
			Dim: 8, Sums: make([]float32, 8*count), Weights: make([]uint64, count),
			Counts: make([]uint64, count),
		}
		members := make([]uint32, agents)
		for a := range members {
			switch {
			case by == swarms.ByGroup:
				members[a] = uint32(a / group * count / (agents / group))
			case by == swarms.ByVote && ballots[a] == consensus.Abstain:
				members[a] = fusion.None
			case by == swarms.ByVote:
				members[a] = uint32(ballots[a])
			}
		}
		if _, err := nodes.Accumulate(members, embeddings, weights); err != nil {
			t.Fatalf("nodes.Accumulate: %v", err)
		}
		means := make([]float32, 8*count)
		if err := nodes.Means(means); err != nil {
			t.Fatalf("nodes.Means: %v", err)
		}
		var fused []struct {
			Agents uint64
			Mean   []float32
		}
		read(got[1+i], &fused)
		if len(fused) != count {
			t.Fatalf("by %s: %s", by, got[1+i])
		}
		for node, f := range fused {
			if f.Agents != nodes.Weights[node]/consensus.One || !slices.Equal(f.Mean, means[8*node:][:8]) {
				t.Errorf("by %s, node %d: %v, want %d and %v", by, node, f, nodes.Weights[node]/consensus.One,
					means[8*node:][:8])
			}
		}
	}
	c.gpu.end(t, syscall.SIGKILL)
	start()
	// The next round is the fourth, and the rounds before it are over, whatever process serves the
	// swarm. The leader stays, and its priority is drawn for the round.
	var first struct {
		Leader struct{ Agent uint32 }
	}
	read(got[0], &first)
	ranked := func(round uint64) string {
		return fmt.Sprintf(`"priority":%d,`, consensus.NewDraw(seed, round).Priority(first.Leader.Agent))
	}
	if !strings.Contains(got[0], ranked(3)) {
		t.Errorf("the leader of round 3 has not %s in %s", ranked(3), got[0])
	}
	got[0] = strings.NewReplacer(`"round":3`, `"round":4`, ranked(3), ranked(4)).Replace(got[0])
	if again := ask(); !slices.Equal(again, got) {
		t.Errorf("after a kill: %s\nwant %s", again, got)
	}
	c.gpu.end(t, syscall.SIGKILL)
	start()
	for _, round := range []string{"4", "2"} {
		code, out, errs := exec(t.Context(), t, "swarm", "vote", "x", "--round", round, "--nats", c.url, "--timeout",
			"5m")
		if want := "round " + round + " is over: the last round of this swarm was 4: use 5 or more"; code != 2 ||
			out != "" || !strings.Contains(errs, want) {
			t.Errorf("--round %s: exit %d\n%s%s", round, code, out, errs)
		}
	}
}
