package gpuprocess

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// held is how many shards each agent has.
func (r *rig) held(tb testing.TB) map[string]int {
	tb.Helper()
	all, err := r.conn.Swarms.Leases(tb.Context())
	if err != nil {
		tb.Fatalf("r.conn.Swarms.Leases: %v", err)
	}
	count := map[string]int{}
	for _, holder := range all {
		count[holder]++
	}
	return count
}

// traffic appends entries to the logs of swarms, each when the one before has its answer, until
// stop is closed. It returns how many each has, and the longest that an answer took.
func (r *rig) traffic(tb testing.TB, ids []string, all []swarms.Entry,
	stop <-chan struct{},
) (sent []int, longest time.Duration) {
	tb.Helper()
	sent = make([]int, len(ids))
	var most atomic.Int64
	var writers sync.WaitGroup
	for i, id := range ids {
		writers.Go(func() {
			out, err := r.conn.Swarms.Log(id, 0, swarms.Out).Read(tb.Context(), 1)
			if err != nil {
				tb.Error(err)
				return
			}
			defer out.Close()
			for n := 0; n < len(all); n++ {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				if err := r.conn.Swarms.Log(id, 0, swarms.In).Append(tb.Context(), uint64(n), all[n]); err != nil {
					tb.Error(err)
					return
				}
				wait, cancel := context.WithTimeout(tb.Context(), time.Minute)
				e, err := out.Next(wait)
				cancel()
				if err != nil || e.Ref != uint64(n+1) || e.Seq != e.Ref {
					tb.Errorf("%s: answer %d is to entry %d, want %d: %v", id, e.Seq, e.Ref, n+1, err)
					return
				}
				sent[i] = n + 1
				most.Store(max(most.Load(), int64(time.Since(began))))
			}
		})
	}
	writers.Wait()
	return sent, time.Duration(most.Load())
}

// TestRebalance: an agent that joins gets its share while entries come. Every entry has one answer,
// the same as without a hand-over, and none waits long; nothing moves back.
func TestRebalance(t *testing.T) {
	testkit.OnlyLong(t)
	const swarmCount, most = 6, 4000
	r := newRig(t)
	all := mixed(t, most, true)
	var ids []string
	for i := range swarmCount {
		ids = append(ids, fmt.Sprintf("s%d", i))
		r.logs(t, ids[i], nil)
		r.put(t, ids[i], byAgent)
	}
	registry := prometheus.NewRegistry()
	counts, err := gpuagents.NewMetrics(registry)
	if err != nil {
		t.Fatalf("gpuagents.NewMetrics: %v", err)
	}
	start := func(name string) *gpuagents.Agent {
		return r.start(t, gpuagents.Options{
			Name: name, Checkpoints: checkpointsIn(t.TempDir()), Rebalance: time.Second,
			Metrics: counts,
		})
	}
	start("a")
	r.wait(t, "the first agent to serve", func() bool { return r.held(t)["a"] == swarmCount })
	stop := make(chan struct{})
	var sent []int
	var longest time.Duration
	done := make(chan struct{})
	go func() {
		defer close(done)
		sent, longest = r.traffic(t, ids, all, stop)
	}()
	start("b")
	r.wait(t, "the second agent to have its share", func() bool { h := r.held(t); return h["a"] == 3 && h["b"] == 3 })
	first, err := r.conn.Swarms.Leases(t.Context())
	if err != nil {
		t.Fatalf("r.conn.Swarms.Leases: %v", err)
	}
	last, err := r.conn.Swarms.Log(ids[0], 0, swarms.Out).Last(t.Context())
	if err != nil {
		t.Fatalf("r.conn.Swarms.Log().Last: %v", err)
	}
	r.answered(t, ids[0], min(int(last.Ref)+300, most)) // some looks later nothing has moved back
	if now, err := r.conn.Swarms.Leases(t.Context()); err != nil || fmt.Sprint(now) != fmt.Sprint(first) {
		t.Errorf("%v became %v: %v", first, now, err)
	}
	close(stop)
	<-done
	r.logs(t, "twin", nil)
	r.put(t, "twin", byAgent)
	n := slices.Max(sent)
	if err := r.conn.Swarms.Log("twin", 0, swarms.In).Append(t.Context(), 0, all[:n]...); err != nil {
		t.Fatalf("r.conn.Swarms.Log().Append: %v", err)
	}
	r.answered(t, "twin", n)
	want := r.all(t, "twin", n)
	total := 0
	for i, id := range ids {
		got := r.all(t, id, sent[i])
		total += len(got)
		for k := range got {
			if got[k].Kind != want[k].Kind || !bytes.Equal(got[k].Data, want[k].Data) {
				t.Fatalf("%s: answer %d differs from a swarm that was not handed over", id, k+1)
			}
		}
		if last, err := r.conn.Swarms.Log(id, 0, swarms.Out).Last(t.Context()); err != nil ||
			last.Seq != uint64(sent[i]) {
			t.Errorf("%s: %d answers to %d entries: %v", id, last.Seq, sent[i], err)
		}
	}
	if longest > 2*time.Minute {
		t.Errorf("an answer took %v", longest)
	}
	t.Logf("%d entries to %d swarms, 3 hand-overs, longest answer %v, %v", total, swarmCount, longest, sent)
}

// TestIdleAsks: an agent that joins a loaded one asks for shards and has them long before the
// loaded one would offer any by itself. It takes as many as make it no agent with little work, and
// nothing moves back.
func TestIdleAsks(t *testing.T) {
	const swarmCount, asked = 6, 2
	r := newRig(t)
	for i := range swarmCount {
		id := fmt.Sprintf("s%d", i)
		r.logs(t, id, nil)
		r.put(t, id, byAgent)
	}
	start := func(name string, rebalance time.Duration) {
		r.start(t, gpuagents.Options{Name: name, Checkpoints: checkpointsIn(t.TempDir()), Rebalance: rebalance})
	}
	start("a", time.Hour)
	r.wait(t, "the first agent to serve", func() bool { return r.held(t)["a"] == swarmCount })
	start("off", 0) // an agent that must not ask, before one that may
	began := time.Now()
	start("b", time.Hour)
	r.wait(t, "the second agent to have work", func() bool { return r.held(t)["b"] > 0 })
	first := time.Since(began)
	r.wait(t, "the second agent to have half of what the first has", func() bool { return r.held(t)["b"] == asked })
	t.Logf("the first shard after %v, %d after %v", first, asked, time.Since(began))
	for id := range swarmCount { // some looks later
		r.logs(t, fmt.Sprintf("late%d", id), nil)
	}
	if h := r.held(t); h["a"] != swarmCount-asked || h["b"] != asked || h["off"] != 0 {
		t.Errorf("shards by agent: %v", h)
	}
}

// offer moves two shards to the agent with the fewest, and returns when one of them has a state.
func (r *rig) offer(t *testing.T, state string) {
	t.Helper()
	var moves []swarmlog.Move
	r.wait(t, "something to move", func() bool {
		var err error
		if moves, err = r.conn.Swarms.PlanMoves(t.Context()); err != nil {
			t.Fatalf("r.conn.Swarms.PlanMoves: %v", err)
		}
		return len(moves) == 2
	})
	if err := r.conn.Swarms.OfferMoves(t.Context(), moves); err != nil {
		t.Fatalf("r.conn.Swarms.OfferMoves: %v", err)
	}
	r.wait(t, "a move to be "+state, func() bool {
		over, err := r.conn.Swarms.FollowMoves(t.Context(), moves)
		if err != nil {
			t.Fatalf("r.conn.Swarms.FollowMoves: %v", err)
		}
		return over || slices.ContainsFunc(moves, func(m swarmlog.Move) bool { return m.State == state })
	})
}

// TestHandoverKills: agents that give shards and an agent that takes some are cut off for good in
// the middle of hand-overs. Every entry has one answer, the same as without.
func TestHandoverKills(t *testing.T) {
	testkit.OnlyLong(t)
	t.Run("offered", func(t *testing.T) { handoverKills(t, 0) })
	t.Run("asked", func(t *testing.T) { handoverKills(t, time.Hour) })
}

// handoverKills is TestHandoverKills for moves that are planned, or, with a time for
// Options.Rebalance, for shards that the agents ask for.
func handoverKills(t *testing.T, rebalance time.Duration) {
	const swarmCount, most, rounds = 4, 4000, 4
	r := newRigAt(t, 0)
	all := mixed(t, most, true)
	var ids []string
	for i := range swarmCount {
		ids = append(ids, fmt.Sprintf("s%d", i))
		r.logs(t, ids[i], nil)
		r.put(t, ids[i], byAgent)
	}
	start := func(name string) (conn *natsq.Conn) {
		conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: r.server.URL(), Name: name})
		if err != nil {
			t.Fatalf("natsq.Connect: %v", err)
		}
		t.Cleanup(conn.Close) // behind the agent's end
		r.start(t, gpuagents.Options{Name: name, Queue: conn.Swarms, LeaseTTL: time.Second, Rebalance: rebalance})
		return conn
	}
	conns := map[string]*natsq.Conn{"a0": start("a0")}
	r.wait(t, "the first agent to serve", func() bool { return r.held(t)["a0"] == swarmCount })
	stop, done := make(chan struct{}), make(chan struct{})
	var sent []int
	go func() {
		defer close(done)
		sent, _ = r.traffic(t, ids, all, stop)
	}()
	for i := range rounds {
		giver, taker := fmt.Sprintf("a%d", i), fmt.Sprintf("a%d", i+1)
		conns[taker] = start(taker)
		if rebalance > 0 {
			r.wait(t, "the taker to have some shards", func() bool { return r.held(t)[taker] >= min(i, 1) })
		} else {
			r.offer(t, []string{
				swarmlog.MoveOffered, swarmlog.MoveFollowed, swarmlog.MoveMoved, swarmlog.MoveOffered,
			}[i%4])
		}
		killed := giver
		if i == rounds-1 { // and once the one that takes
			killed = taker
			taker = giver
		}
		conns[killed].Close()
		r.wait(t, "all shards to be held by "+taker, func() bool { return r.held(t)[taker] == swarmCount })
	}
	close(stop)
	<-done
	r.logs(t, "twin", nil)
	r.put(t, "twin", byAgent)
	n := slices.Max(sent)
	if err := r.conn.Swarms.Log("twin", 0, swarms.In).Append(t.Context(), 0, all[:n]...); err != nil {
		t.Fatalf("r.conn.Swarms.Log().Append: %v", err)
	}
	r.answered(t, "twin", n)
	want := r.all(t, "twin", n)
	for i, id := range ids {
		sameAnswers(t, want[:sent[i]], r.all(t, id, sent[i]))
		if last, err := r.conn.Swarms.Log(id, 0, swarms.Out).Last(t.Context()); err != nil ||
			last.Seq != uint64(sent[i]) {
			t.Errorf("%s: %d answers to %d entries: %v", id, last.Seq, sent[i], err)
		}
	}
	t.Logf("%v entries", sent)
}
