package queue

import (
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// follower returns a scheduler with one schedule, as its record says.
func follower(t *testing.T, sc *Schedules, name string) *scheduler {
	t.Helper()
	s, _, err := sc.Read(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	e, err := readSchedule(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return &scheduler{c: sc, log: slog.New(slog.DiscardHandler), pool: jobs.PoolCPU, all: map[string]*plan{name: e}}
}

// TestAlways: workers that look at the same time submit one job, the next one follows when that is
// over, none follows a job whose specification is wrong until the schedule is resumed, and a pause
// asks the job to finish.
func TestAlways(t *testing.T) {
	s, sc := insideSchedules(t)
	always := scheduleOf("d", jobs.Always)
	always.From = time.Unix(1, 0) // the number of the first job
	if err := sc.AddSchedule(t.Context(), always); err != nil {
		t.Fatal(err)
	}
	conns := []*Schedules{sc, anotherSchedules(t, s), anotherSchedules(t, s)}
	now := time.Now()
	look := func() {
		t.Helper()
		now = now.Add(2 * keepTick)
		var all sync.WaitGroup
		for _, c := range conns {
			w := follower(t, c, "d")
			all.Go(func() { w.evaluate(t.Context(), now) })
		}
		all.Wait()
	}
	// last checks the number of the last job, and whether a second one is queued.
	last := func(want uint64) {
		t.Helper()
		n, _, err := sc.lastNumber(t.Context(), "d")
		if err != nil || n != want {
			t.Fatalf("the last job is number %d, want %d: %v", n, want, err)
		}
		if _, err := sc.queue.Find(t.Context(), jobs.NumberedID("d", want)); err != nil {
			t.Errorf("job %d: %v", want, err)
		}
		if _, err := sc.queue.Find(t.Context(), jobs.NumberedID("d", want+1)); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("job %d: %v", want+1, err)
		}
	}
	end := func(n uint64, r jobs.Result) {
		t.Helper()
		r.Version, r.JobID, r.Kind, r.Finished = jobs.Version, jobs.NumberedID("d", n), "k", now.UTC()
		if r.Status == "" {
			r.Status = jobs.Failed
		}
		if _, err := sc.results.Put(t.Context(), r, 0); err != nil {
			t.Fatal(err)
		}
	}
	look()
	last(1)
	look()
	last(1)
	end(1, jobs.Result{Status: jobs.Done, Output: []byte("1")})
	look()
	last(2)
	end(2, jobs.Result{Error: jobs.Errorf(jobs.CodeIO, "a disk")})
	look() // after 10 s
	last(2)
	now = now.Add(jobs.AlwaysPause)
	look()
	last(3)
	end(3, jobs.Result{Error: jobs.Errorf(jobs.CodeInvalid, "a wrong spec")})
	now = now.Add(time.Hour)
	look()
	last(3)
	for _, on := range []bool{true, false} {
		if err := sc.PauseSchedule(t.Context(), "d", on); err != nil {
			t.Fatal(err)
		}
		if on {
			look()
			last(3)
		}
	}
	// The result of job 3 has the time of this test, which is ahead of the clock.
	if _, ok := nextAfter(jobs.Result{
		Status: jobs.Failed, Error: jobs.Errorf(jobs.CodeInvalid, "x"), Finished: now,
	}, now.Add(time.Second), now); !ok {
		t.Error("a resume does not bring the next job")
	}
	all, err := sc.Schedules(t.Context())
	if err != nil || len(all) != 1 || all[0].LastJob != "d-r3" || !all[0].Next.IsZero() || all[0].Error != "" {
		t.Errorf("the list is %+v, %v", all, err)
	}
}

// TestAlwaysPause: a pause asks the job to finish once, and no job follows it.
func TestAlwaysPause(t *testing.T) {
	_, sc := insideSchedules(t)
	always := scheduleOf("d", jobs.Always)
	always.From = time.Unix(1, 0) // the number of the first job
	if err := sc.AddSchedule(t.Context(), always); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	follower(t, sc, "d").evaluate(t.Context(), now)
	if err := sc.PauseSchedule(t.Context(), "d", true); err != nil {
		t.Fatal(err)
	}
	w := follower(t, sc, "d")
	w.evaluate(t.Context(), now.Add(keepTick))
	if w.all["d"].asked != "d-r1" {
		t.Errorf("the job was not asked to finish: %+v", w.all["d"])
	}
	kv, err := sc.conn.JS.KeyValue(t.Context(), "EXO_CANCEL")
	if err != nil {
		t.Fatal(err)
	}
	if e, err := kv.Get(t.Context(), "d-r1"); err != nil || string(e.Value()) != "finish" {
		t.Errorf("the mark of the job: %v, %v", e, err)
	}
	if err := sc.RemoveSchedule(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	if n, _, err := sc.lastNumber(t.Context(), "d"); err != nil || n != 0 {
		t.Errorf("marks are left: %d, %v", n, err)
	}
}
