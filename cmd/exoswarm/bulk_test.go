package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/testlong"
)

// bulkSpec is a swarm of two shards with a checkpoint every few entries.
const bulkSpec = "addressed: agent\nagents: 4000\nagents_per_group: 10\nshards: 2\npage_size: 64KiB\nseed: 3\n" +
	"features: [a, b, c, d, e, f, g, h]\ncell: {kind: gru, params: {hidden: 8}}\n" +
	"vote: {candidates: [x, y, z], rule: majority}\ncheckpoint: {interval: 1h, entries: 3}\n"

// bulkRows is the text of a file of observations.
func bulkRows(r *rand.Rand, n int) string {
	var b strings.Builder
	b.WriteString("agent,a,b,c,d,e,f,g,h\n")
	for range n {
		fmt.Fprint(&b, r.IntN(4000))
		for range 8 {
			fmt.Fprintf(&b, ",%.4g", r.NormFloat64())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// bulkRig is a cluster with a CPU agent that serves a folder.
type bulkRig struct {
	*recovery
	spool, snapshots string
	file             string // of the rows of a round
	rounds           int
	gpu, cpu         *member
}

// run runs a command and returns its output.
func (r *bulkRig) run(ctx context.Context, args ...string) (string, error) {
	r.t.Helper()
	code, out, errs := exec(ctx, r.t, append(args, "--nats", r.url)...)
	if code != 0 {
		return out, fmt.Errorf("exoswarm %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out, nil
}

// must is run, and ends the test with an error.
func (r *bulkRig) must(ctx context.Context, args ...string) string {
	r.t.Helper()
	out, err := r.run(ctx, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// round observes the same rows in both swarms, and compares their decisions.
func (r *bulkRig) round(ctx context.Context, rnd *rand.Rand) error {
	r.t.Helper()
	r.rounds++
	if err := os.WriteFile(r.file, []byte(bulkRows(rnd, 1500)), 0o600); err != nil {
		return err
	}
	got, err := r.run(ctx, "swarm", "observe", "beside", "--input", r.file, "--bulk", r.spool, "-o", "jsonl")
	if err != nil {
		return err
	}
	want, err := r.run(ctx, "swarm", "observe", "within", "--input", r.file, "-o", "jsonl")
	if err == nil && got != want {
		err = fmt.Errorf("round %d: the decisions are not those of observations in the log", r.rounds)
	}
	return err
}

// state returns the state of all agents of a swarm.
func (r *bulkRig) state(ctx context.Context, name string) string {
	r.t.Helper()
	return r.must(ctx, "swarm", "query", name, "--agents", "0-3999", "-o", "jsonl")
}

// payloads returns how many payloads the folder has.
func (r *bulkRig) payloads() int {
	r.t.Helper()
	all, err := filepath.Glob(filepath.Join(r.spool, "*.bulk"))
	if err != nil {
		r.t.Fatal(err)
	}
	return len(all)
}

// anew ends the GPU agent without a word, and starts one that has nothing of it.
func (r *bulkRig) anew() {
	r.t.Helper()
	r.end(r.gpu, syscall.SIGKILL)
	r.gpu.command[2] = r.t.TempDir()
	r.gpu.start(r.t)
}

// until waits until met returns true.
func (r *bulkRig) until(what string, met func() bool) {
	r.t.Helper()
	for began := time.Now(); !met(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			r.t.Fatalf("%s: not within a minute\n%s\n%s", what, r.gpu.log, r.cpu.log)
		}
	}
}

// TestBulkRecovery observes with --bulk while the CPU agent that serves the folder and the GPU agent
// are killed: each decision, and the state in the end, is that of a swarm that is observed through its
// log. A GPU agent without a checkpoint fetches everything again. A shard whose bytes are away says so
// and goes on when they are back. A trim empties the folder.
func TestBulkRecovery(t *testing.T) {
	testlong.Only(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	r := &bulkRig{recovery: startRecovery(ctx, t, 1, 0), spool: t.TempDir(), snapshots: t.TempDir()}
	r.gpu = &member{kind: "gpuagent", command: []string{
		filepath.Join(r.bin, "gpuagent"), "--data-dir", r.data, "--device", "host", "--lease-ttl", "1s", "--snapshots",
		r.snapshots, "--nats", r.url,
	}}
	r.cpu = &member{kind: "cpuagent", command: []string{
		filepath.Join(r.bin, "cpuagent"), "--bulk", r.spool, "--bulk-listen",
		fmt.Sprint("127.0.0.1:", fixedPorts(t, 1)[0]), "--nats", r.url,
	}}
	r.gpu.start(t)
	r.cpu.start(t)
	for _, name := range []string{"beside", "within"} {
		file := write(t, filepath.Join(t.TempDir(), "spec.yaml"), "name: "+name+"\n"+bulkSpec)
		r.must(ctx, "swarm", "create", "-f", file)
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	r.file = filepath.Join(t.TempDir(), "rows.csv")
	over, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			if err := r.round(ctx, rnd); err != nil {
				ended <- err
				return
			}
			select {
			case <-over:
				ended <- nil
				return
			default:
			}
		}
	}()
	pause := rand.New(rand.NewPCG(seed, 2))
	killed := 0
	for began := time.Now(); time.Since(began) < 20*time.Second; killed++ {
		m := []*member{r.cpu, r.gpu}[killed%2]
		time.Sleep(time.Duration(200+pause.IntN(1500)) * time.Millisecond)
		r.end(m, syscall.SIGKILL)
		m.start(t)
	}
	close(over)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	rounds := r.rounds
	if killed < 4 {
		t.Errorf("%d kills", killed)
	}
	t.Logf("%d rounds, %d kills, %d shards resumed from a checkpoint", rounds, killed, r.resumed)
	if got := r.payloads(); got < 2*rounds {
		t.Errorf("%d payloads of %d rounds are kept, want two of each", got, rounds)
	}
	if r.state(ctx, "beside") != r.state(ctx, "within") {
		t.Fatal("the state is not that of observations in the log")
	}

	// An agent that has nothing fetches everything again, when it can.
	r.end(r.cpu, syscall.SIGKILL)
	r.anew()
	r.until("swarm list says that bytes are away", func() bool {
		return strings.Contains(r.must(ctx, "swarm", "list"), "waiting for the bytes of entry")
	})
	if out, err := r.run(ctx, "swarm", "explain", "beside"); err == nil || // exit 1: somebody must act
		!strings.Contains(out, "waits for its bytes, which are at") || !strings.Contains(out, "--bulk") {
		t.Errorf("swarm explain says %s: %v", out, err)
	}
	r.cpu.start(t)
	if r.state(ctx, "beside") != r.state(ctx, "within") {
		t.Fatal("the state after a replay is not that of observations in the log")
	}

	// A trim empties the folder, and an agent that has nothing begins with the snapshot.
	for _, name := range []string{"beside", "within"} {
		r.must(ctx, "swarm", "snapshot", name, "--name", name+"1")
	}
	r.must(ctx, "swarm", "trim", "beside", "--to", "beside1", "--snapshots", r.snapshots)
	r.until("the folder is empty", func() bool { return r.payloads() == 0 })
	if err := r.round(ctx, rnd); err != nil {
		t.Fatal(err)
	}
	r.anew()
	if r.state(ctx, "beside") != r.state(ctx, "within") {
		t.Fatal("the state after a trim is not that of observations in the log")
	}
	if r.payloads() != 2 {
		t.Errorf("%d payloads after one round, want 2", r.payloads())
	}
	if entries, err := os.ReadDir(r.spool); err != nil || len(entries) != 4 { // with the place and the lock
		t.Errorf("the folder has %v, %v", entries, err)
	}
}
