package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

var (
	lifecycleN = flag.Int("lifecycle.n", 3, "sequences of TestLifecycleProcesses; of two in turn the second "+
		"goes on with the processes of the first")
	lifecycleSeed  = flag.Uint64("lifecycle.seed", 0, "seed of the sequences; 0 takes one of the clock and logs it")
	lifecycleFirst = flag.Int("lifecycle.first", 0, "number of the first sequence, which is even: sequence N of a "+
		"seed is always the same")
	lifecycleFor    = flag.Duration("lifecycle.for", 0, "after how long no further sequence begins; 0: after all")
	lifecycleWithin = flag.Duration("lifecycle.within", 45*time.Second, "an agent that has not answered for the "+
		"life of a lease and so long is deaf")
	lifecycleScript = flag.String("lifecycle.script", "", "steps of the only sequence, with commas between, as a "+
		"failure prints them")
)

// lifecycleLease is the lease of the agents' shards.
const lifecycleLease = 2 * time.Second

// lifecycleServer is the operand of steps that concern the NATS server; agents are a and b.
const lifecycleServer = "server"

// TestLifecycleProcesses is TestLifecycle of cmd/internal/gpuprocess with real processes. A random
// sequence creates swarms, gives them entries, deletes them and creates others of the same name,
// while agents and the NATS server are killed, terminated, stopped, continued and started again,
// the store is emptied, and agents get each other's data folder or an earlier state of their own.
// Every answer is the same as of a swarm in this process that nothing disturbs, and after each step
// somebody answers within the life of a lease and some seconds. The slice that runs with all tests
// has three sequences; make lifecycle runs 200.
func TestLifecycleProcesses(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	seed := *lifecycleSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	if *lifecycleFirst%2 != 0 {
		t.Fatalf("-lifecycle.first=%d: use an even number: a sequence with an odd one goes on with processes of the "+
			"one before", *lifecycleFirst)
	}
	t.Logf("seed %d", seed)
	binaries(t)
	twin, dev := undisturbedAgent(t)
	defer func() {
		if err := dev.Close(); err != nil {
			t.Errorf("dev.Close: %v", err)
		}
	}()
	counts, began := &lifecycleCounts{}, time.Now()
	t.Run("sequences", func(t *testing.T) {
		if *lifecycleScript != "" {
			l := startLifecycle(t, twin, counts, 0)
			l.random = rand.New(rand.NewPCG(seed, 0))
			l.run(strings.Split(*lifecycleScript, ", "))
			l.end()
			return
		}
		end := *lifecycleFirst + *lifecycleN
		for i := *lifecycleFirst; i < end; i += 2 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				var l *lifecycle
				for n := i; n < min(i+2, end) && (*lifecycleFor == 0 || time.Since(began) < *lifecycleFor); n++ {
					if l == nil {
						l = startLifecycle(t, twin, counts, i)
					}
					l.random = rand.New(rand.NewPCG(seed, uint64(n)))
					l.run(nil)
				}
				if l != nil {
					l.end()
				}
			})
		}
	})
	t.Logf("seed %d: %v", seed, counts)
}

// undisturbedAgent serves swarms in this process, where nothing disturbs them.
func undisturbedAgent(t *testing.T) (*natsq.Conn, interface{ Close() error }) {
	t.Helper()
	srv := jobstest.Start(t, server.Options{Port: server.InProcess})
	conn, err := natsq.Connect(t.Context(), natsconn.Options{InProcess: srv, Name: "undisturbed"})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	t.Cleanup(conn.Close)
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("cuda.Open host: %v", err)
	}
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "undisturbed", Device: dev, Queue: conn.Swarms,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	return conn, closer(func() error { agent.Stop(); return dev.Close() })
}

// closer is a function as a Close method.
type closer func() error

func (c closer) Close() error { return c() }

// lifecycleCounts are of all sequences.
type lifecycleCounts struct {
	mu                                       sync.Mutex
	fresh, sequences, steps, probes, answers int
	created, deleted, kills, stops, empty    int
	resumed, unused                          int
	longest                                  time.Duration // until a probe was answered
	longestAt                                string
}

// add changes the counts.
func (c *lifecycleCounts) add(change func(c *lifecycleCounts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *lifecycleCounts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d sequences, %d of them with fresh processes, %d steps, %d swarms created, %d deleted, %d "+
		"kill -9, %d SIGSTOP, %d empty stores, "+
		"%d probes, %d answers compared, none wrong, shards resumed from checkpoints %d, checkpoints not used %d, "+
		"longest wait for an answer %.1f s (%s)",
		c.sequences, c.fresh, c.steps, c.created, c.deleted, c.kills, c.stops, c.empty, c.probes, c.answers, c.resumed,
		c.unused, c.longest.Seconds(), c.longestAt)
}

// runState is what a process does: none runs, it runs, or SIGSTOP has stopped it.
type runState int

const (
	stateDown runState = iota
	stateUp
	stateStopped
)

// lifecycle is a cluster of a NATS server and up to two GPU agents, all of them processes.
type lifecycle struct {
	t          *testing.T
	bin, url   string
	number     int    // of the first sequence
	store      string // folder of the server
	conn       *natsq.Conn
	nats       *lifecycleMember
	agents     [2]*lifecycleMember
	twin       *natsq.Conn
	swarms     map[string]*lifecycleSwarm // by id
	generation int                        // counts swarms
	random     *rand.Rand
	counts     *lifecycleCounts
	script     []string // steps so far
}

// lifecycleMember is a process of the cluster.
type lifecycleMember struct {
	member
	state     runState
	dir, kept string // data folder of an agent, and a copy of it
	past      []*process
}

// lifecycleSwarm is a swarm and its twin.
type lifecycleSwarm struct {
	record, twin swarms.Swarm
	agents       int // of each shard
	entries      [][]swarms.Entry
}

func startLifecycle(t *testing.T, twin *natsq.Conn, counts *lifecycleCounts, number int) *lifecycle {
	t.Helper()
	l := &lifecycle{
		t: t, bin: binaries(t), number: number, store: filepath.Join(t.TempDir(), "store"), twin: twin,
		counts: counts, swarms: map[string]*lifecycleSwarm{},
	}
	port := fixedPorts(t, 1)[0]
	l.url = fmt.Sprint("nats://127.0.0.1:", port)
	l.nats = &lifecycleMember{member: member{
		kind:    "nats",
		command: []string{filepath.Join(l.bin, "exoswarm"), "nats", "--port", fmt.Sprint(port), "--data-dir", l.store},
	}}
	for i := range l.agents {
		l.agents[i] = &lifecycleMember{member: member{kind: "gpuagent"}, dir: filepath.Join(t.TempDir(), "data")}
	}
	t.Cleanup(func() { // before the processes are killed
		if l.conn != nil {
			l.conn.Close()
		}
		if t.Failed() {
			l.print()
		}
	})
	l.startServer()
	counts.add(func(c *lifecycleCounts) { c.fresh++ })
	return l
}

// print logs the steps and the ends of the logs of all processes.
func (l *lifecycle) print() {
	l.t.Logf("sequence: %s", strings.Join(l.script, ", "))
	for i, m := range []*lifecycleMember{l.nats, l.agents[0], l.agents[1]} {
		for n, p := range append(m.past, m.process) {
			if p == nil || n < len(m.past)-2 {
				continue
			}
			lines := strings.Split(p.log.String(), "\n")
			l.t.Logf("%s %s, process %d:\n%s", m.kind, []string{"", "a", "b"}[i], n+1,
				strings.Join(lines[max(0, len(lines)-200):], "\n"))
		}
	}
}

func (l *lifecycle) fatalf(format string, args ...any) {
	l.t.Helper()
	l.t.Fatalf("cluster %d, after %q: %s", l.number, strings.Join(l.script, ", "), fmt.Sprintf(format, args...))
}

// command runs exoswarm as a process.
func (l *lifecycle) command(args ...string) (code int, out string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), l.patience()+time.Minute)
	defer cancel()
	cmd := osexec.CommandContext(ctx, filepath.Join(l.bin, "exoswarm"), append(args, "--nats", l.url)...)
	said, err := cmd.CombinedOutput()
	if exit := (*osexec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		l.fatalf("exoswarm %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return cmd.ProcessState.ExitCode(), string(said)
}

// mustCommand is command that succeeds.
func (l *lifecycle) mustCommand(args ...string) {
	l.t.Helper()
	if code, out := l.command(args...); code != 0 {
		l.fatalf("exoswarm %s: exit %d: %s", strings.Join(args, " "), code, out)
	}
}

// patience is within which an agent that runs answers.
func (l *lifecycle) patience() time.Duration { return lifecycleLease + *lifecycleWithin }

func (l *lifecycle) startServer() {
	l.t.Helper()
	l.begin(l.nats)
	if l.conn == nil {
		l.connect()
	}
}

// connect makes the connection of this test anew.
func (l *lifecycle) connect() {
	l.t.Helper()
	if l.conn != nil {
		l.conn.Close()
	}
	var err error
	if l.conn, err = natsq.Connect(l.t.Context(), natsconn.Options{
		URL: l.url, Name: "test",
		Patience: 10 * time.Minute,
	}); err != nil {
		l.fatalf("%v", err)
	}
}

func (l *lifecycle) startAgent(i int) {
	l.t.Helper()
	m := l.agents[i]
	m.command = []string{
		filepath.Join(l.bin, "gpuagent"), "--nats", l.url, "--name", []string{"a", "b"}[i], "--data-dir", m.dir,
		"--device", "host", "--memory", "1GiB",
		"--lease-ttl", lifecycleLease.String(), "--log-level", "debug",
	}
	l.begin(m)
}

func (l *lifecycle) begin(m *lifecycleMember) {
	l.t.Helper()
	if m.process != nil {
		m.past = append(m.past, m.process)
	}
	m.start(l.t)
	m.state = stateUp
}

// finish ends a process by a signal. One that SIGTERM ends says that it has ended well.
func (l *lifecycle) finish(m *lifecycleMember, s syscall.Signal) {
	l.t.Helper()
	if s == syscall.SIGKILL {
		l.counts.add(func(c *lifecycleCounts) { c.kills++ })
	}
	m.end(l.t, s)
	m.state = stateDown
	log := m.log.String()
	if code := m.cmd.ProcessState.ExitCode(); s == syscall.SIGTERM && code != 0 || strings.Contains(log, "panic:") {
		l.fatalf("%s: exit code %d after %v", m.kind, code, s)
	}
	l.counts.add(func(c *lifecycleCounts) {
		c.resumed += strings.Count(log, resumedLine)
		c.unused += strings.Count(log, "checkpoint not used")
	})
}

// serving reports whether some agent runs and can reach the server.
func (l *lifecycle) serving() bool {
	return l.nats.state == stateUp && (l.agents[0].state == stateUp || l.agents[1].state == stateUp)
}

// run does one sequence, which begins with a server, two agents and no swarm. Without steps it
// draws some.
func (l *lifecycle) run(steps []string) {
	l.t.Helper()
	began := time.Now()
	for i, m := range l.agents {
		if m.state == stateDown {
			l.startAgent(i)
		}
	}
	for id := range l.swarms {
		l.do("delete " + id)
	}
	drawn := steps == nil
	if drawn {
		steps = []string{"create x", "observe x"}
	}
	for i := 0; i < len(steps); i++ {
		step, hasty := strings.CutSuffix(steps[i], "!")
		l.do(step)
		for _, m := range []*lifecycleMember{l.nats, l.agents[0], l.agents[1]} {
			select {
			case <-m.done:
				if m.state != stateDown {
					l.fatalf("%s has ended by itself", m.kind)
				}
			default:
			}
		}
		l.probe(!hasty)
		if drawn && i == len(steps)-1 && len(steps) < 8+l.random.IntN(10) {
			steps = append(steps, l.draw())
		}
	}
	l.check()
	l.counts.add(func(c *lifecycleCounts) { c.sequences++ })
	l.t.Logf("%d steps in %.1f s: %s", len(steps), time.Since(began).Seconds(), strings.Join(steps, ", "))
}

// draw chooses a step that is possible now. A hasty one, which ends with an exclamation mark, does
// not wait for the answer to its probe.
func (l *lifecycle) draw() string {
	var all []string
	add := func(times int, verb string, what ...string) {
		for range times {
			all = append(all, strings.Join(append([]string{verb}, what...), " "))
		}
	}
	up := l.nats.state == stateUp
	switch l.nats.state {
	case stateUp:
		add(1, "kill", lifecycleServer)
		add(1, "term", lifecycleServer)
		add(1, "stop", lifecycleServer)
		add(2, "empty", lifecycleServer)
	case stateDown:
		add(12, "start", lifecycleServer)
	case stateStopped:
		add(12, "continue", lifecycleServer)
		add(1, "kill", lifecycleServer)
	}
	for _, id := range []string{"x", "y"} {
		switch {
		case up && l.swarms[id] == nil:
			add(4, "create", id)
		case up:
			add(2, "observe", id)
			add(2, "tick", id)
			add(1, "vote", id)
			add(1, "delete", id)
			add(3, "remake", id)
			add(1, "storm", id, lifecycleServer)
			for i, m := range l.agents {
				if m.state == stateUp {
					add(1, "storm", id, []string{"a", "b"}[i])
				}
			}
		}
	}
	for i, m := range l.agents {
		name := []string{"a", "b"}[i]
		switch m.state {
		case stateUp:
			add(2, "kill", name)
			add(2, "stop", name)
			if up {
				add(1, "term", name)
			}
		case stateStopped:
			add(3, "continue", name)
			add(1, "kill", name)
		case stateDown:
			if up {
				add(4, "start", name)
			}
			add(1, "keep", name)
			if m.kept != "" {
				add(2, "rewind", name)
			}
		}
	}
	if l.agents[0].state == stateDown && l.agents[1].state == stateDown {
		add(4, "swap")
	}
	step := all[l.random.IntN(len(all))]
	if l.random.IntN(3) == 0 {
		step += "!"
	}
	return step
}

// end ends all processes by SIGTERM.
func (l *lifecycle) end() {
	l.t.Helper()
	for _, m := range []*lifecycleMember{l.agents[0], l.agents[1], l.nats} {
		if m.state == stateUp {
			l.finish(m, syscall.SIGTERM)
		}
	}
}

// probe asks every swarm for its state. If wait, all answer within the life of a lease and some
// seconds, as the undisturbed ones do.
func (l *lifecycle) probe(wait bool) {
	l.t.Helper()
	if !l.serving() {
		return
	}
	for _, s := range l.swarms {
		for k := range s.entries {
			l.append(s, k, l.query(s, k))
		}
	}
	if !wait {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(l.t.Context(), l.patience())
	defer cancel()
	for _, s := range l.swarms {
		for k := range s.entries {
			l.compare(ctx, s, k, len(s.entries[k]))
		}
	}
	l.counts.add(func(c *lifecycleCounts) {
		c.probes++
		if took := time.Since(began); took > c.longest {
			c.longest, c.longestAt = took, fmt.Sprintf("cluster %d, %s", l.number, l.script[len(l.script)-1])
		}
	})
}

// compare reads the answers of a shard from entry number from to its last.
func (l *lifecycle) compare(ctx context.Context, s *lifecycleSwarm, k, from int) {
	l.t.Helper()
	var got [2][]swarms.Entry
	for i, c := range []*natsq.Conn{l.twin, l.conn} {
		record, ctx := s.record, ctx
		if c == l.twin { // it has another patience than the agents under test
			record, ctx = s.twin, l.t.Context()
		}
		r, err := c.Swarms.Log(record.Key(), k, swarms.Out).Read(ctx, uint64(from))
		if err != nil {
			l.fatalf("answers of %s, shard %d: %v", record.Key(), k, err)
		}
		for n := from; n <= len(s.entries[k]); n++ {
			e, err := r.Next(ctx)
			if err != nil || e.Ref != uint64(n) || e.Seq != uint64(n) {
				r.Close()
				l.fatalf("answer %d of %s, shard %d, is number %d, to entry %d: %v: the agents are deaf or stuck", n,
					record.Key(), k, e.Seq, e.Ref, err)
			}
			got[i] = append(got[i], e)
		}
		r.Close()
	}
	for i, want := range got[0] {
		if e := got[1][i]; e.Kind != want.Kind || !bytes.Equal(e.Data, want.Data) {
			l.fatalf("answer %d of %s, shard %d, to a %s: %s %x, undisturbed it is %s %x", e.Seq, s.record.Key(), k,
				s.entries[k][e.Seq-1].Kind, e.Kind, e.Data, want.Kind, want.Data)
		}
	}
	l.counts.add(func(c *lifecycleCounts) { c.answers += len(got[0]) })
}

// check ends a sequence: whichever agent serves alone answers, every answer is right, none is there
// twice, and no shard is served of a swarm that is gone.
func (l *lifecycle) check() {
	l.t.Helper()
	for _, m := range []*lifecycleMember{l.nats, l.agents[0], l.agents[1]} {
		if m.state == stateStopped {
			l.signal(m, syscall.SIGCONT)
		}
	}
	if l.nats.state == stateDown {
		l.do("start " + lifecycleServer)
	}
	for _, step := range []string{
		"start a", "start b", "create x", "create y", "term b", "start b", "term a",
		"start a",
	} {
		l.do(step)
		l.probe(true)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), l.patience())
	defer cancel()
	shards := 0
	for _, s := range l.swarms {
		for k := range s.entries {
			shards++
			l.compare(ctx, s, k, 1)
			if err := endsAt(ctx, l.conn.Swarms.Log(s.record.Key(), k, swarms.Out),
				uint64(len(s.entries[k]))); err != nil {
				l.fatalf("%s, shard %d: %v", s.record.Key(), k, err)
			}
		}
	}
	for {
		served, err := l.served(ctx)
		if err == nil && served == shards {
			return
		}
		select {
		case <-ctx.Done():
			l.fatalf("the agents serve %d shards, %d are there: %v", served, shards, err)
		case <-time.After(50 * time.Millisecond): // between two looks
		}
	}
}

// served is how many shards the agents say that they serve, and those alone have a lease.
func (l *lifecycle) served(ctx context.Context) (n int, err error) {
	held, err := l.conn.Swarms.Leases(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range l.swarms {
		for k := range s.entries {
			if held[swarms.LeaseKey(s.record.Key(), k)] == "" {
				return 0, fmt.Errorf("%s, shard %d: nobody has its lease", s.record.Key(), k)
			}
		}
	}
	all, err := l.conn.Registry.Agents(ctx)
	for _, a := range all {
		n += a.Running
	}
	if err == nil && len(all) != len(l.agents) {
		err = fmt.Errorf("%d agents announce themselves", len(all))
	}
	return n, err
}

// copyFolder puts a copy of a folder, which need not exist, in place of another.
func copyFolder(to, from string) error {
	err := os.RemoveAll(to)
	if _, statErr := os.Stat(from); err != nil || errors.Is(statErr, os.ErrNotExist) {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}
