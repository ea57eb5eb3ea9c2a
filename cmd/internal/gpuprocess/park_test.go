package gpuprocess

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// told appends an entry to the log of a swarm and returns the answer.
func (r *rig) told(tb testing.TB, id string, seq int, e swarms.Entry) swarms.Entry {
	tb.Helper()
	e.Ref = uint64(seq)
	if err := r.conn.Swarms.Log(id, 0, swarms.In).Append(tb.Context(), uint64(seq-1), e); err != nil {
		tb.Fatalf("r.conn.Swarms.Log().Append: %v", err)
	}
	r.answered(tb, id, seq)
	return r.all(tb, id, seq)[seq-1]
}

// remove ends a swarm that has no nonce.
func (r *rig) remove(tb testing.TB, id string) {
	tb.Helper()
	if err := r.conn.Swarms.RemoveSwarm(tb.Context(), swarms.Swarm{ID: id}); err != nil {
		tb.Fatalf("r.conn.Swarms.RemoveSwarm: %v", err)
	}
}

// crowd waits until an agent has at most a number of shards open.
func (r *rig) crowd(tb testing.TB, a *gpuagents.Agent, open int) {
	tb.Helper()
	r.wait(tb, "idle shards to be parked", func() bool { return a.Shards()-a.Parked() <= open })
}

// TestParked: swarms that are parked and woken again and again, by an agent that has a single one
// open, with and without a data folder and over other agents, answer as one of an agent that never
// parks.
func TestParked(t *testing.T) {
	testkit.OnlyLong(t)
	const n, swarms = 20, 3
	for name, text := range kindsOfSwarm {
		for _, kept := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/data=%v", name, kept), func(t *testing.T) {
				r := newRig(t)
				all := mixed(t, n, name == "agents")
				want := r.oneByOne(t, "one", text, all)
				r.remove(t, "one")
				dir := ""
				if kept {
					dir = t.TempDir()
				}
				start := func() *gpuagents.Agent {
					o := gpuagents.Options{OpenShards: 1}
					if kept {
						o.Checkpoints = checkpointsIn(dir)
					}
					return r.start(t, o)
				}
				for k := range swarms {
					r.logs(t, fmt.Sprint("s", k), nil)
					r.put(t, fmt.Sprint("s", k), text)
				}
				a := start()
				random, at := rand.New(rand.NewPCG(3, 3)), make([]int, swarms)
				for left := swarms * n; left > 0; {
					k := random.IntN(swarms)
					if at[k] == n {
						continue
					}
					at[k]++
					left--
					e := all[at[k]-1]
					if got := r.told(t, fmt.Sprint("s", k), at[k], e); got.Kind != want[at[k]-1].Kind ||
						!bytes.Equal(got.Data, want[at[k]-1].Data) {
						t.Fatalf("swarm %d: answer %d is a %s, want a %s, or of other bytes", k, at[k], got.Kind,
							want[at[k]-1].Kind)
					}
					if left == swarms*n/2 { // another agent takes them as they are
						r.crowd(t, a, 1)
						a.Stop()
						a = start()
					}
				}
				r.crowd(t, a, 1)
				if a.Shards() != swarms {
					t.Errorf("%d of %d swarms are served", a.Shards(), swarms)
				}
			})
		}
	}
}

// TestParkedCost: shards that are parked have no goroutines and no store open.
func TestParkedCost(t *testing.T) {
	testkit.OnlyLong(t)
	r := newRig(t)
	const n = 40
	for k := range n {
		r.logs(t, fmt.Sprint("s", k), nil)
	}
	goroutines, fds := runtime.NumGoroutine(), openFiles(t)
	a := r.start(t, gpuagents.Options{OpenShards: 2, Checkpoints: checkpointsIn(t.TempDir())})
	for k := range n {
		r.put(t, fmt.Sprint("s", k), byAgent)
		r.told(t, fmt.Sprint("s", k), 1, swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)})
	}
	r.crowd(t, a, 2)
	if a.Parked() < n-2 {
		t.Errorf("%d of %d shards are parked", a.Parked(), n)
	}
	// The agent has some 30 goroutines and each open shard some 60; the logs of the server in this
	// process have theirs before.
	r.wait(t, "goroutines of parked shards to end",
		func() bool { return runtime.NumGoroutine()-goroutines < 30+2*60+n })
	r.wait(t, "files of parked shards to be closed", func() bool { return openFiles(t)-fds < 2*12+2*n })
}

// TestIdleCost: an open shard that has nothing to do costs at most 8 goroutines and 1 MB of memory,
// and answers when it has. What the server in this process has for its logs does not count as
// goroutines, but counts as memory.
func TestIdleCost(t *testing.T) {
	r := newRig(t)
	const n = 25
	for k := range n {
		r.logs(t, fmt.Sprint("s", k), nil)
	}
	c := checkpointsIn(t.TempDir())
	c.rests = 100 * time.Millisecond
	r.start(t, gpuagents.Options{OpenShards: 2 * n, Checkpoints: c})
	tick := swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
	begin := func(k int) {
		r.put(t, fmt.Sprint("s", k), byAgent)
		r.told(t, fmt.Sprint("s", k), 1, tick)
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what pools have
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	begin(0)
	goroutines, bytes := ourGoroutines(), heap()
	for k := 1; k < n; k++ {
		begin(k)
	}
	r.wait(t, "8 goroutines of each shard", func() bool { return ourGoroutines()-goroutines <= 8*(n-1) })
	if each := (heap() - bytes) / (n - 1); each > 1<<20 {
		t.Errorf("a shard takes %d bytes", each)
	}
	for k := range n {
		r.told(t, fmt.Sprint("s", k), 2, tick)
	}
}

// ourGoroutines returns the number of goroutines that are not of the NATS server.
func ourGoroutines() (n int) {
	text := make([]byte, 16<<20)
	for one := range bytes.SplitSeq(text[:runtime.Stack(text, true)], []byte("\n\n")) {
		if !bytes.Contains(one, []byte("nats-server")) {
			n++
		}
	}
	return n
}

// openFiles is how many files the process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(all)
}

// TestParkedGone: a swarm that is removed while it is parked leaves no lease and no checkpoint, and
// the next one of its name is another.
func TestParkedGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := t.TempDir()
	a := r.start(t, gpuagents.Options{OpenShards: 1, Checkpoints: checkpointsIn(dir)})
	tick := swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
	for k := range 3 {
		r.logs(t, fmt.Sprint("s", k), nil)
		r.put(t, fmt.Sprint("s", k), byAgent)
		r.told(t, fmt.Sprint("s", k), 1, tick)
	}
	r.crowd(t, a, 1)
	for k := range 3 {
		r.remove(t, fmt.Sprint("s", k))
	}
	r.wait(t, "the swarms to be left", func() bool { return a.Shards() == 0 })
	r.wait(t, "their checkpoints to be removed", func() bool {
		left, err := os.ReadDir(dir)
		return err == nil && len(left) == 0
	})
	r.wait(t, "their leases to be given back", func() bool {
		held, err := r.conn.Swarms.Leases(t.Context())
		return err == nil && len(held) == 0
	})
}

// TestMaxShards: an agent that has as many shards as it takes says so and leaves the others, which
// it takes when it has room, or another agent does.
func TestMaxShards(t *testing.T) {
	r := newRig(t)
	a := r.start(t, gpuagents.Options{MaxShards: 3})
	for k := range 5 {
		r.logs(t, fmt.Sprint("s", k), nil)
		r.put(t, fmt.Sprint("s", k), byAgent)
	}
	r.wait(t, "three shards", func() bool { return a.Shards() == 3 })
	r.logged(t, "this agent takes no more shards")
	if !a.Full() {
		t.Error("the agent is not full")
	}
	held := func() (n int) {
		all, err := r.conn.Swarms.Leases(t.Context())
		if err != nil {
			t.Fatalf("r.conn.Swarms.Leases: %v", err)
		}
		return len(all)
	}
	if n := held(); n != 3 {
		t.Errorf("%d leases", n)
	}
	gone := ""
	all, err := r.conn.Swarms.Leases(t.Context())
	if err != nil {
		t.Fatalf("r.conn.Swarms.Leases: %v", err)
	}
	for key := range all {
		gone, _, _ = strings.Cut(key, ".")
	}
	r.remove(t, gone)
	r.wait(t, "the next shard", func() bool { return a.Shards() == 3 && held() == 3 })
	b := r.start(t, gpuagents.Options{})
	r.wait(t, "the last shard", func() bool { return b.Shards() == 1 })
	if a.Shards() != 3 {
		t.Errorf("%d shards", a.Shards())
	}
}

// TestParkedAtStart: an agent that comes to swarms that have nothing to do opens some and parks the
// others, and all answer.
func TestParkedAtStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 12
	tick := swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
	a := r.start(t, gpuagents.Options{OpenShards: 2})
	var want []swarms.Entry
	for k := range n {
		r.logs(t, fmt.Sprint("s", k), nil)
		r.put(t, fmt.Sprint("s", k), byAgent)
		for seq := range 1 + k%3 {
			want = append(want[:k], r.told(t, fmt.Sprint("s", k), seq+1, tick))
		}
	}
	a.Stop()
	r.Reset()
	b := r.start(t, gpuagents.Options{OpenShards: 2})
	r.wait(t, "all shards", func() bool { return b.Shards() == n })
	if opened := strings.Count(r.String(), "serving shard"); opened > n/2 {
		t.Errorf("%d of %d shards were opened", opened, n)
	}
	for k := range n {
		got := r.told(t, fmt.Sprint("s", k), 2+k%3, tick)
		var ticked swarms.Ticked
		if err := json.Unmarshal(got.Data, &ticked); err != nil || got.Kind != swarms.EntryTicked ||
			ticked.Stepped == 0 {
			t.Errorf("swarm %d: %s %s: %v", k, got.Kind, got.Data, err)
		}
	}
}
