package gpuprocess

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const (
	// cycleTTL is the life of a lease. With 0.3 s a busy machine does not renew one in time, and no
	// shard is served for long.
	cycleTTL    = time.Second
	cycleAgents = 4 // of a swarm
	// cycleDeaf is when an agent that has not answered counts as deaf. It is far more than the life
	// of a lease: the machine may be busy.
	cycleDeaf = time.Minute
)

// gate is a way to a server that can be cut, as a network is.
type gate struct {
	l     net.Listener
	to    string
	ended sync.WaitGroup

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

func newGate(tb testing.TB, to string) *gate {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("Listen tcp: %v", err)
	}
	g := &gate{l: l, to: to, open: map[net.Conn]bool{}}
	g.ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.ended.Go(func() { g.pass(c) })
		}
	})
	return g
}

// pass carries one connection until either side or the gate ends it.
func (g *gate) pass(in net.Conn) {
	defer in.Close()
	out, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", g.to)
	if err != nil {
		return
	}
	defer out.Close()
	g.mu.Lock()
	if g.cut {
		g.mu.Unlock()
		return
	}
	g.open[in] = true
	g.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
	both.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
	both.Wait()
	g.mu.Lock()
	delete(g.open, in)
	g.mu.Unlock()
}

func (g *gate) set(cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cut = cut; cut {
		for c := range g.open {
			_ = c.Close()
		}
	}
}

func (g *gate) close() {
	_ = g.l.Close()
	g.set(true)
	g.ended.Wait()
}

// cycle is a cluster whose parts come and go: a server, and up to two GPU agents with a data folder
// and a way to the server each. Beside it an undisturbed agent says what every swarm must be.
type cycle struct {
	t           fataler
	dev         device.Device
	port        int
	store       string
	server      *server.Server
	conn        *natsq.Conn
	seats       [2]cycleSeat
	swarms      map[string]*cycleSwarm // by id
	steps       int
	testkit.Log // of the agents

	twin     *natsq.Conn
	compared int
}

// fataler is a test, or one sequence of a property.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// cycleSeat is a place for an agent.
type cycleSeat struct {
	dir   string
	gate  *gate
	conn  *natsq.Conn
	agent *gpuagents.Agent // nil: none runs
}

// cycleSwarm is a swarm as it must be.
type cycleSwarm struct {
	record  swarms.Swarm
	entries []swarms.Entry // of its log
}

func newCycle(tb testing.TB) *cycle {
	tb.Helper()
	l := &cycle{t: tb, store: tb.TempDir(), swarms: map[string]*cycleSwarm{}}
	var err error
	if l.dev, err = cuda.Open(tb.Context(), "host", cuda.Options{}); err != nil {
		tb.Fatalf("cuda.Open host: %v", err)
	}
	free, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("Listen tcp: %v", err)
	}
	l.port = free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	l.up()
	for i := range l.seats {
		l.seats[i].dir, l.seats[i].gate = tb.TempDir(), newGate(tb, fmt.Sprintf("127.0.0.1:%d", l.port))
	}
	srv, err := server.Start(tb.Context(), server.Options{Dir: tb.TempDir(), Port: server.InProcess, Fast: true})
	if err != nil {
		tb.Fatalf("server.Start: %v", err)
	}
	if l.twin, err = natsq.Connect(tb.Context(), natsconn.Options{InProcess: srv, Name: "twin"}); err != nil {
		tb.Fatalf("natsq.Connect: %v", err)
	}
	twin, err := gpuagents.Start(gpuagents.Options{
		Name: "twin", Device: l.dev, Queue: l.twin.Swarms,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatalf("gpuagents.Start: %v", err)
	}
	tb.Cleanup(func() {
		for i := range l.seats {
			l.kill(i)
			l.seats[i].gate.close()
		}
		l.conn.Close()
		l.server.Close()
		twin.Stop()
		l.twin.Close()
		srv.Close()
		if err := l.dev.Close(); err != nil {
			tb.Errorf("l.dev.Close: %v", err)
		}
	})
	return l
}

// up starts the server and connects to it anew, which makes what it lacks.
func (l *cycle) up() {
	l.t.Helper()
	var err error
	if l.server, err = server.Start(context.Background(),
		server.Options{Dir: l.store, Port: l.port, Fast: true}); err != nil {
		l.t.Fatalf("start the server: %v", err)
	}
	if l.conn, err = natsq.Connect(context.Background(),
		natsconn.Options{URL: l.server.URL(), Name: "test"}); err != nil {
		l.t.Fatalf("connect: %v", err)
	}
}

func (l *cycle) down() {
	l.conn.Close()
	l.server.Close()
}

func (l *cycle) start(i int) {
	l.t.Helper()
	s := &l.seats[i]
	if s.agent != nil {
		return
	}
	s.gate.set(false)
	var err error
	if s.conn, err = natsq.Connect(context.Background(),
		natsconn.Options{
			URL: "nats://" + s.gate.l.Addr().String(), Name: "agent",
			Patience: 2 * time.Second,
		}); err != nil {
		l.t.Fatalf("agent %d: %v", i, err)
	}
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: fmt.Sprintf("agent-%d", i), Device: l.dev, Queue: s.conn.Swarms, Checkpoints: checkpointsIn(s.dir),
		LeaseTTL: cycleTTL,
		Logger:   slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})).With("agent", i),
	})
	if err != nil {
		l.t.Fatalf("agent %d: %v", i, err)
	}
	s.agent = agent
}

// kill ends an agent without a word to the server: its leases stay.
func (l *cycle) kill(i int) {
	s := &l.seats[i]
	if s.agent == nil {
		return
	}
	s.conn.Close()
	s.agent.Stop()
	s.agent = nil
}

// do does one step of a sequence: a verb and what it is about.
func (l *cycle) do(step string) {
	l.t.Helper()
	l.steps++
	verb, what, _ := strings.Cut(step, " ")
	seat := strings.Index("ab", what)
	has := l.swarms[what]
	ctx, cancel := context.WithTimeout(context.Background(), cycleDeaf)
	defer cancel()
	switch verb {
	case "create":
		if has == nil {
			l.create(ctx, what)
		}
	case "delete":
		if has != nil {
			delete(l.swarms, what)
			if err := l.conn.Swarms.RemoveSwarm(ctx, has.record); err != nil {
				l.t.Fatalf("%s: %v", step, err)
			}
		}
	case "observe":
		if has != nil {
			o := &batch.AgentObservations{
				Agent:    []uint32{uint32(l.steps % cycleAgents)},
				Features: []float32{float32(l.steps%17) / 16, 1}, Width: 2,
			}
			data, err := o.Encode()
			if err != nil {
				l.t.Fatalf("encode observations: %v", err)
			}
			l.append(ctx, has, swarms.EntryObserve, data)
		}
	case "tick":
		if has != nil {
			l.append(ctx, has, swarms.EntryTick, []byte(`{"v":1,"count":7}`))
		}
	case "answered": // that the present agent has all of it in a checkpoint soon
		if has != nil && l.served() {
			l.answer(ctx, l.conn, has.record, uint64(len(has.entries)))
		}
	case "start":
		l.start(seat)
	case "kill":
		l.kill(seat)
	case "cut":
		l.seats[seat].gate.set(true)
	case "heal":
		l.seats[seat].gate.set(false)
	case "swap": // the data folders of the agents
		if l.seats[0].agent == nil && l.seats[1].agent == nil {
			l.seats[0].dir, l.seats[1].dir = l.seats[1].dir, l.seats[0].dir
		}
	case "restart":
		l.down()
		l.up()
	case "empty":
		l.down()
		if err := os.RemoveAll(l.store); err != nil {
			l.t.Fatalf("remove the store: %v", err)
		}
		if err := os.Mkdir(l.store, 0o755); err != nil {
			l.t.Fatalf("make the store: %v", err)
		}
		clear(l.swarms)
		l.up()
	default:
		l.t.Fatalf("no step %q", step)
	}
}

// served reports whether some agent can reach the server.
func (l *cycle) served() bool {
	return slices.ContainsFunc(l.seats[:], func(s cycleSeat) bool {
		s.gate.mu.Lock()
		defer s.gate.mu.Unlock()
		return s.agent != nil && !s.gate.cut
	})
}

func (l *cycle) create(ctx context.Context, id string) {
	l.t.Helper()
	spec, err := swarm.Parse("test.yaml", fmt.Appendf(nil, "name: %s\naddressed: agent\nagents: %d\n"+
		"agents_per_group: 2\npage_size: 64KiB\nfeatures: [current, gain]\nseed: 1\n"+
		"cell: {kind: leaky, params: {decay: 0.9, threshold: 1}}\nvote: {candidates: [quiet, spike], rule: "+
		"majority}\ncheckpoint: {interval: 1h, entries: 1}\n", id, cycleAgents))
	if err != nil {
		l.t.Fatalf("parse the specification: %v", err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		l.t.Fatalf("encode the specification: %v", err)
	}
	s := &cycleSwarm{record: swarms.Swarm{
		Version: jobs.Version, ID: id, Nonce: swarms.NewNonce(), Name: id, Spec: data,
		Groups: spec.Groups(), Created: time.Now().UTC(),
	}}
	if id == "old" { // as earlier versions made them
		s.record.Nonce = ""
	}
	l.swarms[id] = s
	l.announce(ctx, l.conn, s.record)
	l.append(ctx, s, swarms.EntryQuery, []byte(`{"v":1,"agents":[0]}`))
}

func (l *cycle) announce(ctx context.Context, c *natsq.Conn, s swarms.Swarm) {
	l.t.Helper()
	err := c.Swarms.CreateSwarm(ctx, s)
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		err = errors.Join(err, c.Swarms.Log(s.Key(), 0, d).Create(ctx))
	}
	if err != nil {
		l.t.Fatalf("create %s: %v", s.ID, err)
	}
}

func (l *cycle) append(ctx context.Context, s *cycleSwarm, kind string, data []byte) {
	l.t.Helper()
	n := uint64(len(s.entries))
	e := swarms.Entry{Kind: kind, Ref: n + 1, Data: data}
	if err := l.conn.Swarms.Log(s.record.Key(), 0, swarms.In).Append(ctx, n, e); err != nil {
		l.t.Fatalf("%s of %s: %v", kind, s.record.ID, err)
	}
	s.entries = append(s.entries, e)
}

// answer waits for the answer to entry number seq.
func (l *cycle) answer(ctx context.Context, c *natsq.Conn, s swarms.Swarm, seq uint64) swarms.Entry {
	l.t.Helper()
	r, err := c.Swarms.Log(s.Key(), 0, swarms.Out).Read(ctx, seq)
	if err != nil {
		l.t.Fatalf("answer %d of %s: %v\n%s", seq, s.Key(), err, l.String())
	}
	defer r.Close()
	e, err := r.Next(ctx)
	if err != nil || e.Ref != seq {
		l.t.Fatalf("answer %d of %s is to entry %d: %v: the agents are deaf or stuck\n%s", seq, s.Key(), e.Ref, err,
			l.String())
	}
	return e
}

// check has somebody serve, asks every swarm for its state, and compares that with the undisturbed
// one. Nobody serves a swarm that is gone.
func (l *cycle) check() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cycleDeaf)
	defer cancel()
	for i := range l.seats {
		l.seats[i].gate.set(false)
	}
	if l.seats[0].agent == nil && l.seats[1].agent == nil {
		l.start(0)
	}
	for id, s := range l.swarms {
		l.append(ctx, s, swarms.EntryQuery, []byte(`{"v":1,"agents":[0,1,2,3]}`))
		got := l.answer(ctx, l.conn, s.record, uint64(len(s.entries)))
		twin := s.record
		l.announce(ctx, l.twin, twin)
		if err := l.twin.Swarms.Log(twin.Key(), 0, swarms.In).Append(ctx, 0, s.entries...); err != nil {
			l.t.Fatalf("twin of %s: %v", id, err)
		}
		want := l.answer(ctx, l.twin, twin, uint64(len(s.entries)))
		if err := l.twin.Swarms.RemoveSwarm(ctx, twin); err != nil {
			l.t.Fatalf("twin of %s: %v", id, err)
		}
		if got.Kind != swarms.EntryState || got.Kind != want.Kind || !bytes.Equal(got.Data, want.Data) {
			a, _ := batch.DecodeAgentStates(got.Data)
			b, _ := batch.DecodeAgentStates(want.Data)
			l.t.Fatalf("swarm %s: %s %+v, undisturbed it is %s %+v\n%s", s.record.Key(), got.Kind, a, want.Kind, b,
				l.String())
		}
		l.compared++
	}
	for {
		held, err := l.conn.Swarms.Leases(ctx)
		if err != nil {
			l.t.Fatalf("list the leases: %v", err)
		}
		leases := 0 // of the present swarms: one that is held under the name of an earlier one would keep nobody away
		for _, s := range l.swarms {
			if held[swarms.LeaseKey(s.record.Key(), 0)] != "" {
				leases++
			}
		}
		shards := 0
		for _, s := range l.seats {
			if s.agent != nil {
				shards += s.agent.Shards()
			}
		}
		if shards == len(l.swarms) && leases == shards {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			l.t.Fatalf("%d shards are served, with %d leases, of %d swarms\n%s", shards, leases, len(l.swarms),
				l.String())
		}
	}
}

// run does a sequence that begins with no swarm and both agents.
func (l *cycle) run(t fataler, steps []string) {
	t.Helper()
	l.t = t
	l.Reset()
	l.steps = 0
	for i := range l.seats {
		l.seats[i].gate.set(false)
	}
	for _, id := range []string{"x", "y", "old"} {
		l.do("delete " + id)
	}
	for _, s := range steps {
		l.do(s)
	}
	l.check()
}

// TestLifecycleScripts: findings of an audit as sequences. Each served wrong state or no state
// before a swarm had an identity beyond its name.
func TestLifecycleScripts(t *testing.T) {
	testkit.OnlyLong(t)
	l := newCycle(t)
	for name, script := range map[string]string{
		// Two logs with equal last entries, and the checkpoint of the first.
		"checkpoint of an earlier swarm": "kill b, start a, create x, observe x, tick x, answered x," +
			" kill a, delete x, start b, create x, tick x, tick x, answered x, kill b, start a",
		"checkpoint of an earlier swarm without a nonce": "kill b, start a, create old, observe old, tick old, " +
			"answered old, kill a, delete old, start b, create old, tick old, tick old, answered old, kill b, start " +
			"a",
		// The agent hears of neither the end nor the beginning.
		"made anew behind a partition": "kill b, start a, create x, tick x, answered x, cut a, delete x, create x, " +
			"heal a",
		"made anew behind a restart": "start a, start b, create x, tick x, answered x, restart, delete x, create " +
			"x, observe x",
		// The agents have seen records with higher numbers than the new store has.
		"empty store": "kill b, start a, create x, create y, tick x, answered x, answered y, cut " +
			"a, empty, create y, heal a",
		"empty store while all are near": "start a, start b, create x, create y, answered x, answered y, empty, " +
			"create x, tick x",
		"gone behind a partition": "kill b, start a, create x, answered x, cut a, delete x, heal a, create y",
	} {
		t.Run(name, func(t *testing.T) { l.run(t, strings.Split(script, ", ")) })
	}
}

// cycleSlice is how many sequences go test runs; make lifecycle runs 2,000.
const cycleSlice = "15"

// TestLifecycle: whatever is deleted, made, killed, cut off, restarted and emptied in whatever
// order, every swarm that there is is served, with the state of one that was left alone, and none
// that is gone.
func TestLifecycle(t *testing.T) {
	testkit.OnlyLong(t)
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(cycleSlice); err != nil {
			t.Fatalf("f.Value.Set: %v", err)
		}
		defer func() { _ = f.Value.Set(f.DefValue) }()
	}
	l := newCycle(t)
	verbs := []string{
		"create x", "create x", "create y", "observe x", "observe x", "observe y", "tick x", "tick y", "answered x",
		"answered y", "delete x", "delete x", "delete y",
		"start a", "start b", "kill a", "kill b", "cut a", "cut b", "heal a", "heal b", "swap", "restart", "empty",
	}
	sequences, steps := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		all := rapid.SliceOfN(rapid.SampledFrom(verbs), 4, 16).Draw(rt, "steps")
		l.run(rt, append([]string{"start a", "create x", "observe x"}, all...))
		if sequences, steps = sequences+1, steps+len(all); sequences%100 == 0 {
			t.Logf("%d sequences, %d steps, %d states compared", sequences, steps, l.compared)
		}
	})
	t.Logf("%d sequences, %d steps, %d states compared", sequences, steps, l.compared)
}
