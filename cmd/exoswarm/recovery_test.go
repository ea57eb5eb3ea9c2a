package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

var (
	recoverKills = flag.Int("recover.kills", 3, "kill -9 of processes in TestRecovery, of the three kinds in turn")
	recoverSeed  = flag.Uint64("recover.seed", 0, "seed of their order and moments; 0 takes one of the clock and logs it")
)

// recovery is a cluster of real processes whose data outlives each of them.
type recovery struct {
	*cluster
	t          *testing.T
	conn       *natsq.Conn
	port       int
	data, root string // of the GPU agent; what the CPU agent knows as "r"
	resumed    int    // shards that GPU agents which have ended went on with from a checkpoint
}

// startRecovery starts the NATS server and a connection to it that outlasts its absence; agents are the caller's to start.
func startRecovery(ctx context.Context, t *testing.T) *recovery {
	t.Helper()
	r := &recovery{cluster: &cluster{bin: binaries(t), natsDir: t.TempDir()}, t: t, port: fixedPort(t), data: t.TempDir(), root: t.TempDir()}
	r.url = fmt.Sprint("nats://127.0.0.1:", r.port)
	r.startNATS()
	var err error
	if r.conn, err = natsq.Connect(ctx, natsq.Options{URL: r.url, Name: "test", Patience: 10 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.conn.Close)
	return r
}

// fixedPort is a free port below those that systems hand out by themselves, so that nothing takes it while its server is down.
func fixedPort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func (r *recovery) startNATS() {
	r.nats, _ = startProcess(r.t, "nats is ready", filepath.Join(r.bin, "exoswarm"), "nats", "--port", fmt.Sprint(r.port), "--data-dir", r.natsDir)
}

func (r *recovery) startGPU() {
	r.gpu, _ = startProcess(r.t, "gpuagent is ready", filepath.Join(r.bin, "gpuagent"),
		"--nats", r.url, "--data-dir", r.data, "--device", "host", "--lease-ttl", "2s", "--log-level", "debug")
}

func (r *recovery) startCPU() {
	r.cpu, _ = startProcess(r.t, "cpuagent is ready", filepath.Join(r.bin, "cpuagent"), "--nats", r.url, "--root", "r="+r.root)
}

// resumedLine is what a GPU agent logs of a shard with which it goes on from a checkpoint.
const resumedLine = "shard resumed from its checkpoint"

// endGPU ends the GPU agent and reads in its log what it did with checkpoints.
func (r *recovery) endGPU(s syscall.Signal) {
	r.t.Helper()
	r.gpu.end(r.t, s)
	log := r.gpu.log.String()
	if strings.Contains(log, "checkpoint not used") {
		r.t.Errorf("a checkpoint was refused:\n%s", log)
	}
	r.resumed += strings.Count(log, resumedLine)
}

// kind is one of the processes that are killed.
type kind struct {
	name  string
	end   func(syscall.Signal)
	start func()
	kills int
}

func (r *recovery) kinds() []*kind {
	return []*kind{
		{name: "gpuagent", end: r.endGPU, start: r.startGPU},
		{name: "cpuagent", end: func(s syscall.Signal) { r.cpu.end(r.t, s) }, start: r.startCPU},
		{name: "nats", end: func(s syscall.Signal) { r.nats.end(r.t, s) }, start: r.startNATS},
	}
}

// tally is how the lines that came differ from those that were due.
type tally struct {
	due                    int
	lost, doubled, foreign int
	moved                  bool // all are there, in another order
}

// compare counts what came against what was due. Lines that are due twice may come twice.
func compare(want, got []string) tally {
	c := tally{due: len(want), moved: !slices.Equal(want, got)}
	left := map[string]int{}
	for _, line := range want {
		left[line]++
	}
	for _, line := range got {
		switch n, known := left[line]; {
		case !known:
			c.foreign++
		case n == 0:
			c.doubled++
		default:
			left[line]--
		}
	}
	for _, n := range left {
		c.lost += n
	}
	c.moved = c.moved && c.lost+c.doubled+c.foreign == 0
	return c
}

func (c tally) err() error {
	if c.lost+c.doubled+c.foreign == 0 && !c.moved {
		return nil
	}
	return fmt.Errorf("of %d lines %d are lost, %d doubled, %d others are there, in another order: %v", c.due, c.lost, c.doubled, c.foreign, c.moved)
}

// load is work that goes on in rounds, each of them compared with an undisturbed one.
type load struct {
	name  string
	round func(ctx context.Context, id string) ([]tally, error)

	mu     sync.Mutex
	flow   pulse
	done   uint64 // lines that came, of all rounds
	rounds int
	due    int // lines compared
}

// came says that so many more lines came.
func (l *load) came(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flow.beat()
	l.done += n
}

func (l *load) count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// run makes rounds until over is closed, one at least, and ends with one that is complete.
func (l *load) run(ctx context.Context, over <-chan struct{}) error {
	for {
		l.rounds++
		id := natsq.NewID()
		found, err := l.round(ctx, id)
		for _, c := range found {
			l.due += c.due
			err = errors.Join(err, c.err())
		}
		if err != nil {
			return fmt.Errorf("%s, round %d: %w", l.name, l.rounds, err)
		}
		select {
		case <-over:
			return nil
		default:
		}
	}
}

// TestRecovery kills GPU agent, CPU agent and NATS server with kill -9 at random moments, while a stream job goes from files to files and a swarm
// whose agents are addressed answers, round after round. Every line of every output, and every answer, is that of an undisturbed run: none is
// lost, none is there twice. The slice that runs with all tests kills each once; make recover is the campaign.
func TestRecovery(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	seed := *recoverSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+time.Duration(*recoverKills)*time.Minute)
	defer cancel()
	r := startRecovery(ctx, t)
	r.startGPU()
	r.startCPU()
	loads := []*load{r.stream(), r.addressed(newSimulated(t, 600))}
	for _, l := range loads { // each remembers its first round as the undisturbed one
		if err := l.run(ctx, closed()); err != nil {
			t.Fatal(err)
		}
		l.flow, l.due, l.rounds = pulse{}, 0, 0 // what is printed is of the kills
	}
	over, failed := make(chan struct{}), make(chan error, len(loads))
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, l := range loads {
		running.Go(func() { failed <- l.run(ctx, over) })
	}
	kinds := r.kinds()
	r.kill(ctx, kinds, loads, failed, rand.New(rand.NewPCG(seed, 1)))
	close(over)
	for range loads {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range kinds { // the server last
		k.end(syscall.SIGTERM)
	}
	for _, p := range []*process{r.gpu, r.cpu, r.nats} {
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s: exit code %d\n%s", p.cmd.Path, code, p.log)
		}
	}
	line := fmt.Sprintf("seed %d", seed)
	for _, k := range kinds {
		line += fmt.Sprintf("  %s killed %d", k.name, k.kills)
	}
	line += fmt.Sprintf("  resumed from checkpoints %d", r.resumed)
	for _, l := range loads {
		line += fmt.Sprintf("  %s: rounds %d lines %d lost 0 doubled 0 longest stall %.1f s", l.name, l.rounds, l.due, l.flow.gap.Seconds())
	}
	t.Log(line)
}

// closed is a channel that is closed.
func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// kill kills processes until there were as many as asked for and one has gone on from a checkpoint. Of four kills, three come when the loads have moved on
// since the one before, at a random moment then; the fourth comes at once, into whatever is going on.
func (r *recovery) kill(ctx context.Context, kinds []*kind, loads []*load, failed <-chan error, random *rand.Rand) {
	for n := 0; ; n++ {
		if n%len(kinds) == 0 {
			random.Shuffle(len(kinds), func(i, k int) { kinds[i], kinds[k] = kinds[k], kinds[i] })
		}
		k := kinds[n%len(kinds)]
		if n == 0 || n >= *recoverKills || random.IntN(4) > 0 {
			// A kill behind a checkpoint is the harder one.
			r.moved(ctx, k.name == "gpuagent", loads, failed)
		}
		if n >= *recoverKills && (r.resumed > 0 || strings.Contains(r.gpu.log.String(), resumedLine)) {
			return
		}
		time.Sleep(time.Duration(random.Int64N(int64(700 * time.Millisecond)))) // the moment of the kill, not a wait for anything
		k.end(syscall.SIGKILL)
		k.kills++
		if random.IntN(2) == 0 {
			time.Sleep(time.Duration(random.Int64N(int64(time.Second)))) // how long it is gone
		}
		k.start()
	}
}

// moved waits until all loads have moved on and, if stored, the GPU agent that runs has stored a checkpoint.
func (r *recovery) moved(ctx context.Context, stored bool, loads []*load, failed <-chan error) {
	r.t.Helper()
	var since []uint64
	for _, l := range loads {
		since = append(since, l.count())
	}
	for {
		waiting := stored && !strings.Contains(r.gpu.log.String(), "checkpoint stored")
		for i, l := range loads {
			waiting = waiting || l.count() == since[i]
		}
		if !waiting {
			return
		}
		select {
		case err := <-failed:
			r.t.Fatalf("under kills: %v", err)
		case <-ctx.Done():
			r.t.Fatal("nothing moves")
		case <-time.After(10 * time.Millisecond): // between two looks
		}
	}
}

// TestRecoveryControl: what TestRecovery looks at differs when a line is lost, doubled, changed or moved, and when a checkpoint is restored with another
// position than its own; and it does not when the same is done with the right position.
func TestRecoveryControl(t *testing.T) {
	want := []string{"a 1\n", "a 2\n", "b 1\n", "b 2\n"}
	for name, c := range map[string]struct {
		got  []string
		want tally
	}{
		"the same":            {[]string{"a 1\n", "a 2\n", "b 1\n", "b 2\n"}, tally{due: 4}},
		"lost":                {[]string{"a 1\n", "b 1\n", "b 2\n"}, tally{due: 4, lost: 1}},
		"lost at the end":     {want[:3], tally{due: 4, lost: 1}},
		"doubled":             {[]string{"a 1\n", "a 2\n", "a 2\n", "b 1\n", "b 2\n"}, tally{due: 4, doubled: 1}},
		"doubled at the end":  {[]string{"a 1\n", "a 2\n", "b 1\n", "b 2\n", "b 2\n"}, tally{due: 4, doubled: 1}},
		"one for another":     {[]string{"a 1\n", "a 2\n", "a 2\n", "b 2\n"}, tally{due: 4, lost: 1, doubled: 1}},
		"changed":             {[]string{"a 1\n", "a 2\n", "b 1\n", "b 3\n"}, tally{due: 4, lost: 1, foreign: 1}},
		"in another order":    {[]string{"a 1\n", "b 1\n", "a 2\n", "b 2\n"}, tally{due: 4, moved: true}},
		"nothing":             {nil, tally{due: 4, lost: 4}},
		"half a line is lost": {[]string{"a 1\n", "a 2\n", "b 1\n", "b 2"}, tally{due: 4, lost: 1, foreign: 1}},
	} {
		c.want.due = len(want)
		if got := compare(want, c.got); got != c.want || (got.err() == nil) != (name == "the same") {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r := startRecovery(ctx, t)
	sim := newSimulated(t, 240)
	third := len(sim.entries) / 3
	// serve has a process of its own answer so many more entries.
	serve := func(id string, from, n int) (got []string) {
		t.Helper()
		r.startGPU()
		if err := sim.append(ctx, r.conn, id, from, n); err != nil {
			t.Fatal(err)
		}
		if err := answers(ctx, r.conn, id, from, n, func(e jobs.Entry) { got = append(got, answerLine(e)) }); err != nil {
			t.Fatal(err)
		}
		r.gpu.end(t, syscall.SIGTERM) // leaves a checkpoint behind the last entry
		return got
	}
	var undisturbed []string
	for _, id := range []string{"undisturbed", "right", "wrong"} {
		if err := sim.announce(ctx, r.conn, id); err != nil {
			t.Fatal(err)
		}
		got := serve(id, 0, third)
		before := r.note(id, nil)
		got = append(got, serve(id, third, third)...)
		switch id {
		case "right":
			r.note(id, r.note(id, nil))
		case "wrong":
			r.note(id, before)
		}
		got = append(got, serve(id, 2*third, third)...)
		if !strings.Contains(r.gpu.log.String(), resumedLine) {
			t.Fatalf("%s was not resumed:\n%s", id, r.gpu.log)
		}
		switch c := compare(undisturbed, got); {
		case id == "undisturbed":
			undisturbed = got
		case id == "right" && c.err() != nil:
			t.Error(c.err())
		case id == "wrong" && c.err() == nil:
			t.Error("a checkpoint with the position of an earlier one gives the same answers: the comparison sees nothing")
		case id == "wrong":
			t.Logf("a checkpoint with the position of an earlier one: %v", c.err())
		}
		if err := removeSwarm(ctx, r.conn, id); err != nil {
			t.Fatal(err)
		}
	}
}

// note is the position in a swarm's checkpoint; with another one, that is put in its place and its pages stay. No agent has it open.
func (r *recovery) note(id string, put []byte) []byte {
	r.t.Helper()
	o := pagestore.Options{PageSize: simulationPage, Tiers: []pagestore.Tier{{Name: "checkpoint", Dir: filepath.Join(r.data, "checkpoints", id+".0"), SegmentBytes: 8 << 20}}}
	o.Tiers[0].Capacity = o.MinCapacity() + 1<<30
	s, err := pagestore.Open(o)
	if err != nil {
		r.t.Fatal(err)
	}
	got := bytes.Clone(s.Note())
	if put != nil {
		_, err = s.Commit(r.t.Context(), put)
	}
	if err = errors.Join(err, s.Close()); err != nil || len(got) == 0 {
		r.t.Fatalf("checkpoint of %s: note %q: %v", id, got, err)
	}
	return got
}

// lines are those of a file, or of all files of a folder by name.
func lines(path string) (all []string, err error) {
	err = filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		for line := range bytes.Lines(data) {
			all = append(all, string(line))
		}
		return err
	})
	return all, err
}

// specJSON is a swarm's spec as jobs have it.
func specJSON(t *testing.T, text string) json.RawMessage {
	t.Helper()
	spec, err := swarm.Parse("swarm.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
