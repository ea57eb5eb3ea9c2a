package cpuagents_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// evictingRun makes a job with a key one whose entities lose their groups after some seconds.
func evictingRun(t *testing.T, after float64, change func(*cpuagents.StreamSpec)) func(*cpuagents.StreamSpec) {
	t.Helper()
	return func(s *cpuagents.StreamSpec) {
		change(s)
		s.Evict = evictSpec(t, s.Spec, after)
	}
}

// TestRunEvicts: a job whose entities give their groups to one another, and return, writes the
// bytes of a job in which each has its own group: also when it is stopped again and again at a swap
// or a batch.
func TestRunEvicts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	all := keyedRows(450)
	writeKeyed(t, c, "1.csv", all[:250])
	writeKeyed(t, c, "2.csv", append(all[250:], all[:5]...)) // the last rows are late
	two := []source.Series{{Name: "1", URI: "file:dir/1.csv"}, {Name: "2", URI: "file:dir/2.csv"}}
	c.handle(t, c.job(t, "whole", two, keyed(40, "site", "id")))
	want := c.outputs(t, "whole")
	swaps := func(id string) (n int) { // in the log of a job that was stopped
		record, err := c.conn.Swarms.Swarm(t.Context(), id)
		if err != nil {
			t.Fatalf("Swarm of a job that was drained: %v", err)
		}
		log := c.conn.Swarms.Log(record.Key(), 0, swarms.In)
		last, err := log.Last(t.Context())
		if err != nil {
			t.Fatalf("Last: %v", err)
		}
		r, err := log.Read(t.Context(), 1)
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		defer r.Close()
		for range last.Seq {
			e, err := r.Next(t.Context())
			if err != nil {
				t.Fatalf("Next: %v", err)
			}
			if e.Kind == swarms.EntrySwap {
				n++
			}
		}
		return n
	}
	for id, of := range map[string]struct {
		change func(*cpuagents.StreamSpec)
		cut    int // the most appends of an attempt
		shards int
	}{
		"full":   {evictingRun(t, 1e6, keyed(7, "site", "id")), 60, 1},
		"time":   {evictingRun(t, 2, keyed(40, "site", "id")), 10, 1},
		"full-3": {evictingRun(t, 1e6, sharded(t, 3, keyed(7, "site", "id"))), 90, 3},
		"time-3": {evictingRun(t, 2, sharded(t, 3, keyed(40, "site", "id"))), 20, 3},
	} {
		if !testkit.Long() && (id == "full" || id == "time-3") {
			continue // each kind of eviction and each number of shards has a case
		}
		if testing.Short() && id != "full-3" {
			continue // a minute with the race detector
		}
		change := of.change
		r := c.handle(t, c.job(t, id, two, change))
		if r.Entities != 30 || r.Decisions != 450 || r.Rejected != 5 {
			t.Errorf("%s: the result is %+v", id, r)
		}
		if c.outputs(t, id) != want {
			t.Errorf("%s: other bytes than without evictions", id)
		}
		q := &cutQueue{Queue: c.conn.StreamJobs(), shards: of.shards, r: rand.New(rand.NewPCG(7, 7))}
		broken, err := cpuagents.New(cpuagents.Options{Queue: q, Files: c.streamer.Files, Logger: quiet})
		if err != nil {
			t.Fatalf("cpuagents.New: %v", err)
		}
		job := c.job(t, id+"-broken", two, change)
		seen := 0
		for attempts := 0; ; attempts++ {
			ctx, stop := context.WithCancelCause(t.Context())
			q.left, q.stop = 2+q.r.IntN(of.cut), func() { stop(jobs.ErrDrain) }
			_, err := broken.Handle(ctx, job, func(any) {})
			stop(nil)
			if err == nil {
				if attempts < 2 {
					t.Errorf("%s: it was stopped %d times", id, attempts)
				}
				break
			}
			if !errors.Is(err, jobs.ErrDrain) || attempts > 200 {
				t.Fatalf("%s, attempt %d: %v", id, attempts, err)
			}
			seen = swaps(id + "-broken")
		}
		if seen < 3 {
			t.Errorf("%s: the log has %d swaps", id, seen)
		}
		if c.outputs(t, id+"-broken") != want {
			t.Errorf("%s: a job that was stopped has other bytes", id)
		}
	}
	wrong := c.job(t, "wrong", two, func(s *cpuagents.StreamSpec) { s.Evict = &cpuagents.EvictSpec{AfterSeconds: 1} })
	if _, err := c.streamer.Handle(t.Context(), wrong, func(any) {}); err == nil ||
		!strings.Contains(err.Error(), "evict: it is for rows with a key") {
		t.Errorf("evict without a key: %v", err)
	}
}
