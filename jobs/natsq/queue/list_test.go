package queue

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestListAll: the list of a pool has the jobs in every state before the end, from each place on,
// and the statistics count them.
func TestListAll(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q := inside(t)
	late := func(id string, p jobs.Pool, after ...string) jobs.Job {
		j := plain(id, after...)
		j.Pool, j.NotBefore = p, time.Now().Add(time.Hour)
		return j
	}
	for _, j := range []jobs.Job{
		plain("a"), plain("b"), late("c", jobs.PoolCPU), late("d", jobs.PoolCPU), late("other", jobs.PoolGPU),
		plain("e", "a"), late("f", jobs.PoolCPU, "a"),
	} {
		if err := q.Submit(ctx, j); err != nil {
			t.Fatalf("Submit %s: %v", j.ID, err)
		}
	}
	var all []string
	if err := q.List(ctx, jobs.PoolCPU, func(j ListedJob) bool {
		all = append(all, j.ID+" "+string(j.State))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"a queued", "b queued", "e waiting", "f waiting", "c delayed", "d delayed"}
	if !slices.Equal(all, want) {
		t.Errorf("the list is %q, want %q", all, want)
	}
	var places []Place
	if err := q.JobsFrom(ctx, jobs.PoolCPU, "*", Place{Seq: 1}, func(at Place, _ jobs.Job) bool {
		places = append(places, at)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for i, at := range places {
		back, ok := ParsePlace(at.String())
		if !ok || back != at {
			t.Errorf("place %v is %v, %v as text %s", at, back, ok, at)
		}
		var rest []string
		if err := q.JobsFrom(ctx, jobs.PoolCPU, "*", back, func(_ Place, j jobs.Job) bool {
			rest = append(rest, j.ID)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if len(rest) != len(want)-i || !strings.HasPrefix(want[i], rest[0]+" ") {
			t.Errorf("from %s there are %q", at, rest)
		}
	}
	if _, ok := ParsePlace("nowhere-1"); ok {
		t.Error("a place that is none is read")
	}
	check := func(p jobs.Pool, queued, delayed, dependent uint64) {
		t.Helper()
		st, err := q.Stats(ctx, p)
		if err != nil || p == jobs.PoolCPU && st.Jobs != queued || st.Delayed != delayed || st.Dependent != dependent {
			t.Errorf("pool %s: %+v, %v, want %d, %d delayed and %d dependent", p, st, err, queued, delayed, dependent)
		}
	}
	check(jobs.PoolCPU, 2, 2, 2)
	check(jobs.PoolGPU, 0, 1, 0)
	if err := q.Cancel(ctx, late("c", jobs.PoolCPU), false); err != nil {
		t.Fatal(err)
	}
	check(jobs.PoolCPU, 2, 1, 2)
}
