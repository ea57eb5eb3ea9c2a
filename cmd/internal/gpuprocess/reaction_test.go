package gpuprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// cutOff emits and submits, and loses its process behind each emission and each submission, once,
// before the answer.
type cutOff struct {
	shard.Emissions
	shard.Submissions
	mu   sync.Mutex
	seen map[string]int
}

var errCutOff = errors.New("the process is cut off before an answer")

func (c *cutOff) Emit(ctx context.Context, key string, e swarms.Emission) error {
	return c.after(c.Emissions.Emit(ctx, key, e), "emit", e)
}

func (c *cutOff) Submit(ctx context.Context, e swarms.Emission) error {
	return c.after(c.Submissions.Submit(ctx, e), "submit", e)
}

// after cuts the process off the first time that an action succeeds.
func (c *cutOff) after(err error, action string, e swarms.Emission) error {
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := fmt.Sprint(action, e.Entry, e.Rule, e.Name)
	if c.seen[of]++; c.seen[of] == 1 {
		return errCutOff
	}
	return nil
}

// TestReactsOnce: the answers, the emissions and the jobs of a swarm with rules are the same when
// one agent serves it, when each emission and each job is first followed by no answer, so that its
// vote is applied again, and when several agents serve it one after another, with checkpoints and
// without.
func TestReactsOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(25, 9))
	var all []swarms.Entry
	add := func(kind string, data []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("encode a %s: %v", kind, err)
		}
		all = append(all, swarms.Entry{Kind: kind, Ref: uint64(len(all) + 1), Data: data})
	}
	for range 3 {
		data, err := inputs(r).Encode()
		add(swarms.EntryObserve, data, err)
		data, err = json.Marshal(swarms.Vote{Version: jobs.Version, Priority: swarms.PrioritySeeded})
		add(swarms.EntryVote, data, err)
		data, err = json.Marshal(swarms.Query{Version: jobs.Version, Agents: []uint32{0, 1, 17, 500, 899}})
		add(swarms.EntryQuery, data, err)
	}
	serve := func(keep, cut bool, each int) (said []string) {
		rig, dir := newRig(t), t.TempDir()
		rig.logs(t, "x", nil)
		rig.put(t, "x", "name: x\naddressed: agent\nagents: 900\nagents_per_group: 90\npage_size: 64KiB\n"+
			"features: [a, b]\nhear: [decision]\ncell: {kind: gru, params: {hidden: 5}}\n"+
			"vote: {candidates: [a, b, c]}\ncheckpoint: {interval: 1h, entries: 2}\n"+
			"on_decision:\n- any -> tick 2, emit all, submit each\n- a -> reset, emit a\n"+
			"- changed -> emit news, submit page\n"+
			"jobs:\n  each: {pool: cpu, kind: k, spec: {round: $(round), of: [$(swarm), $(leader)]}}\n"+
			"  page: {pool: gpu, kind: k, tenant: acme, spec: $(decision)}\n")
		g, err := gateway.Serve(rig.conn.Conn, rig.conn.Queue, rig.conn.Swarms, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("Serve: %v", err)
		}
		defer g.Close()
		stored := gateway.NewEmissions(rig.conn.Conn)
		emit, submit := shard.Emissions(stored), shard.Submissions(gateway.NewRules(rig.conn.Conn))
		if cut {
			lost := &cutOff{Emissions: emit, Submissions: submit, seen: map[string]int{}}
			emit, submit = lost, lost
		}
		for from := 0; from < len(all); from += each {
			o := gpuagents.Options{Emissions: emit, Submissions: submit}
			if keep {
				o.Checkpoints = checkpointsIn(filepath.Join(dir, "kept"))
			}
			a := rig.start(t, o)
			for i := from; i < min(from+each, len(all)); i++ {
				answer := rig.told(t, "x", i+1, all[i])
				said = append(said, answer.Kind+" "+string(answer.Data))
			}
			a.Stop()
		}
		if err := stored.List(t.Context(), "x", "", 0, func(e gateway.StoredEmission) bool {
			e.Time, e.Identity = time.Time{}, ""
			data, err := json.Marshal(e) // as text, an emission has the address of its leader
			if err != nil {
				t.Error(err)
			}
			said = append(said, string(data))
			return true
		}); err != nil {
			t.Errorf("List: %v", err)
		}
		submitted := len(said)
		for _, p := range []jobs.Pool{jobs.PoolCPU, jobs.PoolGPU} {
			if err := rig.conn.Queue.Jobs(t.Context(), p, func(j jobs.Job) bool {
				said = append(said, fmt.Sprint(j.ID, j.Pool, j.Kind, j.Tenant, string(j.Spec)))
				return true
			}); err != nil {
				t.Errorf("Jobs: %v", err)
			}
		}
		// Jobs are released while they are listed: a job that still waits comes after later ones.
		slices.Sort(said[submitted:])
		return said
	}
	want := serve(false, false, len(all))
	if len(want) < len(all)+8 {
		t.Errorf("%d answers, emissions and jobs of %d entries: %q", len(want), len(all), want)
	}
	for name, c := range map[string]struct {
		keep, cut bool
		each      int
	}{
		"cut off":                   {false, true, len(all)},
		"cut off, with checkpoints": {true, true, len(all)},
		"several agents":            {false, false, 4},
		"several, with checkpoints": {true, true, 4},
	} {
		if testing.Short() && (c.each == len(all) || !c.keep) {
			continue // half a minute with the race detector; the last one has all of it
		}
		if got := serve(c.keep, c.cut, c.each); !slices.Equal(got, want) {
			t.Errorf("%s:\n%q\nwant\n%q", name, got, want)
		}
	}
}

// TestEmitsNowhere: an agent without a stream refuses a swarm that emits, and one without a queue a
// swarm that submits jobs, with the cure.
func TestEmitsNowhere(t *testing.T) {
	t.Parallel()
	rig := newRig(t)
	for id, rules := range map[string]string{
		"x": "on_decision: [any -> emit all]\n",
		"y": "on_decision: [any -> submit b]\njobs: {b: {pool: cpu, kind: k}}\n",
	} {
		rig.logs(t, id, nil)
		rig.put(t, id, "name: x\naddressed: agent\nagents: 900\nagents_per_group: 90\nvote: {candidates: [a, b]}\n"+
			rules)
	}
	a := rig.start(t, gpuagents.Options{})
	defer a.Stop()
	rig.logged(t, "has no stream for them: leave emit out of on_decision")
	rig.logged(t, "has no queue for them: leave submit out of on_decision")
}

// TestVoteWaitsForJob: a vote whose job has no room has no answer, and the log says why. It is
// answered when the tenant has room, and its job is there once.
func TestVoteWaitsForJob(t *testing.T) {
	t.Parallel()
	rig := newRig(t)
	rig.logs(t, "x", nil)
	rig.put(t, "x", "name: x\naddressed: agent\nagents: 900\nagents_per_group: 90\nvote: {candidates: [a, b]}\n"+
		"on_decision: [none -> submit job]\njobs: {job: {pool: cpu, kind: k, tenant: acme}}\n")
	if err := rig.conn.Control.LimitTenant(t.Context(), "acme", jobs.Limits{Queued: new(1)}); err != nil {
		t.Fatalf("LimitTenant: %v", err)
	}
	a := rig.start(t, gpuagents.Options{
		Submissions: gateway.NewSubmissions(rig.conn.Conn, rig.conn.Queue, rig.conn.Swarms),
	})
	defer a.Stop()
	vote := func(n uint64) {
		t.Helper()
		data, err := json.Marshal(swarms.Vote{Version: jobs.Version})
		if err == nil {
			err = rig.conn.Swarms.Log("x", 0, swarms.In).Append(t.Context(), n-1, swarms.Entry{
				Kind: swarms.EntryVote, Ref: n, Data: data,
			})
		}
		if err != nil {
			t.Fatalf("append a vote: %v", err)
		}
	}
	ids := func() (all []string) {
		t.Helper()
		if err := rig.conn.Queue.Jobs(t.Context(), jobs.PoolCPU, func(j jobs.Job) bool {
			all = append(all, j.ID)
			return true
		}); err != nil {
			t.Fatalf("Jobs: %v", err)
		}
		return all
	}
	vote(1)
	rig.answered(t, "x", 1)
	vote(2)
	rig.logged(t, "submit job job of round 2, which its vote waits for")
	first := ids()
	if len(first) != 1 {
		t.Fatalf("jobs %v, want one", first)
	}
	if last, err := rig.conn.Swarms.Log("x", 0, swarms.Out).Last(t.Context()); err != nil || last.Ref != 1 {
		t.Errorf("the last answer is to entry %d, error %v, want 1", last.Ref, err)
	}
	j, err := rig.conn.Queue.Find(t.Context(), first[0])
	if err == nil {
		err = rig.conn.Queue.Withdraw(t.Context(), j)
	}
	if err != nil {
		t.Fatalf("withdraw the first job: %v", err)
	}
	rig.answered(t, "x", 2)
	if second := ids(); len(second) != 1 || second[0] == first[0] {
		t.Errorf("jobs %v after %v, want one more", second, first)
	}
}
