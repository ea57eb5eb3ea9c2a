package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

var (
	manySwarms = flag.Int("many.swarms", 200, "swarms of TestMany")
	manyIdle   = flag.Duration("many.idle", 5*time.Second, "how long they are left alone")
	manyOpen   = flag.Int("many.open", 16, "shards that stay open")
	manyData   = flag.Bool("many.data", false, "agents have a data folder")
	manyFast   = flag.Bool("many.fast", false, "the NATS server does not sync each acknowledgement")
	manyTTL    = flag.Duration("many.ttl", 2*time.Second, "of leases")
	manyAsked  = flag.Int("many.asked", 100, "first questions")
)

// Bounds of an agent whatever the number of swarms is, and what each may add.
const (
	manyMaxRSS, manyRSSEach = 700e6, 100e3
	manyMaxGoroutines       = 4000
	manyMaxFDs              = 1000
	manyAnswered            = 2 * time.Minute // the longest that a first question may take
	manySpec                = "name: m\naddressed: agent\nagents: 1000\nagents_per_group: 50\nfeatures: [a, b]\n" +
		"cell: {kind: leaky}\nvote: {rule: majority}\nseed: 7\n"
	manyQuery                 = `{"v":1,"agents":[0,1,499,999]}`
	manyTick                  = `{"v":1,"count":1}`
	manyMostTicks             = 5
	manyCreators, manyAskedAt = 16, 4
)

// manyCreated is when the swarms say that they were made.
var manyCreated = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// many are swarms that are all alike.
type many struct {
	*processes
	conn *natsq.Conn
	spec *swarm.Spec
	seen []byte           // an entry of observations of all agents
	last []atomic.Uint64  // entry of each
	tick []atomic.Int32   // ticks of each
	want map[int32][]byte // what an undisturbed one answers, by its ticks
}

// record returns the record of swarm i.
func (m *many) record(i int) swarms.Swarm {
	data, err := json.Marshal(m.spec)
	if err != nil {
		panic(err)
	}
	return swarms.Swarm{
		Version: jobs.Version, ID: fmt.Sprintf("m%05d", i), Nonce: fmt.Sprintf("%08d", i), Name: "m", Spec: data,
		Groups: m.spec.Groups(), Created: manyCreated,
	}
}

// log returns a log of swarm i.
func (m *many) log(i int, d swarms.Direction) swarms.Log {
	return m.conn.Swarms.Log(m.record(i).Key(), 0, d)
}

// each calls fn for swarms, several at a time, and fails with the first error.
func (m *many) each(t *testing.T, at int, all []int, fn func(i int) error) {
	t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, at)
	for w := range at {
		wg.Go(func() {
			for n := next.Add(1) - 1; int(n) < len(all) && errs[w] == nil; n = next.Add(1) - 1 {
				if err := fn(all[n]); err != nil {
					errs[w] = fmt.Errorf("swarm %d: %w", all[n], err)
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%v\n%s", err, m.gpu.log)
	}
}

// undisturbed lives the life of a swarm in this process and notes what it answers.
func (m *many) undisturbed(t *testing.T) {
	t.Helper()
	srv := jobstest.Start(t, server.Options{Port: server.InProcess})
	conn, err := natsq.Connect(t.Context(), natsconn.Options{InProcess: srv, Name: "undisturbed"})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	defer conn.Close()
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("cuda.Open host: %v", err)
	}
	defer dev.Close()
	a, err := gpuagents.Start(gpuagents.Options{
		Name: "undisturbed", Device: dev, Queue: conn.Swarms,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	defer a.Stop()
	one := &many{conn: conn, spec: m.spec, seen: m.seen, last: make([]atomic.Uint64, 1), tick: make([]atomic.Int32, 1)}
	if err := one.make(t.Context(), 0); err != nil {
		t.Fatalf("one.make: %v", err)
	}
	m.want = map[int32][]byte{}
	for n := range int32(manyMostTicks) {
		e, err := one.ask(t.Context(), 0, swarms.EntryQuery, []byte(manyQuery))
		if err != nil || e.Kind != swarms.EntryState {
			t.Fatalf("a query is answered with a %q, error %v; want a state", e.Kind, err)
		}
		if m.want[n+1] = e.Data; n > 0 && bytes.Equal(e.Data, m.want[n]) {
			t.Fatal("a tick changes nothing")
		}
		if _, err := one.ask(t.Context(), 0, swarms.EntryTick, []byte(manyTick)); err != nil {
			t.Fatalf("one.ask: %v", err)
		}
	}
}

// make makes a swarm with observations and one tick in its log.
func (m *many) make(ctx context.Context, i int) error {
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := m.log(i, d).Create(ctx); err != nil {
			return err
		}
	}
	if err := m.log(i, swarms.In).Append(ctx, 0, swarms.Entry{Kind: swarms.EntryObserve, Ref: 1, Data: m.seen},
		swarms.Entry{Kind: swarms.EntryTick, Ref: 2, Data: []byte(manyTick)}); err != nil {
		return err
	}
	m.last[i].Store(2)
	m.tick[i].Store(1)
	return m.conn.Swarms.CreateSwarm(ctx, m.record(i))
}

// ask appends an entry to the log of a swarm and returns the answer.
func (m *many) ask(ctx context.Context, i int, kind string, data []byte) (swarms.Entry, error) {
	seq := m.last[i].Add(1)
	if err := m.log(i, swarms.In).Append(ctx, seq-1, swarms.Entry{Kind: kind, Ref: seq, Data: data}); err != nil {
		return swarms.Entry{}, err
	}
	if kind == swarms.EntryTick {
		m.tick[i].Add(1)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	r, err := m.log(i, swarms.Out).Read(ctx, seq)
	if err != nil {
		return swarms.Entry{}, err
	}
	defer r.Close()
	e, err := r.Next(ctx)
	if err == nil && e.Ref != seq {
		err = fmt.Errorf("answer %d is to entry %d, want %d", e.Seq, e.Ref, seq)
	}
	if err == nil && e.Kind == swarms.EntryRejected {
		err = fmt.Errorf("entry %d was refused: %s", seq, e.Data)
	}
	return e, err
}

// question asks a swarm what it is, which must be what an undisturbed one is.
func (m *many) question(ctx context.Context, i int) error {
	e, err := m.ask(ctx, i, swarms.EntryQuery, []byte(manyQuery))
	if want := m.want[m.tick[i].Load()]; err == nil && !bytes.Equal(e.Data, want) {
		err = fmt.Errorf("%s %.300q after %d ticks, want %.300q", e.Kind, e.Data, m.tick[i].Load(), want)
	}
	return err
}

// agent starts a GPU agent and returns where its metrics are.
func (m *many) agent(t *testing.T, name string) (p *process, metrics string) {
	t.Helper()
	args := []string{
		"--nats", m.url, "--device", "host", "--name", name, "--lease-ttl", manyTTL.String(), "--open-shards",
		fmt.Sprint(*manyOpen), "--metrics", "127.0.0.1:0",
	}
	if *manyData {
		args = append(args, "--data-dir", t.TempDir())
	}
	p, _ = startProcess(t, "gpuagent is ready", filepath.Join(m.bin, "gpuagent"), args...)
	where := regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`).FindString(p.log.String())
	if where == "" {
		t.Fatalf("no address of metrics in\n%s", p.log)
	}
	return p, where
}

// cost is what a process takes.
type cost struct {
	rss        float64
	goroutines int
	fds        int
}

func (c cost) String() string {
	return fmt.Sprintf("%.0f MB RSS, %d goroutines, %d fds", c.rss/1e6, c.goroutines, c.fds)
}

func costOf(t *testing.T, p *process, metrics string) (c cost) {
	t.Helper()
	dir := fmt.Sprint("/proc/", p.cmd.Process.Pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	if m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status); m != nil {
		kb, _ := strconv.Atoi(string(m[1]))
		c.rss = 1024 * float64(kb)
	}
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		t.Fatalf("os.ReadDir: %v", err)
	}
	c.fds = len(fds)
	if metrics == "" {
		return c
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, metrics, nil)
	if err != nil {
		t.Fatalf("http.NewRequestWithContext: %v", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("http.DefaultClient.Do: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("io.ReadAll: %v", err)
	}
	if g := regexp.MustCompile(`(?m)^go_goroutines (\d+)`).FindSubmatch(text); g != nil {
		c.goroutines, _ = strconv.Atoi(string(g[1]))
	}
	return c
}

// running is how many shards an agent says that it serves, and how many of them are parked.
func (m *many) running(t *testing.T, name string) (shards, parked int) {
	t.Helper()
	all, err := m.conn.Registry.Agents(t.Context())
	if err != nil {
		t.Fatalf("m.conn.Registry.Agents: %v", err)
	}
	for _, a := range all {
		if a.Name == name {
			return a.Running, a.Parked
		}
	}
	return 0, 0
}

func (m *many) until(t *testing.T, what string, met func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	for tick := time.Tick(200 * time.Millisecond); !met(); {
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatalf("%s: not after %v\n%s", what, time.Since(began), m.gpu.log)
		}
	}
	return time.Since(began)
}

// firstQuestions asks random swarms that have been idle and returns how long the answers took.
func (m *many) firstQuestions(t *testing.T, all []int) {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	m.each(t, manyAskedAt, all, func(i int) error {
		began := time.Now()
		err := m.question(t.Context(), i)
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(began))
		return err
	})
	slices.Sort(took)
	longest := took[len(took)-1]
	t.Logf("first questions: p50 %v, p99 %v, longest %v of %d", took[len(took)/2], took[len(took)*99/100], longest,
		len(took))
	if longest > manyAnswered {
		t.Errorf("a first question took %v", longest)
	}
}

// TestMany: many idle swarms cost an agent little, none loses its lease, first questions are
// answered soon, and an agent that is killed is followed by another within the time of a lease,
// whose answers are the same as of undisturbed swarms. `make many` has 10,000 of them.
func TestMany(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("real processes")
	}
	m := &many{
		processes: &processes{bin: binaries(t), natsDir: t.TempDir()}, last: make([]atomic.Uint64, *manySwarms),
		tick: make([]atomic.Int32, *manySwarms),
	}
	var err error
	if m.spec, err = swarm.Parse("many.yaml", []byte(manySpec)); err != nil {
		t.Fatalf("swarm.Parse many.yaml: %v", err)
	}
	o := &batch.AgentObservations{Width: 2}
	for id := range uint32(1000) {
		o.Agent, o.Features = append(o.Agent, id), append(o.Features, float32(id%17)/9, float32(id%5))
	}
	if m.seen, err = o.Encode(); err != nil {
		t.Fatalf("o.Encode: %v", err)
	}
	m.undisturbed(t)
	port := fixedPorts(t, 1)[0]
	m.url = fmt.Sprint("nats://127.0.0.1:", port)
	args := []string{"nats", "--port", fmt.Sprint(port), "--data-dir", m.natsDir}
	if *manyFast {
		args = append(args, "--fast")
	}
	m.nats, _ = startProcess(t, "nats is ready", filepath.Join(m.bin, "exoswarm"), args...)
	if m.conn, err = natsq.Connect(t.Context(), natsconn.Options{
		URL: m.url, Name: "test",
		Patience: 10 * time.Minute,
	}); err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	t.Cleanup(m.conn.Close)
	metrics := ""
	m.gpu, metrics = m.agent(t, "first")
	t.Logf("idle agent: %v; server: %v", costOf(t, m.gpu, metrics), costOf(t, m.nats, ""))
	all := make([]int, *manySwarms)
	for i := range all {
		all[i] = i
	}
	began := time.Now()
	m.each(t, manyCreators, all, func(i int) error { return m.make(t.Context(), i) })
	made := time.Since(began)
	m.until(t, "all swarms are served", func() bool { n, _ := m.running(t, "first"); return n == *manySwarms })
	m.until(t, "idle shards are parked", func() bool {
		n, parked := m.running(t, "first")
		return n-parked <= *manyOpen
	})
	t.Logf("%d swarms made in %v, all served after %v", *manySwarms, made.Round(time.Millisecond),
		time.Since(began).Round(time.Millisecond))
	check := func(when string) {
		t.Helper()
		c := costOf(t, m.gpu, metrics)
		t.Logf("%s: agent %v; server %v", when, c, costOf(t, m.nats, ""))
		if c.rss > manyMaxRSS+float64(*manySwarms)*manyRSSEach || c.goroutines > manyMaxGoroutines ||
			c.fds > manyMaxFDs {
			t.Errorf("%s: the agent takes %v", when, c)
		}
	}
	check("all are served")
	for end := time.Now().Add(*manyIdle); time.Now().Before(end); {
		check("idle")
		letPass(t.Context(), min(*manyIdle, time.Minute)) // what idle swarms cost shows over a long time
	}
	if n, _ := m.running(t, "first"); n != *manySwarms {
		t.Errorf("%d of %d swarms are served", n, *manySwarms)
	}
	lost := func() {
		t.Helper()
		log := m.gpu.log.String()
		if n := strings.Count(log, "lost"); n > 0 {
			t.Errorf("%d lines say that something was lost:\n%.3000s", n, log)
		}
		t.Logf("the agent logged %d lines", strings.Count(log, "\n"))
	}
	r := rand.New(rand.NewPCG(1, 1))
	some := func() []int { return r.Perm(*manySwarms)[:min(*manyAsked, *manySwarms)] }
	m.firstQuestions(t, some())
	check("after questions")
	lost()
	ticks := func(all []int) {
		t.Helper()
		m.each(t, manyAskedAt, all, func(i int) error {
			_, err := m.ask(t.Context(), i, swarms.EntryTick, []byte(manyTick))
			return err
		})
	}
	moved := some()
	ticks(moved)
	m.until(t, "idle shards are parked", func() bool {
		n, parked := m.running(t, "first")
		return n-parked <= *manyOpen
	})
	second, metrics2 := m.agent(t, "second")
	m.gpu.end(t, syscall.SIGKILL)
	killed := time.Now()
	m.gpu, metrics = second, metrics2
	ticks(moved[:1])
	t.Logf("answered %v after the kill", time.Since(killed).Round(time.Millisecond))
	m.until(t, "all swarms are taken over", func() bool { n, _ := m.running(t, "second"); return n == *manySwarms })
	t.Logf("%d swarms are served %v after the kill", *manySwarms, time.Since(killed).Round(time.Millisecond))
	ticks(moved[len(moved)/2:])
	m.until(t, "idle shards are parked", func() bool {
		n, parked := m.running(t, "second")
		return n-parked <= *manyOpen
	})
	check("after the kill")
	m.firstQuestions(t, moved)
	m.firstQuestions(t, some())
	lost()
}
