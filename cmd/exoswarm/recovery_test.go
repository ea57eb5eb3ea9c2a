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

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

var (
	recoverKills = flag.Int("recover.kills", 3, "kill -9 of processes in TestRecovery, of all of them in turn")
	recoverStops = flag.Int("recover.stops", 0, "SIGSTOP of processes in TestRecovery, spread among the kills; "+
		"SIGCONT follows after up to three times the lease")
	recoverSeed = flag.Uint64("recover.seed", 0, "seed of their order and moments; 0 takes one of the clock and "+
		"logs it")
	recoverServers = flag.Int("recover.servers", 1, "NATS servers in TestRecovery: 1, or 3 with as many replicas")
	recoverRows    = flag.Int("recover.rows", 4000, "rows of each of the four files of a round in TestRecovery; the "+
		"other load has a seventh as many entries")
	recoverBalance = flag.Duration("recover.rebalance", gpuagents.DefaultRebalance, "--rebalance of the GPU agents "+
		"in TestRecovery: with 1s shards move all the time")
	recoverStall = flag.Duration("recover.stall", 4*time.Minute, "how long no load may move on before "+
		"TestRecovery fails, with the end of each process's log")
	recoverAgents = flag.Int("recover.agents", 1, "agents of each kind in TestRecovery")
)

// recoverLease is the lease of a GPU agent's shards in TestRecovery.
const recoverLease = 2 * time.Second

// recovery is a cluster of real processes whose data outlives each of them.
type recovery struct {
	t                *testing.T
	bin, url         string
	conn             *natsq.Conn
	nats, gpus, cpus []*member
	data, root       string // of the first GPU agent; what CPU agents know as "r"
	resumed          int    // shards that GPU agents which have ended went on with from a checkpoint
	faults           []string
}

// fault notes a kill or a stop, for a failure.
func (r *recovery) fault(kind string, m *member) {
	r.faults = append(r.faults, fmt.Sprintf("%s %s %s", time.Now().Format("15:04:05.000"), kind,
		strings.Join(m.command, " ")))
}

// stalled returns what each load has done, the last faults, and the end of the log of each process.
func (r *recovery) stalled(loads []*load) string {
	var b strings.Builder
	for _, l := range loads {
		fmt.Fprintf(&b, "%s: round %d, %d lines\n", l.name, l.rounds, l.count())
	}
	for _, f := range r.faults[max(0, len(r.faults)-20):] {
		fmt.Fprintln(&b, f)
	}
	for _, m := range r.members() {
		lines := strings.Split(strings.TrimSpace(m.log.String()), "\n")
		fmt.Fprintf(&b, "-- %s, process %d\n%s\n", strings.Join(m.command, " "), m.cmd.Process.Pid,
			strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
	return b.String()
}

// member is a process of the cluster that is started again with the same data.
type member struct {
	*process
	kind         string
	command      []string
	kills, stops int
}

func (m *member) start(t *testing.T) {
	t.Helper()
	m.process, _ = startProcess(t, m.kind+" is ready", m.command[0], m.command[1:]...)
}

// startRecovery starts the NATS servers and a connection to them that outlasts their absence.
// Agents are the caller's to start.
func startRecovery(ctx context.Context, t *testing.T, servers, agents int) *recovery {
	t.Helper()
	r := &recovery{t: t, bin: binaries(t), data: t.TempDir(), root: t.TempDir()}
	ports := fixedPorts(t, 2*servers)
	var urls []string
	for i := range servers {
		urls = append(urls, fmt.Sprint("nats://127.0.0.1:", ports[2*i]))
		m := &member{kind: "nats", command: []string{
			filepath.Join(r.bin, "exoswarm"), "nats", "--port",
			fmt.Sprint(ports[2*i]), "--data-dir", t.TempDir(),
		}}
		if servers > 1 {
			m.command = append(m.command, "--name", fmt.Sprint("s", i), "--cluster-port", fmt.Sprint(ports[2*i+1]))
		}
		var routes []string // in one value, as in an environment variable; chaos_test.go gives a flag each
		for k := range servers {
			if k != i {
				routes = append(routes, fmt.Sprint("127.0.0.1:", ports[2*k+1]))
			}
		}
		if servers > 1 {
			m.command = append(m.command, "--route", strings.Join(routes, ","))
		}
		r.nats = append(r.nats, m)
		m.start(t)
	}
	r.url = strings.Join(urls, ",")
	for i := range agents {
		data := r.data
		if i > 0 {
			data = t.TempDir()
		}
		common := []string{"--nats", r.url, "--replicas", fmt.Sprint(servers)}
		r.gpus = append(r.gpus, &member{kind: "gpuagent", command: append([]string{
			filepath.Join(r.bin, "gpuagent"), "--data-dir", data, "--device", "host", "--lease-ttl",
			recoverLease.String(), "--log-level", "debug", "--rebalance", recoverBalance.String(),
		}, common...)})
		r.cpus = append(r.cpus, &member{
			kind:    "cpuagent",
			command: append([]string{filepath.Join(r.bin, "cpuagent"), "--root", "r=" + r.root}, common...),
		})
	}
	var err error
	if r.conn, err = natsq.Connect(ctx, natsconn.Options{
		URL: r.url, Name: "test", Replicas: servers,
		Patience: 10 * time.Minute,
	}); err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	t.Cleanup(r.conn.Close)
	return r
}

// fixedPorts returns free ports below the range that systems hand out by themselves, so that
// nothing takes a port while its server is down. Until the test ends another address of the machine
// listens on them: what keeps a test in another process from them, also while nothing else does.
func fixedPorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			continue
		}
		defer l.Close() // all are held until all are known
		kept, err := net.Listen("tcp", fmt.Sprint("127.0.0.2:", port))
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = kept.Close() })
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	t.Fatal("too few ports are free")
	return nil
}

// members returns all processes, the servers last.
func (r *recovery) members() []*member { return slices.Concat(r.gpus, r.cpus, r.nats) }

// resumedLine is what a GPU agent logs of a shard with which it continues from a checkpoint.
const resumedLine = "shard resumed from its checkpoint"

// end ends a process, and reads in the log of a GPU agent what it did with checkpoints.
func (r *recovery) end(m *member, s syscall.Signal) {
	r.t.Helper()
	m.end(r.t, s)
	if m.kind != "gpuagent" {
		return
	}
	log := m.log.String()
	if strings.Contains(log, "checkpoint not used") {
		r.t.Errorf("a checkpoint was refused:\n%s", log)
	}
	r.resumed += strings.Count(log, resumedLine)
}

// logged reports whether a GPU agent that runs has logged a text.
func (r *recovery) logged(text string) bool {
	return slices.ContainsFunc(r.gpus, func(m *member) bool { return strings.Contains(m.log.String(), text) })
}

// tally is how the lines that came differ from the lines that were due.
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
	return fmt.Errorf("of %d lines %d are lost, %d doubled, %d others are there, in another order: %v", c.due, c.lost,
		c.doubled, c.foreign, c.moved)
}

// load is work that continues in rounds, each of them compared with an undisturbed one.
type load struct {
	name  string
	round func(ctx context.Context, id string) ([]tally, error)

	mu     sync.Mutex
	flow   pulse
	done   uint64 // lines that came, of all rounds
	rounds int
	due    int // lines compared
}

// came says how many more lines came.
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
		id := natsconn.NewID()
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

// TestRecovery kills GPU agents, CPU agents and NATS servers with kill -9, and stops and continues
// them, at random moments, while a stream job goes from files to files and a swarm whose agents are
// addressed answers, round after round. Every line of every output, and every answer, is the same
// as of an undisturbed run: none is lost, none is there twice. The slice that runs with all tests
// kills each once; make recover and make recover-cluster are the campaigns.
func TestRecovery(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	seed := *recoverSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(),
		10*time.Minute+time.Duration(*recoverKills+*recoverStops)*time.Minute)
	defer cancel()
	r := startRecovery(ctx, t, *recoverServers, *recoverAgents)
	for _, m := range slices.Concat(r.gpus, r.cpus) {
		m.start(t)
	}
	loads := []*load{r.stream(), r.addressed(newSimulated(t, *recoverRows/7))}
	for _, l := range loads { // each remembers its first round as the undisturbed one
		if err := l.run(ctx, closed()); err != nil {
			t.Fatalf("l.run: %v", err)
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
	r.disturb(ctx, loads, failed, rand.New(rand.NewPCG(seed, 1)))
	close(over)
	for range loads {
		if err := <-failed; err != nil {
			t.Fatalf("a load: %v", err)
		}
	}
	line := fmt.Sprintf("seed %d", seed)
	for _, m := range r.members() {
		r.end(m, syscall.SIGTERM)
		if code := m.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s: exit code %d\n%s", m.cmd.Path, code, m.log)
		}
		line += fmt.Sprintf("  %s killed %d stopped %d", m.kind, m.kills, m.stops)
	}
	line += fmt.Sprintf("  resumed from checkpoints %d", r.resumed)
	for _, l := range loads {
		line += fmt.Sprintf("  %s: rounds %d lines %d lost 0 doubled 0 longest stall %.1f s", l.name, l.rounds, l.due,
			l.flow.gap.Seconds())
	}
	t.Log(line)
}

// closed is a channel that is closed.
func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// disturb kills and stops processes until there were as many of both as asked for and one has gone
// on from a checkpoint. Of four times, three come when the loads have moved on since the one
// before, at a random moment then; the fourth comes at once, into whatever is going on.
func (r *recovery) disturb(ctx context.Context, loads []*load, failed <-chan error, random *rand.Rand) {
	members := r.members()
	most := *recoverKills + *recoverStops
	stops := make([]bool, most) // which of them are
	for i := range *recoverStops {
		stops[i] = true
	}
	random.Shuffle(most, func(i, k int) { stops[i], stops[k] = stops[k], stops[i] })
	for n := 0; ; n++ {
		if n%len(members) == 0 {
			random.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
		}
		m := members[n%len(members)]
		if n == 0 || n >= most || random.IntN(4) > 0 {
			// A kill behind a checkpoint is the harder one.
			r.moved(ctx, m.kind == "gpuagent" && len(r.gpus) == 1, loads, failed)
		}
		if n >= most && (r.resumed > 0 || r.logged(resumedLine)) {
			return
		}
		// the moment of the kill, not a wait for anything
		letPass(ctx, time.Duration(random.Int64N(int64(700*time.Millisecond))))
		if n < most && stops[n] {
			m.stops++
			r.fault("stop", m)
			_ = m.cmd.Process.Signal(syscall.SIGSTOP)
			letPass(ctx, time.Duration(random.Int64N(int64(3*recoverLease)))) // how long it stands still
			_ = m.cmd.Process.Signal(syscall.SIGCONT)
			continue
		}
		r.fault("kill", m)
		r.end(m, syscall.SIGKILL)
		m.kills++
		if random.IntN(2) == 0 {
			letPass(ctx, time.Duration(random.Int64N(int64(time.Second)))) // how long it is gone
		}
		m.start(r.t)
	}
}

// moved waits until all loads have moved on and, if stored, the GPU agent that runs has stored a
// checkpoint.
func (r *recovery) moved(ctx context.Context, stored bool, loads []*load, failed <-chan error) {
	r.t.Helper()
	var since []uint64
	for _, l := range loads {
		since = append(since, l.count())
	}
	stall := time.NewTimer(*recoverStall)
	defer stall.Stop()
	for {
		waiting := stored && !r.logged("checkpoint stored")
		for i, l := range loads {
			waiting = waiting || l.count() == since[i]
		}
		if !waiting {
			return
		}
		select {
		case err := <-failed:
			r.t.Fatalf("under kills: %v\n%s", err, r.stalled(loads))
		case <-ctx.Done():
			r.t.Fatal("nothing moves: ", context.Cause(ctx))
		case <-stall.C:
			r.t.Fatalf("a load has not moved for %v\n%s", *recoverStall, r.stalled(loads))
		case <-time.After(10 * time.Millisecond): // between two looks
		}
	}
}

// TestRecoveryControl: what TestRecovery compares differs when a line is lost, doubled, changed or
// moved, and when a checkpoint is restored with another position than its own; and it does not when
// the same is done with the right position.
func TestRecoveryControl(t *testing.T) {
	testkit.OnlyLong(t)
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
	r := startRecovery(ctx, t, 1, 1)
	gpu := r.gpus[0]
	sim := newSimulated(t, 240)
	third := len(sim.entries) / 3
	// serve has a new process answer n more entries.
	serve := func(id string, from, n int) (got []string) {
		t.Helper()
		gpu.start(t)
		if err := sim.append(ctx, r.conn, id, from, n); err != nil {
			t.Fatalf("sim.append: %v", err)
		}
		if err := answers(ctx, r.conn, id, from, n,
			func(e swarms.Entry) { got = append(got, answerLine(e)) }); err != nil {
			t.Fatalf("answers: %v", err)
		}
		gpu.end(t, syscall.SIGTERM) // leaves a checkpoint behind the last entry
		return got
	}
	var undisturbed []string
	for _, id := range []string{"undisturbed", "right", "wrong"} {
		if err := sim.announce(ctx, r.conn, id); err != nil {
			t.Fatalf("sim.announce: %v", err)
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
		if !strings.Contains(gpu.log.String(), resumedLine) {
			t.Fatalf("%s was not resumed:\n%s", id, gpu.log)
		}
		switch c := compare(undisturbed, got); {
		case id == "undisturbed":
			undisturbed = got
		case id == "right" && c.err() != nil:
			t.Error(c.err())
		case id == "wrong" && c.err() == nil:
			t.Error("a checkpoint with the position of an earlier one gives the same answers: the comparison sees " +
				"nothing")
		case id == "wrong":
			t.Logf("a checkpoint with the position of an earlier one: %v", c.err())
		}
		if err := r.conn.Swarms.RemoveSwarm(ctx, swarms.Swarm{ID: id}); err != nil {
			t.Fatalf("r.conn.Swarms.RemoveSwarm: %v", err)
		}
	}
}

// note is the position in a swarm's checkpoint; with another one, that is put in its place and its
// pages stay. No agent has it open.
func (r *recovery) note(id string, put []byte) []byte {
	r.t.Helper()
	o := pagestore.Options{
		PageSize: simulationPage,
		Tiers: []pagestore.Tier{{
			Name: "checkpoint", Dir: filepath.Join(r.data, "checkpoints", id+".0"),
			SegmentBytes: 8 << 20,
		}},
	}
	o.Tiers[0].Capacity = o.MinCapacity() + 1<<30
	s, err := pagestore.Open(o)
	if err != nil {
		r.t.Fatalf("pagestore.Open: %v", err)
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

// lines are the lines of a file, or of all files of a folder by name.
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
		t.Fatalf("swarm.Parse swarm.yaml: %v", err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	return data
}
