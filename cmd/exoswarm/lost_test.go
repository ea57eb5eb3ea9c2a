package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// endLimit is within which a command must end after Ctrl-C or the loss of its server. Only a hang
// exceeds it: the commands promise 5 s on an idle machine.
const endLimit = time.Minute

// brittle is a way to a server that breaks when a client has published a number of messages.
// Acknowledgements of pings do not count.
type brittle struct {
	l      net.Listener
	to     string
	after  int
	dies   bool // connections end; else nothing goes through any more, as with a server that stands still
	broken chan struct{}

	mu    sync.Mutex
	n     int
	once  sync.Once
	conns []net.Conn
	all   sync.WaitGroup
}

func newBrittle(t *testing.T, to string, after int, dies bool) *brittle {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("net.Listen tcp: %v", err)
	}
	b := &brittle{l: l, to: strings.TrimPrefix(to, "nats://"), after: after, dies: dies, broken: make(chan struct{})}
	if after == 0 {
		b.cut()
	}
	b.all.Go(b.accept)
	t.Cleanup(func() {
		_ = l.Close()
		b.mu.Lock()
		for _, c := range b.conns {
			_ = c.Close()
		}
		b.mu.Unlock()
		b.all.Wait()
	})
	return b
}

func (b *brittle) url() string { return "nats://" + b.l.Addr().String() }

// cut breaks the way.
func (b *brittle) cut() {
	b.once.Do(func() {
		close(b.broken)
		if !b.dies {
			return
		}
		_ = b.l.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, c := range b.conns {
			_ = c.Close()
		}
	})
}

func (b *brittle) accept() {
	for {
		c, err := b.l.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.conns = append(b.conns, c)
		b.mu.Unlock()
		select {
		case <-b.broken: // it accepts, as a kernel does for a process that stands still
			continue
		default:
		}
		s, err := net.Dial("tcp", b.to)
		if err != nil {
			return
		}
		b.mu.Lock()
		b.conns = append(b.conns, s)
		b.mu.Unlock()
		b.all.Go(func() { b.pass(s, c, true) })
		b.all.Go(func() { b.pass(c, s, false) })
	}
}

// pass copies lines until the way breaks.
func (b *brittle) pass(to, from net.Conn, client bool) {
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadSlice('\n')
		if client && (bytes.HasPrefix(line, []byte("PUB ")) || bytes.HasPrefix(line, []byte("HPUB "))) {
			b.mu.Lock()
			b.n++
			over := b.n >= b.after
			b.mu.Unlock()
			if over {
				b.cut()
			}
		}
		select {
		case <-b.broken:
			return
		default:
		}
		if _, werr := to.Write(line); werr != nil || err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// lines are the command lines of all commands that talk to a server, without --nats. A command that
// is missing fails the test.
func commandLines(t *testing.T, dir string) map[string][]string {
	t.Helper()
	spec := write(t, filepath.Join(dir, "agents.yaml"), "name: lasting\naddressed: agent\nagents: 256\ncell: {kind: "+
		"leaky}\n")
	runSpec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	write(t, filepath.Join(dir, "in", "a.csv"), series(1, 50))
	write(t, filepath.Join(dir, "in", "b.csv"), series(2, 50))
	rows := write(t, filepath.Join(dir, "rows.csv"), "agent,current\n1,0.5\n")
	list := write(t, filepath.Join(dir, "jobs.jsonl"), `{"pool":"cpu","kind":"none","spec":1}`+"\n")
	sources := write(t, filepath.Join(dir, "sources.json"), `[{"name":"p","uri":"push:p"}]`)
	sinks := write(t, filepath.Join(dir, "sinks.json"), `[{"uri":"nats:OUT/out"}]`)
	folder := filepath.Join(dir, "auth")
	if code, _, stderr := exec(t.Context(), t, "auth", "init", "--dir", folder, "--tenant", "acme",
		"--yes"); code != 0 {
		t.Fatalf("auth init: exit %d, want 0: %s", code, stderr)
	}
	snapshots := t.TempDir()
	save := func(name, of string, bytes int, shape ...int64) string {
		var text strings.Builder
		if err := numpy.Write(&text, &numpy.Array{Type: of, Shape: shape, Data: make([]byte, bytes)}); err != nil {
			t.Fatalf("numpy.Write: %v", err)
		}
		return write(t, filepath.Join(dir, name), text.String())
	}
	array, matrix := save("a.npy", "<f4", 16, 4), save("m.npy", "<f4", 16, 2, 2)
	members, votes := save("u.npy", "<u4", 8, 2), save("v.npy", "|u1", 4, 4)
	circuit := write(t, filepath.Join(dir, "coin.qasm"), "qubit q; bit c; U(1, 0, 0) q; c = measure q;\n")
	train := write(t, filepath.Join(dir, "train.yaml"), "name: trained\naddressed: agent\nagents: 256\n"+
		"cell: {model: m}\nvote: {candidates: [a, b]}\ntrain: {target: y, sequence: s}\n")
	events := write(t, filepath.Join(dir, "events.csv"), "s,value,y\na,1,0\nb,1,1\nc,1,0\n")
	if code, _, stderr := exec(t.Context(), t, "model", "load", "gopher", "--snapshots", snapshots, "--file",
		filepath.Join("..", "..", "examples", "model", "gopher.gguf")); code != 0 {
		t.Fatalf("model load: exit %d, want 0: %s", code, stderr)
	}
	kernel := write(t, filepath.Join(dir, "k.cu"), "__global__ void f(const float *x, float *y) { *y = *x; }\n")
	return map[string][]string{
		"exoswarm agent drain":     {"nobody"},
		"exoswarm agent rebalance": nil,
		"exoswarm agent list":      nil,
		"exoswarm audit":           nil,
		"exoswarm auth push":       {"--dir", folder},
		"exoswarm auth revoke":     {"operator", "--dir", folder},
		"exoswarm cron add":        {"nightly", "--cron", "0 0 1 1 *", "--kind", "none"},
		"exoswarm cron list":       nil,
		"exoswarm cron pause":      {"nightly"},
		"exoswarm cron resume":     {"nightly"},
		"exoswarm cron remove":     {"nightly"},
		"exoswarm debug bundle":    {"--for", "0", "--output", filepath.Join(t.TempDir(), "bundle.zip")},
		"exoswarm debug trace":     {"nobody", "--output", filepath.Join(t.TempDir(), "trace.json")},
		"exoswarm detect create":   {"-f", runSpec, "--sources", sources, "--sinks", sinks},
		"exoswarm detect delete":   {"plant", "--yes"},
		"exoswarm detect explain":  {"plant"},
		"exoswarm detect list":     nil,
		"exoswarm detect logs":     {"plant", "--follow"},
		"exoswarm detect pause":    {"plant"},
		"exoswarm detect resume":   {"plant"},
		"exoswarm detect show":     {"plant"},
		"exoswarm doctor":          nil,
		"exoswarm status":          nil,
		"exoswarm top":             {"--once"},
		"exoswarm job explain":     {"standing"},
		"exoswarm swarm explain":   {"lasting"},
		"exoswarm gpu fuse": {
			"--in", matrix, "--members", members, "--nodes", "1", "--out", filepath.Join(dir, "fused.npy"),
		},
		"exoswarm gpu allreduce": {"--in", array, "--in", array, "--out", filepath.Join(dir, "sum.npy")},
		"exoswarm gpu chain":     {"--in", matrix, "--in", matrix, "--out", filepath.Join(dir, "chain.npy")},
		"exoswarm gpu circuit":   {circuit, "--shots", "1"},
		"exoswarm gpu compute":   {"sum(x)", "--in", "x=" + array},
		"exoswarm gpu gemm":      {"--a", matrix, "--b", matrix, "--out", filepath.Join(dir, "c.npy")},
		"exoswarm gpu histogram": {"--in", array, "--bins", "2", "--out", filepath.Join(dir, "h.npy")},
		"exoswarm gpu reduce":    {"--in", array},
		"exoswarm gpu run":       {kernel, "--in", array, "--out", filepath.Join(dir, "y.npy")},
		"exoswarm gpu sort":      {"--in", array, "--out", filepath.Join(dir, "sorted.npy")},
		"exoswarm gpu tally":     {"--in", votes},
		"exoswarm train":         {"-f", train, "--input", events},
		"exoswarm dlq list":      nil,
		"exoswarm dlq purge":     {"--yes", "x"},
		"exoswarm dlq redrive":   {"x"},
		"exoswarm dlq show":      {"x"},
		"exoswarm init":          {"--yes"},
		"exoswarm job cancel":    {"standing"},
		"exoswarm job get":       {"standing"},
		"exoswarm job list":      nil,
		"exoswarm job logs":      {"standing", "--follow"},
		"exoswarm job output":    {"standing"},
		"exoswarm job retry":     {"standing"},
		"exoswarm job watch":     {"standing"},
		"exoswarm model delete":  {"gopher", "--snapshots", snapshots},
		"exoswarm model info":    {"gopher", "--snapshots", snapshots},
		"exoswarm model list":    {"--snapshots", snapshots},
		"exoswarm model load":    {"gopher", "--snapshots", snapshots},
		"exoswarm model unload":  {"gopher"},
		"exoswarm model verify":  {"gopher", "--snapshots", snapshots},
		"exoswarm queue pause":   {"gpu"},
		"exoswarm queue resume":  {"gpu"},
		"exoswarm queue stats":   nil,
		"exoswarm run": {
			"-f", runSpec, "--input", filepath.Join(dir, "in"), "--output",
			filepath.Join(dir, "out.ndjson"), "--progress", "none",
		},
		"exoswarm submit":        {"--kind", "none", "--wait"},
		"exoswarm submit --file": {"--file", list},
		"exoswarm swarm compute": {"lasting", "count(true)"},
		"exoswarm swarm create":  {"-f", spec},
		"exoswarm swarm delete":  {"lasting", "--yes"},
		"exoswarm swarm emitted": {"lasting", "--follow"},
		"exoswarm swarm export": {
			"lasting", "--variable", "potential", "-o", filepath.Join(dir, "p.npy"), "--snapshots", snapshots,
		},
		"exoswarm swarm adopt":     {"lasting", "--model", "m", "--digest", strings.Repeat("0", 64)},
		"exoswarm swarm fuse":      {"lasting", "--by", "all"},
		"exoswarm swarm get":       {"lasting"},
		"exoswarm swarm learn":     {"lasting", "--node", "1", "--values", "0.5"},
		"exoswarm swarm list":      nil,
		"exoswarm swarm observe":   {"lasting", "--input", rows},
		"exoswarm swarm orphans":   {"--delete"},
		"exoswarm swarm pages":     {"lasting"},
		"exoswarm swarm query":     {"lasting", "--agents", "1"},
		"exoswarm swarm render":    {"lasting", "-o", filepath.Join(dir, "grid.png")},
		"exoswarm swarm reset":     {"lasting"},
		"exoswarm snapshot create": {"lasting", "--name", "s"},
		"exoswarm swarm say":       {"lasting", "1", "Hello", "--snapshots", snapshots},
		"exoswarm swarm snapshot":  {"lasting", "--name", "s"}, // its former name
		"exoswarm swarm state":     {"lasting", "--at", "1", "--group", "0"},
		"exoswarm swarm tick":      {"lasting"},
		"exoswarm swarm trim":      {"lasting", "--to", "s", "--snapshots", snapshots},
		"exoswarm swarm vote":      {"lasting"},
		"exoswarm swarm watch": {
			"lasting", "-o", filepath.Join(dir, "w.arrow"), "--agents", "1", "--ticks", "1",
		},
		"exoswarm tenant limit":   {"acme", "--rate", "5"},
		"exoswarm tenant list":    nil,
		"exoswarm tenant unlimit": {"acme"},
		"exoswarm object list":    nil,
		"exoswarm object sweep":   {"--yes"},
		"exoswarm object delete":  {"none"},
	}
}

// TestCommandLines: the table of TestLostServer has each command that talks to a server.
func TestCommandLines(t *testing.T) {
	t.Parallel()
	table := commandLines(t, t.TempDir())
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "ui" {
			return // it serves until a signal, and waits for a server that is away
		}
		if cmd.Flags().Lookup("nats") != nil {
			if _, ok := table[cmd.CommandPath()]; !ok {
				t.Errorf("%s talks to a server and is not in the table", cmd.CommandPath())
			}
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(root())
}

// TestLostServer: every command ends within 5 s of the moment at which its server stands still or
// dies, wherever that comes, and within 5 s of Ctrl-C when it is to wait longer for a server.
func TestLostServer(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("waits for 5 s in hundreds of commands: not with -short")
	}
	s := jobstest.Start(t, server.Options{})
	c, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL()})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	defer c.Close()
	if err := c.Queue.Submit(t.Context(), jobs.Job{
		Version: jobs.Version, ID: "standing", Pool: jobs.PoolCPU,
		Kind: "none", Spec: []byte("1"), Submitted: time.Now(),
	}); err != nil {
		t.Fatalf("c.Queue.Submit: %v", err)
	}
	table := commandLines(t, t.TempDir())
	var mu sync.Mutex
	worst := map[string]time.Duration{}
	slots := make(chan struct{}, 48) // most of the time they wait
	var all sync.WaitGroup
	for path, args := range table {
		for _, how := range []struct {
			name  string
			after int
			dies  bool
			ctrlC bool
		}{
			{"dead at the start", 0, true, false},
			{"stopped at the start", 0, false, false},
			{"stopped while it connects", 6, false, false},
			{"died while it connects", 6, true, false},
			{"stopped at work", 20, false, false},
			{"died at work", 20, true, false},
			{"stopped later", 24, false, false},
			{"Ctrl-C while it connects", 6, false, true},
			{"Ctrl-C at work", 20, false, true},
		} {
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				b := newBrittle(t, s.URL(), how.after, how.dies)
				words := append(strings.Fields(strings.TrimSuffix(path, " --file"))[1:], args...)
				words = append(words, "--nats", b.url())
				if path == "exoswarm run" && how.after > 0 { // each writes its own
					out := t.TempDir()
					words = append(words, "--output", filepath.Join(out, "out.ndjson"))
				}
				if strings.HasPrefix(path, "exoswarm auth") {
					return // below: the folder has a lock
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				words = append(words, "--patience")
				if how.ctrlC {
					words = append(words, "1h")
				} else {
					words = append(words, "4s")
				}
				ended := make(chan string, 1)
				go func() {
					code, _, stderr := exec(ctx, t, words...)
					ended <- fmt.Sprint("exit ", code, ": ", stderr)
				}()
				var began time.Time
				select {
				case <-b.broken:
					began = time.Now()
				case <-ended: // it had less to say
					return
				case <-time.After(20 * time.Second):
					if !how.ctrlC {
						cancel(command.ErrInterrupted) // it waits for a job, and the server is well
					}
					began = time.Now()
				}
				if how.ctrlC {
					cancel(command.ErrInterrupted)
				}
				select {
				case said := <-ended:
					took := time.Since(began)
					mu.Lock()
					worst[how.name] = max(worst[how.name], took)
					mu.Unlock()
					if took > endLimit {
						t.Errorf("%s, %s: it took %v: %s", path, how.name, took, said)
					}
				case <-time.After(2 * endLimit):
					t.Errorf("%s, %s: it does not end", path, how.name)
					cancel(command.ErrInterrupted)
					<-ended
				}
			})
		}
	}
	all.Wait()
	for _, path := range []string{"auth push", "auth revoke"} {
		b := newBrittle(t, s.URL(), 1, false)
		began := time.Now()
		code, _, stderr := exec(t.Context(), t, append(append(strings.Fields(path), table["exoswarm "+path]...),
			"--nats", b.url(), "--patience", "4s")...)
		if took := time.Since(began); took > endLimit || code == 0 {
			t.Errorf("%s: exit %d after %v: %s", path, code, took, stderr)
		}
	}
	t.Logf("longest: %v", worst)
}

// TestStoppedServer: SIGSTOP of a real server in the middle of a run with many inputs, and of a
// command that waits for a job.
func TestStoppedServer(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	t.Setenv("EXOSWARM_PATIENCE", "") // so that it is put back
	if err := os.Unsetenv("EXOSWARM_PATIENCE"); err != nil {
		t.Fatalf("os.Unsetenv EXOSWARM_PATIENCE: %v", err)
	}
	bin := binaries(t)
	dir := t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), smallSpec)
	for i := range 40 {
		write(t, filepath.Join(dir, "in", fmt.Sprintf("s%02d.csv", i)), series(uint64(i), 20))
	}
	for name, args := range map[string][]string{
		"run": {
			"run", "-f", spec, "--input", filepath.Join(dir, "in"), "--output", filepath.Join(dir, "out.ndjson"),
			"--progress", "none",
		},
		"submit": {"submit", "--kind", "none", "--wait"},
	} {
		nats, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
			"--data-dir", t.TempDir())
		c, err := natsq.Connect(t.Context(), natsconn.Options{URL: url})
		if err != nil {
			t.Fatalf("natsq.Connect: %v", err)
		}
		type end struct {
			code   int
			stderr string
		}
		ended := make(chan end, 1)
		go func() {
			code, _, stderr := exec(t.Context(), t, append(args, "--nats", url)...)
			ended <- end{code, stderr}
		}()
		for n := 0; n == 0; { // until the job is there
			if err := c.Queue.Jobs(t.Context(), jobs.PoolCPU, func(jobs.Job) bool { n++; return false }); err != nil {
				t.Fatalf("c.Queue.Jobs: %v", err)
			}
		}
		if err := nats.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatalf("nats.cmd.Process.Signal: %v", err)
		}
		began := time.Now()
		e := <-ended
		took := time.Since(began)
		t.Logf("%s: exit %d after %v: %s", name, e.code, took, e.stderr)
		if took > endLimit || e.code != command.ExitFailure || !strings.Contains(e.stderr, "was lost") {
			t.Errorf("%s: exit %d after %v: %s", name, e.code, took, e.stderr)
		}
		c.Close()
		nats.end(t, syscall.SIGKILL)
	}
	if _, err := os.Stat(filepath.Join(dir, "out.ndjson")); err == nil {
		t.Error("a run that failed has written its output")
	}
}
