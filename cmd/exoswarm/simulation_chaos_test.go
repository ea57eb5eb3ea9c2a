package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// simulated are entries of a simulation of 2,400 agents: observations, ticks, queries, and some that are not valid.
func simulated(t *testing.T, n int) (all []jobs.Entry) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	add := func(kind string, v any) {
		data, err := json.Marshal(v)
		if o, ok := v.(*batch.AgentObservations); ok {
			data, err = o.Encode()
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, jobs.Entry{Kind: kind, Ref: uint64(len(all) + 1), Data: data})
	}
	for len(all) < n {
		o := &batch.AgentObservations{Width: 2}
		for range 200 {
			o.Agent = append(o.Agent, uint32(r.IntN(2400)))
			o.Features = append(o.Features, float32(r.NormFloat64()), float32(r.NormFloat64()))
		}
		switch r.IntN(8) {
		case 0:
			o.Agent[r.IntN(200)] = 2400
			add(jobs.EntryObserve, o)
		case 1:
			add(jobs.EntryTick, jobs.Tick{Version: jobs.Version, Count: -r.IntN(5)})
		case 2:
			add(jobs.EntryQuery, jobs.Query{Version: jobs.Version, Groups: []uint32{uint32(r.IntN(100)), 3}})
		case 3:
			add(jobs.EntryQuery, jobs.Query{Version: jobs.Version, Agents: o.Agent})
		case 4, 5:
			add(jobs.EntryTick, jobs.Tick{Version: jobs.Version, Count: 1 + r.IntN(60)})
		default:
			add(jobs.EntryObserve, o)
		}
	}
	return all
}

// simulate announces a swarm and appends the entries to its log.
func simulate(ctx context.Context, t *testing.T, c *natsq.Conn, id string, spec json.RawMessage, all []jobs.Entry) {
	t.Helper()
	for _, d := range []jobs.Direction{jobs.In, jobs.Out} {
		if err := c.Log(id, 0, d).Create(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.PutSwarm(ctx, jobs.Swarm{Version: jobs.Version, ID: id, Name: "x", Spec: spec, Groups: 100}); err != nil {
		t.Fatal(err)
	}
	for i, e := range all {
		if err := c.Log(id, 0, jobs.In).Append(ctx, uint64(i), e); err != nil {
			t.Fatal(err)
		}
	}
}

// answers waits for n answers of a swarm.
func answers(ctx context.Context, c *natsq.Conn, id string, n int) (all []jobs.Entry, err error) {
	r, err := c.Log(id, 0, jobs.Out).Read(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for len(all) < n {
		e, err := r.Next(ctx)
		if err != nil {
			return all, fmt.Errorf("%s: answer %d of %d: %w", id, len(all)+1, n, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// TestSimulationKilled kills the process that serves a simulation again and again, behind checkpoints of its own: every entry
// has one answer, byte for byte that of a process that was never killed. EXOSWARM_KILLS is the number of kills, 4 by default.
func TestSimulationKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	most := 4
	if text := os.Getenv("EXOSWARM_KILLS"); text != "" {
		var err error
		if most, err = strconv.Atoi(text); err != nil {
			t.Fatalf("EXOSWARM_KILLS: %v", err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	spec, err := swarm.Parse("test.yaml", []byte("name: x\naddressed: agent\nagents: 2400\nagents_per_group: 24\npage_size: 64KiB\nfeatures: [a, b]\n"+
		"vote: {candidates: [a, b, c], rule: majority}\ncheckpoint: {interval: 100ms, entries: 3}\n"))
	if err != nil {
		t.Fatal(err)
	}
	specJSON, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := &cluster{bin: binaries(t)}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(c.bin, "exoswarm"), "nats", "--port", "0", "--data-dir", t.TempDir())
	conn, err := natsq.Connect(ctx, natsq.Options{URL: c.url, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	all := simulated(t, max(400, 100*most))
	c.startGPU(t)
	simulate(ctx, t, conn, "undisturbed", specJSON, all)
	want, err := answers(ctx, conn, "undisturbed", len(all))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.DeleteSwarm(ctx, "undisturbed"); err != nil {
		t.Fatal(err)
	}
	c.gpu.end(t, 15)
	kinds := map[string]int{}
	for i, e := range want {
		kinds[e.Kind]++
		if e.Ref != uint64(i+1) {
			t.Fatalf("answer %d is for entry %d", i+1, e.Ref)
		}
	}
	if len(kinds) != 4 { // decide, ticked, state, rejected
		t.Fatalf("answers %v", kinds)
	}
	// On a machine so busy that this process sleeps through a run, the run proves nothing and is made again.
	for attempt, kills, resumed := 1, 0, 0; kills == 0 || resumed == 0; attempt++ {
		if attempt > 5 {
			t.Fatalf("no run of %d entries was killed and resumed", len(all))
		}
		id := fmt.Sprintf("disturbed-%d", attempt)
		simulate(ctx, t, conn, id, specJSON, all)
		var got []jobs.Entry
		ended := make(chan error, 1)
		go func() {
			var err error
			got, err = answers(ctx, conn, id, len(all))
			ended <- err
		}()
		kills, resumed = c.killGPU(t, ended, most, r)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		t.Logf("%d kills, %d times resumed from a checkpoint, answers %v", kills, resumed, kinds)
		for i, e := range got {
			if e.Kind != want[i].Kind || e.Ref != want[i].Ref || !bytes.Equal(e.Data, want[i].Data) {
				t.Fatalf("answer %d is a %s to %d, that of an undisturbed process a %s to %d, or their bytes differ", i+1, e.Kind, e.Ref, want[i].Kind, want[i].Ref)
			}
		}
		last, err := conn.Log(id, 0, jobs.Out).Last(ctx)
		if err != nil || last.Seq != uint64(len(all)) {
			t.Fatalf("%d answers to %d entries: %v", last.Seq, len(all), err)
		}
		if err := conn.DeleteSwarm(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
}
