package shard

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
)

// pairOfLogs is a queue of one shard.
type pairOfLogs struct {
	in, out *ledger
}

// Log returns one of the two.
func (q pairOfLogs) Log(_ string, _ int, d swarms.Direction) swarms.Log {
	if d == swarms.In {
		return q.in
	}
	return q.out
}

// oneDisk is checkpoints of one shard.
type oneDisk struct {
	disk    *disk
	fail    error // of Open
	removed int
}

// Open implements Checkpoints.
func (c *oneDisk) Open(_ string, _, pageSize, _ int) (pages.Store, error) {
	if c.fail != nil {
		return nil, c.fail
	}
	return pagestore.Open(pagestore.Options{
		FS: c.disk.fs, Tables: tierstest.Backend{FS: c.disk.fs}, PageSize: pageSize,
		Tiers: []pagestore.Tier{{
			Name: "disk", Dir: "/disk", Capacity: c.disk.capacity, SegmentBytes: 1 << 20,
			DiskReserve: -1,
		}},
	})
}

// Remove implements Checkpoints.
func (c *oneDisk) Remove(string, int) error {
	c.removed++
	c.disk = newDisk()
	return nil
}

// Shards implements Checkpoints.
func (c *oneDisk) Shards() ([]ID, error) { return nil, nil }

// testServer is an agent that serves one shard when a test says so.
type testServer struct {
	*Server
	pairOfLogs
	on    *fixed
	swarm swarms.Swarm
	log   strings.Builder
	open  *OpenShard
	freed int // calls of Freed
}

// workText is a swarm whose answers depend on every entry before.
const workText = "name: x\naddressed: agent\nagents: 64\nagents_per_group: 8\npage_size: 64KiB\nfeatures: [a]\n" +
	"cell: {kind: leaky}\ncheckpoint: {interval: 1h, entries: 1000}\n"

func newTestServer(t *testing.T, d device.Device, o Options, n int) *testServer {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(workText))
	testkit.NoError(t, "swarm.Parse", err)
	p := &testServer{pairOfLogs: pairOfLogs{in: &ledger{all: worked(t, n)}, out: &ledger{}}, swarm: record(t, workText,
		spec.Groups())}
	p.in.waits = true
	o.Queue, o.BatchLatency, o.Freed = p.pairOfLogs, time.Second, func() { p.freed++ }
	if o.Keeps == nil {
		o.Keeps = func(int64) bool { return true }
	}
	p.Server = &Server{o: o}
	p.on = slotOn(d)
	return p
}

// serve works on the shard until it has a number of answers, and then until it parks or ends; it
// returns the error of that.
func (p *testServer) serve(t *testing.T, from *Rest, answers int) error {
	t.Helper()
	if p.open == nil {
		p.open = &OpenShard{}
	}
	p.open.park = make(chan struct{}, 1)
	room := p.on.budget.Room()
	ended := make(chan error, 1)
	p.log.Reset()
	log := slog.New(slog.NewTextHandler(&p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	go func() {
		ended <- p.Serve(t.Context(), Task{On: p.on, Swarm: p.swarm, From: from, Open: p.open, Log: log})
	}()
	met := func() bool { return len(p.out.entries()) >= answers }
	deadline := time.After(2 * time.Minute)
	for {
		park := p.open.park
		if !met() {
			park = nil
		}
		select {
		case err := <-ended:
			if now := p.on.budget.Room(); now != room || p.in.readers != 0 {
				t.Errorf("%d bytes of the budget are back of %d, and %d readers are open", now, room, p.in.readers)
			}
			return err
		case park <- struct{}{}:
		case <-time.After(time.Millisecond): // between two looks
		case <-deadline:
			t.Fatalf("%d answers of %d, and no end:\n%s", len(p.out.entries()), answers, &p.log)
		}
	}
}

// parked is what a shard leaves that parks.
func (p *testServer) parked(t *testing.T, from *Rest, answers int) *Rest {
	t.Helper()
	var r *Rest
	if err := p.serve(t, from, answers); !errors.As(err, &r) {
		t.Fatalf("%v, want a rest:\n%s", err, &p.log)
	}
	return r
}

// worked is a log of n entries: observations, ticks, and questions for the state of every agent.
func worked(t *testing.T, n int) (all []swarms.Entry) {
	t.Helper()
	q := swarms.Query{Version: jobs.Version}
	for a := range uint32(64) {
		q.Agents = append(q.Agents, a)
	}
	for i := range n {
		e := swarms.Entry{Seq: uint64(i + 1), Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)}
		switch i % 3 {
		case 0:
			o := &batch.AgentObservations{Width: 1}
			for a := range uint32(64) {
				if a%4 != uint32(i)%4 {
					o.Agent, o.Features = append(o.Agent, a), append(o.Features, float32(a%7)/5+float32(i)/10)
				}
			}
			e.Kind, e.Data = swarms.EntryObserve, bytesOf(t, o)
		case 1:
			e.Kind, e.Data = swarms.EntryQuery, encoded(t, q)
		}
		all = append(all, e)
	}
	return all
}

// bytesOf is the binary form of observations.
func bytesOf(t *testing.T, o *batch.AgentObservations) []byte {
	t.Helper()
	data, err := o.Encode()
	testkit.NoError(t, "o.Encode", err)
	return data
}

// answersOf are the answers to a log of n ticks from one agent that is never disturbed.
func answersOf(t *testing.T, d device.Device, n int) (all []string) {
	t.Helper()
	p := newTestServer(t, d, Options{}, n)
	p.parked(t, nil, n)
	for _, e := range p.out.entries() {
		all = append(all, string(e.Data))
	}
	return all
}

// texts are the data of a log.
func texts(l *ledger) (all []string) {
	for _, e := range l.entries() {
		all = append(all, string(e.Data))
	}
	return all
}

// extend appends to a log, up to n entries.
func extend(t *testing.T, l *ledger, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, worked(t, n)[len(l.all):]...)
}

// testLogger writes to the log of a test server.
func testLogger(p *testServer) *slog.Logger { return slog.New(slog.NewTextHandler(&p.log, nil)) }
