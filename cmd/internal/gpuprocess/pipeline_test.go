package gpuprocess

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// byAgent is a swarm whose agents are addressed, with as many groups as records of these tests say.
const byAgent = "name: x\naddressed: agent\nagents: 300\nagents_per_group: 30\npage_size: 64KiB\nfeatures: [a]\n" +
	"seed: 3\ncell: {kind: gru, params: {hidden: 5}}\nvote: {candidates: [a, b, c], rule: majority}\ncheckpoint: " +
	"{interval: 1h, entries: 7}\n"

// mixed are entries of every kind that a swarm takes, mostly observations. Some observations are
// refused.
func mixed(tb testing.TB, n int, agents bool) (all []swarms.Entry) {
	tb.Helper()
	r := rand.New(rand.NewPCG(9, 9))
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		if e, ok := v.(interface{ Encode() ([]byte, error) }); ok {
			data, err = e.Encode()
		}
		if err != nil {
			tb.Fatal(err)
		}
		return data
	}
	groupBatches := observations(n, 7)
	for i := range n {
		e := swarms.Entry{Kind: swarms.EntryObserve, Ref: uint64(i + 1)}
		o := &batch.AgentObservations{Width: 1}
		for range r.IntN(40) {
			id := r.Uint32N(300)
			if len(o.Agent) > 0 && r.IntN(4) == 0 {
				id = o.Agent[r.IntN(len(o.Agent))]
			}
			o.Agent, o.Features = append(o.Agent, id), append(o.Features, float32(r.NormFloat64()))
		}
		switch kind := r.IntN(20); {
		case kind == 0:
			e.Data = []byte("no batch")
		case kind == 1:
			e.Kind, e.Data = swarms.EntryReset, encode(swarms.Reset{Version: jobs.Version})
		case kind == 2:
			e.Kind, e.Data = "unheard", []byte("of")
		case kind == 3 && agents:
			e.Kind, e.Data = swarms.EntryTick, encode(swarms.Tick{Version: jobs.Version, Count: 1 + r.IntN(3)})
		case kind == 4 && agents:
			e.Kind = swarms.EntryQuery
			e.Data = encode(swarms.Query{Version: jobs.Version, Groups: []uint32{0, 3, groups - 1}})
		case kind == 5 && agents:
			o.Agent, o.Features = append(o.Agent, 300), append(o.Features, 1)
			fallthrough
		case agents:
			e.Data = encode(o)
		default:
			e.Data = encode(groupBatches[i])
		}
		all = append(all, e)
	}
	return all
}

// logs makes the logs of a swarm with entries in one.
func (r *rig) logs(tb testing.TB, id string, all []swarms.Entry) {
	tb.Helper()
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := r.conn.Swarms.Log(id, 0, d).Create(tb.Context()); err != nil {
			tb.Fatalf("r.conn.Swarms.Log().Create: %v", err)
		}
	}
	if err := r.conn.Swarms.Log(id, 0, swarms.In).Append(tb.Context(), 0, all...); err != nil {
		tb.Fatalf("r.conn.Swarms.Log().Append: %v", err)
	}
}

// all are the first n answers of a swarm, each to the next entry.
func (r *rig) all(tb testing.TB, id string, n int) (answers []swarms.Entry) {
	tb.Helper()
	rd, err := r.conn.Swarms.Log(id, 0, swarms.Out).Read(tb.Context(), 1)
	if err != nil {
		tb.Fatalf("r.conn.Swarms.Log().Read: %v", err)
	}
	defer rd.Close()
	for i := range n {
		e, err := rd.Next(tb.Context())
		if err != nil {
			tb.Fatalf("rd.Next: %v", err)
		}
		if e.Seq != uint64(i+1) || e.Ref != e.Seq {
			tb.Fatalf("%s: answer %d is to entry %d", id, e.Seq, e.Ref)
		}
		answers = append(answers, e)
	}
	return answers
}

func sameAnswers(tb testing.TB, want, got []swarms.Entry) {
	tb.Helper()
	for i := range want {
		if got[i].Kind != want[i].Kind || !bytes.Equal(got[i].Data, want[i].Data) {
			tb.Fatalf("answer %d is a %s, want a %s, or of other bytes: %.100q, %.100q", i+1, got[i].Kind, want[i].Kind,
				got[i].Data, want[i].Data)
		}
	}
}

// oneByOne has a swarm with an entry in its log only when those before are answered, which nothing
// can be merged with.
func (r *rig) oneByOne(tb testing.TB, id, text string, all []swarms.Entry) []swarms.Entry {
	tb.Helper()
	r.logs(tb, id, nil)
	r.put(tb, id, text)
	a := r.agent(tb, "")
	for i, e := range all {
		if err := r.conn.Swarms.Log(id, 0, swarms.In).Append(tb.Context(), uint64(i), e); err != nil {
			tb.Fatalf("r.conn.Swarms.Log().Append: %v", err)
		}
		r.answered(tb, id, i+1)
	}
	a.Stop()
	return r.all(tb, id, len(all))
}

// kindsOfSwarm are texts of both.
var kindsOfSwarm = map[string]string{"groups": text(1, 7), "agents": byAgent}

// TestPipelined: a log that is full when an agent starts, and agents that drain and start again
// anywhere in it, have the answers of an agent that had one entry at a time. A drained agent has
// answered what it applied, and its checkpoint is of that.
func TestPipelined(t *testing.T) {
	t.Parallel()
	n := 90
	if testing.Short() { // half a minute with the race detector
		n = 45
	}
	for name, text := range kindsOfSwarm {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			all := mixed(t, n, name == "agents")
			want := r.oneByOne(t, "one", text, all)
			if err := r.conn.Swarms.RemoveSwarm(t.Context(), swarms.Swarm{ID: "one"}); err != nil {
				t.Fatalf("r.conn.Swarms.RemoveSwarm: %v", err)
			}
			r.logs(t, "full", all)
			r.put(t, "full", text)
			kept, random := t.TempDir(), rand.New(rand.NewPCG(1, 1))
			for turns, done := 0, uint64(0); done < uint64(n); turns++ {
				r.Reset()
				dir := kept
				if turns%2 == 1 { // it applies everything again
					dir = ""
				}
				a := r.agent(t, dir)
				r.answered(t, "full", min(n, int(done)+1+random.IntN(n/5)))
				a.Stop()
				last, err := r.conn.Swarms.Log("full", 0, swarms.Out).Last(t.Context())
				if err != nil {
					t.Fatalf("r.conn.Swarms.Log().Last: %v", err)
				}
				done = last.Ref
				if dir == "" ||
					done < uint64(n) && (all[done].Kind == swarms.EntryTick || all[done].Kind == swarms.EntryReset) {
					continue // the entry at hand may have been cut, and the state is of no entry then
				}
				if !strings.Contains(r.String(), fmt.Sprintf("checkpoint stored\" swarm=full entry=%d ", done)) {
					t.Fatalf("%d entries are answered, and no checkpoint is of the last\n%s", done, r.String())
				}
			}
			sameAnswers(t, want, r.all(t, "full", n))
		})
	}
}

// queue is a connection whose logs of answers are watched: before is called ahead of every Append
// to them.
type queue struct {
	*swarmlog.Swarms
	before func(after uint64, all []swarms.Entry)
}

type watched struct {
	swarms.Log
	before func(after uint64, all []swarms.Entry)
}

// Log implements gpuagents.Queue.
func (q queue) Log(swarm string, shard int, d swarms.Direction) swarms.Log {
	l := q.Swarms.Log(swarm, shard, d)
	if d == swarms.In {
		return l
	}
	return watched{l, q.before}
}

// Append implements swarms.Log.
func (l watched) Append(ctx context.Context, after uint64, all ...swarms.Entry) error {
	l.before(after, all)
	return l.Log.Append(ctx, after, all...)
}

// TestFenced: an agent that another one has overtaken while it had several answers in hand appends
// none of them, and continues after the answers of the other agent.
func TestFenced(t *testing.T) {
	t.Parallel()
	const n = 60
	r := newRig(t)
	all := mixed(t, n, true)
	want := r.oneByOne(t, "one", byAgent, all)
	r.logs(t, "x", all)
	r.put(t, "x", byAgent)
	other, err := natsq.Connect(t.Context(), natsconn.Options{InProcess: r.server, Name: "other"})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	t.Cleanup(other.Close)
	var calls, overtaken atomic.Int64
	r.start(t, gpuagents.Options{
		Checkpoints: checkpointsIn(t.TempDir()),
		Queue: queue{r.conn.Swarms, func(after uint64, _ []swarms.Entry) {
			if calls.Add(1) > 3 { // it is overtaken as often as that, if there is as much to append
				return
			}
			theirs := swarms.Entry{Kind: want[after].Kind, Ref: after + 1, Data: want[after].Data}
			if err := other.Swarms.Log("x", 0, swarms.Out).Append(t.Context(), after, theirs); err != nil {
				t.Error(err)
				return
			}
			overtaken.Add(1)
		}},
	})
	r.answered(t, "x", n)
	sameAnswers(t, want, r.all(t, "x", n))
	r.wait(t, "the agent that lost the shard as often as it was overtaken", func() bool {
		n := int(overtaken.Load())
		return n > 0 && strings.Count(r.String(), "shard lost to another agent") == n
	})
}

// TestAppendFails: when answers cannot be appended the shard starts again, and has each answered
// once.
func TestAppendFails(t *testing.T) {
	t.Parallel()
	const n = 40
	r := newRig(t)
	all := mixed(t, n, true)
	want := r.oneByOne(t, "one", byAgent, all)
	r.logs(t, "x", all)
	r.put(t, "x", byAgent)
	var calls atomic.Int64
	q := failing{r.conn.Swarms, &calls}
	r.start(t, gpuagents.Options{Checkpoints: checkpointsIn(t.TempDir()), Queue: q})
	r.answered(t, "x", n)
	sameAnswers(t, want, r.all(t, "x", n))
	r.logged(t, "shard failed, starting again")
}

// failing is a connection whose second Append of answers fails.
type failing struct {
	*swarmlog.Swarms
	calls *atomic.Int64
}

type failingLog struct {
	swarms.Log
	calls *atomic.Int64
}

var errNoDisk = errors.New("the disk of the server is full")

// Log implements gpuagents.Queue.
func (q failing) Log(swarm string, shard int, d swarms.Direction) swarms.Log {
	l := q.Swarms.Log(swarm, shard, d)
	if d == swarms.In {
		return l
	}
	return failingLog{l, q.calls}
}

// Append implements swarms.Log.
func (l failingLog) Append(ctx context.Context, after uint64, all ...swarms.Entry) error {
	if l.calls.Add(1) == 1 {
		return errNoDisk
	}
	return l.Log.Append(ctx, after, all...)
}

// committing are checkpoints that look at the answers before each is made.
type committing struct {
	*checkpoints
	before func(entry uint64)
}

type committingStore struct {
	pages.Store
	before func(entry uint64)
}

// Open implements gpuagents.Checkpoints.
func (c committing) Open(swarm string, shard, pageSize, pages int) (pages.Store, error) {
	s, err := c.checkpoints.Open(swarm, shard, pageSize, pages)
	return committingStore{s, c.before}, err
}

// Commit implements tiers.Store.
func (s committingStore) Commit(ctx context.Context, note []byte) (uint64, error) {
	var p struct {
		Entry uint64 `json:"entry"`
	}
	if err := json.Unmarshal(note, &p); err != nil {
		return 0, err
	}
	s.before(p.Entry)
	return s.Store.Commit(ctx, note)
}

// TestCheckpointBehindAnswers: however slowly answers are stored, no checkpoint is of an entry that
// has none.
func TestCheckpointBehindAnswers(t *testing.T) {
	t.Parallel()
	const n = 80
	for name, text := range kindsOfSwarm {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.logs(t, "x", mixed(t, n, name == "agents"))
			r.put(t, "x", strings.Replace(text, "entries: 7", "entries: 1", 1))
			var commits atomic.Int64
			slow := queue{
				r.conn.Swarms,
				func(uint64, []swarms.Entry) { <-time.After(5 * time.Millisecond) },
			} // a slow disk
			a := r.start(t, gpuagents.Options{
				Queue: slow,
				Checkpoints: committing{checkpointsIn(t.TempDir()), func(entry uint64) {
					commits.Add(1)
					if last, err := r.conn.Swarms.Log("x", 0, swarms.Out).Last(context.Background()); err != nil ||
						last.Ref < entry {
						t.Errorf("a checkpoint of entry %d, and answers to %d: %v", entry, last.Ref, err)
					}
				}},
			})
			r.answered(t, "x", n)
			a.Stop()
			if commits.Load() == 0 {
				t.Error("no checkpoint")
			}
		})
	}
}

// TestBatchMetrics: batches, their size and the use of the device can be read from the metrics.
func TestBatchMetrics(t *testing.T) {
	t.Parallel()
	const n = 30
	r := newRig(t)
	r.announce(t, "x", text(1, 1000), observations(n, 7))
	reg := prometheus.NewRegistry()
	counts, err := gpuagents.NewMetrics(reg)
	if err != nil {
		t.Fatalf("gpuagents.NewMetrics: %v", err)
	}
	began := time.Now()
	a := r.start(t, gpuagents.Options{Metrics: counts})
	r.answered(t, "x", n)
	got := values(t, reg)
	passed := time.Since(began).Seconds()
	if busy := got["exoswarm_gpuagent_device_busy_seconds_total"]; busy <= 0 || busy > passed {
		t.Errorf("busy for %v s of %v", busy, passed)
	}
	if most := got["exoswarm_swarm_batch_limit"]; most < 1 {
		t.Errorf("a batch may have %v observations", most)
	}
	if batches := got["exoswarm_swarm_batch_observations"]; batches < 1 || batches > n ||
		got["exoswarm_swarm_apply_seconds"] != n {
		t.Errorf("%v batches of %v entries", batches, got["exoswarm_swarm_apply_seconds"])
	}
	a.Stop()
	if most := values(t, reg)["exoswarm_swarm_batch_limit"]; most != 0 {
		t.Errorf("after the end a batch may have %v observations", most)
	}
}
