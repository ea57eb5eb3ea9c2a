package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// The fault runs: three server processes with three replicas of every stream and an fsync for every
// acknowledgement, two worker processes, submitters in this process, and faults while jobs flow.
// What is checked is what no fault may change: every job whose submission was acknowledged has a
// result. The times are printed, not checked: they belong to the machine.
var (
	chaosFaults = flag.Int("chaos.faults", 1, "faults of each kind")
	chaosRate   = flag.Int("chaos.rate", 200, "jobs a second")
	chaosSeed   = flag.Uint64("chaos.seed", 1, "seed of the moments and choices")
	chaosAll    = flag.Bool("chaos.all", false, "all kinds of fault, not only those for a quick run")
)

const (
	chaosWorkerEnv = "EXOSWARM_CHAOS_WORKER" // URL of the servers, in a worker process
	chaosModeEnv   = "EXOSWARM_CHAOS_MODE"   // empty, or early: a worker that acknowledges first, which must lose jobs
	chaosLease     = 2 * time.Second
)

// chaosWorker is the main function of a worker process.
func chaosWorker() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	fail := func(err error) int { log.Error("worker", "error", err); return 1 }
	urls := os.Getenv(chaosWorkerEnv)
	c, err := natsq.Connect(ctx, natsconn.Options{URL: urls, Name: "chaos worker", Replicas: 3, Lease: chaosLease})
	if err != nil {
		return fail(err)
	}
	defer c.Close()
	if os.Getenv(chaosModeEnv) == "early" {
		if err := earlyWorker(ctx, urls); err != nil {
			return fail(err)
		}
		return 0
	}
	w, err := c.Work(ctx, natsq.WorkerOptions{
		Name: fmt.Sprintf("w%d", os.Getpid()), Pool: jobs.PoolCPU, Concurrency: 32, Logger: log,
		Handlers: map[string]jobs.Handler{"chaos": func(ctx context.Context, j jobs.Job, _ func(any)) (any, error) {
			select {
			case <-time.After(100 * time.Millisecond): // long enough that a fault finds work at hand
				return os.Getpid(), nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}},
	})
	if err != nil {
		return fail(err)
	}
	log.Warn("worker is ready")
	<-ctx.Done()
	w.Stop()
	return 0
}

// earlyWorker does what a worker must not: it acknowledges before the result is there. It is the
// negative control.
func earlyWorker(ctx context.Context, urls string) error {
	nc, err := nats.Connect(urls)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	cons, err := js.Consumer(ctx, "EXO_JOBS_CPU", "chaos+normal+default")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "worker is ready")
	for ctx.Err() == nil {
		m, err := cons.Next(jetstream.FetchMaxWait(time.Second))
		if err != nil {
			continue
		}
		if err := m.DoubleAck(ctx); err != nil {
			continue
		}
		var j jobs.Job
		if err := json.Unmarshal(m.Data(), &j); err != nil {
			return err
		}
		letPass(ctx, 200*time.Millisecond) // the work, in which a kill loses a job that was acknowledged
		r, err := json.Marshal(jobs.Result{Version: jobs.Version, JobID: j.ID, Kind: j.Kind, Status: jobs.Done})
		if err != nil {
			return err
		}
		if _, err := js.Publish(ctx, "exo.res."+j.ID, r); err != nil {
			return err
		}
	}
	return nil
}

// chaosCluster is the servers and workers under test.
type chaosCluster struct {
	t        *testing.T
	bin      string
	urls     string
	names    []string
	commands [][]string // of the servers
	servers  []*process
	workers  []*process
	mode     string
}

// chaosOptions are what a cluster under test is made of.
type chaosOptions struct {
	servers, workers int
	mode             string   // of the workers
	args             []string // of every server, behind the common ones
	// dir is the data folder of a server; nil for one of the test.
	dir func(server int) string
	// hosts are where the servers listen, and within what is how a command is run there; without
	// them it is loopback. They log in with token.
	hosts  []string
	within func(server int) []string
	token  string
}

func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("net.Listen tcp: %v", err)
		}
		defer l.Close() // all are held until all are known
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func startChaos(t *testing.T, bin string, o chaosOptions) *chaosCluster {
	t.Helper()
	c := &chaosCluster{t: t, bin: bin, mode: o.mode}
	ports := freePorts(t, 2*o.servers)
	host, login := func(int) string { return "127.0.0.1" }, ""
	if o.hosts != nil {
		host, login = func(i int) string { return o.hosts[i] }, o.token+"@"
	}
	var urls []string
	for i := range o.servers {
		name := fmt.Sprint("s", i)
		var dir string
		if o.dir != nil {
			dir = o.dir(i)
		} else {
			dir = t.TempDir()
		}
		args := []string{
			filepath.Join(bin, "exoswarm"), "nats", "--name", name, "--host", host(i), "--port",
			fmt.Sprint(ports[2*i]), "--data-dir", dir,
		}
		if o.servers > 1 {
			args = append(args, "--cluster-port", fmt.Sprint(ports[2*i+1]))
		}
		for k := range o.servers {
			if k != i {
				args = append(args, "--route", fmt.Sprint(host(k), ":", ports[2*k+1]))
			}
		}
		if o.within != nil {
			args = append(o.within(i), args...)
		}
		urls = append(urls, fmt.Sprint("nats://", login, host(i), ":", ports[2*i]))
		c.names, c.commands = append(c.names, name), append(c.commands, append(args, o.args...))
		c.servers = append(c.servers, nil)
		c.startServer(i)
	}
	c.urls = strings.Join(urls, ",")
	conn := c.connect() // creates the streams before the workers look for them
	defer conn.Close()
	// The negative control asks for a consumer by name.
	first := jobs.Job{Version: jobs.Version, ID: "first", Pool: jobs.PoolCPU, Kind: "chaos", Spec: json.RawMessage("0")}
	if err := conn.Queue.Submit(t.Context(), first); err != nil {
		t.Fatalf("conn.Queue.Submit: %v", err)
	}
	for i := range o.workers {
		c.workers = append(c.workers, nil)
		c.startWorker(i)
	}
	return c
}

func (c *chaosCluster) startServer(i int) {
	c.t.Helper()
	c.servers[i], _ = startProcess(c.t, "nats is ready", c.commands[i][0], c.commands[i][1:]...)
}

func (c *chaosCluster) startWorker(i int) {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatalf("os.Executable: %v", err)
	}
	// env is a program everywhere, and keeps startProcess as it is.
	c.workers[i], _ = startProcess(c.t, "worker is ready", "env", chaosWorkerEnv+"="+c.urls, chaosModeEnv+"="+c.mode,
		self)
}

func (c *chaosCluster) connect() *natsq.Conn {
	c.t.Helper()
	conn, err := natsq.Connect(c.t.Context(), natsconn.Options{
		URL: c.urls, Name: "chaos", Replicas: len(c.servers),
		Lease: chaosLease, Patience: time.Minute,
	})
	if err != nil {
		c.t.Fatalf("natsq.Connect: %v", err)
	}
	return conn
}

// leader is the server that leads the stream of jobs.
func (c *chaosCluster) leader() int {
	c.t.Helper()
	nc, err := nats.Connect(c.urls)
	if err != nil {
		c.t.Fatalf("nats.Connect: %v", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		c.t.Fatalf("jetstream.New: %v", err)
	}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		s, err := js.Stream(c.t.Context(), "EXO_JOBS_CPU")
		if err != nil {
			continue
		}
		for i, name := range c.names {
			if info := s.CachedInfo(); info.Cluster != nil && info.Cluster.Leader == name {
				return i
			}
		}
	}
	c.t.Fatal("the stream of jobs has no leader")
	return 0
}

// flow is the load: what was acknowledged, and the longest gaps.
type flow struct {
	mu         sync.Mutex
	acked      []string
	acks, ends pulse // of submissions and of results
	uncertain  int   // batches whose first answer was lost
	forgets    bool  // the servers may lose whole streams, which ends the submission
}

// pulse is when something last happened, and the longest time in which it did not; gaps are those
// times of the faults that are over.
type pulse struct {
	last time.Time
	gap  time.Duration
	gaps []time.Duration
}

// over begins the next fault's gap.
func (p *pulse) over() {
	p.gaps = append(p.gaps, p.gap)
	p.gap = 0
}

// String is the longest gap, the first fault's and the median.
func (p *pulse) String() string {
	sorted := slices.Sorted(slices.Values(p.gaps))
	return fmt.Sprintf("%.1f s (first %.1f, median %.1f)", sorted[len(sorted)-1].Seconds(), p.gaps[0].Seconds(),
		sorted[len(sorted)/2].Seconds())
}

func (p *pulse) beat() {
	now := time.Now()
	if !p.last.IsZero() {
		p.gap = max(p.gap, now.Sub(p.last))
	}
	p.last = now
}

func (f *flow) ack(ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acks.beat()
	f.acked = append(f.acked, ids...)
}

func (f *flow) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends.beat()
}

// recovered waits until jobs were acknowledged and done after a moment, so that a gap belongs to
// one fault and not to several in a row.
func (f *flow) recovered(t *testing.T, since time.Time) {
	t.Helper()
	testkit.Until(t, "jobs after a fault", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		over := f.acks.last.After(since) && f.ends.last.After(since)
		if over {
			f.acks.over()
			f.ends.over()
		}
		return over
	})
}

// watch counts the results as they come. Its connection must not be the one that notices a stopped
// server last.
func (f *flow) watch(t *testing.T, urls string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2))
	if err != nil {
		t.Fatalf("nats.Connect: %v", err)
	}
	if _, err := nc.Subscribe("exo.res.*", func(*nats.Msg) { f.done() }); err != nil {
		t.Fatalf("nc.Subscribe exo.res.*: %v", err)
	}
	return nc
}

// submit submits batches at the rate until ctx ends. A batch whose fate is unknown is submitted
// again under its ids until the queue has taken it or says that it has it.
func (f *flow) submit(ctx context.Context, t *testing.T, c *natsq.Conn, who int, rate float64) {
	const size = 10
	pace := time.NewTicker(time.Duration(size / rate * float64(time.Second)))
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
		batch, ids := make([]jobs.Job, size), make([]string, size)
		for i := range batch {
			ids[i] = fmt.Sprintf("c%d-%d-%d", who, n, i)
			batch[i] = jobs.Job{
				Version: jobs.Version, ID: ids[i], Pool: jobs.PoolCPU, Kind: "chaos",
				Spec: json.RawMessage("1"), Submitted: time.Now(),
			}
		}
		for {
			err := c.Queue.SubmitBatch(context.WithoutCancel(ctx), batch)
			if err == nil || errors.Is(err, jobs.ErrExists) { // ours: nobody else uses these ids
				f.ack(ids)
				break
			}
			if !errors.Is(err, jobs.ErrUnavailable) {
				if !f.forgets {
					t.Errorf("submit: %v", err)
				}
				return
			}
			f.mu.Lock()
			f.uncertain++
			f.mu.Unlock()
		}
	}
}

// lost counts the acknowledged jobs that have no result, when nothing more moves.
func (f *flow) lost(t *testing.T, c *natsq.Conn) (n int) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; { // until the queue is empty
		st, err := c.Queue.Stats(t.Context(), jobs.PoolCPU)
		if err == nil && st.Jobs == 0 {
			break
		}
		if time.Now().After(end) {
			t.Errorf("the queue does not drain: %+v, %v", st, err)
			break
		}
	}
	return f.unknown(t, c)
}

// unknown counts the acknowledged jobs that have no result and are not in the queue.
func (f *flow) unknown(t *testing.T, c *natsq.Conn) int {
	t.Helper()
	f.mu.Lock()
	ids := slices.Clone(f.acked)
	f.mu.Unlock()
	var missing atomic.Int64
	var all sync.WaitGroup
	work := make(chan string)
	for range 32 {
		all.Go(func() {
			for id := range work {
				_, err := c.Results.Lookup(t.Context(), id)
				if err != nil {
					_, err = c.Queue.Find(t.Context(), id)
				}
				if err != nil {
					missing.Add(1)
				}
			}
		})
	}
	for _, id := range ids {
		work <- id
	}
	close(work)
	all.Wait()
	return int(missing.Load())
}

// fault is something that happens to a cluster, and ends.
type fault struct {
	name    string
	quick   bool // part of the quick run
	zombies bool // leaves workers whose results come second
	fn      func(c *chaosCluster, r *rand.Rand)
}

// chaosLook is the time between two looks at a cluster that is changing.
const chaosLook = 200 * time.Millisecond

var faults = []fault{
	{"worker killed", true, false, func(c *chaosCluster, r *rand.Rand) {
		i := r.IntN(len(c.workers))
		c.workers[i].end(c.t, syscall.SIGKILL)
		c.startWorker(i)
	}},
	{"worker stopped for three leases", true, true, func(c *chaosCluster, r *rand.Rand) {
		p := c.workers[r.IntN(len(c.workers))].cmd.Process
		_ = p.Signal(syscall.SIGSTOP)
		letPass(c.t.Context(), 3*chaosLease)
		_ = p.Signal(syscall.SIGCONT)
	}},
	{"leader killed", true, false, func(c *chaosCluster, _ *rand.Rand) {
		i := c.leader()
		c.servers[i].end(c.t, syscall.SIGKILL)
		letPass(c.t.Context(), 2*time.Second)
		c.startServer(i)
	}},
	{"leader stopped for 15 s", false, false, func(c *chaosCluster, _ *rand.Rand) {
		p := c.servers[c.leader()].cmd.Process
		_ = p.Signal(syscall.SIGSTOP)
		letPass(c.t.Context(), 15*time.Second)
		_ = p.Signal(syscall.SIGCONT)
	}},
	{"all servers killed", false, false, func(c *chaosCluster, _ *rand.Rand) {
		for _, s := range c.servers {
			s.end(c.t, syscall.SIGKILL)
		}
		for i := range c.servers {
			c.startServer(i)
		}
	}},
}

// TestChaos: whatever fails, no acknowledged job is lost.
func TestChaos(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	bin := binaries(t)
	for _, f := range faults {
		if !f.quick && !*chaosAll {
			continue
		}
		t.Run(f.name, func(t *testing.T) { startChaos(t, bin, chaosOptions{servers: 3, workers: 2}).run(t, f) })
	}
}

// run lets jobs flow while a fault comes again and again, and checks what no fault may change.
func (c *chaosCluster) run(t *testing.T, f fault) {
	conn := c.connect()
	defer conn.Close()
	load := &flow{}
	defer load.watch(t, c.urls).Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var submitters sync.WaitGroup
	for who := range 4 {
		submitters.Go(func() { load.submit(ctx, t, conn, who, float64(*chaosRate)/4) })
	}
	r := rand.New(rand.NewPCG(*chaosSeed, 0))
	for range *chaosFaults {
		// the faults come at any moment of the load: their subject
		letPass(ctx, 2*time.Second+time.Duration(r.Int64N(int64(time.Second))))
		f.fn(c, r)
		load.recovered(t, time.Now())
	}
	letPass(ctx, 2*time.Second) // the load continues after the last fault
	cancel()
	submitters.Wait()
	lost := load.lost(t, conn)
	var zombies int
	for i, w := range c.workers {
		w.end(t, syscall.SIGTERM)
		zombies += strings.Count(c.workers[i].log.String(), "result refused")
	}
	t.Logf("%-32s faults %d  acknowledged %d  resubmitted %d  lost %d  results refused %d  longest gap of "+
		"submissions %v, of results %v",
		f.name, *chaosFaults, len(load.acked), load.uncertain, lost, zombies, &load.acks, &load.ends)
	if lost > 0 {
		t.Errorf("%d of %d acknowledged jobs have no result", lost, len(load.acked))
	}
	if f.zombies && zombies == 0 && *chaosFaults >= 3 {
		t.Error("no result of a stopped worker was refused: the fault was not exercised")
	}
	if len(load.acked) < 100 {
		t.Errorf("only %d jobs were submitted", len(load.acked))
	}
}

// TestChaosControl: the check of TestChaos finds the jobs that a worker loses which acknowledges
// too early.
func TestChaosControl(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	c := startChaos(t, binaries(t), chaosOptions{servers: 1, workers: 1, mode: "early"})
	conn := c.connect()
	defer conn.Close()
	load := &flow{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var submitter sync.WaitGroup
	submitter.Go(func() { load.submit(ctx, t, conn, 0, 20) })
	for range 5 {
		letPass(ctx, time.Second)
		c.workers[0].end(t, syscall.SIGKILL)
		c.startWorker(0)
	}
	cancel()
	submitter.Wait()
	c.workers[0].end(t, syscall.SIGKILL)
	c.mode = ""
	c.startWorker(0)
	if lost := load.lost(t, conn); lost == 0 {
		t.Errorf("a worker that acknowledges before the result is there lost none of %d jobs: the check sees nothing",
			len(load.acked))
	} else {
		t.Logf("the check found %d of %d jobs that were lost", lost, len(load.acked))
	}
}
