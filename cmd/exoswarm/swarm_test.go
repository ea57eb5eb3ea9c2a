package main

import (
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestSwarmCommands: the life of a simulation as a user sees it, on a real server with a real
// agent.
func TestSwarmCommands(t *testing.T) {
	dir := t.TempDir()
	s, err := server.Start(t.Context(), server.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		code, stdout, stderr := exec(t.Context(), t, append(args, "--nats", s.URL())...)
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
	example := filepath.Join("..", "..", "examples", "simulation")
	spec := filepath.Join(example, "swarm.yaml")
	out, _ := run(0, "swarm", "list", "-o", "json")
	has(out, "[]")
	// Nobody serves it: it is made, and waits.
	_, errs := run(1, "swarm", "create", "-f", spec, "--timeout", "10ms")
	has(errs, "swarm neurons: entry 1 of its log has no answer after 10ms", "see that a GPU agent runs")
	_, errs = run(2, "swarm", "delete", "neurons")
	has(errs, "add --yes")
	_, errs = run(0, "swarm", "delete", "neurons", "--yes")
	has(errs, "swarm neurons is deleted")
	_, errs = run(1, "swarm", "delete", "neurons", "--yes")
	has(errs, "exoswarm swarm list shows those there are")

	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL(), Name: "agent"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{MemoryLimit: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "agent", Device: dev, Queue: conn.Swarms,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		agent.Stop()
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	const patient = "--timeout=5m"
	_, errs = run(0, "swarm", "create", "-f", spec, patient)
	has(errs, "swarm neurons is served: 200000 agents in 2000 groups")
	_, errs = run(1, "swarm", "create", "-f", spec)
	has(errs, "swarm neurons: exists already: remove it with exoswarm swarm delete neurons")
	large := write(t, filepath.Join(dir, "large.yaml"), "name: large\naddressed: agent\nagents: 25600000\ncell: "+
		"{kind: leaky}\n")
	_, errs = run(1, "swarm", "create", "-f", large, patient)
	has(errs, "swarm large: 25600000 agents")
	out, _ = run(0, "swarm", "list")
	has(out, "neurons", "agent", "leaky", "200000", "2000")
	if strings.Contains(out, "large") {
		t.Errorf("a swarm that nobody can serve stays:\n%s", out)
	}

	// The first neuron has current 0.3, the second half as much again: they spike in the fourth and
	// third step.
	out, errs = run(0, "swarm", "observe", "neurons", "--input", filepath.Join(example, "currents.csv"), "-o", "jsonl",
		patient)
	has(out, `{"agent":0,"decision":"quiet","vote":"quiet"}`, `{"agent":199999,"decision":"spike","vote":"spike"}`)
	has(errs, "6 observations in 1 entries")
	out, errs = run(0, "swarm", "tick", "neurons", "--count", "2", "-o", "json", patient)
	has(out, `{"candidate":"spike","agents":`, `{"candidate":"none","groups":0}`)
	has(errs, "2 ticks, 400000 steps of agents")
	rows := write(t, filepath.Join(dir, "rows.ndjson"),
		`{"agent":7,"current":1.5,"gain":0}`+"\n\n"+`{"gain":0,"agent":8,"current":0.25}`+"\n")
	out, _ = run(0, "swarm", "observe", "neurons", "--input", rows, patient)
	has(out, "7      spike  quiet", "8      quiet  quiet")
	out, _ = run(0, "swarm", "query", "neurons", "--agents", "7-8,199999", "-o", "json", patient)
	has(out, `{"agent":7,"state":[0.5,0.01],"vote":"spike"}`, `{"agent":8,"state":[0.25,0],"vote":"quiet"}`,
		`"agent":199999`)
	out, _ = run(0, "swarm", "query", "neurons", "--groups", "0,3", patient)
	has(out, "GROUP  DECISION  ROUND  VOTES", "0      quiet     4 ", "3      quiet     2      quiet 100, spike 0")

	// Ticks have stepped all agents, and few have spiked.
	out, _ = run(0, "swarm", "vote", "neurons", "--rule", "unanimous", "--of", "all", patient)
	has(out, "ROUND  WINNER  VOTES", "1      none    quiet 199", ", spike ", "0            0       0")
	out, _ = run(0, "swarm", "vote", "neurons", "--rule", "quorum", "--quorum", "2/3", "--round", "9", "--priority",
		"seeded", "-o", "jsonl", patient)
	behind := math.MaxUint32 - agents.Priority(1, 9, 200_000, 0) // the agents between the leader and agent 0
	has(out, `"abstentions":0,`, fmt.Sprintf(`"leader":{"agent":%d,"priority":4294967295}`, (200_000-behind)%200_000),
		`"quorum_met":true,"round":9,"votes":{"quiet":1999`, `"winner":"quiet"`)
	out, _ = run(0, "swarm", "fuse", "neurons", "--by", "group", "--nodes", "4", patient)
	has(out, "NODE  AGENTS  MEAN", "0     50000   ", "3     50000   ")
	out, _ = run(0, "swarm", "fuse", "neurons", "--by", "vote", "-o", "yaml", patient)
	has(out, "candidate: quiet", "candidate: spike", "node: 1")
	out, _ = run(0, "swarm", "fuse", "neurons", "--by", "all", "-o", "json", patient)
	has(out, `{"agents":200000,"mean":[`)

	for text, want := range map[string]string{
		"agent,current\n1,2\n":                  `:1: there is no column "gain": the swarm takes agent,current,gain`,
		"agent,current,gain\n200000,1,1\n":      `:2: column agent: "200000" is not an agent, 0 to 199999`,
		"agent,current,gain\n1,1,1\n1,NaN,1\n":  `:3: column current: "NaN" is not a number`,
		"agent,current,gain\n1,1,1\n1,1,1e39\n": `:3: column gain: "1e39" is not a number`,
		"agent,current,gain\n1,1\n":             `wrong number of fields`,
	} {
		_, errs := run(2, "swarm", "observe", "neurons", "--input", write(t, filepath.Join(dir, "bad.csv"), text))
		has(errs, want)
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "query: agent 200000 of 200000", []string{"query", "neurons", "--agents", "199999-200000"}},
		{1, "swarm nobody: not found: exoswarm swarm list shows those there are", []string{"tick", "nobody"}},
		{2, "use --agents or --groups", []string{"query", "neurons"}},
		{2, `"5-3" is neither an id nor a range`, []string{"query", "neurons", "--agents", "1,5-3"}},
		{2, "more than 65536 ids", []string{"query", "neurons", "--agents", "1-4000000000"}},
		{2, "swarm vote: round 0: rounds count from 1", []string{"vote", "neurons", "--round", "0"}},
		{
			2, `swarm vote: quorum "7": use a share above 0 and at most 1`,
			[]string{"vote", "neurons", "--rule", "quorum", "--quorum", "7"},
		},
		{
			2, `swarm vote: rule "weighted": votes of agents that are addressed weigh the same`,
			[]string{"vote", "neurons", "--rule", "weighted"},
		},
		{2, `swarm fuse: by "": use group, vote or all`, []string{"fuse", "neurons"}},
		{
			2, "fuse: nodes 2001: the swarm has 2000 groups",
			[]string{"fuse", "neurons", "--by", "group", "--nodes", "2001"},
		},
		{2, "--count 0: use 1 or more", []string{"tick", "neurons", "--count", "0"}},
		{2, "--input is missing: name a file with the columns agent, current, gain", []string{"observe", "neurons"}},
		{
			2, "does not say how many groups there are: write groups: N, or hand it to exoswarm run",
			[]string{"create", "-f", filepath.Join("..", "..", "examples", "telemetry", "swarm.yaml")},
		},
	} {
		_, errs := run(c.code, append([]string{"swarm"}, c.args...)...)
		has(errs, c.want)
	}
	run(0, "swarm", "delete", "neurons", "--yes")
	out, _ = run(0, "swarm", "list")
	if strings.Contains(out, "neurons") {
		t.Errorf("it is still there:\n%s", out)
	}
	if code, _, errs := exec(t.Context(), t, "run", "-f", spec, "--input", example, "--output",
		filepath.Join(dir, "o.ndjson")); code != 2 || !strings.Contains(errs, "make it with exoswarm swarm create") {
		t.Errorf("run: exit %d: %s", code, errs)
	}
}

func TestParseIDs(t *testing.T) {
	got, err := parseIDs("1, 5-7,0,5")
	if want := []uint32{1, 5, 6, 7, 0, 5}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %v", got, err)
	}
	for _, text := range []string{"", "1,,2", "-1", "1-", "a", "4294967296", "0-65536", "0-65535,1"} {
		if ids, err := parseIDs(text); err == nil {
			t.Errorf("%q: %d ids", text, len(ids))
		}
	}
}
