package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// groupDecision is a decision as runs and swarm observe print it.
type groupDecision struct {
	Timestamp, Decision string
	Score               float32
	Round, Leader       uint64
	Counts              map[string]uint32
}

// jsonLines reads a JSON object a line.
func jsonLines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, v)
	}
	return all
}

// hostAgent starts an agent on the host device in this process, with snapshots in a folder, and
// returns what ends it.
func hostAgent(t *testing.T, url, kept string) (stop func()) {
	t.Helper()
	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: url, Name: "agent"})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("cuda.Open host: %v", err)
	}
	store, err := bucket.Open(t.Context(), kept)
	if err != nil {
		t.Fatalf("bucket.Open: %v", err)
	}
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "agent", Device: dev, Queue: conn.Swarms, Snapshots: store, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	return func() {
		agent.Stop()
		if err := errors.Join(dev.Close(), store.Close()); err != nil {
			t.Errorf("end the agent: %v", err)
		}
		conn.Close()
	}
}

// TestGroupSwarm: a swarm whose groups are addressed decides as a run over the same rows does, its
// fusion is the fusion of the embeddings of its agents, and a snapshot of it makes a swarm with the
// same agents. testdata/script/group.txtar has the other commands.
func TestGroupSwarm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := jobstest.Start(t, server.Options{})
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		return expect(t, want, append(args, "--nats", s.URL(), "--timeout=5m")...)
	}
	has := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
	}
	kept := filepath.Join(dir, "kept")
	if err := os.Mkdir(kept, 0o755); err != nil {
		t.Fatalf("os.Mkdir: %v", err)
	}
	defer hostAgent(t, s.URL(), kept)()
	const cell = "agents_per_group: 8\ncell: {kind: leaky, params: {warmup: 20}}\n"
	alone := write(t, filepath.Join(dir, "run.yaml"), "name: x\n"+cell)
	spec := write(t, filepath.Join(dir, "swarm.yaml"), "name: meters\ngroups: 3\n"+cell)
	run(0, "swarm", "create", "-f", spec)

	// The rows of two files side by side, as a run has them and as a swarm is fed with them.
	rows := [2][]string{}
	for i := range rows {
		text := series(uint64(i+1), 700)
		write(t, filepath.Join(dir, "in", fmt.Sprintf("%d.csv", i)), text)
		rows[i] = strings.Split(strings.TrimSpace(text), "\n")[1:]
	}
	decisions := filepath.Join(dir, "d.ndjson")
	if code, _, errs := exec(t.Context(), t, "run", "-f", alone, "--input", filepath.Join(dir, "in"), "--output",
		decisions, "--progress", "none"); code != 0 {
		t.Fatalf("a run over the same rows: exit %d, want 0: %s", code, errs)
	}
	text, err := os.ReadFile(decisions)
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	want := jsonLines[groupDecision](t, string(text))
	first, second := strings.Builder{}, strings.Builder{}
	first.WriteString("value,group,timestamp\n")
	for i := range rows[0] {
		for group := range rows {
			at, value, _ := strings.Cut(rows[group][i], ",")
			if i < 400 {
				fmt.Fprintf(&first, "%s,%d,%s\n", value, group, at)
			} else {
				fmt.Fprintf(&second, `{"timestamp":%q,"value":%s,"group":%d}`+"\n", at, value, group)
			}
		}
	}
	out, errs := run(0, "swarm", "observe", "meters", "--input",
		write(t, filepath.Join(dir, "first.csv"), first.String()), "-o", "jsonl")
	has(errs, "800 observations in 1 entries")
	more, _ := run(0, "swarm", "observe", "meters", "--input",
		write(t, filepath.Join(dir, "second.ndjson"), second.String()), "-o", "jsonl")
	type ofGroup struct {
		Group int
		groupDecision
	}
	var got []groupDecision
	all := jsonLines[ofGroup](t, out+more)
	for group := range rows {
		for _, d := range all {
			if d.Group == group {
				got = append(got, d.groupDecision)
			}
		}
	}
	if len(want) != 1400 || !slices.EqualFunc(got, want,
		func(a, b groupDecision) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Errorf("%d decisions, a run has %d, and they are not the same", len(got), len(want))
	}

	out, _ = run(0, "swarm", "query", "meters", "--groups", "1,2")
	has(out, "GROUP  ROUND  STATE", "1      700    round 700, level ", "2      0      round 0, level 0, spread 0")
	type agentState struct {
		Agent, Group int
		Embedding    []float32
		State        map[string]float32
	}
	out, _ = run(0, "swarm", "query", "meters", "--agents", "0-23", "-o", "jsonl")
	agents := jsonLines[agentState](t, out)
	nodes, err := fusion.NewNodes(1, 8) // the narrowest; what is beyond the embedding stays zero
	if err != nil {
		t.Fatalf("fusion.NewNodes: %v", err)
	}
	var embeddings []float32
	var weights []uint32
	for i, a := range agents {
		if a.Agent != i || a.Group != i/8 || len(a.Embedding) != 2 || a.Embedding[0] != a.State["potential"] ||
			a.Embedding[1] != a.State["usual"] || (a.Embedding[1] != 0) != (i < 16) {
			t.Errorf("agent %d: %+v", i, a)
		}
		embeddings = append(embeddings, append(a.Embedding, make([]float32, 6)...)...)
		if weights = append(weights, 0); i < 16 {
			weights[i] = consensus.One
		}
	}
	if _, err := nodes.Accumulate(make([]uint32, 24), embeddings, weights); err != nil {
		t.Fatalf("nodes.Accumulate: %v", err)
	}
	mean := make([]float32, 8)
	if err := nodes.Means(mean); err != nil {
		t.Fatalf("nodes.Means: %v", err)
	}
	type fusedNode struct {
		Node   int
		Agents uint64
		Mean   []float32
	}
	out, _ = run(0, "swarm", "fuse", "meters", "--by", "all", "-o", "jsonl")
	if f := jsonLines[fusedNode](t, out); len(f) != 1 || f[0].Agents != 16 || !slices.Equal(f[0].Mean, mean[:2]) {
		t.Errorf("%+v, want %v", f, mean)
	}
	computedByCommand(t, run, dir, agents[0].Embedding[0])
	run(0, "swarm", "snapshot", "meters", "--name", "one")
	run(0, "swarm", "create", "more", "--from", "one", "--snapshots", kept, "--agents", "32")
	if again, _ := run(0, "swarm", "query", "more", "--agents", "0-23", "-o",
		"jsonl"); !slices.EqualFunc(jsonLines[agentState](t, again), agents,
		func(a, b agentState) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Errorf("from a snapshot:\n%s", again)
	}
}

// computedByCommand: what swarm compute prints and writes of the swarm meters, whose group 2 has
// never stepped, and how it refuses. first is the potential of agent 0.
func computedByCommand(t *testing.T, run func(want int, args ...string) (out, errs string), dir string, first float32) {
	t.Helper()
	type item struct {
		Group  int
		Values map[string]float64
	}
	out, _ := run(0, "swarm", "compute", "meters", "n = count(true) by group where round > 0; r = max(round) by group",
		"-o", "jsonl")
	want := []item{{0, map[string]float64{"n": 8, "r": 700}}, {1, map[string]float64{"n": 8, "r": 700}}, {
		2,
		map[string]float64{"n": 0, "r": 0},
	}}
	if got := jsonLines[item](t, out); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("compute by group: %v, want %v", got, want)
	}
	out, _ = run(0, "swarm", "compute", "meters", "p = sum(potential) where agent == 0", "-o", "jsonl")
	if got := jsonLines[item](t, out); len(got) != 1 || got[0].Values["p"] != float64(first) {
		t.Errorf("the potential of agent 0: %v, want %v", got, first)
	}
	file := filepath.Join(dir, "n.npy")
	run(0, "swarm", "compute", "meters", "sum(agent) by group", "--groups", "1-2", "--out", file)
	f, err := os.Open(file)
	if err != nil {
		t.Fatalf("os.Open: %v", err)
	}
	defer f.Close()
	a, err := numpy.Read(f, 1<<20)
	if err != nil || a.Type != "<u8" || !slices.Equal(a.Shape, []int64{2}) || a.Data[0] != 92 || a.Data[8] != 156 {
		t.Errorf("the array has %+v, %v, want the sums 92 and 156", a, err)
	}
	file = filepath.Join(dir, "n.csv")
	run(
		0,
		"swarm",
		"compute",
		"meters",
		"mean(round) by group where round > 0; b = any(agent == 17) by group",
		"--out",
		file,
	)
	if text, err := os.ReadFile(file); err != nil ||
		string(text) != "group,out,b\n0,700,false\n1,700,false\n2,,true\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
	for _, refused := range []struct {
		want string
		args []string
	}{
		{`there is no variable "hidden": use one of [agent group level`, []string{"mean(hidden)"}},
		{"where: it is u32: use a condition", []string{"mean(potential) where round"}},
		{"keep no vote", []string{"mean(potential) by vote"}},
		{"by sensor: use by group", []string{"mean(potential) by sensor"}},
		{"use at most 65536", []string{strings.Repeat(" ", 10<<20) + "mean(potential)"}},
		{"the swarm has 3 groups", []string{"mean(potential) by group", "--groups", "2-3"}},
		{"ends with .npy or .csv", []string{"mean(potential)", "--out", "x.txt"}},
		{"has one output, the text has 2", []string{"sum(round); n = sum(agent)", "--out", file + ".npy"}},
		{"use a range such as", []string{"sum(round) by group", "--groups", "5-2"}},
	} {
		if _, errs := run(2, append([]string{"swarm", "compute", "meters"}, refused.args...)...); !strings.Contains(
			errs,
			refused.want,
		) {
			t.Errorf("%.60q: no %q in %.300s", refused.args, refused.want, errs)
		}
	}
}

// TestAskedRun: on real processes a run answers questions while it reads, and while nobody reads
// because its CPU agent was killed. Its output is the same as of an undisturbed run.
func TestAskedRun(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	var mu sync.Mutex
	var reached, release chan struct{} // of the page in the middle; nil: nobody waits there
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("from"))
		mu.Lock()
		come, hold := reached, release
		mu.Unlock()
		if n == 1500 && hold != nil {
			select {
			case come <- struct{}{}:
			default:
			}
			select {
			case <-hold:
			case <-r.Context().Done():
				return
			}
		}
		if n < 2700 {
			w.Header().Set("Next", strconv.Itoa(n+300))
		}
		fmt.Fprintln(w, "timestamp,value")
		for i := n; i < n+300; i++ {
			fmt.Fprintf(w, "%d,%d\n", 1700000000+i, i%7+i%97/96*500)
		}
	}))
	defer source.Close()
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), "name: plant\nagents_per_group: 16\ncheckpoint: {interval: "+
		"100ms, entries: 2}\n")
	list := write(t, filepath.Join(dir, "sources.json"),
		fmt.Sprintf(`[{"name":"s","uri":"%s/x.csv","http":{"cursor_param":"from","cursor_from":"header:Next",`+
			`"rate":1000,"backoff_s":0.01,"timeout_s":600}}]`, source.URL))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args := func(name string, more ...string) []string {
		return append([]string{
			"run", "-f", spec, "--sources", list, "--output", filepath.Join(dir, name), "--progress",
			"none",
		}, more...)
	}
	if code, _, errs := exec(ctx, t, args("alone.ndjson", "--egress", source.Listener.Addr().String())...); code != 0 {
		t.Fatalf("a run that is left alone: exit %d, want 0: %s", code, errs)
	}
	mu.Lock()
	reached, release = make(chan struct{}, 1), make(chan struct{})
	mu.Unlock()
	open := sync.OnceFunc(func() { close(release) })
	defer open()

	c := &processes{bin: binaries(t)}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(c.bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	kept := filepath.Join(dir, "kept")
	c.gpu, _ = startProcess(t, "gpuagent is ready", filepath.Join(c.bin, "gpuagent"), "--nats", c.url, "--data-dir",
		t.TempDir(), "--device", "host", "--snapshots", kept, "--lease-ttl", "1s")
	startCPU := func() {
		c.cpu, _ = startProcess(t, "cpuagent is ready", filepath.Join(c.bin, "cpuagent"), "--nats", c.url, "--egress",
			source.Listener.Addr().String())
	}
	startCPU()
	var said bytes.Buffer
	cmd := osexec.CommandContext(ctx, filepath.Join(c.bin, "exoswarm"), args("asked.ndjson", "--nats", c.url)...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatalf("cmd.Start: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-reached:
	case err := <-ended:
		t.Fatal(err, said.String())
	case <-ctx.Done():
		t.Fatal("the run does not read")
	}
	ask := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		code, stdout, stderr := exec(ctx, t, append([]string{"swarm"},
			append(args, "--nats", c.url, "--timeout", "4m")...)...)
		if code != want {
			t.Fatalf("exoswarm swarm %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, stdout, stderr)
		}
		return stdout, stderr
	}
	groups := func() string {
		t.Helper()
		out, _ := ask(0, "query", "plant", "--groups", "0", "-o", "json")
		return out
	}
	for { // the rows before the page that is held back are on their way
		_, out, errs := exec(ctx, t, "swarm", "query", "plant", "--groups", "0", "-o", "json", "--nats", c.url,
			"--timeout", "4m")
		if strings.Contains(out, `"round":1500`) {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(out, errs)
		}
	}
	all := func() []string {
		t.Helper()
		agents, _ := ask(0, "query", "plant", "--agents", "0-15", "-o", "json")
		fused, _ := ask(0, "fuse", "plant", "--by", "group", "-o", "json")
		return []string{groups(), agents, fused}
	}
	before := all()
	for _, refused := range []struct {
		want string
		args []string
	}{
		{"whose job alone may change it", []string{"reset", "plant"}},
		{"whose job alone may change it", []string{"tick", "plant"}},
		{"whose job alone may change it", []string{"observe", "plant", "--input", list}},
		{"query: agent 16 of 16", []string{"query", "plant", "--agents", "16"}},
		{"nothing is removed from the log", []string{"trim", "plant", "--to", "half", "--snapshots", kept}},
	} {
		if _, errs := ask(2, refused.args...); !strings.Contains(errs, refused.want) {
			t.Errorf("no %q in %s", refused.want, errs)
		}
	}
	ask(0, "snapshot", "plant", "--name", "half")
	c.cpu.end(t, syscall.SIGKILL)
	if asleep := all(); !slices.Equal(asleep, before) {
		t.Errorf("without a CPU agent: %s\nwant %s", asleep, before)
	}
	c.gpu.end(t, syscall.SIGKILL)
	c.gpu, _ = startProcess(t, "gpuagent is ready", filepath.Join(c.bin, "gpuagent"), "--nats", c.url, "--data-dir",
		t.TempDir(), "--device", "host", "--snapshots", kept, "--lease-ttl", "1s")
	if again := all(); !slices.Equal(again, before) {
		t.Errorf("of another GPU agent, which has replayed the log: %s\nwant %s", again, before)
	}
	startCPU()
	open()
	if err := <-ended; err != nil {
		t.Fatal(err, said.String())
	}
	want, err := os.ReadFile(filepath.Join(dir, "alone.ndjson"))
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "asked.ndjson"))
	if err != nil || bytes.Count(want, []byte("\n")) != 3000 || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, a run that is left alone has %d: %v", len(got), len(want), err)
	}
	if _, errs := ask(1, "query", "plant", "--groups", "0"); !strings.Contains(errs,
		"swarm list shows those there are") {
		t.Errorf("a query after the run: %s, want that there is no such swarm", errs)
	}
	// What the run had learned by half continues as a swarm that lasts.
	ask(0, "create", "goes-on", "--from", "half", "--snapshots", kept)
	if out, _ := ask(0, "query", "goes-on", "--agents", "0-15", "-o", "json"); out != before[1] {
		t.Errorf("from the snapshot: %s\nwant %s", out, before[1])
	}
}
